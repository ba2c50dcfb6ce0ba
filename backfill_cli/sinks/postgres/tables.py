"""The sink's tables: which exist, and what must be created or added before an epoch's transaction."""

from collections.abc import Mapping, Sequence

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import DEPENDENT, gone
from backfill_cli.errors import Transient, UsageError, sql
from backfill_cli.postgres_says import PLACE
from backfill_cli.sinks.postgres.dialect import POSTGRES, listed, quoted
from backfill_cli.sinks.postgres.edge import PRIMARY, client, said, state_of, told
from backfill_cli.sinks.postgres.existing import (
    added,
    refuse_references,
    require_logged,
    require_on_database,
    require_on_schema,
    wanted,
)
from backfill_cli.sinks.postgres.session import Connection, Place
from backfill_cli.sinks.postgres.state import (
    DEPENDED_ON,
    Names,
    State,
    kind_of,
    schemas_with_state,
    side_targets,
    take_turns,
)
from backfill_cli.sinks.sql.dialect import Target
from backfill_cli.sinks.sql.state import Missing, refuse_other_owner, refuse_shared_targets

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}


def prepare(state: State, place: Place, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
    """The job's tables exist with all their columns and a marker each; writes nothing if they did before."""
    take_turns(state.con)
    missing = check(state, place, job, tables, into_existing)
    if missing.ddl or missing.new:
        with state.con.ddl():
            for statement in missing.ddl:
                state.con.run(statement)
            state.claim(job, missing.new)


def drop_tables(con: Connection, targets: Sequence[Target]) -> None:
    """The tables are dropped in one statement, as they may refer to each other.

    Raises UsageError naming what else depends on one of them.
    """
    if not targets:
        return
    try:
        con.run(f"DROP TABLE IF EXISTS {', '.join(target.sql for target in targets)}")
    except client().Error as exc:
        if state_of(exc) != DEPENDED_ON:
            raise
        raise UsageError(
            f"something else in the database depends on the job's tables: {told(exc, 'detail') or said(exc)}",
            DEPENDENT,
        ) from exc


def check(state: State, place: Place, job: str, tables: Sequence[SinkTable], into_existing: bool) -> Missing:
    """What `prepare` would create; writes nothing. Raises for tables that the job cannot write to."""
    con, schema = state.con, state.schema
    wants = [wanted(table, schema) for table in tables]
    refuse_shared_targets(wants)
    known = state.exists()
    claimed = state.markers(job) if known else {}
    _refuse_read_only(con, place, begun=bool(claimed))
    require_on_database(con, place, "TEMPORARY")
    ddl = [] if known else state.required_ddl()
    if known:
        require_logged(con, side_targets(schema))
    else:
        require_on_schema(con, place, schema)
    states = [
        *([state] if known else []),
        *(State(con, name) for name in schemas_with_state(con) if name != schema),
    ]
    present: list[tuple[str, Target]] = []
    for want in wants:
        name, target = want.table.name, want.target
        refuse_other_owner(states, schema, job, want)
        marker = claimed.get(name)
        there = _exists(con, target)
        if marker is not None and marker.epoch and not there:
            raise gone(str(target), job, marker.epoch)
        if there:
            # A marker at epoch 0 does not make the rows ours: it may be left by a start that failed early.
            more = list(added(con, place, want, ours=into_existing or (marker is not None and marker.epoch > 0)))
            ddl += [*more, *(Names(state).widened(job, name, target) if more else ())]
            present.append((name, target))
        else:
            require_on_schema(con, place, target.schema)
            columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in want.columns)
            ddl += state.schema_ddl(target.schema)
            ddl.append(f"CREATE TABLE {target.sql} ({columns}, PRIMARY KEY ({listed(want.table.key)}))")
    refuse_references(con, present, fresh=not any(marker.epoch for marker in claimed.values()))
    new = [(want.table.name, want.target) for want in wants if want.table.name not in claimed]
    return Missing(list(dict.fromkeys(ddl)), new)


def _exists(con: Connection, target: Target) -> bool:
    """Whether the table exists. Raises UsageError if the name belongs to something else."""
    kind = kind_of(con, target)
    if kind not in (None, "r", "p"):
        raise UsageError(
            f"{target} is {_KINDS.get(str(kind), 'something else')}, not a table", "name another target"
        )
    return kind is not None


def _refuse_read_only(con: Connection, place: Place, begun: bool) -> None:
    """Raises UsageError if the database is read-only; Transient for a job that has begun, as it may pass."""
    standby, read_only, user = con.rows(
        "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on', user",
    )[0]
    if read_only and begun:
        raise Transient(f"PostgreSQL {place} is read-only now", PRIMARY)
    if standby:
        raise UsageError(f"PostgreSQL {place} is a standby, which is read-only", PRIMARY)
    if read_only:
        raise UsageError(
            f"PostgreSQL {place}: transactions of the role {user} are read-only (default_transaction_read_only)",
            sql(f"ALTER ROLE {quoted(user)} SET default_transaction_read_only = off"),
        )


def places(con: Connection, tables: Sequence[SinkTable], schema: str) -> Mapping[str, frozenset[str]]:
    """By the table's name in the job, the places of the table and its partitions; empty if it does not exist."""
    query = f"""
        SELECT {PLACE} FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
        LATERAL (SELECT c.oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)) t
        WHERE n.nspname = $1 AND c.relname = $2"""
    found = {}
    for table in tables:
        target = POSTGRES.target_of(table, schema)
        found[table.name] = frozenset(place for (place,) in con.rows(query, target.schema, target.table))
    return found
