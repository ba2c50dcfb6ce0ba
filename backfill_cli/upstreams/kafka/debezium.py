"""Debezium envelopes in records as changes of a table: rows as in upserts.py, two for a key change.

An envelope is the value itself or its `payload`; the block beside the payload is not read, the options say what it
would. Tombstones say nothing that the delete before them did not.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backfill_cli.errors import ConfigError
from backfill_cli.upstreams.formats.debezium_changes import envelope_columns
from backfill_cli.upstreams.formats.exact import QUIET
from backfill_cli.upstreams.formats.frames import struct_type
from backfill_cli.upstreams.formats.json_values import lost
from backfill_cli.upstreams.formats.schemas import Columns, SparkType, Unsupported, field
from backfill_cli.upstreams.formats.unsent import UNAVAILABLE, unsent
from backfill_cli.upstreams.formats.values import Encoding, convert, schemaless
from backfill_cli.upstreams.kafka.decode import PLACE, no_text, with_text
from backfill_cli.upstreams.kafka.options import ValueOptions
from backfill_cli.upstreams.kafka.upserts import null_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BROKEN = "_backfill_broken"
_NARROW = ("byte", "short")


def encodings(columns: Columns, value: ValueOptions) -> Mapping[str, Encoding]:
    """How each column is written. Raises ConfigError where the options do not say it."""
    found, faults = {}, []
    for name, column in columns.items():
        try:
            found[name] = schemaless(column["type"], value.timestamps, value.decimals)
        except Unsupported as exc:
            faults.append(f"upstream.value: column '{name}': {exc}".replace("upstream.changes.", "value."))
    if faults:
        raise ConfigError("upstream", faults)
    return found


def as_changes(
    records: "DataFrame", columns: Columns, key: Sequence[str], how: Mapping[str, Encoding]
) -> "DataFrame":
    from pyspark.sql import functions as F

    envelope = envelope_columns(key, _widened(columns), how, None)
    payload = field("payload", {"type": "struct", "fields": list(envelope.values())})
    shape = struct_type({**envelope, "payload": payload, _BROKEN: field(_BROKEN, "string")})
    options = {"columnNameOfCorruptRecord": _BROKEN, "mode": "PERMISSIVE"}
    told = with_text(records.where("_value IS NOT NULL"), "_value", "_text")
    told = told.withColumn("_r", F.from_json("_text", shape, options))
    inner = F.struct(*(F.coalesce(f"_r.{part}", f"_r.payload.{part}").alias(part) for part in envelope))
    told = told.withColumn("_e", inner).withColumn("_fault", _fault(columns, key, how))
    rows = told.select("*", F.posexplode(_ops(key)).alias("_sub", "_op"))
    good, gone = F.col("_fault").isNull(), F.col("_op") == "D"
    after, before = F.col("_e.after"), F.col("_e.before")
    values = []
    for name, column in columns.items():
        value = F.when(good & ~gone, _value(after.getField(name), how[name], column["type"]))
        if name in key:
            value = value.when(good & gone, _value(before.getField(name), how[name], column["type"]))
        values.append(value.alias(name, metadata=column["metadata"]))
    return rows.select(
        "_op",
        F.struct("kafka_partition", "kafka_offset", "_sub").alias("_seq"),
        F.coalesce("_e.source.ts_ms", "_e.ts_ms", F.unix_millis("kafka_timestamp")).alias("_ms"),
        F.col("_fault").alias("_error"),
        F.when(~good, F.col("_value")).alias("_raw"),
        *PLACE,
        *values,
    )


def _widened(columns: Columns) -> Columns:
    """`from_json` takes 200 for the TINYINT -56: narrow numbers are read wide, and cast."""
    return {
        name: {**column, "type": "integer"} if column["type"] in _NARROW else column
        for name, column in columns.items()
    }


def _value(raw: "Column", how: Encoding, kind: SparkType) -> "Column":
    """The column's value, NULL where what is written does not fit it."""
    return raw.try_cast(kind) if kind in _NARROW else convert(raw, how, kind, QUIET)


def _ops(key: Sequence[str]) -> "Column":
    """What an envelope becomes: rows with these ops, in order. One with a fault is one row, which says it."""
    from pyspark.sql import functions as F

    op, before, after = F.col("_e.op"), F.col("_e.before"), F.col("_e.after")
    moved = F.lit(False)
    for name in key:
        old, new = before.getField(name), after.getField(name)
        moved |= old.isNotNull() & ~old.eqNullSafe(new)
    return (
        F.when(F.col("_fault").isNotNull(), F.array(F.lit("U")))
        .when(op == "m", F.array().cast("array<string>"))
        .when(op == "d", F.array(F.lit("D")))
        .when((op == "u") & moved, F.array(F.lit("D"), F.lit("U")))
        .otherwise(F.array(F.lit("U")))
    )


def _fault(columns: Columns, key: Sequence[str], how: Mapping[str, Encoding]) -> "Column":
    from pyspark.sql import functions as F

    op, before, after = F.col("_e.op"), F.col("_e.before"), F.col("_e.after")
    writes = op.isin("c", "r", "u")
    faults = [
        no_text("_value", "_text"),
        F.when(F.col(f"_r.{_BROKEN}").isNotNull(), "not a Debezium envelope of the table's columns"),
        F.when(op.isNull(), "no 'op': not a Debezium envelope"),
        F.when(op == "t", "truncate is not supported"),
        F.when(~op.isin("c", "r", "u", "d", "m"), F.concat(F.lit("unknown op "), op)),
        F.when(writes & after.isNull(), F.concat(F.lit("no 'after' in an envelope with op "), op)),
        F.when((op == "d") & before.isNull(), "no 'before', so no key, in an envelope with op d"),
        F.when(op == "d", null_key({name: before.getField(name) for name in key}, key)),
        F.when(writes, null_key({name: after.getField(name) for name in key}, key)),
    ]
    for name, column in columns.items():
        for side in (after, before) if name in key else (after,):
            raw = side.getField(name)
            bad = lost(raw, _value(raw, how[name], column["type"]), column["type"], False)
            faults.append(F.when(F.coalesce(bad, F.lit(False)), f"column '{name}': does not fit its type exactly"))
        absent = unsent(after.getField(name), how[name], column["type"])
        if absent is not None:
            faults.append(F.when(writes & absent, _not_sent(name)))
    return F.coalesce(*faults)


def _not_sent(name: str) -> str:
    hint = "ALTER TABLE … REPLICA IDENTITY FULL at the source sends it"
    return f"column '{name}': {UNAVAILABLE}: the value did not change and was not sent; {hint}"
