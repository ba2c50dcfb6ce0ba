"""Rows of archive files as Spark frames: each record's place and time, and the files' own columns."""

from collections.abc import Iterator, Sequence
from functools import partial
from operator import or_
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.formats import frames
from backfill_cli.formats.listing import File, Place
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import Columns, field, schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.failures import refused
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.kafka.options import ArchiveOptions
from backfill_cli.upstreams.kafka.reading import PLACE

if TYPE_CHECKING:
    import pyarrow as pa


def of_files(
    spark: SparkSession,
    where: Place,
    files: Sequence[File],
    options: ArchiveOptions,
    places: Columns,
    columns: Columns,
) -> DataFrame:
    """`kafka_partition, kafka_offset, kafka_timestamp, columns…` of whole files, in no order."""
    if options.format == "json":
        return _of_json(spark, where, files, options, places, columns)
    if not files:
        rows = spark.createDataFrame([], frames.struct_type({**columns, **places}))
    else:
        paths = [where.spark_path(file) for file in files]
        rows = frames.reader(spark, {**columns, **places}).parquet(*paths)
    return rows.select(
        *_place(options, {name: quoted(name) for name in places}, places),
        *(quoted(name) for name in columns),
    )


def _of_json(
    spark: SparkSession,
    where: Place,
    files: Sequence[File],
    options: ArchiveOptions,
    places: Columns,
    columns: Columns,
) -> DataFrame:
    """The same for JSON lines; a line that does not have exactly these columns raises, naming its file."""
    if not files:
        return spark.createDataFrame([], frames.struct_type({**PLACE, **columns}))
    kinds = {**places, **columns}
    read = frames.reader(spark, {"value": field("value", "string")}).option("lineSep", "\n")
    lines = read.text([where.spark_path(file) for file in files])
    named = frames.file_name(lines, where, files)
    lines = lines.select(named.alias(own.FILE), F.col("value").cast("binary").alias(own.LINE))
    marks = {name: field(name, "string") for name in (own.FILE, own.LINE, own.FAULT)}
    shape = frames.struct_type({**marks, **kinds})
    decode = JsonRows(schema_text(kinds), kept_apart=False)
    parsed = arrow_tasks.mapped(lines, partial(_rows_of_lines, decode), shape)
    # Raised by the partition only, which lines_of_ranges computes: in each column it would be most of the plan.
    bad = refused(F.col(own.FILE), "a line", F.concat_ws(": ", F.col(own.FAULT), F.col(own.LINE)))
    told = {name: quoted(name) for name in kinds}
    told[options.partition] = F.when(F.col(own.FAULT).isNotNull(), bad).otherwise(told[options.partition])
    return parsed.select(
        *_place(options, {name: told[name] for name in places}, kinds),
        *(told[name].alias(name) for name in columns),
    )


def _rows_of_lines(decode: JsonRows, lines: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """Runs in a worker: the rows of the lines that are not blank, with what is wrong with a line."""
    import pyarrow as pa

    files, texts = (lines.column(name).to_pylist() for name in (own.FILE, own.LINE))
    there = [i for i, text in enumerate(texts) if text.strip()]
    found = decode([texts[i] for i in there])
    fault = pa.nulls(len(there), pa.string()) if found.error is None else found.error
    bad = fault.is_valid().to_pylist()
    marks = {
        own.FILE: pa.array([files[i] for i in there], pa.string()),
        own.LINE: pa.array(
            [texts[i].decode(errors="replace") if is_bad else None for i, is_bad in zip(there, bad, strict=True)],
            pa.string(),
        ),
        own.FAULT: fault,
    }
    yield pa.RecordBatch.from_pydict({**marks, **found.columns})


def _place(options: ArchiveOptions, told: dict[str, Column], places: Columns) -> list[Column]:
    """The three kafka columns from the files' own; a numeric time is milliseconds since 1970."""
    at = F.lit(None).cast("timestamp")
    if options.timestamp in told:
        column, kind = told[options.timestamp], str(places[options.timestamp]["type"])
        if kind == "string":
            number = F.when(column.rlike("^-?[0-9]+$"), F.timestamp_millis(column.try_cast("bigint")))
            at = F.coalesce(number, column.try_cast("timestamp"))
        elif kind.startswith("timestamp"):
            at = column.cast("timestamp")
        else:
            at = F.timestamp_millis(column.cast("bigint"))
    return [
        told[options.partition].cast("int").alias("kafka_partition"),
        told[options.offset].cast("bigint").alias("kafka_offset"),
        at.alias("kafka_timestamp"),
    ]


def of_ranges(rows: DataFrame, ranges: Sequence[Range]) -> DataFrame:
    """`own.READ` and the columns of the rows in a range; comparisons are pushed down to the files' row groups."""
    partition, offset = F.col("kafka_partition"), F.col("kafka_offset")
    inside = [_holds(one, partition, offset) for one in ranges]
    return rows.where(balanced(or_, inside)).select(_read_of(ranges, partition, offset).alias(own.READ), "*")


def lines_of_ranges(rows: DataFrame, ranges: Sequence[Range]) -> DataFrame:
    """The same for lines, whose faults are raised when their partition is computed: once, for every line."""
    place = F.struct(F.col("kafka_partition").alias("partition"), F.col("kafka_offset").alias("offset"))
    # used once: each use would copy the expressions that the place is computed by
    read = F.get(F.transform(F.array(place), lambda at: _read_of(ranges, at["partition"], at["offset"])), F.lit(0))
    return rows.select(read.alias(own.READ), "*").where(F.col(own.READ).isNotNull())


def _read_of(ranges: Sequence[Range], partition: Column, offset: Column) -> Column:
    return F.coalesce(
        *(F.when(_holds(one, partition, offset), F.lit(one.read).cast("int")) for one in ranges),
    )


def _holds(one: Range, partition: Column, offset: Column) -> Column:
    return (partition == one.partition) & (offset >= one.after) & (offset < one.up_to)
