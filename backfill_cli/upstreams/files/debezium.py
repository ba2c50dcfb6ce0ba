"""Debezium change events, one JSON envelope a line, with or without the schema block.

An envelope holds `op` (c, r: new row; u: changed; d: deleted; t: truncated), `before`, `after`, `source.ts_ms` and
`ts_ms`. With the schema block it is `{"schema": …, "payload": envelope}`. Blank and `null` lines (tombstones) say
nothing that the delete before them did not.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BadData
from backfill_cli.upstreams.files import exact, frames, lines
from backfill_cli.upstreams.files.change_log import Inspected
from backfill_cli.upstreams.files.listing import File, Place
from backfill_cli.upstreams.files.options import ChangesOptions
from backfill_cli.upstreams.files.rows import undeclared
from backfill_cli.upstreams.files.schemas import Columns, SparkType, Unsupported, field
from backfill_cli.upstreams.files.values import Encoding, convert, raw_type, schemaless

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLE_BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
_LINES = 20
"""So many lines back a row image is looked for: deletes and truncates at a file's end have none."""


class Debezium:
    """One table's Debezium files. See change_log.ChangeFormat."""

    before_images: ClassVar[bool] = True

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns) -> None:
        self._table, self._options, self._declared = table, options, declared

    def inspect(self, where: Place, file: File, known: Columns) -> Inspected:
        ms: int | None = None
        for number, line in enumerate(islice(lines.last(where, file, "debezium"), _LINES)):
            payload = _payload(lines.parsed(file, line))
            if payload is None:
                continue
            if "op" not in payload:
                raise BadData(f"{file.path}: a line without 'op' is no Debezium envelope: {line[:120]}")
            if number == 0:
                ms = _source_ms(payload)
            image = payload.get("after")
            if isinstance(image, dict):
                return Inspected(file, None, ms, self._columns(file, image, known))
        return Inspected(file, None, ms, None)

    def _columns(self, file: File, image: Mapping[str, Any], known: Columns) -> Columns:
        columns: Columns = {name: column for name, column in known.items() if name in image}
        for name in image:
            if name not in columns and name not in self._declared:
                raise undeclared(file, name)
            columns.setdefault(name, self._declared.get(name, {}))
        return columns

    def frame(self, spark: "SparkSession", where: Place, files: Sequence[File], columns: Columns) -> "DataFrame":
        encodings: dict[str, Encoding] = {}
        for name, column in columns.items():
            try:
                encodings[name] = schemaless(column["type"], self._options.timestamps, self._options.decimals)
            except Unsupported as exc:
                raise BadData(f"table '{self._table.name}': column '{name}': {exc}") from exc
        shape = _envelope(self._table.key, columns, encodings)
        parsed = frames.json_lines(spark, where, files, shape)
        return _changes(parsed, "r", self._table.key, columns, encodings)


def _changes(
    parsed: "DataFrame", at: str, key: Sequence[str], columns: Columns, encodings: Mapping[str, Encoding]
) -> "DataFrame":
    """Envelopes as changes. at: the struct that holds the envelope."""
    from pyspark.sql import functions as F

    after, before = F.col(f"{at}.after"), F.col(f"{at}.before")
    rows = parsed.select("*", F.posexplode(_ops(at, key)).alias("_sub", "_op"))
    gone = F.col("_op") == "D"
    shown = F.concat_ws(", ", *(after.getField(name).cast("string") for name in key))
    values = []
    for name, column in columns.items():
        how, target, named = encodings[name], column["type"], exact.Named(F.col("_file"), name)
        if name in key:
            raw = F.when(gone, before.getField(name)).otherwise(after.getField(name))
            missing = exact.failing(named, "the key is NULL in the line", F.col("_line"))
            value = convert(F.when(raw.isNull(), missing).otherwise(raw), how, target, named)
        else:
            raw = after.getField(name)
            value = F.when(~gone, _sent(raw, convert(raw, how, target, named), how, target, named, shown))
        values.append(value.alias(name, metadata=column["metadata"]))
    ms = F.coalesce(F.col(f"{at}.source.ts_ms"), F.col(f"{at}.ts_ms"))
    return rows.select("_op", F.struct(F.col("_at").alias("at"), "_sub").alias("_seq"), ms.alias("_ms"), *values)


def _ops(at: str, key: Sequence[str]) -> "Column":
    """What each envelope becomes: rows with these ops, in order. What is no change that can be applied raises."""
    from pyspark.sql import functions as F

    op, before, after = (F.col(f"{at}.{part}") for part in ("op", "before", "after"))
    line = F.col("_line")

    def refuse(what: str, value: "Column", hint: str = "") -> "Column":
        return exact.refused(F.col("_file"), what, value, hint).cast("array<string>")

    moved = F.lit(False)
    for name in key:
        old, new = before.getField(name), after.getField(name)
        moved |= old.isNotNull() & ~old.eqNullSafe(new)
    return (
        F.when(F.col("r._broken").isNotNull(), refuse("not a Debezium envelope of the table's columns", line))
        .when(op.isin("c", "r", "u") & after.isNull(), refuse("no 'after' in the line", line))
        .when((op == "u") & moved, F.array(F.lit("D"), F.lit("U")))
        .when(op.isin("c", "r", "u"), F.array(F.lit("U")))
        .when((op == "d") & before.isNull(), refuse("a delete without 'before' names no key", line))
        .when(op == "d", F.array(F.lit("D")))
        .when(op == "m", F.array().cast("array<string>"))
        .when(op == "t", refuse("truncate is not supported by the snapshot strategy's files upstream", line))
        .otherwise(refuse("unknown op", line))
    )


def _sent(
    raw: "Column", value: "Column", how: Encoding, target: SparkType, named: exact.Named, key: "Column"
) -> "Column":
    """The value, or an error where Debezium put its placeholder for a value that it was not given."""
    from pyspark.sql import functions as F

    if how.kind == "base64":
        absent = raw == _UNAVAILABLE_BASE64
    elif target == "string":
        absent = raw == UNAVAILABLE
    elif isinstance(target, dict) and how.kind == "array" and target["elementType"] == "string":
        absent = F.array_contains(raw, UNAVAILABLE)
    else:
        return value
    what = f"{UNAVAILABLE}: the value did not change and was not sent; key"
    hint = "ALTER TABLE … REPLICA IDENTITY FULL at the source, then take a new snapshot"
    return F.when(absent, exact.failing(named, what, key, hint)).otherwise(value)


def _payload(envelope: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The envelope itself, out of its schema block if it has one; None for a tombstone."""
    if "payload" in envelope and "op" not in envelope:
        inner = envelope["payload"]
        return inner if isinstance(inner, dict) else None
    return envelope


def _source_ms(payload: Mapping[str, Any]) -> int | None:
    source = payload.get("source")
    for holder in (source if isinstance(source, dict) else {}, payload):
        if isinstance(holder.get("ts_ms"), int):
            return int(holder["ts_ms"])
    return None


def _envelope(key: Sequence[str], columns: Columns, encodings: Mapping[str, Encoding]) -> Columns:
    """What the parser reads of an envelope: of `before` the key only."""
    fields = {name: field(name, raw_type(encodings[name], column["type"])) for name, column in columns.items()}
    before = {"type": "struct", "fields": [fields[name] for name in key]}
    after = {"type": "struct", "fields": list(fields.values())}
    times = {"type": "struct", "fields": [field("ts_ms", "long")]}
    parts: dict[str, SparkType] = {
        "op": "string",
        "before": before,
        "after": after,
        "source": times,
        "ts_ms": "long",
    }
    return {name: field(name, kind) for name, kind in parts.items()}
