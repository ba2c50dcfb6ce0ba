"""The tables of the database: which exist, and the DDL of what they lack."""

from collections.abc import Mapping, Sequence

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import DEPENDENT
from backfill_cli.errors import BadData, Transient, UsageError, sql
from backfill_cli.model.checkpoint import Marker
from backfill_cli.postgres_says import PLACE
from backfill_cli.sinks.postgres.dialect import POSTGRES, listed, quoted, sink_columns
from backfill_cli.sinks.postgres.edge import PRIMARY, client, said, state_of, told
from backfill_cli.sinks.postgres.existing import (
    added,
    refuse_references,
    require_logged,
    require_on_database,
    require_on_schema,
)
from backfill_cli.sinks.postgres.session import Connection
from backfill_cli.sinks.postgres.state import (
    DEPENDED_ON,
    Names,
    State,
    kind_of,
    schemas_with_state,
    side_targets,
    take_turns,
)
from backfill_cli.sinks.sql.dialect import Column, Target
from backfill_cli.sinks.sql.tables import SqlTables, Wanted
from backfill_cli.spark.names import in_select, plain

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}


class Tables(SqlTables[State]):
    con: Connection

    def lock(self) -> None:
        take_turns(self.con)

    def columns(self, table: SinkTable) -> tuple[Column, ...]:
        return sink_columns(table.name, table.schema)

    def wanted(self, table: SinkTable) -> Wanted:
        want = super().wanted(table)
        types = {column.name: column.type for column in want.columns}
        for name in table.key:
            if types[name] == "json":
                raise BadData(
                    f"table {table.name!r}: its key column {name!r} is json, which PostgreSQL cannot compare",
                    f"convert it to text in the transform: {in_select(f'CAST({plain(name)} AS STRING)', name)}",
                )
        return want

    def require_usable(self, known: bool, claimed: Mapping[str, Marker]) -> None:
        _refuse_read_only(self.con, begun=bool(claimed))
        require_on_database(self.con, "TEMPORARY")
        if known:
            require_logged(self.con, side_targets(self.state.schema))
        else:
            require_on_schema(self.con, self.state.schema)

    def others(self) -> Sequence[State]:
        here = self.state.schema
        return [State(self.con, name) for name in schemas_with_state(self.con) if name != here]

    def exists(self, target: Target) -> bool:
        kind = kind_of(self.con, target)
        if kind not in (None, "r", "p"):
            raise UsageError(
                f"{target} is {_KINDS.get(str(kind), 'something else')}, not a table", "name another target"
            )
        return kind is not None

    def creation(self, want: Wanted) -> list[str]:
        require_on_schema(self.con, want.target.schema)
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in want.columns)
        create = f"CREATE TABLE {want.target.sql} ({columns}, PRIMARY KEY ({listed(want.table.key)}))"
        return [*self.state.schema_ddl(want.target.schema), create]

    def addition(self, job: str, want: Wanted, ours: bool) -> list[str]:
        more = list(added(self.con, want, ours))
        return [*more, *(Names(self.state).widened(job, want.table.name, want.target) if more else ())]

    def require_together(self, present: Sequence[Wanted], claimed: Mapping[str, Marker]) -> None:
        refuse_references(self.con, present, fresh=not any(marker.epoch for marker in claimed.values()))

    def drop(self, targets: Sequence[Target]) -> None:
        """In one statement, as they may refer to each other."""
        if not targets:
            return
        try:
            self.con.run(f"DROP TABLE IF EXISTS {', '.join(target.sql for target in targets)}")
        except client().Error as exc:
            if state_of(exc) != DEPENDED_ON:
                raise
            what = told(exc, "MESSAGE_DETAIL") or said(exc)
            raise UsageError(
                f"something else in the database depends on the job's tables: {what}", DEPENDENT
            ) from exc


def _refuse_read_only(con: Connection, begun: bool) -> None:
    """Raises UsageError if the database is read-only; Transient for a job that has begun, as it may pass."""
    place = con.place
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
