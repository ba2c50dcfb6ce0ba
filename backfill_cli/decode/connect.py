"""What Kafka Connect's schema says of a column: how it is written, and its own Spark type.

A field is Connect's JSON, as in Debezium's schema block: `{"type", "name" (the logical type), "parameters",
"items", "fields", …}`. Schemas of other encodings are told in the same way; types that Connect lacks have names of
their own. `written`: what the writer's schema calls the type, where that is another word. `json`: the type is of
numbers of JSON, which can have more digits.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from backfill_cli.decode.encodings import Encoding
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import SparkType, decimal_of, field, shown

Connect = Mapping[str, Any]

DEEPEST, MOST_MEMBERS = 100, 20_000
"""Types within one another, and all of them in a schema, each as often as it occurs: names that are used twice at
each of forty levels stand for 2^40. So many steps of Python's stack are always there."""
TOO_LARGE = f"the schema is nested too deep, or has more than {MOST_MEMBERS:,} members"

RECURSIVE = "recursive"
"""The type of what contains itself."""
NUMBER = "number"
"""The type of a decimal that is a number in JSON: Connect has bytes for it."""
UINT64 = "protobuf.uint64"
"""A text of digits: Connect has no type for them."""

OTHERS = "members by "
"""How the type begins of what stands for the members that JSON Schema describes beside an object's `properties`.
Its `field` is the word that describes them, its `names` are theirs; None: any."""

INTS = {"int8": "byte", "int16": "short", "int32": "integer", "int64": "long"}
_WIDTH = tuple(INTS.values())
_UNITS = {
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "avro.timestamp-millis": "ms",
    "avro.timestamp-micros": "us",
    "avro.timestamp-nanos": "ns",
    "avro.local-timestamp-millis": "ms",
    "avro.local-timestamp-micros": "us",
    "avro.local-timestamp-nanos": "ns",
    "google.protobuf.Timestamp": "us",
}
_ZONED = ("avro.timestamp-millis", "avro.timestamp-micros", "avro.timestamp-nanos", "google.protobuf.Timestamp")
"""Instants, which a timestamp without zone does not hold."""
_LOCAL = ("avro.local-timestamp-millis", "avro.local-timestamp-micros", "avro.local-timestamp-nanos")
"""Times of a clock on a wall, which are no instants. All others of _UNITS may be either."""
_TIMESTAMPS = ("timestamp", "timestamp_ntz")
_DAYS = ("org.apache.kafka.connect.data.Date", "io.debezium.time.Date", "avro.date")
DIGITS = 38
"""The most that a column's decimal has."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_INSTANT = "io.debezium.time.ZonedTimestamp"
_COUNTED = (
    "org.apache.kafka.connect.data.Time",
    "io.debezium.time.Time",
    "io.debezium.time.MicroTime",
    "io.debezium.time.NanoTime",
    "io.debezium.time.MicroDuration",
    "io.debezium.time.NanoDuration",
    "io.debezium.time.Year",
    "avro.time-millis",
    "avro.time-micros",
)
"""Kept as plain numbers: Spark has no type for a time of day."""
_LOGICAL = {"io.debezium.data.Uuid": "uuid", "io.debezium.data.Json": "json", "avro.uuid": "uuid"}
_TEXTS = (
    *_LOGICAL,
    "io.debezium.data.Enum",
    "io.debezium.data.EnumSet",
    "io.debezium.data.Xml",
    "io.debezium.data.Ltree",
    "io.debezium.time.ZonedTime",
    "io.debezium.time.Interval",
)


_NO_SCALE = "a decimal without a scale has no exact type"


_COUNTS = {
    **{
        name: f"{'instant' if name in _ZONED else 'local time' if name in _LOCAL else 'timestamp'} in {unit}"
        for name, unit in _UNITS.items()
    },
    **dict.fromkeys(_DAYS, "days"),
    **dict.fromkeys(
        ("org.apache.kafka.connect.data.Time", "io.debezium.time.Time", "avro.time-millis"), "time in ms"
    ),
    **dict.fromkeys(("io.debezium.time.MicroTime", "avro.time-micros"), "time in us"),
    "io.debezium.time.Year": "",
}
"""What numbers of a logical type count, where several types count the same."""


class Malformed(Unsupported):
    """A field that Kafka Connect does not write."""


def is_others(told: Connect) -> bool:
    """Whether this is no field, but stands for others (OTHERS)."""
    return str(told.get("type")).startswith(OTHERS)


def without_others(told: Connect) -> Connect:
    """The same, without what stands for other members, at any depth."""
    parts = {part: without_others(told[part]) for part in ("items", "values") if part in told}
    if "fields" in told:
        return {**told, "fields": [without_others(one) for one in told["fields"] if not is_others(one)]}
    return {**told, **parts} if parts else told


def is_time(told: Connect) -> bool:
    """Whether the field is a date, a time or a duration, which a column of text or numbers may have otherwise."""
    return (told.get("name") or "") in (*_UNITS, *_DAYS, *_COUNTED, _INSTANT)


def counts_alike(one: Connect, other: Connect, how: Encoding) -> bool:
    """Whether the numbers of two fields count the same, where these are kept. how: the first one is read."""
    return counted(one, how) == counted(other, how)


def counted(told: Connect, how: Encoding) -> str | dict[str, Any]:
    """What a field's whole numbers count where these are kept, as far as its logical type says it.

    Of a nested field, by its members. how: it is read.
    """
    match how.kind:
        case "array" | "map":
            part = "items" if how.kind == "array" else "values"
            return {part: counted(told.get(part) or {}, how.inner[0][1])}
        case "struct":
            fields = {f.get("field"): f for f in told.get("fields") or ()}
            return {name: counted(fields.get(name) or {}, inner) for name, inner in how.inner}
        case "plain" | "whole" if told.get("type") in INTS:
            name = str(told.get("name") or "")
            return _COUNTS.get(name, name)
    return ""


def says(counts: str | Mapping[str, Any]) -> bool:
    """Whether a field's schema says what some of its numbers count. counts: what `counted` returned."""
    return counts != "" if isinstance(counts, str) else any(map(says, counts.values()))


def own_type(told: Connect) -> tuple[SparkType, dict[str, str]]:
    """(Spark type, column metadata) of a column that is known only from the schema block.

    Raises Unsupported for a field without an exact type of its own.
    """
    name, kind = told.get("name") or "", str(told.get("type"))
    if name in _DAYS and kind in INTS:
        return "date", {}
    if name in _UNITS and kind in INTS:
        return "timestamp" if name in _ZONED else "timestamp_ntz", {}
    if name == _INSTANT and kind == "string":
        return "timestamp", {}
    if name == DECIMAL and kind in ("bytes", NUMBER):
        return _own_decimal(told), {}
    if name == _VARIABLE:
        raise Unsupported(_NO_SCALE)
    if name == UINT64 and kind == "string":
        return "decimal(20,0)", {}
    if kind in INTS and (not name or name in _COUNTED):
        return INTS[kind], {}
    if kind == "string" and (not name or name in _TEXTS):
        return "string", {"logical": _LOGICAL[name]} if name in _LOGICAL else {}
    if kind in ("float", "double", "boolean"):
        return kind, {}
    if kind == "bytes":
        return "binary", {}
    return _own_nested(told), {}


def _own_decimal(told: Connect) -> str:
    """The decimal that holds all values; one of a negative scale, as PostgreSQL has them, has no places."""
    scale = _scale(told)
    given = told["parameters"].get("connect.decimal.precision")
    if given is not None and not (_is_whole(given) and int(given) > 0):
        raise Malformed(f"a decimal of {str(given)[:20]} digits")
    precision = max(DIGITS if given is None else int(given), scale)
    precision -= 0 if given is None else min(scale, 0)
    if precision > DIGITS:
        raise Unsupported(f"a decimal of {precision} digits is not kept exactly: at most {DIGITS}")
    return f"decimal({precision},{max(scale, 0)})"


def _scale(told: Connect) -> int:
    """Of a decimal. Raises Malformed."""
    parameters = told.get("parameters")
    found = parameters.get("scale") if isinstance(parameters, Mapping) else None
    if not _is_whole(found):
        raise Malformed(_NO_SCALE)
    return int(found)


def _is_whole(told: Any) -> TypeGuard[str | int]:
    return isinstance(told, str | int) and re.fullmatch("-?[0-9]{1,4}", str(told), re.ASCII) is not None


def _own_nested(told: Connect) -> SparkType:
    match told.get("type"):
        case "array":
            return {"type": "array", "elementType": own_type(told["items"])[0], "containsNull": True}
        case "map" if told["keys"].get("type") == "string":
            value = own_type(told["values"])[0]
            return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}
        case "struct" if told["fields"]:
            return {"type": "struct", "fields": [field(f["field"], own_type(f)[0]) for f in told["fields"]]}
        case "struct":
            raise Unsupported(f"{_told(told)} has no fields")
        case "group":
            raise Unsupported("groups of proto2 are not supported")
        case "null":
            raise Unsupported("a column that is always NULL has no type")
        case "recursive":
            raise Unsupported(f"{told.get('name') or 'the type'} contains itself: no column has such a type")
    raise Unsupported(f"type {_told(told)} is not known")


def encoding(told: Connect, target: SparkType) -> Encoding:
    """How to read a column with this schema into its table's type. Raises Unsupported if it does not fit."""
    found = _nested(told, target) if isinstance(target, dict) else _simple(told, target)
    if found is None:
        raise Unsupported(f"{_told(told)} does not fit {shown(target)}")
    return found


def _simple(told: Connect, target: str) -> Encoding | None:
    name, kind = told.get("name") or "", str(told.get("type"))
    if name in _DAYS and kind in INTS:
        return Encoding("days") if target == "date" else None
    if name in _UNITS and kind in INTS:
        held = ("timestamp",) if name in _ZONED else ("timestamp_ntz",) if name in _LOCAL else _TIMESTAMPS
        return Encoding("units", unit=_UNITS[name]) if target in held else None
    if name == _INSTANT and kind == "string":
        return Encoding("text") if target in ("timestamp", "string") else None
    if target.startswith("decimal"):
        return _decimal(told, name, kind)
    if name == UINT64 and kind == "string" and target == "long":
        return Encoding("text")
    if kind in INTS and (not name or name in _COUNTED):
        fits = holds(target, INTS[kind])
        if fits and told.get("json"):
            return Encoding("whole")
    elif kind == "string":
        fits = target == "string" and (not name or name in _TEXTS)
    elif kind == "bytes":
        return Encoding("base64") if target == "binary" and name != DECIMAL else None
    else:
        fits = target == kind or (kind == "float" and target == "double")
    return Encoding("plain") if fits else None


def holds(target: SparkType, whole: str) -> bool:
    """Whether every value of a type of whole numbers is one of the target's."""
    return target in _WIDTH and _WIDTH.index(target) >= _WIDTH.index(whole)


def _decimal(told: Connect, name: str, kind: str) -> Encoding | None:
    if name == DECIMAL and kind == "bytes":
        return Encoding("unscaled", scale=_scale(told))
    if name == DECIMAL and kind == NUMBER:
        return Encoding("number")
    if name == _VARIABLE:
        return Encoding("variable")
    if told.get("json"):
        return Encoding("number")
    return Encoding("text") if kind == "string" and name in ("", UINT64) else None


def _nested(told: Connect, target: dict[str, Any]) -> Encoding | None:
    if told.get("type") != target["type"]:
        return None
    if target["type"] == "array":
        return Encoding("array", inner=(("", encoding(told["items"], target["elementType"])),))
    if target["type"] == "map":
        return Encoding("map", inner=(("", encoding(told["values"], target["valueType"])),))
    fields = {f["field"]: f for f in told["fields"] if not is_others(f)}
    if set(fields) != {f["name"] for f in target["fields"]}:
        return None
    return Encoding(
        "struct", inner=tuple((f["name"], encoding(fields[f["name"]], f["type"])) for f in target["fields"])
    )


def forms(
    how: Encoding, target: str, read: Callable[[Connect, SparkType], Encoding]
) -> list[tuple[str, str, str]]:
    """The (type, logical name, scale) of the fields that `read` reads by `how` into a simple type."""
    if how.kind == "variable":
        return [("struct", _VARIABLE, "")]
    if how.kind == "unscaled":
        return [("bytes", DECIMAL, str(decimal_of(target)[1] if how.scale is None else how.scale))]
    names = ("", *_COUNTED, *_DAYS, *_UNITS, *_TEXTS, _INSTANT, UINT64)
    candidates = [(kind, name) for kind in (*INTS, "string") for name in names]
    candidates += [(kind, "") for kind in ("float", "double", "boolean", "bytes")]
    found = []
    for kind, name in candidates:
        try:
            one = read({"type": kind, "name": name}, target)
        except Unsupported:
            continue
        if one == how or (how.kind == "instant" and (one.kind == "text" or one.unit == how.unit)):
            found.append((kind, name, ""))
    return found


def _told(told: Connect) -> str:
    return str(told.get("name") or word_of(told))


def word_of(told: Connect) -> Any:
    """What the writer's schema calls a type."""
    return told.get("written") or told.get("type")
