"""Records as rows: `(_read, _error, _raw, kafka columns, the value's columns)`.

A record that cannot be read keeps its place (partition, offset, time) and its bytes; its columns are NULL then.
"""

from typing import TYPE_CHECKING

from backfill_cli.upstreams.formats.schemas import Columns, field
from backfill_cli.upstreams.kafka.json_values import of_parsed, with_parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE: Columns = {
    "kafka_partition": field("kafka_partition", "integer"),
    "kafka_offset": field("kafka_offset", "long"),
    "kafka_timestamp": field("kafka_timestamp", "timestamp"),
}
"""What every row says of its record."""

MARKS = ("_error", "_raw")
"""What a frame of this upstream calls columns of its own, beside those of every upstream."""

EVENT_KEY = ("kafka_partition", "kafka_offset")
"""The identity of a record as an event."""

BYTES: Columns = {"value": field("value", "binary")}
"""The value's columns with `format = "bytes"`."""


def as_bytes(records: "DataFrame") -> "DataFrame":
    """Values as they are: nothing to fail at."""
    from pyspark.sql import functions as F

    marks = [F.lit(None).cast("string").alias("_error"), F.lit(None).cast("binary").alias("_raw")]
    return records.select("_read", *marks, *PLACE, F.col("_value").alias("value"))


def as_json(records: "DataFrame", columns: Columns) -> "DataFrame":
    """Values as JSON objects; a NULL value is a row of NULLs: its record is there."""
    from pyspark.sql import functions as F

    valid = F.is_valid_utf8(F.col("_value").cast("string"))
    text = F.when(valid, F.col("_value").cast("string"))
    parsed = with_parsed(records.withColumn("_text", text), "_text", columns)
    found = of_parsed("_text", columns)
    fault = F.when(F.col("_value").isNotNull() & F.col("_text").isNull(), F.lit("not UTF-8 text"))
    read = parsed.withColumn("_error", F.coalesce(fault, found.fault))
    good = F.col("_error").isNull()
    return read.select(
        "_read",
        "_error",
        F.when(~good, F.col("_value")).alias("_raw"),
        *PLACE,
        *(F.when(good, found.values[name]).alias(name, metadata=c["metadata"]) for name, c in columns.items()),
    )
