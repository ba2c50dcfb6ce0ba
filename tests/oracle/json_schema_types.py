"""What each type of JSON Schema becomes in a table, measured: its extremes, and values that no column holds."""

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from backfill_cli.decode.json_schema import JsonSchema
from oracle.avro_types import REFUSED, Found, compared, shown_as

Values = Mapping[str, Any]
"""By the JSON of a value what it is in a table."""

TEXTS: Values = {'""': "", '"ä€😀"': "ä€😀", '"\\u0000"': "\0", "5": "5", "0.5": REFUSED}
_OF_CONNECT = "org.apache.kafka.connect.data."


def whole(bits: int) -> Values:
    edge = 1 << bits - 1
    inside = {str(n): n for n in (0, -1, edge - 1, -edge)}
    return {**inside, str(edge): REFUSED, "1.5": REFUSED, "1.0": 1, '"1"': REFUSED}


def hinted(kind: str, hint: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    """A type as Kafka Connect's converter writes it."""
    named = {} if name is None else {"title": _OF_CONNECT + name}
    return {"type": kind, "connect.type": hint, **named, **more}


def quoted(raw: bytes) -> str:
    return json.dumps(b64encode(raw).decode())


NUMBERS: Values = {
    "0": 0.0,
    "0.1": 0.1,
    "5e-324": 5e-324,
    "1.7976931348623157e308": 1.7976931348623157e308,
    "9007199254740993": 9007199254740992.0,  # the nearest one, as in all JSON
    "0.1000000000000000055": 0.1,
    "1e400": REFUSED,
    '"1"': REFUSED,
}
CENTS = {"connect.parameters": {"scale": "2", "connect.decimal.precision": "9"}}
NONE: Values = {}
OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}}
TYPES: dict[str, tuple[Any, Values]] = {
    "null": ({"type": "null"}, NONE),
    "boolean": ({"type": "boolean"}, {"true": True, "false": False, "1": REFUSED}),
    "integer": ({"type": "integer"}, whole(64)),
    "number": ({"type": "number"}, NUMBERS),
    "string": ({"type": "string"}, TEXTS),
    "string with a format (date-time, uuid, …)": ({"type": "string", "format": "date-time"}, TEXTS),
    "a type with enum, const or limits": ({"type": "string", "enum": ["a"], "maxLength": 1}, {'"a"': "a"}),
    "enum or const alone": ({"enum": ["a"]}, NONE),
    "array": ({"type": "array", "items": {"type": "integer"}}, {"[]": [], "[1,2]": [1, 2]}),
    "array without items": ({"type": "array"}, NONE),
    "object with properties": (OBJECT, {'{"x":1}': {"x": 1}, "{}": {"x": None}}),
    "object with additionalProperties": (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"{}": [], '{"a":1}': [("a", 1)]},
    ),
    "object without either": ({"type": "object"}, NONE),
    "object that contains itself": ({"type": "object", "properties": {"x": {"$ref": "#/properties/f"}}}, NONE),
    "properties beside allOf, if, patternProperties, …": ({**OBJECT, "patternProperties": {"^y": {}}}, NONE),
    "null and a type": ({"type": ["null", "integer"]}, {"null": None, "1": 1}),
    "oneOf or anyOf of null and a type": (
        {"oneOf": [{"type": "null"}, {"type": "integer"}]},
        {"null": None, "1": 1},
    ),
    "several types": ({"type": ["string", "integer"]}, NONE),
    "oneOf or anyOf of several types": ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, NONE),
    "no type": ({}, NONE),
    "int8 of Kafka Connect": (hinted("integer", "int8"), whole(8)),
    "int16 of Kafka Connect": (hinted("integer", "int16"), whole(16)),
    "int32 of Kafka Connect": (hinted("integer", "int32"), whole(32)),
    "float32 of Kafka Connect": (hinted("number", "float32"), {"1.5": 1.5, "1e39": REFUSED}),
    "bytes of Kafka Connect": (
        hinted("string", "bytes"),
        {'""': b"", quoted(b"\0\xff"): b"\0\xff", '"!"': REFUSED},
    ),
    "Date of Kafka Connect": (
        hinted("integer", "int32", "Date"),
        {"-719162": date(1, 1, 1), "2932896": date(9999, 12, 31), "2932897": REFUSED},
    ),
    "Time of Kafka Connect": (hinted("integer", "int32", "Time"), {"86399999": 86_399_999}),
    "Timestamp of Kafka Connect": (
        hinted("integer", "int64", "Timestamp"),
        {"0": datetime(1970, 1, 1), "253402300800000": REFUSED},
    ),
    "Decimal of Kafka Connect (BASE64)": (
        hinted("string", "bytes", "Decimal", **CENTS),
        {quoted(b"\x30\x39"): Decimal("123.45"), quoted((10**9).to_bytes(5, "big")): REFUSED},
    ),
    "Decimal of Kafka Connect (NUMERIC)": (
        hinted("number", "bytes", "Decimal", **CENTS),
        {"123.45": Decimal("123.45"), "0.001": REFUSED, "1e9": REFUSED},
    ),
}


def measured(name: str) -> Found:
    """What a type becomes; raises AssertionError for a value that is another one in the table."""
    schema, values = TYPES[name]
    reader = JsonSchema(json.dumps({"type": "object", "properties": {"f": schema}}), {})
    raws = [f'{{"f":{text}}}'.encode() for text in values]
    every = frozenset(range(len(raws)))
    return compared(name, reader, raws, list(values.values()), every, binary=False)


def table() -> str:
    return shown_as("## JSON Schema", {name: measured(name) for name in TYPES})
