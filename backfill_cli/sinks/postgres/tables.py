"""The sink's tables: which exist, and what must be created or added before an epoch's transaction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.targets import DEPENDENT, belongs_to, gone, same_target
from backfill_cli.errors import Transient, UsageError
from backfill_cli.postgres_says import PLACE
from backfill_cli.sinks.postgres import session
from backfill_cli.sinks.postgres.dialect import Target, quoted
from backfill_cli.sinks.postgres.edge import PRIMARY, client, said, state_of, told
from backfill_cli.sinks.postgres.existing import (
    Wanted,
    added,
    refuse_references,
    require_logged,
    require_on_database,
    require_on_schema,
)
from backfill_cli.sinks.postgres.live import side_target, widened
from backfill_cli.sinks.postgres.session import Connection, Place, rows_of, run
from backfill_cli.sinks.postgres.state import SIDE_TABLES, State, schemas_with_state, side_targets

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}
_DEPENDED_ON = "2BP01"
"""dependent_objects_still_exist"""
_ONE_AT_A_TIME = 0x6261636B66696C6C
""""backfill" in hex: the advisory lock that jobs take while they create tables."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What a job's tables lack. ddl: of schemas, tables and columns. new: tables without a marker."""

    ddl: list[str]
    new: list[tuple[str, Target]]


def prepare(
    con: Connection, place: Place, schema: str, job: str, tables: Sequence[SinkTable], into_existing: bool
) -> None:
    """The job's tables exist with all their columns and a marker each; writes nothing if they did before."""
    _take_turns(con)
    missing = check(con, place, schema, job, tables, into_existing)
    if missing.ddl or missing.new:
        # While DDL waits for its lock, new readers of the table wait behind it: so it must not wait long.
        rows_of(con, f"SELECT pg_catalog.set_config('lock_timeout', '{session.DDL_LOCK_TIMEOUT_S}s', true)")
        for statement in missing.ddl:
            run(con, statement)
        State(con, schema).claim(job, missing.new)
        con.commit()


def drop_tables(con: Connection, targets: Sequence[Target]) -> None:
    """The tables are dropped in one statement, as they may refer to each other.

    Raises UsageError naming what else depends on one of them.
    """
    if not targets:
        return
    try:
        run(con, f"DROP TABLE IF EXISTS {', '.join(target.sql for target in targets)}")
    except client().Error as exc:
        if state_of(exc) != _DEPENDED_ON:
            raise
        raise UsageError(
            f"something else in the database depends on the job's tables: {told(exc, 'detail') or said(exc)}",
            DEPENDENT,
        ) from exc


def create_state(con: Connection, schema: str) -> None:
    """The side tables exist, in this transaction."""
    _take_turns(con)
    if not State(con, schema).exists():
        for statement in _side_tables(con, schema):
            run(con, statement)


def drop_state(con: Connection, schema: str) -> None:
    """The side tables do not exist any more if no job has a row in them, and if this role can make them again.

    A database error leaves them as they are: when somebody uses them now or depends on them, or owns them.
    """
    _take_turns(con)
    tables = [target.sql for target in [*side_targets(schema), side_target(schema)] if _exists(con, target)]
    may_create = "SELECT pg_catalog.has_schema_privilege($1, 'CREATE')"
    if not tables or not rows_of(con, may_create, schema)[0][0]:
        return
    run(con, f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE NOWAIT")
    if not any(rows_of(con, f"SELECT 1 FROM {table} LIMIT 1") for table in tables):
        run(con, f"DROP TABLE {', '.join(tables)}")
        con.commit()


def _take_turns(con: Connection) -> None:
    """No other job can create tables until this transaction ends."""
    rows_of(con, f"SELECT pg_catalog.pg_advisory_xact_lock({_ONE_AT_A_TIME})::text")


def check(
    con: Connection, place: Place, schema: str, job: str, tables: Sequence[SinkTable], into_existing: bool
) -> Missing:
    """What `prepare` would create; writes nothing. Raises for tables that the job cannot write to."""
    wanted = [Wanted.of(table, schema) for table in tables]
    _refuse_shared_targets(wanted)
    state = State(con, schema)
    known = state.exists()
    claimed = state.markers(job) if known else {}
    _refuse_read_only(con, place, begun=bool(claimed))
    require_on_database(con, place, "TEMPORARY")
    ddl = [] if known else list(_side_tables(con, schema))
    if known:
        require_logged(con, state.tables())
    else:
        require_on_schema(con, place, schema)
    states = [
        *([state] if known else []),
        *(State(con, name) for name in schemas_with_state(con) if name != schema),
    ]
    present: list[tuple[str, Target]] = []
    for want in wanted:
        _refuse_other_owner(states, schema, job, want)
        marker = claimed.get(want.table.name)
        there = _exists(con, want.target)
        if marker is not None and marker.epoch and not there:
            raise gone(str(want.target), job, marker.epoch)
        if there:
            # A marker at epoch 0 does not make the rows ours: it may be left by a start that failed early.
            more = list(added(con, place, want, ours=into_existing or (marker is not None and marker.epoch > 0)))
            ddl += [*more, *(widened(con, schema, job, [(want.table.name, want.target)]) if more else ())]
            present.append((want.table.name, want.target))
        else:
            require_on_schema(con, place, want.target.schema)
            ddl += [*_schema(con, want.target.schema), want.create()]
    refuse_references(con, present, fresh=not any(marker.epoch for marker in claimed.values()))
    new = [(want.table.name, want.target) for want in wanted if want.table.name not in claimed]
    return Missing(list(dict.fromkeys(ddl)), new)


def _side_tables(con: Connection, schema: str) -> Iterator[str]:
    yield from _schema(con, schema)
    for side in SIDE_TABLES:
        yield from side.create(schema)


def _schema(con: Connection, schema: str) -> Iterator[str]:
    # IF NOT EXISTS alone needs the right to create schemas even if the schema exists.
    if not rows_of(con, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", schema):
        yield f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"


def _exists(con: Connection, target: Target) -> bool:
    """Whether the table exists. Raises UsageError if the name belongs to something else."""
    found = rows_of(
        con,
        "SELECT c.relkind::text FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        target.schema,
        target.table,
    )
    if found and found[0][0] not in ("r", "p"):
        raise UsageError(
            f"{target} is {_KINDS.get(found[0][0], 'something else')}, not a table", "name another target"
        )
    return bool(found)


def _refuse_shared_targets(wanted: Sequence[Wanted]) -> None:
    seen: dict[Target, str] = {}
    for want in wanted:
        twin = seen.setdefault(want.target, want.table.name)
        if twin != want.table.name:
            raise same_target(twin, want.table.name, str(want.target))


def _refuse_other_owner(states: Sequence[State], schema: str, job: str, want: Wanted) -> None:
    """No other job writes the table, in whichever schema of the database that job's markers are."""
    for state in states:
        owner = state.owner_of_target(want.target)
        if owner is None or (state.schema == schema and owner == (job, want.table.name)):
            continue
        other, table = owner
        beside = "" if state.schema == schema else f", with sink.schema = {state.schema!r}"
        raise belongs_to(str(want.target), other, table, state.owner(other), beside)


def _refuse_read_only(con: Connection, place: Place, begun: bool) -> None:
    """Raises UsageError if the database is read-only; Transient for a job that has begun, as it may pass."""
    standby, read_only, user = rows_of(
        con,
        "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on', user",
    )[0]
    if read_only and begun:
        raise Transient(f"PostgreSQL {place} is read-only now", PRIMARY)
    if standby:
        raise UsageError(f"PostgreSQL {place} is a standby, which is read-only", PRIMARY)
    if read_only:
        raise UsageError(
            f"PostgreSQL {place}: transactions of the role {user} are read-only (default_transaction_read_only)",
            f"ALTER ROLE {quoted(user)} SET default_transaction_read_only = off",
        )


def places(con: Connection, tables: Sequence[SinkTable], schema: str) -> Mapping[str, frozenset[str]]:
    """By the table's name in the job, the places of the table and its partitions; empty if it does not exist."""
    query = f"""
        SELECT {PLACE} FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
        LATERAL (SELECT c.oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)) t
        WHERE n.nspname = $1 AND c.relname = $2"""
    found = {}
    for table in tables:
        target = Target.of(table, schema)
        found[table.name] = frozenset(place for (place,) in rows_of(con, query, target.schema, target.table))
    return found
