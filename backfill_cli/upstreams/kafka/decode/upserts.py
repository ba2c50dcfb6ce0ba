"""Plain records as changes of a table: a value is the row as it is now, a tombstone (a NULL value) deletes it.

Rows are `(_op, _seq, _ms, _error, _raw, kafka columns, the value's columns)`. `_seq` is partition, then offset:
the log's order as long as a key stays in one partition, as Kafka's own compaction assumes.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.formats.fast_json import FastPath, by_either_path
from backfill_cli.formats.json_values import of_parsed, with_parsed
from backfill_cli.model.schema import Columns
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.kafka.decode import foreign
from backfill_cli.upstreams.kafka.decode.columns_of_row import IN_ROW, lacking, new_column
from backfill_cli.upstreams.kafka.decode.events import PLACE, no_text, on_the_checked_path, with_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BARE = ("byte", "short", "integer", "long", "float", "double", "boolean", "decimal")
"""Types whose JSON has no quotes."""


def as_upserts(
    records: "DataFrame",
    columns: Columns,
    key: Sequence[str],
    fast: FastPath | None,
    whole: tuple[frozenset[str], frozenset[str]] | None = None,
) -> "DataFrame":
    """fast: as for events, with the key required. whole: (others, required) as of debezium.Rules; None: any."""
    from pyspark.sql import functions as F

    keys = {name: columns[name] for name in key}
    parsed = with_parsed(with_text(on_the_checked_path(records, fast), "_checked", "_text"), "_text", columns)
    parsed = with_text(parsed, "_key", "_key_text").withColumn("_key_json", _as_object("_key_text", keys))
    parsed = with_parsed(parsed, "_key_json", keys)
    row, gone = of_parsed("_text", columns), of_parsed("_key_json", keys)
    told = by_either_path(row.values, fast)
    tombstone = F.col("_value").isNull()
    fault = F.when(tombstone, _tombstone_fault(gone.fault, gone.values)).otherwise(
        F.coalesce(
            no_text("_checked", "_text"),
            foreign.fault("_text", columns, True),
            row.fault,
            *_not_whole(columns, whole),
            null_key(told, key, _KEY_ONLY),
        )
    )
    read = parsed.withColumn("_error", fault)
    good = F.col("_error").isNull()
    values = []
    for name, column in columns.items():
        value = F.when(good & ~tombstone, told[name])
        if name in keys:
            value = value.when(good & tombstone, gone.values[name])
        values.append(value.alias(name, metadata=column["metadata"]))
    return read.select(
        F.when(tombstone, "D").otherwise("U").alias("_op"),
        F.struct("kafka_partition", "kafka_offset").alias("_seq"),
        F.unix_millis("kafka_timestamp").alias("_ms"),
        "_error",
        F.when(~good, F.coalesce("_value", "_key")).alias("_raw"),
        *PLACE,
        *values,
    )


def _not_whole(columns: Columns, whole: tuple[frozenset[str], frozenset[str]] | None) -> "list[Column]":
    from pyspark.sql import functions as F

    if whole is None:
        return []
    others, required = whole
    names = F.json_object_keys("_text")
    return [new_column(names, columns, others, IN_ROW), lacking(names, required)]


def of_rows(rows: "DataFrame", columns: Columns, key: Sequence[str]) -> "DataFrame":
    """Rows of an archive, whose columns are read already, as changes: it holds no tombstones."""
    from pyspark.sql import functions as F

    return rows.select(
        F.lit("U").alias("_op"),
        F.struct("kafka_partition", "kafka_offset").alias("_seq"),
        F.unix_millis("kafka_timestamp").alias("_ms"),
        null_key({name: quoted(name) for name in key}, key).alias("_error"),
        F.lit(None).cast("binary").alias("_raw"),
        *PLACE,
        *(quoted(name) for name in columns),
    )


def null_key(values: dict[str, "Column"], key: Sequence[str], beside: str = "") -> "Column":
    """The fault of a row whose key is NULL. beside: what to add if the record has a key."""
    from pyspark.sql import functions as F

    faults = []
    for name in key:
        said = F.lit(f"column '{name}': the key is NULL")
        if beside:
            said = F.when(F.col("_key").isNotNull(), F.lit(f"column '{name}': the key is NULL{beside}")).otherwise(
                said
            )
        faults.append(F.when(values[name].isNull(), said))
    return F.coalesce(*faults)


_KEY_ONLY = (
    " in the value: a key that is only in the record's key is not read; let the producer write it into the value "
    "too, or read the records as events (leave key out of [[tables]])"
)


def _tombstone_fault(fault: "Column", values: dict[str, "Column"]) -> "Column":
    from pyspark.sql import functions as F

    what = "the key of a tombstone"
    return F.coalesce(
        F.when(F.col("_key").isNull(), F.lit("a tombstone without a key")),
        F.concat(F.lit(f"{what}: "), F.coalesce(no_text("_key", "_key_text"), fault)),
        F.concat(F.lit(f"{what}: "), null_key(values, list(values))),
    )


def _as_object(text: str, keys: Columns) -> "Column":
    """A record's key as a JSON object: as it is, or a scalar under the name of the one key column."""
    from pyspark.sql import functions as F

    told = F.col(text)
    is_object = F.when(told.rlike(r"^\s*\{"), told)
    if len(keys) > 1:
        return F.coalesce(is_object, told)
    ((name, column),) = keys.items()
    bare = F.concat(F.lit(f"{{{json.dumps(name)}:"), told, F.lit("}"))
    if isinstance(column["type"], str) and not column["type"].startswith(_BARE):
        quoted = F.to_json(F.struct(told.alias(name)))
        bare = F.when(told.isNotNull(), F.when(told.rlike(r'^\s*".*"\s*$'), bare).otherwise(quoted))
    return F.coalesce(is_object, bare)
