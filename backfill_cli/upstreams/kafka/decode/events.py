"""Records as rows: `(own.READ, own.ERROR, own.RAW, kafka columns, the value's columns)`.

A record that cannot be read keeps its place (partition, offset, time) and its bytes; its columns are then NULL.
"""

from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.formats.fast_json import FastPath, by_either_path
from backfill_cli.formats.json_values import of_parsed, with_parsed
from backfill_cli.model.schema import Columns, field
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.kafka.decode import foreign

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PLACE: Columns = {
    "kafka_partition": field("kafka_partition", "integer"),
    "kafka_offset": field("kafka_offset", "long"),
    "kafka_timestamp": field("kafka_timestamp", "timestamp"),
}
"""Where each row's record is."""

BYTES: Columns = {"value": field("value", "binary")}
"""The value's columns with `format = "bytes"`."""


def as_bytes(records: "DataFrame") -> "DataFrame":
    """Values as they are: nothing can fail."""
    from pyspark.sql import functions as F

    marks = [F.lit(None).cast("string").alias(own.ERROR), F.lit(None).cast("binary").alias(own.RAW)]
    return records.select(own.READ, *marks, *PLACE, F.col(own.VALUE).alias("value"))


def as_json(records: "DataFrame", columns: Columns, fast: FastPath | None) -> "DataFrame":
    """Values as JSON objects; a NULL value is a row of NULLs, because its record exists.

    fast: the columns that came beside the records, if their batch could take the fast path.
    """
    from pyspark.sql import functions as F

    told = with_text(on_the_checked_path(records, fast), own.CHECKED, own.TEXT)
    found = of_parsed(own.TEXT, columns)
    fault = F.coalesce(no_text(own.CHECKED, own.TEXT), foreign.fault(own.TEXT, columns, False), found.fault)
    read = with_parsed(told, own.TEXT, columns).withColumn(own.ERROR, fault)
    good = F.col(own.ERROR).isNull()
    values = by_either_path(found.values, fast)
    return read.select(
        own.READ,
        own.ERROR,
        F.when(~good, F.col(own.VALUE)).alias(own.RAW),
        *PLACE,
        *(F.when(good, values[name]).alias(name, metadata=c["metadata"]) for name, c in columns.items()),
    )


def on_the_checked_path(records: "DataFrame", fast: FastPath | None) -> "DataFrame":
    """The records with `own.CHECKED`: the value's bytes, NULL if its columns came with the record."""
    from pyspark.sql import functions as F

    taken = F.lit(False) if fast is None else F.coalesce(F.col(own.FAST), F.lit(False))
    return records.withColumn(own.CHECKED, F.when(~taken, F.col(own.VALUE)))


def as_rows(rows: "DataFrame", columns: Columns) -> "DataFrame":
    """Rows of an archive, whose columns are read already."""
    from pyspark.sql import functions as F

    marks = [F.lit(None).cast("string").alias(own.ERROR), F.lit(None).cast("binary").alias(own.RAW)]
    return rows.select(own.READ, *marks, *PLACE, *(quoted(name) for name in columns))


def with_text(frame: "DataFrame", source: str, text: str) -> "DataFrame":
    """The frame with `text`, what the bytes of `source` say in UTF-8; NULL if they are not text."""
    from pyspark.sql import functions as F

    told = F.col(source).cast("string")
    return frame.withColumn(text, F.when(F.is_valid_utf8(told), told))


def no_text(source: str, text: str) -> "Column":
    """The fault of bytes that are not text by `with_text`, or that a schema registry's client wrote."""
    from pyspark.sql import functions as F

    raw = F.col(source)
    number = F.conv(F.hex(F.substring(raw, 2, 4)), 16, 10)
    registered = F.concat(F.lit("written with a schema registry (schema id "), number, F.lit(_REGISTERED))
    fault = F.when((F.hex(F.substring(raw, 1, 1)) == "00") & (F.length(raw) >= 5), registered)
    return fault.when(raw.isNotNull() & F.col(text).isNull(), F.lit("not UTF-8 text"))


_REGISTERED = (
    "): Avro, Protobuf and a registry's JSON are not supported; write plain JSON (Kafka Connect's JsonConverter), "
    "or copy the topic to one that has it"
)
