"""An epoch's staged files as Spark frames, for a sink whose tables live in Spark."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.model.schema import Columns, columns_of, field
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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


def net(inserts: "DataFrame", changes: "DataFrame", table: SinkTable) -> "DataFrame":
    """Snapshot rows and the changes that follow them as one frame of changes, in the form of `changes`.

    For a format that applies an epoch by one MERGE. A change replaces a snapshot row of its key; columns that the
    change leaves unchanged are taken from that row. A duplicate key among `inserts` stays a duplicate.
    """
    from pyspark.sql import functions as F

    names = list(columns_of(table.schema))
    partial = own.UNSENT in changes.columns
    keys = changes.select(*(quoted(name) for name in table.key))
    alone = inserts.join(keys, list(table.key), "left_anti")
    unsent = [F.lit(None).cast("array<string>").alias(own.UNSENT)] if partial else []
    rows = alone.select(F.lit("U").alias(own.OP), *unsent, *(quoted(name) for name in names))
    if not partial:
        return rows.unionByName(changes)
    return rows.unionByName(_filled(changes, inserts, table, names))


def _filled(changes: "DataFrame", inserts: "DataFrame", table: SinkTable, names: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions as F

    theirs = inserts.select(F.struct(*(quoted(name) for name in names)).alias(own.ROW))
    matches = [quoted(name) == quoted(name, of=own.ROW) for name in table.key]
    both = changes.join(theirs, matches, "left")
    there = F.col(own.ROW).isNotNull()

    def value(name: str) -> "Column":
        left_out = F.coalesce(F.array_contains(F.col(own.UNSENT), name), F.lit(False))
        return F.when(there & left_out, quoted(name, of=own.ROW)).otherwise(quoted(name)).alias(name)

    return both.select(own.OP, F.when(~there, F.col(own.UNSENT)).alias(own.UNSENT), *map(value, names))


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
