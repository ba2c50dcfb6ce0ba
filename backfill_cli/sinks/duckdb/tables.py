"""The sink's tables: which exist, and what must be created or added before an epoch's transaction."""

from collections.abc import Sequence

import duckdb

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import DEPENDENT, gone, other_type, require_key, rows_of_others
from backfill_cli.errors import UsageError, command
from backfill_cli.sinks.duckdb.dialect import DUCKDB, quoted, sink_columns
from backfill_cli.sinks.duckdb.state import Names, State, kind_of
from backfill_cli.sinks.sql.dialect import Column, Target
from backfill_cli.sinks.sql.state import (
    Connection,
    Missing,
    Wanted,
    refuse_other_owner,
    refuse_shared_targets,
)


def drop_tables(state: State, targets: Sequence[Target]) -> None:
    """The tables are dropped, in reverse order: a table that refers to another is listed after it.

    Raises UsageError: see contracts.Sink.
    """
    if views := Names(state).views_of(targets):
        job, names = views[0][0], ", ".join(name for _, name in views)
        raise UsageError(
            f"{names}: views of the job's tables, created by a cutover, still exist",
            "reverse it first: "
            + command(f"cutover {job} --reverse")
            + " (the config must still have tables.live); or omit --with-rows to keep the tables",
        )
    for target in reversed(targets):
        try:
            state.con.run(f"DROP TABLE IF EXISTS {target.sql}")
        except duckdb.Error as exc:
            said = str(exc).splitlines()[0]
            raise UsageError(f"table {target} cannot be dropped: {said}", DEPENDENT) from exc


def prepare(state: State, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
    """The job's tables exist with all their columns and a marker each; writes nothing if they did before.

    All DDL happens here, never in an epoch.
    """
    missing = check(state, job, tables, into_existing)
    if missing.ddl or missing.new:
        with state.con.ddl():
            for statement in missing.ddl:
                state.con.run(statement)
            state.claim(job, missing.new)


def check(state: State, job: str, tables: Sequence[SinkTable], into_existing: bool) -> Missing:
    """What `prepare` would create; writes nothing. Raises for tables that the job cannot write to."""
    wanted = [_wanted(table) for table in tables]
    refuse_shared_targets(wanted)
    known = state.exists()
    claimed = state.markers(job) if known else {}
    ddl = state.upgrades() if known else state.required_ddl()
    for want in wanted:
        refuse_other_owner([state] if known else [], state.schema, job, want)
        marker = claimed.get(want.table.name)
        if marker is not None and marker.epoch and not _exists(state.con, want.target):
            raise gone(str(want.target), job, marker.epoch)
        # A marker at epoch 0 does not make the rows ours: it may be left by a start that failed early.
        ddl += _ddl(state, want, ours=into_existing or (marker is not None and marker.epoch > 0))
    return Missing(ddl, [(want.table.name, want.target) for want in wanted if want.table.name not in claimed])


def _wanted(table: SinkTable) -> Wanted:
    columns = sink_columns(table.name, table.schema)
    require_key(table, {column.name for column in columns})
    return Wanted(table, DUCKDB.target_of(table), columns)


def _ddl(state: State, want: Wanted, ours: bool) -> list[str]:
    """DDL of the table, or of the columns that it lacks."""
    con, target = state.con, want.target
    if not _exists(con, target):
        columns = (
            f"{quoted(column.name)} {column.type}{' NOT NULL' if column.name in want.table.key else ''}"
            for column in want.columns
        )
        return [*state.schema_ddl(target.schema), f"CREATE TABLE {target.sql} ({', '.join(columns)})"]
    if not ours and con.rows(f"SELECT 1 FROM {target.sql} LIMIT 1"):
        raise rows_of_others(str(target))
    there = _types(con, target)
    added = []
    for column, kind in zip(want.columns, _canonical(con, want.columns), strict=True):
        held = there.get(column.name.lower())
        if held is None:
            added.append(f"ALTER TABLE {target.sql} ADD COLUMN {quoted(column.name)} {column.type}")
        elif held != kind:
            raise other_type(column.name, str(target), held, kind)
    return added


def _exists(con: Connection, target: Target) -> bool:
    """Whether the table exists. Raises UsageError for a view of that name."""
    kind = kind_of(con, target)
    if kind == "VIEW":
        raise UsageError(f"{target} is a view, not a table", "name another target")
    return kind is not None


def _types(con: Connection, target: Target) -> dict[str, str]:
    """Lower-case column name -> type, as DuckDB writes it."""
    found = con.rows(
        "SELECT lower(column_name), data_type FROM duckdb_columns() WHERE database_name = current_database() "
        "AND lower(schema_name) = lower($1) AND lower(table_name) = lower($2)",
        *(target.schema, target.table),
    )
    return dict(found)


def _canonical(con: Connection, columns: Sequence[Column]) -> tuple[str, ...]:
    """The columns' types in DuckDB's own spelling, for comparison with an existing table."""
    return con.rows("SELECT " + ", ".join(f"typeof(CAST(NULL AS {column.type}))" for column in columns))[0]
