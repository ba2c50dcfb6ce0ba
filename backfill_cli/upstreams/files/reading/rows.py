"""Reads plain rows (no envelope) of Parquet, JSON and CSV files as frames: snapshots, and changes with marks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.errors import Hint
from backfill_cli.formats import exact, frames
from backfill_cli.formats.fast_json import FastPath, by_either_path, fast_path
from backfill_cli.formats.json_values import of_parsed, with_parsed
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.reuse import reused
from backfill_cli.upstreams.files.options import FileFormat
from backfill_cli.upstreams.files.reading import csv_files, json_rows
from backfill_cli.upstreams.files.reading.text_rows import TextRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def frame(
    spark: "SparkSession",
    where: Place,
    files: Sequence[File],
    kind: FileFormat,
    csv: TextRows,
) -> "DataFrame":
    """`own.FILE, own.AT, columns…` of whole files. csv, json: a line that does not fit is an error.

    csv: the columns, and how they are read from files of text.
    """
    columns, hint = csv.columns, csv.hint
    if kind == "parquet":
        return frames.parquet(spark, where, files, columns)
    if kind == "csv":
        return csv_files.frame(spark, where, files, csv)
    numbered = arrow_tasks.workers_know_us(spark)
    fast = fast_path(columns) if numbered else None
    return _json(json_lines(spark, where, files, fast, hint, numbered), columns, fast, hint, numbered)


def json_lines(
    spark: "SparkSession",
    where: Place,
    files: Sequence[File],
    fast: FastPath | None,
    hint: Hint | str,
    numbered: bool,
) -> "DataFrame":
    """`own.FILE, own.AT, own.LINE`, and the columns of `fast`, of files with one JSON object per line.

    numbered: whether the executors have this package: then `own.AT.row` is the row's place in its file. hint: of a
    damaged file.
    """
    return json_rows.frame(spark, where, files, fast, hint) if numbered else frames.text_lines(spark, where, files)


def _json(
    lines: "DataFrame", columns: Columns, fast: FastPath | None, hint: Hint | str, numbered: bool
) -> "DataFrame":
    """fast: the columns that come with the lines if their block took the fast path.

    numbered: whether `own.AT` holds the row's place in its file.
    """
    from pyspark.sql import functions as F

    found = of_parsed(own.LINE, columns)

    def shown() -> "list[Column]":
        file = F.col(own.FILE)
        file = exact.row_of(file, F.col(f"{own.AT}.row"), F.col(own.LINE)) if numbered else file
        refused = exact.refused(file, F.col(own.FAULT), F.col(own.LINE), hint)
        given = by_either_path(found.values, fast)
        return [
            F.when(F.col(own.FAULT).isNotNull(), refused)
            .otherwise(given[name])
            .alias(name, metadata=c["metadata"])
            for name, c in columns.items()
        ]

    told = lines.withColumn(own.LINE, F.col(own.LINE).cast("string"))
    read = with_parsed(told, own.LINE, columns).withColumn(own.FAULT, found.fault)
    values = reused(("json rows", schema_text(columns), fast, hint, numbered), shown)
    return read.select(own.FILE, own.AT, *values)
