"""Proves from the key columns of plain files, read by Spark's Python workers, that no key is duplicated.

One task compares the files whose key ranges overlap. There is no shuffle, and for a table sorted by its key the
cost is little more than reading the column.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import Piece
from backfill_cli.formats import row_groups
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.model.schema import Columns
from backfill_cli.spark import arrow_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MOST_FILES = 2_000
"""The footer of every file is read in this process: 1 ms each."""

MOST_ROWS = 20_000_000
"""Rows whose keys one task holds, 8 bytes each of a BIGINT."""

INEXACT = ("float", "double")
"""Types whose equal values can differ in their bits."""


def unique_in_files(spark: "SparkSession", files: PlainFiles | None, key: Sequence[str], columns: Columns) -> bool:
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


def _counted(key: Sequence[str], part: Sequence[Piece]) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    import pyarrow as pa

    try:
        unique = all(_unique(piece.what, key) for piece in part)
    except (OSError, pa.ArrowException):
        unique = False  # the format's own reader says what is wrong with the file
    yield pa.RecordBatch.from_pydict({"unique": [unique]})


def _unique(paths: Sequence[str], key: Sequence[str]) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    read = [pq.read_table(path, columns=list(key), memory_map=True, partitioning=None) for path in paths]
    keys = pa.concat_tables(read, promote_options="permissive")
    if len(key) == 1 and _rises(keys.column(0)):
        return True
    return bool(keys.num_rows == keys.group_by(list(key), use_threads=False).aggregate([]).num_rows)


def _rises(column: Any) -> bool:
    """Whether each value is greater than the one before it."""
    import pyarrow.compute as pc

    flat = column.combine_chunks()
    return len(flat) < 2 or bool(pc.all(pc.less(flat.slice(0, len(flat) - 1), flat.slice(1))).as_py())
