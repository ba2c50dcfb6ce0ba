"""The sink's tables: which exist, and what must be created or added before an epoch's transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.targets import (
    DEPENDENT,
    belongs_to,
    gone,
    other_type,
    require_key,
    rows_of_others,
    same_target,
)
from backfill_cli.errors import UsageError
from backfill_cli.sinks.duckdb.dialect import Column, Target, quoted, sink_columns
from backfill_cli.sinks.duckdb.file import rows_of, transaction
from backfill_cli.sinks.duckdb.live import views_of
from backfill_cli.sinks.duckdb.owner import owner_of_job
from backfill_cli.sinks.duckdb.state import SIDE_TABLES, claim, has_state, markers_of, owner_of, upgrades

if TYPE_CHECKING:
    import duckdb


def drop_tables(con: "duckdb.DuckDBPyConnection", targets: Sequence[Target]) -> None:
    """The tables are dropped, in reverse order: a table that refers to another is listed after it.

    Raises UsageError: see contracts.Sink.
    """
    import duckdb

    views = views_of(con, [target.identity for target in targets])
    if views:
        job, names = views[0][0], ", ".join(name for _, name in views)
        raise UsageError(
            f"{names}: views of the job's tables, created by a cutover, still exist",
            f"reverse it first: backfill cutover {job} --reverse (the config must still have tables.live); "
            "or omit --with-rows to keep the tables",
        )
    for target in reversed(targets):
        try:
            con.execute(f"DROP TABLE IF EXISTS {target.sql}")
        except duckdb.Error as exc:
            said = str(exc).splitlines()[0]
            raise UsageError(f"table {target} cannot be dropped: {said}", DEPENDENT) from exc


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A table as the job needs it."""

    table: SinkTable
    target: Target
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, table: SinkTable) -> "_Wanted":
        columns = sink_columns(table.name, table.schema)
        require_key(table, {column.name for column in columns})
        return cls(table, Target.of(table), columns)

    def create(self) -> Iterator[str]:
        """DDL for the whole table. Keys are NOT NULL, without an index, which would slow down every delete."""
        if self.target.schema != "main":
            yield f"CREATE SCHEMA IF NOT EXISTS {quoted(self.target.schema)}"
        columns = (
            f"{quoted(column.name)} {column.type}{' NOT NULL' if column.name in self.table.key else ''}"
            for column in self.columns
        )
        yield f"CREATE TABLE {self.target.sql} ({', '.join(columns)})"


@dataclass(frozen=True, slots=True)
class _Missing:
    """What a job's tables lack. ddl: of tables and columns. new: tables without a marker."""

    ddl: list[str]
    new: list[tuple[str, Target]]
    has_state: bool


def prepare(con: "duckdb.DuckDBPyConnection", job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
    """The job's tables exist with all their columns and a marker each; writes nothing if they did before.

    All DDL happens here, never in an epoch, in a transaction followed by a DuckDB checkpoint: after a crash the
    replay of a log that mixes DDL and rows has been seen to fail.
    """
    missing = check(con, job, tables, into_existing)
    if not (missing.ddl or missing.new):
        return
    with transaction(con):
        if not missing.has_state:
            for side in SIDE_TABLES:
                side.create(con)
        for statement in missing.ddl:
            con.execute(statement)
        claim(con, job, missing.new)
    con.execute("CHECKPOINT")


def check(
    con: "duckdb.DuckDBPyConnection", job: str, tables: Sequence[SinkTable], into_existing: bool
) -> _Missing:
    """What `prepare` would create; writes nothing. Raises for tables that the job cannot write to."""
    wanted = [_Wanted.of(table) for table in tables]
    _refuse_shared_targets(wanted)
    known = has_state(con)
    claimed = markers_of(con, job) if known else {}
    ddl = upgrades(con) if known else []
    for want in wanted:
        if known:
            _refuse_other_owner(con, job, want)
        marker = claimed.get(want.table.name)
        if marker is not None and marker.epoch and not _exists(con, want.target):
            raise gone(str(want.target), job, marker.epoch)
        # A marker at epoch 0 does not make the rows ours: it may be left by a start that failed early.
        ddl += _ddl(con, want, ours=into_existing or (marker is not None and marker.epoch > 0))
    new = [(want.table.name, want.target) for want in wanted if want.table.name not in claimed]
    return _Missing(ddl, new, known)


def _ddl(con: "duckdb.DuckDBPyConnection", want: _Wanted, ours: bool) -> list[str]:
    if not _exists(con, want.target):
        return list(want.create())
    if not ours and rows_of(con, f"SELECT 1 FROM {want.target.sql} LIMIT 1"):
        raise rows_of_others(str(want.target))
    there = _types(con, want.target)
    types = _canonical(con, want.columns)
    added = []
    for column, kind in zip(want.columns, types, strict=True):
        held = there.get(column.name.lower())
        if held is None:
            added.append(f"ALTER TABLE {want.target.sql} ADD COLUMN {quoted(column.name)} {column.type}")
        elif held != kind:
            raise other_type(column.name, str(want.target), held, kind)
    return added


def _exists(con: "duckdb.DuckDBPyConnection", target: Target) -> bool:
    """Whether the table exists. Raises UsageError for a view of that name."""
    where = "database_name = current_database() AND lower(schema_name) = lower(?)"
    named = [target.schema, target.table]
    if rows_of(con, f"SELECT 1 FROM duckdb_views() WHERE {where} AND lower(view_name) = lower(?)", *named):
        raise UsageError(f"{target} is a view, not a table", "name another target")
    return bool(
        rows_of(con, f"SELECT 1 FROM duckdb_tables() WHERE {where} AND lower(table_name) = lower(?)", *named)
    )


def _types(con: "duckdb.DuckDBPyConnection", target: Target) -> dict[str, str]:
    """Lower-case column name -> type, as DuckDB writes it."""
    found = rows_of(
        con,
        "SELECT lower(column_name), data_type FROM duckdb_columns() WHERE database_name = current_database() "
        "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
        target.schema,
        target.table,
    )
    return dict(found)


def _canonical(con: "duckdb.DuckDBPyConnection", columns: Sequence[Column]) -> tuple[str, ...]:
    """The columns' types in DuckDB's own spelling, for comparison with an existing table."""
    row: tuple[str, ...] = rows_of(
        con, "SELECT " + ", ".join(f"typeof(CAST(NULL AS {column.type}))" for column in columns)
    )[0]
    return row


def _refuse_shared_targets(wanted: Sequence[_Wanted]) -> None:
    seen: dict[str, str] = {}
    for want in wanted:
        twin = seen.setdefault(want.target.identity, want.table.name)
        if twin != want.table.name:
            raise same_target(twin, want.table.name, str(want.target))


def _refuse_other_owner(con: "duckdb.DuckDBPyConnection", job: str, want: _Wanted) -> None:
    owner = owner_of(con, want.target)
    if owner is None or owner == (job, want.table.name):
        return
    other, table = owner
    raise belongs_to(str(want.target), other, table, owner_of_job(con, other))
