"""Turns parsed Debezium envelopes into changes: one row each, two for a key change, none for a message."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER, Hint, in_config, sql
from backfill_cli.formats import debezium_kinds, debezium_order, exact
from backfill_cli.formats.source_table import NAMELESS, PARTS, Known, name_in
from backfill_cli.formats.unsent import UNAVAILABLE, unsent
from backfill_cli.formats.values import Encoding, convert, raw_type
from backfill_cli.model.schema import Columns, SparkType, field, schema_text
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.failures import CHANGES_HINT
from backfill_cli.spark.reuse import reused

_TRUNCATE = "truncate is not supported by the snapshot strategy's files upstream, op"
NO_TRUNCATES = 'skipped.operations = "t"'
"""Debezium's setting with which a connector writes no record for a truncate."""
NEW_SNAPSHOT = (
    "take a new snapshot, set upstream.snapshot.as_of to the newest change file before it; then " + START_OVER
)
_UNSENT_HINT = "at the source: " + sql("ALTER TABLE … REPLICA IDENTITY FULL") + "; then " + NEW_SNAPSHOT

HEARTBEAT = "a heartbeat of Debezium, not a change of a table"
NO_HEARTBEATS = (
    "set heartbeat.interval.ms = 0 in the connector, or keep the topic of its heartbeats (topic.heartbeat.prefix, "
    "by default __debezium-heartbeat) out of this place"
)
HEARTBEAT_HINT = f"{NO_HEARTBEATS}; then remove such lines from the change file"
UNWRAPPED = ("__op", "__deleted", "__table", "__lsn", "__source_ts_ms")
"""Fields that Debezium's ExtractNewRecordState adds to the rows that it takes out of their envelopes."""

TABLES_HINT = in_config(
    'name the tables whose changes are meant, as in upstream.changes.tables = ["public.orders"]'
)


def changes(
    parsed: DataFrame,
    at: str,
    key: Sequence[str],
    columns: Columns,
    encodings: Mapping[str, Encoding],
    epoch: str | None,
    known: Known,
    numbered: bool,
    images: Sequence[str] | None = None,
    blanks: Mapping[str, frozenset[str]] | None = None,
) -> DataFrame:
    """Envelopes as changes. at: the struct that holds the envelope. known: the tables they can be of.

    numbered: whether `own.AT.row` is the row's place in its file, which errors then name. images: the columns of
    `before` that debezium_order compares; None: the order needs no check. blanks: those of the columns, by the
    schema block; None without one.
    """
    mine = parsed.where(known.read(name_in(f"{at}.source"))) if known.tables else parsed
    built = (
        "debezium",
        at,
        tuple(key),
        schema_text(columns),
        tuple(encodings.items()),
        epoch,
        known,
        numbered,
        images,
        None if blanks is None else tuple(sorted((name, tuple(sorted(of))) for name, of in blanks.items())),
    )

    def sure(name: str, raw: Column) -> Column:
        known = (blanks or {}).get(name)
        if known is None:
            return F.lit(False)
        kind = str(raw_type(encodings[name], columns[name]["type"]))
        alike = raw.isin(*(F.lit(text).try_cast(kind) for text in sorted(known))) if known else F.lit(False)
        return F.coalesce(~alike, F.lit(False))

    def build() -> tuple[Column, list[Column]]:
        file = F.col(own.FILE)
        file = exact.row_of(file, F.col(f"{own.AT}.row"), F.col(own.LINE)) if numbered else file
        shown = _shown(at, key, columns, encodings, epoch, file)
        if images is not None:
            shown.append(debezium_order.trace(at, images, columns, encodings, file, sure).alias(own.TRACE))
        return _ops(at, key, columns, encodings, known, file), shown

    ops, shown = reused(built, build)
    found = mine.select("*", F.posexplode(ops).alias(own.SUB, own.OP)).select(*shown)
    if images is None:
        return found
    return debezium_order.refusing(found, key, images, blanks is not None, F.col(own.TRACE)["place"])


def _shown(
    at: str,
    key: Sequence[str],
    columns: Columns,
    encodings: Mapping[str, Encoding],
    epoch: str | None,
    file: Column,
) -> list[Column]:
    """The change's marks and columns, from an envelope and an op. file: what errors name."""
    after, before = F.col(f"{at}.after"), F.col(f"{at}.before")
    gone = F.col(own.OP) == "D"
    shown = F.concat_ws(", ", *(after.getField(name).cast("string") for name in key))
    values = []
    for name, column in columns.items():
        how, target, named = encodings[name], column["type"], exact.Named(file, name, CHANGES_HINT)
        if name in key:
            raw = F.when(gone, before.getField(name)).otherwise(after.getField(name))
            missing = exact.failing(named, "the key is NULL in a line with op", F.col(f"{at}.op"))
            value = convert(F.when(raw.isNull(), missing).otherwise(raw), how, target, named)
            value = _sent(raw, value, how, target, named, shown)
        else:
            raw = after.getField(name)
            value = F.when(~gone, _sent(raw, convert(raw, how, target, named), how, target, named, shown))
        values.append(value.alias(name, metadata=column["metadata"]))
    ms = F.coalesce(F.col(f"{at}.source.ts_ms"), F.col(f"{at}.ts_ms"))
    marks = [F.col(own.OP), F.struct(F.col(own.AT).alias("at"), own.SUB).alias(own.SEQ), ms.alias(own.MS)]
    if epoch is not None:
        marks.append(F.col(f"{at}.{epoch}").alias(own.EPOCH))
    return [*marks, *values]


def _ops(
    at: str, key: Sequence[str], columns: Columns, encodings: Mapping[str, Encoding], known: Known, file: Column
) -> Column:
    """The ops of the rows that an envelope becomes, in order. An envelope that cannot be applied is an error."""
    op, before, after = (F.col(f"{at}.{part}") for part in ("op", "before", "after"))
    broken = F.col(f"r.{own.BROKEN}")
    wrong = F.when(broken.isNotNull(), F.coalesce(debezium_kinds.unlike(broken, columns, encodings, key), broken))

    def refuse(what: str, value: Column, hint: Hint | str = CHANGES_HINT) -> Column:
        return exact.refused(file, what, value, hint).cast("array<string>")

    moved = F.lit(False)
    for name in key:
        old, new = before.getField(name), after.getField(name)
        moved |= old.isNotNull() & ~old.eqNullSafe(new)
    of = name_in(f"{at}.source")
    beats = op.isNull() & before.isNull() & after.isNull() & (of == "") & F.col(f"{at}.ts_ms").isNotNull()
    return (
        F.when(beats, refuse(HEARTBEAT, F.col(f"{at}.ts_ms"), HEARTBEAT_HINT))
        .when(
            known.other(of) & (op != "m"),
            refuse(known.meant, F.when(of == "", NAMELESS).otherwise(of), TABLES_HINT),
        )
        .when(wrong.isNotNull(), refuse("not a Debezium envelope of the table's columns", wrong))
        .when(op.isin("c", "r", "u") & after.isNull(), refuse("no 'after' in a line with op", op))
        .when((op == "u") & moved, F.array(F.lit("D"), F.lit("U")))
        .when(op.isin("c", "r", "u"), F.array(F.lit("U")))
        .when((op == "d") & before.isNull(), refuse("no 'before', so no key, in a line with op", op))
        .when(op == "d", F.array(F.lit("D")))
        .when(op == "m", F.array().cast("array<string>"))
        .when(op == "t", refuse(_TRUNCATE, op, NEW_SNAPSHOT))
        .otherwise(refuse("unknown op", op))
    )


def _sent(raw: Column, value: Column, how: Encoding, target: SparkType, named: exact.Named, key: Column) -> Column:
    """The value, or an error if it is Debezium's placeholder for a value that it did not receive."""
    absent = unsent(raw, how, target)
    if absent is None:
        return value
    what = f"{UNAVAILABLE}: the value did not change and was not sent; key"
    return F.when(absent, exact.failing(named, what, key, _UNSENT_HINT)).otherwise(value)


def envelope_columns(
    key: Sequence[str],
    columns: Columns,
    encodings: Mapping[str, Encoding],
    epoch: str | None,
    images: Sequence[str] | None = None,
) -> Columns:
    """The fields that the parser reads from an envelope: from `before` the key, and `images` as text.

    epoch: a field that is read as text.
    """
    fields = {name: field(name, raw_type(encodings[name], column["type"])) for name, column in columns.items()}
    told = [field(name, "string") for name in images or ()]
    before: SparkType = {"type": "struct", "fields": [*(fields[name] for name in key), *told]}
    after: SparkType = {"type": "struct", "fields": list(fields.values())}
    names = [field(part, "string") for part in PARTS]
    placed = [] if images is None else debezium_order.fields()
    source: SparkType = {"type": "struct", "fields": [field("ts_ms", "long"), *names, *placed]}
    parts: dict[str, SparkType] = {
        "op": "string",
        "before": before,
        "after": after,
        "source": source,
        "ts_ms": "long",
    }
    shape = {name: field(name, kind) for name, kind in parts.items()}
    if epoch is not None:
        top, *rest = epoch.split(".")
        shape[top] = _with_path(shape.get(top), top, rest)
    return shape


def _with_path(now: Mapping[str, Any] | None, name: str, rest: Sequence[str]) -> dict[str, Any]:
    """The field with the path `rest` added below it; the last part as text unless it is read already."""
    if not rest:
        return dict(now) if now is not None else field(name, "string")
    inner = {f["name"]: f for f in now["type"]["fields"]} if now is not None else {}
    inner[rest[0]] = _with_path(inner.get(rest[0]), rest[0], rest[1:])
    return field(name, {"type": "struct", "fields": list(inner.values())})
