"""Reads a change feed as Delta writes it: `_change_type`, `_commit_version` and perhaps `_commit_timestamp`.

A file can hold several complete versions; files are in the order of their versions. Within a version the new rows
(insert, update_postimage) win over old rows of the same key (delete, update_preimage): a preimage deletes its key,
and the postimage inserts it again unless the key changed. Version numbers can have gaps: commits that change no
rows (OPTIMIZE) take a number too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from backfill_cli.contracts import TableSpec, own
from backfill_cli.formats import exact
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import Columns
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.changes import epoch_values
from backfill_cli.upstreams.files.changes.change_format import Inspected
from backfill_cli.upstreams.files.changes.marked_rows import MarkedRows, file_kind, mark
from backfill_cli.upstreams.files.options import ChangesOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
_MARKS = ((TYPE, "string"), (VERSION, "long"), (TIME, "string"))


class ChangeFeed:
    """One table's change feed files. See change_format.ChangeFormat."""

    before_images: ClassVar[bool] = True

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns) -> None:
        self._table = table
        self._rows = MarkedRows(table.name, options, _MARKS, TIME, declared)

    def inspect(self, where: Place, file: File, known: Columns) -> Inspected:
        found = self._rows.inspect(where, file, known, TYPE)
        return replace(found, versions=versions(where, file, self._rows.options)) if found.columns else found

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
        kind, version = F.col(mark(0)), F.col(mark(1))
        if self._table.immutable_key:
            rows = rows.where(~kind.eqNullSafe("update_preimage"))
        op = (
            F.when(
                version.isNull(),
                exact.refused(F.col(own.FILE), f"no {VERSION} in a row with {TYPE}", kind),
            )
            .when(kind.isin("insert", "update_postimage"), F.lit("U"))
            .when(kind.isin("delete", "update_preimage"), F.lit("D"))
            .otherwise(exact.refused(F.col(own.FILE), f"unknown {TYPE}", kind))
        )
        new, image = kind.isin("insert", "update_postimage"), kind == "update_preimage"
        place = (
            version.alias("version"),
            new.alias("new"),
            F.col(own.AT).alias("at"),
            image.alias("image"),
        )
        return rows.select(
            op.alias(own.OP),
            F.struct(*place).alias(own.SEQ),
            own.MS,
            *self._rows.extra,
            *(quoted(name) for name in columns),
        )


def versions(where: Place, file: File, options: ChangesOptions) -> tuple[Cursor, Cursor] | None:
    """The lowest and the highest version in a file, from its footer if it has them; None without rows."""
    kind = file_kind(options, file)
    if kind == "csv" and not options.csv.header:
        return None
    found = epoch_values.bounds(where, file, VERSION) if kind == "parquet" else None
    if found is not None:
        return found
    held = epoch_values.read(where, file, kind, VERSION, options.csv)
    return (held.lowest, held.highest) if held.rows else None
