"""Debezium envelopes in records as changes of a table: rows as in upserts.py, two for a key change.

An envelope is the value itself or its `payload`; the block beside the payload says how it is written
(debezium_block.py), or the options if there is none. Tombstones add nothing to the delete before them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.errors import ConfigError
from backfill_cli.formats import debezium_order
from backfill_cli.formats.debezium_changes import HEARTBEAT, NO_HEARTBEATS, NO_TRUNCATES, envelope_columns
from backfill_cli.formats.debezium_kinds import unlike
from backfill_cli.formats.exact import QUIET, decimal_of
from backfill_cli.formats.frames import struct_type
from backfill_cli.formats.json_text import is_rounded, is_whole_object, why_not_whole
from backfill_cli.formats.json_values import endless, lost, says_endless
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.formats.source_table import PARTS, Known, name_in
from backfill_cli.formats.unsent import UNAVAILABLE, unsent
from backfill_cli.formats.values import Encoding, Undecided, convert, read_as_text, schemaless
from backfill_cli.model.schema import Columns, SparkType, field, shown
from backfill_cli.upstreams.kafka.decode.columns_of_row import IN_ROW, lacking, new_column
from backfill_cli.upstreams.kafka.decode.debezium_block import encoding_of, fault, sure, told_of, with_block
from backfill_cli.upstreams.kafka.decode.events import PLACE, no_text, with_text
from backfill_cli.upstreams.kafka.decode.upserts import null_key
from backfill_cli.upstreams.kafka.options import Values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SOURCE = (field("ts_ms", "long"), *(field(part, "string") for part in (*PARTS, "connector")))
_FLAT = (
    "no 'op': not a Debezium envelope; rows that ExtractNewRecordState has unwrapped are read with "
    'value.format = "json"'
)
_MONGODB = (
    "an envelope of MongoDB, which holds documents as text: let ExtractNewDocumentState unwrap them, and read "
    'them with value.format = "json"'
)
_TRUNCATE = (
    f"truncate is not supported: set {NO_TRUNCATES} in the connector, and fill the table from a topic without "
    "such a record, as the rows that it removed would stay"
)
_ROUNDED = "a number with a fraction in a column that is read as text: its digits would be rounded"
_NO_ENVELOPE = "not a Debezium envelope of the table's columns"
_NARROW = ("byte", "short")


@dataclass(frozen=True, slots=True)
class Rules:
    """Which records are the table's, and how they are read.

    at: see TopicOptions. others: columns that rows may have besides those that are read; None: any. required:
    columns that no row may lack. blockless: the fault of a record without a block, None if it is read as the
    others are. tables: those whose records are read (`schema.table`, * for anything), others are skipped; empty:
    only those of `source`, the one table that the topic had, None if it had no record yet. named: topic and table,
    one of which names the source then; None in jobs that are older than this. late: whether the order of the
    records can prove that the source checks its key late (debezium_order).
    """

    how: Mapping[str, Encoding]
    at: str = "upstream"
    others: frozenset[str] | None = None
    required: frozenset[str] = frozenset()
    blockless: str | None = None
    tables: tuple[str, ...] = ()
    source: str | None = None
    named: tuple[str, str] | None = None
    late: bool = False

    @property
    def known(self) -> Known:
        return Known(self.tables, self.source, self.named)


def encodings(columns: Columns, value: Values, at: str) -> tuple[Mapping[str, Encoding], str | None]:
    """How each column is written, and the fault of records without a schema block, None if it is no fault.

    Raises ConfigError if neither a block nor the options say it.
    """
    found, faults, unlike = {}, [], []
    for name, column in columns.items():
        told = told_of(column)
        try:
            if told is not None:
                found[name] = encoding_of(told, column["type"])
                if not _alike(found[name], column["type"], value):
                    unlike.append(name)
            else:
                found[name] = schemaless(column["type"], value.timestamps, value.decimals)
        except Undecided as exc:
            written = '"precise", or "string", or "double"'
            faults.append(f"{at}.value: column '{name}': {exc}: set {at}.value.decimals = {written}")
        except Unsupported as exc:
            faults.append(f"{at}.value: column '{name}': {exc}")
    if faults:
        raise ConfigError("upstream", faults)
    blockless = f"no schema block, which is needed to say how these are written: {', '.join(unlike)}"
    return found, blockless if unlike else None


def _alike(how: Encoding, kind: SparkType, value: Values) -> bool:
    """Whether a value without a block is read the same way."""
    try:
        mine = schemaless(kind, value.timestamps, value.decimals)
    except Unsupported:
        return False
    if mine.kind == "unscaled" and how.kind == "unscaled":
        return how.scale == decimal_of(kind)[1]
    return mine == how or (mine.kind == "instant" and (how.kind == "text" or how.unit == mine.unit))


def as_changes(records: "DataFrame", columns: Columns, key: Sequence[str], rules: Rules) -> "DataFrame":
    from pyspark.sql import functions as F

    how = rules.how
    images = debezium_order.comparable(key, columns, how) if rules.late else None
    envelope = envelope_columns(key, _widened(columns), how, None, images)
    placed = [] if images is None else debezium_order.fields()
    envelope["source"] = field("source", {"type": "struct", "fields": [*_SOURCE, *placed]})
    payload = field("payload", {"type": "struct", "fields": list(envelope.values())})
    block = field("schema", "string")
    shape = struct_type({**envelope, "payload": payload, "schema": block, own.BROKEN: field(own.BROKEN, "string")})
    options = {"columnNameOfCorruptRecord": own.BROKEN, "mode": "PERMISSIVE"}
    told = with_text(records.where(f"{own.VALUE} IS NOT NULL"), own.VALUE, own.TEXT)
    told = told.withColumn(own.PARSED, F.from_json(own.TEXT, shape, options))
    inner = F.struct(
        *(F.coalesce(f"{own.PARSED}.{part}", f"{own.PARSED}.payload.{part}").alias(part) for part in envelope)
    )
    text = F.when(F.col(f"{own.PARSED}.payload").isNotNull(), F.col(f"{own.PARSED}.schema"))
    told = with_block(told.withColumns({own.ENVELOPE: inner, own.BLOCK_TEXT: text}), own.BLOCK_TEXT, columns)
    told = told.withColumn(own.TABLE, name_in(f"{own.ENVELOPE}.source"))
    if rules.tables:
        told = told.where(rules.known.read(F.col(own.TABLE)))
    told = told.withColumn(own.FAULT, _fault(columns, key, rules))
    rows = told.select("*", F.posexplode(_ops(key)).alias(own.SUB, own.OP))
    good, gone = F.col(own.FAULT).isNull(), F.col(own.OP) == "D"
    after, before = F.col(f"{own.ENVELOPE}.after"), F.col(f"{own.ENVELOPE}.before")
    values = []
    for name, column in columns.items():
        value = F.when(good & ~gone, _value(after.getField(name), how[name], column["type"]))
        if name in key:
            value = value.when(good & gone, _value(before.getField(name), how[name], column["type"]))
        values.append(value.alias(name, metadata=column["metadata"]))
    traced = []
    if images is not None:
        record = (F.lit("the record at partition "), "kafka_partition", F.lit(", offset "), "kafka_offset")
        trace = debezium_order.trace(
            own.ENVELOPE, key, images, columns, how, F.concat(*record), sure(columns, how)
        )
        traced = [F.when(good, trace).alias(own.TRACE)]
    found = rows.select(
        own.OP,
        F.struct("kafka_partition", "kafka_offset", own.SUB).alias(own.SEQ),
        F.coalesce(
            f"{own.ENVELOPE}.source.ts_ms", f"{own.ENVELOPE}.ts_ms", F.unix_millis("kafka_timestamp")
        ).alias(own.MS),
        F.col(own.FAULT).alias(own.ERROR),
        F.when(~good, F.col(own.VALUE)).alias(own.RAW),
        *PLACE,
        *values,
        *traced,
    )
    if images is None:
        return found
    return debezium_order.refusing(found, key, images, any(map(told_of, columns.values())))


def _widened(columns: Columns) -> Columns:
    """Narrow numbers are read as wide ones, and cast later: `from_json` takes 200 for the TINYINT -56."""
    return {
        name: {**column, "type": "integer"} if column["type"] in _NARROW else column
        for name, column in columns.items()
    }


def _value(raw: "Column", how: Encoding, kind: SparkType) -> "Column":
    """The column's value; NULL if what is written does not fit its type."""
    return raw.try_cast(kind) if kind in _NARROW else convert(raw, how, kind, QUIET)


def _ops(key: Sequence[str]) -> "Column":
    """The ops of the rows that an envelope becomes, in order. One with a fault becomes one row, which says so."""
    from pyspark.sql import functions as F

    op, before, after = (
        F.col(f"{own.ENVELOPE}.op"),
        F.col(f"{own.ENVELOPE}.before"),
        F.col(f"{own.ENVELOPE}.after"),
    )
    moved = F.lit(False)
    for name in key:
        old, new = before.getField(name), after.getField(name)
        moved |= old.isNotNull() & ~old.eqNullSafe(new)
    return (
        F.when(F.col(own.FAULT).isNotNull(), F.array(F.lit("U")))
        .when(op == "m", F.array().cast("array<string>"))
        .when(op == "d", F.array(F.lit("D")))
        .when((op == "u") & moved, F.array(F.lit("D"), F.lit("U")))
        .otherwise(F.array(F.lit("U")))
    )


def _fault(columns: Columns, key: Sequence[str], rules: Rules) -> "Column":
    from pyspark.sql import functions as F

    how = rules.how
    op, before, after = (
        F.col(f"{own.ENVELOPE}.op"),
        F.col(f"{own.ENVELOPE}.before"),
        F.col(f"{own.ENVELOPE}.after"),
    )
    writes, broken = op.isin("c", "r", "u"), F.col(f"{own.PARSED}.{own.BROKEN}")
    faults = [
        no_text(own.VALUE, own.TEXT),
        F.when(~is_whole_object(F.col(own.TEXT)), why_not_whole(F.col(own.TEXT))),
        F.when(
            is_rounded(F.col(own.TEXT), read_as_text(columns, how)),
            F.concat_ws(": ", F.lit(_ROUNDED), unlike(F.col(own.TEXT), columns, how, key)),
        ),
        F.when(F.col(f"{own.ENVELOPE}.source.connector") == "mongodb", _MONGODB),
        F.when(broken.contains('"mongodb"'), _MONGODB),
        F.when(broken.isNotNull(), F.concat_ws(": ", F.lit(_NO_ENVELOPE), unlike(broken, columns, how, key))),
        F.when(op.isNull() & _is_heartbeat(), f"{HEARTBEAT}: {NO_HEARTBEATS}"),
        F.when(op.isNull(), _FLAT),
        _of_another_table(rules),
        F.when(op == "t", _TRUNCATE),
        F.when(~op.isin("c", "r", "u", "d", "m"), F.concat(F.lit("unknown op "), op)),
        F.when(writes & after.isNull(), F.concat(F.lit("no 'after' in an envelope with op "), op)),
        F.when((op == "d") & before.isNull(), "no 'before', so no key, in an envelope with op d"),
        F.when(op == "d", null_key({name: before.getField(name) for name in key}, key)),
        F.when(writes, null_key({name: after.getField(name) for name in key}, key)),
        fault(columns, how, rules.others),
        *([_new_column(columns, rules.others)] if rules.others is not None else []),
        F.when(writes, lacking(_row_names(), rules.required)),
        *([F.when(F.col(own.BLOCK).isNull(), rules.blockless)] if rules.blockless else []),
    ]
    for name, column in columns.items():
        for side in (after, before) if name in key else (after,):
            raw = side.getField(name)
            bad = lost(raw, _value(raw, how[name], column["type"]), column["type"])
            faults.append(F.when(F.coalesce(bad, F.lit(False)), f"column '{name}': does not fit its type exactly"))
        absent = unsent(after.getField(name), how[name], column["type"])
        if absent is not None:
            faults.append(F.when(writes & absent, _not_sent(name)))
        if _has_floats(column["type"]):
            wrong = endless(after.getField(name), column["type"]) & ~says_endless(own.TEXT)
            faults.append(F.when(wrong, f"column '{name}': does not fit its type exactly"))
    return F.coalesce(*faults)


def _new_column(columns: Columns, others: frozenset[str]) -> "Column":
    """The fault of a row without a schema block that has an additional column."""
    from pyspark.sql import functions as F

    alone = F.when(F.col(own.BLOCK).isNull(), _row_names())
    return new_column(alone, columns, others, IN_ROW)


def _is_heartbeat() -> "Column":
    """Whether the record, or its payload, has nothing but a time."""
    from pyspark.sql import functions as F

    names = F.json_object_keys(F.coalesce(F.get_json_object(own.TEXT, "$.payload"), F.col(own.TEXT)))
    return F.coalesce(names == F.array(F.lit("ts_ms")), F.lit(False))


def _row_names() -> "Column":
    """The names in the row as it is after a change; NULL without one."""
    from pyspark.sql import functions as F

    rows = (F.get_json_object(own.TEXT, path) for path in ("$.after", "$.payload.after"))
    return F.json_object_keys(F.coalesce(*rows))


def _of_another_table(rules: Rules) -> "Column":
    """The fault of a record of another table than the topic's; none if the options name tables."""
    from pyspark.sql import functions as F

    of, hint, known = F.col(own.TABLE), f"; name the tables to read: {rules.at}.value.tables", rules.known
    if known.named is None:
        return F.lit(None).cast("string")
    meant = f", not of '{known.named[1]}'" if known.source is None else f", but the topic's are of {known.source}"
    return F.when(known.other(of), F.concat(F.lit("a record of table "), of, F.lit(f"{meant}{hint}")))


def _has_floats(kind: SparkType) -> bool:
    return "float" in shown(kind) or "double" in shown(kind)


def _not_sent(name: str) -> str:
    hint = "ALTER TABLE … REPLICA IDENTITY FULL at the source sends it"
    return f"column '{name}': {UNAVAILABLE}: the value did not change and was not sent; {hint}"
