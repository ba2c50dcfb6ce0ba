"""An epoch's staged files as Spark frames, for a sink whose tables live in Spark."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.model.schema import Columns, columns_of, field
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES = 32 * 2**20
"""Staged bytes per task: an epoch of a few rows becomes one file, a large one is written by all cores."""


def inserts(spark: "SparkSession", commit: EpochCommit, table: SinkTable) -> "DataFrame | None":
    """`(columns…)` of the epoch's snapshot rows, in the order of the table's schema; None if there are none."""
    staged = _staged(commit, table)
    if not staged.inserts or not staged.rows:
        return None
    return _frame(spark, commit, staged.inserts, columns_of(table.schema))


def changes(spark: "SparkSession", commit: EpochCommit, table: SinkTable) -> "DataFrame | None":
    """`(own.OP 'U'|'D', [own.UNSENT,] columns…)`, net by key, of the epoch's changes; None if there are none.

    `own.UNSENT` exists if some row leaves columns unchanged in the table (`StagedTable.partial`).
    """
    staged = _staged(commit, table)
    if not staged.changes or not staged.changed + staged.deleted:
        return None
    columns: Columns = {own.OP: field(own.OP, "string")}
    if staged.partial:
        columns[own.UNSENT] = field(own.UNSENT, {"type": "array", "elementType": "string", "containsNull": True})
    return _frame(spark, commit, staged.changes, {**columns, **columns_of(table.schema)})


def size_bytes(files: Sequence[StagedFile]) -> int:
    return sum(file.size_bytes for file in files)


def _staged(commit: EpochCommit, table: SinkTable) -> StagedTable:
    return commit.staged.tables.get(table.name) or StagedTable()


def _frame(
    spark: "SparkSession", commit: EpochCommit, files: Sequence[StagedFile], columns: Columns
) -> "DataFrame":
    from backfill_cli.formats.frames import reader

    paths = [f"{commit.folder.rstrip('/')}/{file.path}" for file in files]
    frame = reader(spark, columns).parquet(*paths).select(*(quoted(name) for name in columns))
    return frame.coalesce(max(1, -(-size_bytes(files) // FILE_BYTES)))
