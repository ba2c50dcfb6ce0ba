"""Proves that no key of a lake table is duplicated, or names the keys that are.

By counts in Spark; or from the key columns of plain files, read by Spark's Python workers: one task compares the
files whose key ranges overlap. There is no shuffle, and for a table sorted by its key the cost is little more than
reading the column.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from backfill_cli.contracts import Piece, SinkTable, own
from backfill_cli.contracts.refusals import duplicate_keys
from backfill_cli.formats import row_groups
from backfill_cli.lake.merge import NAMED_KEYS, shown_key
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.model.schema import Columns, columns_of
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.names import backticked, quoted

WHOLE = ("byte", "short", "integer", "long", "date")
"""Types of keys of which 64 adjacent values map to the bits of one number."""

MOST_FILES = 2_000
"""The footer of every file is read in this process: 1 ms each."""

MOST_ROWS = 20_000_000
"""Rows whose keys one task holds, 8 bytes each of a BIGINT."""

INEXACT = ("float", "double")
"""Types whose equal values can differ in their bits."""


def refuse_duplicates(table: SinkTable, rows: DataFrame, where: str = "the snapshot") -> None:
    """Raises BadData naming up to five duplicate keys in `rows`, all rows of the table. where: for the message."""
    if _proven_unique(table, rows):
        return
    grouped = rows.groupBy(*(quoted(name) for name in table.key)).agg(F.count(F.lit(1)).alias(own.COUNT))
    twice = grouped.where(F.col(own.COUNT) > 1).select(shown_key(table).alias("key"), own.COUNT)
    found = twice.limit(NAMED_KEYS).toArrow().to_pylist()
    if found:
        raise duplicate_keys(table, sorted((one["key"], one[own.COUNT]) for one in found), where)


def _proven_unique(table: SinkTable, rows: DataFrame) -> bool:
    """Whether each 64 adjacent keys have as many bits as rows: 5 million dense keys take 0.8 s, grouping them 5 s.

    Keys that are not dense cost as much as grouping. False if no column of the key is a whole number, if a key is
    duplicated, or if one is NULL.
    """
    fields = columns_of(table.schema)
    whole = next((name for name in reversed(table.key) if fields[name]["type"] in WHOLE), None)
    if whole is None:
        return False
    of = backticked(whole)
    number = f"CAST({f'unix_date({of})' if fields[whole]['type'] == 'date' else of} AS BIGINT)"
    rest = [quoted(name) for name in table.key if name != whole]
    bits = F.expr(f"bit_or(shiftleft(1L, CAST({number} & 63L AS INT)))").alias(own.BITS)
    counted = F.count(F.lit(1)).alias(own.COUNT)
    grouped = rows.groupBy(*rest, F.expr(f"shiftright({number}, 6)")).agg(bits, counted)
    twice = grouped.where(f"NOT (bit_count({own.BITS}) <=> {own.COUNT})")
    return not twice.select(own.COUNT).limit(1).toArrow().num_rows


def unique_in_files(spark: SparkSession, files: PlainFiles | None, key: Sequence[str], columns: Columns) -> bool:
    """Whether no key occurs twice in these files. False also if they do not tell: Spark has to compare then."""
    kinds = [columns[name]["type"] for name in key]
    if files is None or any(not isinstance(kind, str) or kind in INEXACT for kind in kinds):
        return False
    if len(files.paths()) > MOST_FILES or not arrow_tasks.workers_know_us(spark):
        return False
    if row_groups.rebased_by(spark) is not None:
        return False
    groups = files.with_own_bounds().overlapping()
    if groups is None or any(rows > MOST_ROWS for _, rows in groups):
        return False
    pieces = [(Piece(0, paths), rows) for paths, rows in groups]
    parts = arrow_tasks.packed(pieces, arrow_tasks.cores(spark))
    if not parts:
        return True
    told = arrow_tasks.frame(spark, partial(_counted, tuple(key)), parts, "unique BOOLEAN").toArrow()
    return all(told["unique"].to_pylist())


def _counted(key: Sequence[str], part: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    try:
        unique = all(_unique(piece.what, key) for piece in part)
    except (OSError, pa.ArrowException):
        unique = False  # the format's own reader says what is wrong with the file
    yield pa.RecordBatch.from_pydict({"unique": [unique]})


def _unique(paths: Sequence[str], key: Sequence[str]) -> bool:
    read = [pq.read_table(path, columns=list(key), memory_map=True, partitioning=None) for path in paths]
    keys = pa.concat_tables(read, promote_options="permissive")
    if len(key) == 1 and _rises(keys.column(0)):
        return True
    return bool(keys.num_rows == keys.group_by(list(key), use_threads=False).aggregate([]).num_rows)


def _rises(column: Any) -> bool:
    """Whether each value is greater than the one before it."""
    flat = column.combine_chunks()
    return len(flat) < 2 or bool(pc.all(pc.less(flat.slice(0, len(flat) - 1), flat.slice(1))).as_py())
