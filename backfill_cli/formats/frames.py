"""Reads files as Spark frames: their columns, and the place of each row.

Every frame has `_backfill_file STRING` (the file's name, as listed) and `_backfill_at STRUCT` (orderable: the
file, then the place of the row in it). Its rows are in no particular order.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.formats.json_text import is_rounded, is_whole_object
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns, field, schema_text
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_PLAIN = re.compile(r"[A-Za-z0-9/._=,@~!$&'()*;-]*")
"""Paths that Spark's `_metadata.file_path` shows unchanged; it encodes all other characters as in a URI."""

_BLANK, _TOMBSTONE = r"^\s*$", r"^\s*null\s*$"


def struct_type(columns: Columns) -> "StructType":
    import json

    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema_text(columns)))


def reader(spark: "SparkSession", columns: Columns) -> "DataFrameReader":
    """A reader of these columns that fails on missing and damaged files, whatever the session's settings are."""
    return spark.read.schema(struct_type(columns)).options(ignoreMissingFiles=False, ignoreCorruptFiles=False)


def file_name(where: Place, files: Sequence[File]) -> "Column":
    """The name, as listed, of the file that a row was read from."""
    from pyspark.sql import functions as F

    path = F.col("_metadata.file_path")
    if not _PLAIN.fullmatch(where.folder) or not all(_PLAIN.fullmatch(file.name) for file in files):
        path = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
    folder = f"{where.folder.rstrip('/')}/"
    return F.substr(path, F.locate(folder, path) + F.lit(len(folder)))


def parquet(spark: "SparkSession", where: Place, files: Sequence[File], columns: Columns) -> "DataFrame":
    """`_backfill_file, _backfill_at, columns…` of Parquet files; a column that a file lacks is NULL."""
    from pyspark.sql import functions as F

    name = file_name(where, files)
    frame = reader(spark, columns).parquet(*(where.spark_path(f) for f in files))
    return frame.select(
        name.alias("_backfill_file"),
        F.struct(name.alias("file"), F.col("_metadata.row_index").alias("row")).alias("_backfill_at"),
        *(quoted(column) for column in columns),
    )


def text_lines(spark: "SparkSession", where: Place, files: Sequence[File]) -> "DataFrame":
    """`_backfill_file, _backfill_at, _line STRING` of text files: their lines unchanged, without blank ones."""
    from pyspark.sql import functions as F

    name = file_name(where, files)
    lines = reader(spark, {"value": field("value", "string")}).options(lineSep="\n")
    told = lines.text([where.spark_path(f) for f in files]).select(
        name.alias("_backfill_file"),
        F.struct(
            name.alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("line"),
        ).alias("_backfill_at"),
        F.col("value").alias("_line"),
    )
    return told.where(~F.col("_line").rlike(_BLANK))


def json_objects(lines: "DataFrame", columns: Columns, texts: Sequence[str]) -> "DataFrame":
    """`_backfill_file, _backfill_at, _line, r STRUCT<columns…, _backfill_broken>`: one JSON object per line.

    lines: `_backfill_file, _backfill_at, _line`, the last as STRING or BINARY, without blank ones. `null`, a
    tombstone, is skipped. `_backfill_broken` is the line if it is not one whole object or does not fit `columns`,
    else NULL. texts: members that are read as text; a number with a fraction does not fit them (json_text.py).
    """
    from pyspark.sql import functions as F

    shape = struct_type({**columns, "_backfill_broken": field("_backfill_broken", "string")})
    options = {"columnNameOfCorruptRecord": "_backfill_broken", "mode": "PERMISSIVE"}
    told = lines.withColumn("_line", F.col("_line").cast("string")).where(~F.col("_line").rlike(_TOMBSTONE))
    sound = is_whole_object(F.col("_line")) & ~is_rounded(F.col("_line"), texts)
    told = told.withColumn("_text", F.when(sound, F.col("_line")))
    parsed = told.withColumn("_r", F.from_json("_text", shape, options))
    broken = F.when(F.col("_text").isNull(), F.col("_line")).otherwise(F.col("_r._backfill_broken"))
    fields = [quoted(name, "_r").alias(name) for name in columns]
    read = F.struct(*fields, broken.alias("_backfill_broken")).alias("r")
    return parsed.select("_backfill_file", "_backfill_at", "_line", read)
