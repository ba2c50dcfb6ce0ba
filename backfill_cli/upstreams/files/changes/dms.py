"""Reads AWS DMS change files: rows with `Op` (I, U, D), perhaps the commit time, then the table's columns.

DMS sends the row after the change, or for a delete the row before it. It sends no old key with a key change.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from backfill_cli.contracts import TableSpec, own
from backfill_cli.formats import exact
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.changes.change_format import Inspected
from backfill_cli.upstreams.files.changes.marked_rows import MarkedRows, mark
from backfill_cli.upstreams.files.options import ChangesOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Dms:
    """One table's DMS files. See change_format.ChangeFormat."""

    before_images: ClassVar[bool] = False

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns) -> None:
        marks = [(options.op_column, "string")] + (
            [(options.time_column, "string")] if options.time_column else []
        )
        self._op = options.op_column
        self._rows = MarkedRows(table.name, options, tuple(marks), options.time_column, declared)

    def inspect(self, where: Place, file: File, known: Columns) -> Inspected:
        return self._rows.inspect(where, file, known, self._op)

    def frame(
        self,
        spark: "SparkSession",
        where: Place,
        files: Sequence[File],
        columns: Columns,
        before: File | None = None,
    ) -> "DataFrame":
        from pyspark.sql import functions as F

        rows = self._rows.frame(spark, where, files, columns)
        kind = F.col(mark(0))
        op = (
            F.when(kind.isin("I", "U"), F.lit("U"))
            .when(kind == "D", F.lit("D"))
            .otherwise(exact.refused(F.col(own.FILE), f"unknown {self._op}", kind))
        )
        shown: list[Column | str] = [*self._rows.extra, *(quoted(name) for name in columns)]
        return rows.select(op.alias(own.OP), F.col(own.AT).alias(own.SEQ), own.MS, *shown)
