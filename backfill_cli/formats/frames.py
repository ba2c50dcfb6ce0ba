"""Reads files as Spark frames: their columns, and the place of each row.

Every frame has `own.FILE STRING` (the file's name, as listed) and `own.AT STRUCT` (orderable: the
file, then the place of the row in it). Its rows are in no particular order.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.spark.api import F
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_PLAIN = re.compile(r"[A-Za-z0-9/._=,@~!$&'()*;-]*")
"""Paths that Spark's `_metadata.file_path` shows unchanged; it encodes all other characters as in a URI."""


def struct_type(columns: Columns) -> "StructType":
    import json

    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema_text(columns)))


def reader(spark: "SparkSession", columns: Columns) -> "DataFrameReader":
    """A reader of these columns that fails on missing and damaged files, whatever the session's settings are."""
    return spark.read.schema(struct_type(columns)).options(ignoreMissingFiles=False, ignoreCorruptFiles=False)


def metadata(frame: "DataFrame", name: str) -> "Column":
    """What Spark knows of a row's place in the files, also where they have a column `_metadata` themselves."""
    return frame.metadataColumn("_metadata").getField(name)


def file_name(frame: "DataFrame", where: Place, files: Sequence[File]) -> "Column":
    """The name, as listed, of the file that a row was read from."""
    path = metadata(frame, "file_path")
    if not _PLAIN.fullmatch(where.folder) or not all(_PLAIN.fullmatch(file.name) for file in files):
        path = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
    folder = f"{where.folder.rstrip('/')}/"
    return F.substr(path, F.locate(folder, path) + F.lit(len(folder)))


def parquet(spark: "SparkSession", where: Place, files: Sequence[File], columns: Columns) -> "DataFrame":
    """`own.FILE, own.AT, columns…` of Parquet files; a column that a file lacks is NULL."""
    frame = reader(spark, columns).parquet(*(where.spark_path(f) for f in files))
    name = file_name(frame, where, files)
    return frame.select(
        name.alias(own.FILE),
        F.struct(name.alias("file"), metadata(frame, "row_index").alias("row")).alias(own.AT),
        *(quoted(column) for column in columns),
    )
