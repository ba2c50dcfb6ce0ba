"""What Kafka Connect calls Protobuf's types: its own schema of a message, as decode/connect.py reads it.

Messages with a meaning have names of their own: `google.protobuf.Timestamp`, `protobuf.uint64`, …
"""

from typing import Any

from backfill_cli.decode.connect import DECIMAL, DEEPEST, MOST_MEMBERS, RECURSIVE, TOO_LARGE, UINT64, Connect
from backfill_cli.decode.protobuf.one import JSON, WRAPPERS
from backfill_cli.decode.protobuf.types import Field, Message, Types
from backfill_cli.formats.schemas import Unsupported

_INT32, _INT64 = {"type": "int32"}, {"type": "int64"}
_UINT64 = {"type": "string", "name": UINT64}
_JSON = {"type": "string", "name": "io.debezium.data.Json"}
_SCALARS = {
    "int32": _INT32,
    "int64": _INT64,
    **{kind: {**_INT32, "written": kind} for kind in ("sint32", "sfixed32")},
    **{kind: {**_INT64, "written": kind} for kind in ("sint64", "sfixed64", "uint32", "fixed32")},
    **dict.fromkeys(("uint64", "fixed64"), _UINT64),
    **{kind: {"type": kind} for kind in ("float", "double", "string", "bytes")},
    "bool": {"type": "boolean", "written": "bool"},
    "enum": {"type": "string", "written": "enum"},
    "group": {"type": "group"},
}
_MESSAGES = {
    "google.protobuf.Timestamp": {"type": "int64", "name": "google.protobuf.Timestamp"},
    "google.protobuf.Duration": {"type": "int64", "name": "io.debezium.time.MicroDuration"},
    "google.type.Date": {"type": "int32", "name": "org.apache.kafka.connect.data.Date"},
    "google.type.TimeOfDay": {"type": "int64", "name": "io.debezium.time.NanoTime"},
    **dict.fromkeys(JSON, _JSON),
}


def connect(types: Types, name: str) -> Connect:
    """The schema of a message type.

    A field has no default: one that a record's schema does not have yet is NULL, as it is where a column is added.
    """
    try:
        members = _members(types, name, {})
    except RecursionError:
        raise Unsupported(TOO_LARGE) from None
    if members > MOST_MEMBERS:
        raise Unsupported(TOO_LARGE)
    return _struct(types, types.messages[name], ())


def _members(types: Types, name: str, known: dict[str, int]) -> int:
    """How many fields there are where each message is replaced by its own, but for those within themselves."""
    if name not in known:
        known[name] = 1
        for one in types.messages[name].fields:
            known[name] += _members(types, one.type, known) if one.kind == "message" else 1
    return known[name]


def _struct(types: Types, message: Message, above: tuple[str, ...]) -> dict[str, Any]:
    if message.name in above:
        return {"type": RECURSIVE, "name": message.name}
    if len(above) >= DEEPEST:
        return {"type": TOO_LARGE}
    inner = (*above, message.name)
    fields = [{**_field(types, field, inner), "field": field.name} for field in message.fields]
    return {"type": "struct", "name": message.name, "fields": fields}


def _field(types: Types, field: Field, above: tuple[str, ...]) -> dict[str, Any]:
    entry = types.messages.get(field.type)
    if entry is not None and entry.is_entry:
        found = {"type": "map", "keys": {"type": "string"}, "values": _one(types, entry.by_number[2], above)}
    else:
        found = _one(types, field, above)
        if field.repeated:
            found = {"type": "array", "items": found}
    return {**found, "optional": True} if field.presence else found


def _one(types: Types, field: Field, above: tuple[str, ...]) -> dict[str, Any]:
    if field.kind != "message":
        told = field.params.get("connect.type")
        return {"type": told} if field.kind == "int32" and told in ("int8", "int16") else _SCALARS[field.kind]
    if field.type in _MESSAGES:
        return _MESSAGES[field.type]
    if field.type in WRAPPERS:
        return _SCALARS[types.messages[field.type].by_number[1].kind]
    if field.type == "confluent.type.Decimal":
        return _decimal(field)
    return _struct(types, types.messages[field.type], above)


def _decimal(field: Field) -> dict[str, Any]:
    """A decimal whose field states its scale; one with any scale is Debezium's."""
    if field.scale is None:
        return {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    digits = {"scale": str(field.scale)}
    if "precision" in field.params:
        digits["connect.decimal.precision"] = field.params["precision"]
    return {"type": "bytes", "name": DECIMAL, "parameters": digits}
