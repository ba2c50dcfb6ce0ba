"""Plain records as changes of a table: a value is the row as it is now, a tombstone (a NULL value) deletes it.

Rows are `(own.OP, own.SEQ, own.MS, own.ERROR, own.RAW, kafka columns, the value's columns)`. `own.SEQ` is the
partition, then the offset: the log's order if a key stays in one partition, as Kafka's own compaction assumes.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
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
    parsed = with_parsed(with_text(on_the_checked_path(records, fast), own.CHECKED, own.TEXT), own.TEXT, columns)
    parsed = with_text(parsed, own.KEY, own.KEY_TEXT).withColumn(own.KEY_JSON, _as_object(own.KEY_TEXT, keys))
    parsed = with_parsed(parsed, own.KEY_JSON, keys)
    row, gone = of_parsed(own.TEXT, columns), of_parsed(own.KEY_JSON, keys)
    told = by_either_path(row.values, fast)
    tombstone = F.col(own.VALUE).isNull()
    fault = F.when(tombstone, _tombstone_fault(gone.fault, gone.values)).otherwise(
        F.coalesce(
            no_text(own.CHECKED, own.TEXT),
            foreign.fault(own.TEXT, columns, True),
            row.fault,
            *_not_whole(columns, whole),
            null_key(told, key, _KEY_ONLY),
        )
    )
    read = parsed.withColumn(own.ERROR, fault)
    good = F.col(own.ERROR).isNull()
    values = []
    for name, column in columns.items():
        value = F.when(good & ~tombstone, told[name])
        if name in keys:
            value = value.when(good & tombstone, gone.values[name])
        values.append(value.alias(name, metadata=column["metadata"]))
    return read.select(
        F.when(tombstone, "D").otherwise("U").alias(own.OP),
        F.struct("kafka_partition", "kafka_offset").alias(own.SEQ),
        F.unix_millis("kafka_timestamp").alias(own.MS),
        own.ERROR,
        F.when(~good, F.coalesce(own.VALUE, own.KEY)).alias(own.RAW),
        *PLACE,
        *values,
    )


def _not_whole(columns: Columns, whole: tuple[frozenset[str], frozenset[str]] | None) -> "list[Column]":
    from pyspark.sql import functions as F

    if whole is None:
        return []
    others, required = whole
    names = F.json_object_keys(own.TEXT)
    return [new_column(names, columns, others, IN_ROW), lacking(names, required)]


def of_rows(rows: "DataFrame", columns: Columns, key: Sequence[str]) -> "DataFrame":
    """Rows of an archive, whose columns are read already, as changes: it holds no tombstones."""
    from pyspark.sql import functions as F

    return rows.select(
        F.lit("U").alias(own.OP),
        F.struct("kafka_partition", "kafka_offset").alias(own.SEQ),
        F.unix_millis("kafka_timestamp").alias(own.MS),
        null_key({name: quoted(name) for name in key}, key).alias(own.ERROR),
        F.lit(None).cast("binary").alias(own.RAW),
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
            said = F.when(
                F.col(own.KEY).isNotNull(), F.lit(f"column '{name}': the key is NULL{beside}")
            ).otherwise(said)
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
        F.when(F.col(own.KEY).isNull(), F.lit("a tombstone without a key")),
        F.concat(F.lit(f"{what}: "), F.coalesce(no_text(own.KEY, own.KEY_TEXT), fault)),
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
