"""CSV files: read as text, column by column, and made typed exactly.

An empty field is NULL, a quoted empty one an empty string: Spark would take both for NULL, so quoted ones are read
as a text that no file holds.
"""

import csv
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from backfill_cli.errors import BadData
from backfill_cli.upstreams.files import lines
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.formats import exact, frames
from backfill_cli.upstreams.formats.listing import File, Place
from backfill_cli.upstreams.formats.schemas import Columns, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EMPTY = "\ue000backfill-empty\ue000"


def fields(line: str, options: CsvOptions) -> list[str]:
    """The fields of one line."""
    doubled = options.escape == options.quote
    reader = csv.reader(
        [line],
        delimiter=options.delimiter,
        quotechar=options.quote,
        doublequote=doubled,
        escapechar=None if doubled else options.escape,
    )
    return next(reader, [])


def header(where: Place, file: File, options: CsvOptions) -> list[str]:
    """The column names in a file's first line; none in an empty file. Raises BadData for a name given twice."""
    line = lines.first(where, file, "csv")
    names = fields(line.removeprefix("\ufeff"), options) if line is not None else []
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BadData(f"{file.path}: column '{twice[0]}' comes twice in the header")
    return names


def frame(
    spark: "SparkSession", where: Place, files: Sequence[File], options: CsvOptions, columns: Columns
) -> "DataFrame":
    """`_backfill_file, _backfill_at, columns…`. Without a header the columns stand in the order given.

    With one, a column that a file lacks is NULL in its rows.
    """
    if not options.header:
        return _of_order(spark, where, files, options, columns, list(columns))
    by_header: dict[tuple[str, ...], list[File]] = {}
    for file in files:
        names = header(where, file, options)
        if names:
            by_header.setdefault(tuple(names), []).append(file)
    parts = [_of_order(spark, where, group, options, columns, names) for names, group in by_header.items()]
    if not parts:
        return _of_order(spark, where, files, options, columns, list(columns))
    return reduce(lambda a, b: a.unionByName(b), parts)


def _of_order(
    spark: "SparkSession",
    where: Place,
    files: Sequence[File],
    options: CsvOptions,
    columns: Columns,
    order: Sequence[str],
) -> "DataFrame":
    from pyspark.sql import functions as F

    # numbered, because names may hold anything and may differ in case only
    texts: Columns = {f"c{i}": field(f"c{i}", "string") for i in range(len(order))}
    reader = frames.reader(spark, {**texts, "_backfill_broken": field("_backfill_broken", "string")}).options(
        header=options.header,
        enforceSchema=True,
        sep=options.delimiter,
        quote=options.quote,
        escape=options.escape,
        nullValue=options.null_value,
        emptyValue=_EMPTY,
        multiLine=options.multi_line,
        mode="PERMISSIVE",
        columnNameOfCorruptRecord="_backfill_broken",
        columnPruning=False,
        maxCharsPerColumn=-1,
    )
    name = frames.file_name(where, files)
    rows = reader.csv([where.spark_path(file) for file in files]).select(
        name.alias("_backfill_file"),
        F.struct(
            name.alias("file"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("line"),
        ).alias("_backfill_at"),
        "*",
    )
    broken = F.col("_backfill_broken").isNotNull()
    refused = exact.refused(
        F.col("_backfill_file"), f"not a line of {len(order)} fields", F.col("_backfill_broken")
    )
    values = []
    for column, described in columns.items():
        kind, metadata = described["type"], described["metadata"]
        if column not in order:
            values.append(F.lit(None).cast(frames.struct_type({column: described})[column].dataType).alias(column))
            continue
        text = F.col(f"c{list(order).index(column)}")
        named = exact.Named(F.col("_backfill_file"), column)
        # what is no UTF-8 comes as this character, with no word said
        mangled = exact.failing(named, "not UTF-8 text (or it holds U+FFFD)", text)
        text = F.when(text.contains("\ufffd"), mangled).when(text == _EMPTY, F.lit("")).otherwise(text)
        value = exact.of_text(text, kind, named)
        values.append(F.when(broken, refused).otherwise(value).alias(column, metadata=metadata))
    return rows.select("_backfill_file", "_backfill_at", *values)
