"""A Protobuf message as Google's library reads it, in the values that Arrow has."""

import datetime
import math
import struct
from typing import Any

from google.protobuf import unknown_fields
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

ODD = object()
"""A value that no column holds exactly: it is refused where it is read, and its record is not read by columns."""


class Refused(Exception):
    """A message that is not whole, though the library returns it."""


def row(message: Message) -> dict[str, Any]:
    """The message's fields by name. Raises Refused."""
    if not message.IsInitialized():
        raise Refused("a required field is not there")
    known = {field.number: field for field in message.DESCRIPTOR.fields}
    for unknown in unknown_fields.UnknownFieldSet(message):
        field = known.get(unknown.field_number)
        if field is not None and unknown.wire_type == 0 and field.enum_type is not None:
            raise Refused("a number that an enum does not have")
        if field is not None and unknown.wire_type == 2 and is_map(field):
            raise Refused("an entry of a map with an unknown field, on which Google's own libraries do not agree")
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _field(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        of = field.message_type.fields_by_name["value"]
        return {str(k).lower() if isinstance(k, bool) else str(k): _value(value[k], of) for k in value}
    if field.is_repeated:
        return [_value(one, field) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(value, field)


def _value(value: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if isinstance(value, Message):
        return _message(value)
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return str(value)
    if isinstance(value, float):
        return exact(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused("no text") from None
    elif field.type == FieldDescriptor.TYPE_STRING:
        raise Refused("no text")
    return value


def exact(value: float) -> Any:
    """A float by its bits, but for NaN."""
    return "nan" if value != value else struct.pack("<d", value)


def _message(value: Any) -> Any:
    name = value.DESCRIPTOR.full_name.removeprefix("google.")
    row(value)
    match name:
        case "protobuf.Timestamp" | "protobuf.Duration":
            return _micros(value, name)
        case "type.Date":
            try:
                return (datetime.date(value.year, value.month, value.day) - datetime.date(1970, 1, 1)).days
            except (ValueError, OverflowError):
                return ODD
        case "type.TimeOfDay":
            parts = (value.hours, 24), (value.minutes, 59), (value.seconds, 60), (value.nanos, 999_999_999)
            if not all(0 <= part <= most for part, most in parts):
                return ODD
            return (value.hours * 3600 + value.minutes * 60 + value.seconds) * 1_000_000_000 + value.nanos
        case "protobuf.Struct" | "protobuf.Value" | "protobuf.ListValue":
            return "json", _json(value)
    if name.startswith("protobuf.") and name.endswith("Value"):
        return _value(value.value, value.DESCRIPTOR.fields_by_name["value"])
    return row(value)


def _json(value: Any) -> Any:
    row(value)
    match value.DESCRIPTOR.name:
        case "Struct":
            return {name: _json(value.fields[name]) for name in value.fields}
        case "ListValue":
            return [_json(one) for one in value.values]
    kind = value.WhichOneof("kind")
    found = None if kind is None else getattr(value, kind)
    if kind is None or (kind == "number_value" and not math.isfinite(found)):
        raise Refused("no JSON")
    if kind == "null_value":
        return None
    return _json(found) if kind in ("struct_value", "list_value") else found


def _micros(value: Any, name: str) -> Any:
    nanos = value.seconds * 1_000_000_000 + value.nanos
    try:
        value.ToJsonString()
    except ValueError:
        return ODD
    return nanos // 1000 if nanos % 1000 == 0 else ODD


def has_odd(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_odd, value.values()))
    return any(map(has_odd, value)) if isinstance(value, list) else value is ODD
