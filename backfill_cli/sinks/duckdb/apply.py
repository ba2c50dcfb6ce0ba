"""One table's staged rows into its DuckDB table, inside the epoch's transaction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.errors import BadData
from backfill_cli.model.plan import StagedFile
from backfill_cli.sinks.duckdb.file import rows_of
from backfill_cli.sinks.duckdb.sql import Target, listed, quoted
from backfill_cli.sinks.duckdb.types import INTEGERS, columns_of

if TYPE_CHECKING:
    import duckdb

# Explicit: a staging path such as `day=1/…` would otherwise add or replace columns.
STAGED = "read_parquet(?, hive_partitioning = false)"
NAMED_DUPLICATES = 5


def apply(con: "duckdb.DuckDBPyConnection", commit: EpochCommit, table: SinkTable) -> None:
    """The table holds the epoch's rows: snapshot rows inserted, every change deleted and inserted by key.

    Never MERGE: delete + insert is 4 to 30 times faster here, and the same for rows that do not exist.
    """
    staged = commit.staged.tables.get(table.name)
    if staged is None:
        return
    target = Target.of(table).sql
    columns = listed(column.name for column in columns_of(table.name, table.schema))
    if staged.inserts and staged.rows:
        files = _paths(commit.folder, staged.inserts)
        if not table.plain_inserts:
            _delete(con, target, table.key, files)
        con.execute(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {STAGED}", [files])
    if staged.changes and staged.changed + staged.deleted:
        files = _paths(commit.folder, staged.changes)
        _delete(con, target, table.key, files)
        if staged.changed:
            con.execute(
                f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {STAGED} WHERE _op = 'U'", [files]
            )


def check_unique(con: "duckdb.DuckDBPyConnection", table: SinkTable) -> None:
    """No key stands twice in the table. Raises BadData naming the table, its key and up to five values.

    A single dense integer key is proven by one bit a value (0.04 s for 10 million); anything else is grouped.
    """
    target = Target.of(table)
    if _proven_unique(con, table, target):
        return
    key = listed(table.key)
    shown = " || ', ' || ".join(f"coalesce(CAST({quoted(name)} AS VARCHAR), 'NULL')" for name in table.key)
    twice = rows_of(
        con,
        f"SELECT {shown}, n FROM (SELECT {key}, count(*) AS n FROM {target.sql} GROUP BY {key} HAVING n > 1 "
        f"LIMIT {NAMED_DUPLICATES})",
    )
    if twice:
        named = "; ".join(f"({value}) {count} times" for value, count in twice)
        raise BadData(
            f"table {table.name!r}: the key ({', '.join(table.key)}) is not unique in the snapshot: {named}",
            "add the columns that tell these rows apart to the table's key, or filter them out with where",
        )


def _proven_unique(con: "duckdb.DuckDBPyConnection", table: SinkTable, target: Target) -> bool:
    types = {column.name: column.type for column in columns_of(table.name, table.schema)}
    if len(table.key) > 1 or types[table.key[0]] not in INTEGERS:
        return False
    key = quoted(table.key[0])
    rows, low, high = rows_of(con, f"SELECT count(*), min({key}), max({key}) FROM {target.sql}")[0]
    # 64 bits a row at most cost no more than the keys themselves; DuckDB's own limit is 1e9 bits.
    if not rows or high - low >= min(64 * rows, 1_000_000_000):
        return bool(rows == 0)
    distinct = rows_of(con, f"SELECT bit_count(bitstring_agg({key}, {low}, {high})) FROM {target.sql}")[0][0]
    return bool(distinct == rows)


def _delete(con: "duckdb.DuckDBPyConnection", target: str, key: Sequence[str], files: list[str]) -> None:
    matches = " AND ".join(f"t.{quoted(name)} = c.{quoted(name)}" for name in key)
    con.execute(f"DELETE FROM {target} t USING (SELECT {listed(key)} FROM {STAGED}) c WHERE {matches}", [files])


def _paths(folder: str, files: Sequence[StagedFile]) -> list[str]:
    return [f"{folder.rstrip('/')}/{file.path}" for file in files]
