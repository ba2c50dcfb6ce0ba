"""The tables of the file: the DDL of what they lack, and how an epoch's rows are written into one."""

from collections.abc import Sequence

import duckdb

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import (
    DEPENDENT,
    no_row_to_fill,
    other_type,
    rows_of_others,
)
from backfill_cli.errors import UsageError, command
from backfill_cli.sinks.duckdb.dialect import (
    DUCKDB,
    INTEGERS,
    Names,
    State,
    kind_of,
    listed,
    matching,
    quoted,
    sink_columns,
)
from backfill_cli.sinks.sql.dialect import NAMED_KEYS, Column, Target, literal, paths_of
from backfill_cli.sinks.sql.state import Connection
from backfill_cli.sinks.sql.tables import SqlTables, Wanted
from backfill_cli.sinks.sql.transition import TransitionTable

# Explicit: a staging path such as `day=1/…` would otherwise add or replace columns.
STAGED = "read_parquet(?, hive_partitioning = false)"
PARTIAL = f"({own.OP} = 'U' AND coalesce(len({own.UNSENT}), 0) > 0)"
"""SQL: whether a staged change leaves some columns at the value that the target has."""


class Tables(SqlTables[State]):
    def columns(self, table: SinkTable) -> tuple[Column, ...]:
        return sink_columns(table.name, table.schema)

    def exists(self, target: Target) -> bool:
        kind = kind_of(self.con, target)
        if kind == "VIEW":
            raise UsageError(f"{target} is a view, not a table", "name another target")
        return kind is not None

    def creation(self, want: Wanted) -> list[str]:
        columns = (
            f"{quoted(column.name)} {column.type}{' NOT NULL' if column.name in want.table.key else ''}"
            for column in want.columns
        )
        create = f"CREATE TABLE {want.target.sql} ({', '.join(columns)})"
        return [*self.state.schema_ddl(want.target.schema), create]

    def addition(self, job: str, want: Wanted, ours: bool) -> list[str]:
        target = want.target
        if not ours and self.con.rows(f"SELECT 1 FROM {target.sql} LIMIT 1"):
            raise rows_of_others(str(target))
        there = self._types(target)
        added = []
        for column, kind in zip(want.columns, self._canonical(want.columns), strict=True):
            held = there.get(column.name.lower())
            if held is None:
                added.append(f"ALTER TABLE {target.sql} ADD COLUMN {quoted(column.name)} {column.type}")
            elif held != kind:
                raise other_type(column.name, str(target), held, kind)
        return added

    def drop(self, targets: Sequence[Target]) -> None:
        """In reverse order: a table that refers to another is listed after it."""
        if views := Names(self.state).views_of(targets):
            job, names = views[0][0], ", ".join(name for _, name in views)
            raise UsageError(
                f"{names}: views of the job's tables, created by a cutover, still exist",
                "reverse it first: "
                + command(f"cutover {job} --reverse")
                + " (the config must still have tables.live); or omit --with-rows to keep the tables",
            )
        for target in reversed(targets):
            try:
                self.con.run(f"DROP TABLE IF EXISTS {target.sql}")
            except duckdb.Error as exc:
                said = str(exc).splitlines()[0]
                raise UsageError(f"table {target} cannot be dropped: {said}", DEPENDENT) from exc

    def _types(self, target: Target) -> dict[str, str]:
        """Lower-case column name -> type, as DuckDB writes it."""
        found = self.con.rows(
            "SELECT lower(column_name), data_type FROM duckdb_columns() "
            "WHERE database_name = current_database() "
            "AND lower(schema_name) = lower($1) AND lower(table_name) = lower($2)",
            *(target.schema, target.table),
        )
        return dict(found)

    def _canonical(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """The columns' types in DuckDB's own spelling, for comparison with an existing table."""
        return self.con.rows("SELECT " + ", ".join(f"typeof(CAST(NULL AS {one.type}))" for one in columns))[0]


def apply(con: Connection, commit: EpochCommit, table: SinkTable, taken: TransitionTable | None = None) -> None:
    """The table holds the epoch's rows: snapshot rows are inserted; each change deletes by key, then inserts.

    taken: has the changed rows of a table that has whole changes alone.
    Never MERGE: delete and insert is 4 to 30 times faster here, and treats rows that do not exist in the same way.
    """
    staged = commit.staged.tables.get(table.name)
    if staged is None:
        return
    target = DUCKDB.target_of(table).sql
    columns = listed(column.name for column in sink_columns(table.name, table.schema))
    if staged.truncated:
        con.run(f"DELETE FROM {target}")
    if staged.inserts and staged.rows:
        files = paths_of(commit.folder, staged.inserts)
        if not table.plain_inserts:
            _delete(con, target, table.key, files)
        con.run(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {STAGED}", files)
    if staged.changes and staged.changed + staged.deleted:
        files = paths_of(commit.folder, staged.changes)
        if staged.partial:
            _fill(con, table, staged.partial, files, commit.may_lack(table))
        if taken is None:
            _delete(con, target, table.key, files)
        else:  # EXISTS, as a row that is deleted twice would be given twice
            same = f"SELECT 1 FROM {STAGED} c WHERE {matching(table.key, 't', 'c')}"
            con.run(taken.deleted(f"DELETE FROM {target} t WHERE EXISTS ({same})", "t"), files)
        if staged.changed:
            whole = f" AND NOT {PARTIAL}" if staged.partial else ""
            rows = f"{STAGED} WHERE {own.OP} = 'U'{whole}"
            con.run(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {rows}", files)
            if taken is not None:
                con.run(taken.inserted(rows), files)
        if staged.partial:
            con.run(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {own.FILLED}")
            con.run(f"DROP TABLE {own.FILLED}")


def _fill(con: Connection, table: SinkTable, partial: Sequence[str], files: list[str], may_lack: bool) -> None:
    """own.FILLED holds the partial rows, completed with the target's values of the columns that they lack.

    may_lack: rows that the target does not have are left out; otherwise they raise BadData naming up to five.
    """
    target = DUCKDB.target_of(table).sql
    matches = matching(table.key, "t", "c")
    missing = con.rows(
        f"SELECT {DUCKDB.lacking(table, 'c')} FROM {STAGED} c LEFT JOIN {target} t ON {matches} "
        f"WHERE {PARTIAL} AND t.{quoted(table.key[0])} IS NULL LIMIT {NAMED_KEYS}",
        files,
    )
    if missing and not may_lack:
        raise no_row_to_fill(table, missing)
    values = (
        f"CASE WHEN list_contains(c.{own.UNSENT}, {literal(column.name)}) THEN t.{quoted(column.name)} "
        f"ELSE CAST(c.{quoted(column.name)} AS {column.type}) END AS {quoted(column.name)}"
        if column.name in partial
        else f"c.{quoted(column.name)}"
        for column in sink_columns(table.name, table.schema)
    )
    con.run(
        f"CREATE OR REPLACE TEMP TABLE {own.FILLED} AS SELECT {', '.join(values)} FROM {STAGED} c "
        f"JOIN {target} t ON {matches} WHERE {PARTIAL}",
        files,
    )


def check_unique(state: State, table: SinkTable) -> None:
    """The table has no duplicate key, or BadData is raised.

    A single dense integer key is checked with one bit per value (0.04 s for 10 million); others by grouping.
    """
    if not _proven_unique(state.con, table, DUCKDB.target_of(table)):
        state.refuse_twice(table)


def _proven_unique(con: Connection, table: SinkTable, target: Target) -> bool:
    types = {column.name: column.type for column in sink_columns(table.name, table.schema)}
    if len(table.key) > 1 or types[table.key[0]] not in INTEGERS:
        return False
    key = quoted(table.key[0])
    rows, low, high = con.rows(f"SELECT count(*), min({key}), max({key}) FROM {target.sql}")[0]
    # At most 64 bits per row cost no more than the keys themselves; DuckDB's own limit is 1e9 bits.
    if not rows or high - low >= min(64 * rows, 1_000_000_000):
        return bool(rows == 0)
    distinct = con.rows(f"SELECT bit_count(bitstring_agg({key}, {low}, {high})) FROM {target.sql}")[0][0]
    return bool(distinct == rows)


def _delete(con: Connection, target: str, key: Sequence[str], files: list[str]) -> None:
    matches = matching(key, "t", "c")
    con.run(f"DELETE FROM {target} t USING (SELECT {listed(key)} FROM {STAGED}) c WHERE {matches}", files)
