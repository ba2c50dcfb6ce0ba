"""One Protobuf message as tokens, in plain Python: says what is wrong with those that `columns.py` leaves out."""

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from backfill_cli.decode.protobuf import wire
from backfill_cli.decode.protobuf.types import Enum, Field, Message, Types
from backfill_cli.decode.tokens import Constant, Number, Token, written
from backfill_cli.decode.unreadable import Unreadable

ENTRY = "an entry of a map has more than its key and its value: Protobuf's libraries do not agree what it is"

Values = dict[int, Any]
"""Field number → its value as it is read: the value, a list of them, or the Values of a message.

Of a map they are the Values of its entries. _FAULT → why the message cannot be read, if it is used.
"""
_FAULT = -1

_PACKED = dict.fromkeys(("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum"), wire.VARINT)
_PACKED |= dict.fromkeys(("fixed64", "sfixed64", "double"), wire.FIXED64)
_PACKED |= dict.fromkeys(("fixed32", "sfixed32", "float"), wire.FIXED32)
KINDS = _PACKED | dict.fromkeys(("string", "bytes", "message"), wire.SIZED) | {"group": -1}
"""Kind of a field → the wire type of its values. Where it has another, the field is one that nobody knows."""

_FORMATS = {"fixed64": "<Q", "sfixed64": "<q", "double": "<d", "fixed32": "<I", "sfixed32": "<i", "float": "<f"}
DEFAULTS: Mapping[str, Any] = dict.fromkeys(KINDS, 0) | {
    "string": "",
    "bytes": b"",
    "bool": False,
    "float": 0.0,
    "double": 0.0,
}


def token(data: bytes, types: Types, name: str) -> dict[str, Token]:
    """The message of a type, as Kafka Connect's JsonConverter would write it. Raises Unreadable."""
    return _shown(_read(data, 0, len(data), types, name, {}, 0), types, types.messages[name])


def known(data: bytes, types: Types, field: Field) -> Token:
    """A message that becomes a value of its own, from its bytes. Raises Unreadable."""
    return KNOWN[field.type](_read(data, 0, len(data), types, field.type, {}, 1), types, field)


def _read(data: bytes, at: int, end: int, types: Types, name: str, into: Values, depth: int) -> Values:
    """Adds a message's fields to what was read of it before."""
    if depth > wire.DEEP:
        raise Unreadable(wire.TOO_DEEP)
    message = types.messages[name]
    while at < end:
        found = wire.field(data, at, end, depth)
        at = found.end
        field = message.by_number.get(found.number)
        if field is not None and field.repeated and found.kind == wire.SIZED and field.kind in _PACKED:
            values = _packed(data, found, field)
        elif field is None or found.kind != KINDS[field.kind]:
            if message.is_entry:
                into[_FAULT] = ENTRY
            continue
        elif field.kind == "message":
            before = {} if field.repeated else into.get(field.number, {})
            values = [_read(data, found.value, found.end, types, field.type, before, depth + 1)]
        else:
            values = [_value(data, found, field)]
        for other in message.oneofs.get(field.number, ()):
            into.pop(other, None)
        if field.kind == "enum":
            _check(types.enums[field.type], values, field, into)
        if field.repeated:
            into.setdefault(field.number, []).extend(values)
        else:
            into[field.number] = values[0]
    return into


def _check(enum: Enum, values: list[Any], field: Field, into: Values) -> None:
    for value in values:
        if enum.closed and value not in enum.names:
            into[_FAULT] = f"the field {field.name!r} is {value}, which {enum.name} does not have"


def _packed(data: bytes, found: wire.Read, field: Field) -> list[Any]:
    values, at, kind = [], found.value, _PACKED[field.kind]
    while at < found.end:
        if kind == wire.VARINT:
            value, after = wire.varint(data, at, found.end)
        else:
            value, after = at, at + (8 if kind == wire.FIXED64 else 4)
            if after > found.end:
                raise Unreadable(wire.CUT)
        values.append(_value(data, wire.Read(field.number, kind, value, after), field))
        at = after
    return values


def _text(raw: bytes, field: Field) -> str:
    """In proto2 a text that is none counts for nothing where another value follows."""
    try:
        return raw.decode(errors="strict" if field.checked else "surrogateescape")
    except UnicodeDecodeError:
        raise _no_text(field) from None


def _no_text(field: Field) -> Unreadable:
    return Unreadable(f"the field {field.name!r} is not UTF-8 text")


def _value(data: bytes, found: wire.Read, field: Field) -> Any:
    kind, value = field.kind, found.value
    if kind in _FORMATS:
        return struct.unpack_from(_FORMATS[kind], data, value)[0]
    if kind == "bytes":
        return data[value : found.end]
    if kind == "string":
        return _text(data[value : found.end], field)
    if kind == "bool":
        return value != 0
    if kind == "uint64":
        return value
    if kind in ("sint32", "sint64"):
        value &= 0xFFFF_FFFF if kind == "sint32" else 0xFFFF_FFFF_FFFF_FFFF
        return (value >> 1) ^ -(value & 1)
    bits = 64 if kind == "int64" else 32
    value &= (1 << bits) - 1
    if kind == "uint32":
        return value
    return value - ((value >> (bits - 1)) << bits)


# tokens


def _shown(values: Values, types: Types, message: Message) -> dict[str, Token]:
    _refuse_fault(values)
    shown: dict[str, Token] = {}
    for field in message.fields:
        value = values.get(field.number)
        if field.kind == "group":
            continue
        if field.required and value is None:
            raise Unreadable(f"the required field {field.name!r} is not there")
        shown[field.name] = _field_shown(value, types, field)
    return shown


def _refuse_fault(values: Values) -> None:
    if _FAULT in values:
        raise Unreadable(values[_FAULT])


def _entries(entries: Sequence[Values], key: Callable[[Any], str], default: Any) -> dict[str, Values]:
    """The last entry of each key. default: the key of an entry that has none."""
    for entry in entries:
        _refuse_fault(entry)
    return {key(entry.get(1, default)): entry for entry in entries}


def _field_shown(value: Any, types: Types, field: Field) -> Token:
    entry = types.messages.get(field.type)
    if field.repeated and entry is not None and entry.is_entry:
        key, of = entry.by_number[1], entry.by_number[2]
        last = _entries(value or (), lambda one: _key(_one_shown(one, types, key)), DEFAULTS[key.kind])
        return {name: _one_shown(one.get(2, _default(types, of)), types, of) for name, one in last.items()}
    if field.repeated:
        return [_one_shown(one, types, field) for one in value or ()]
    if value is None:
        return None if field.presence else _one_shown(_default(types, field), types, field)
    return _one_shown(value, types, field)


def _default(types: Types, field: Field) -> Any:
    if field.kind == "message":
        return {}
    return types.enums[field.type].default if field.kind == "enum" else DEFAULTS[field.kind]


def _key(shown: Token) -> str:
    """The key of a map as text."""
    return str(shown).lower() if isinstance(shown, bool) else str(shown)


def _one_shown(value: Any, types: Types, field: Field) -> Token:
    if field.kind == "message":
        known = KNOWN.get(field.type)
        if known is not None:
            return known(value, types, field)
        return _shown(value, types, types.messages[field.type])
    if field.kind == "enum":
        return types.enums[field.type].names.get(value, str(value))
    if isinstance(value, str) and not field.checked and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _no_text(field) from None
    return _scalar(value)


def _scalar(value: Any) -> Token:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return Constant({"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)])
    return Number(repr(value))


# messages that mean something: values that have no exact counterpart are texts, which their columns refuse


def timestamp_micros(seconds: int, nanos: int) -> int | None:
    """Microseconds since 1970; None for a time that is finer, or not of the years 1 to 9999."""
    is_right = -62_135_596_800 <= seconds <= 253_402_300_799 and 0 <= nanos < 10**9 and nanos % 1000 == 0
    return seconds * 10**6 + nanos // 1000 if is_right else None


def duration_micros(seconds: int, nanos: int) -> int | None:
    is_right = abs(seconds) <= 315_576_000_000 and abs(nanos) < 10**9 and nanos % 1000 == 0
    is_right = is_right and not (seconds < 0 < nanos or nanos < 0 < seconds)
    return seconds * 10**6 + nanos // 1000 if is_right else None


def _timed(micros: Callable[[int, int], int | None]) -> "Known":
    def shown(values: Values, _: Types, field: Field) -> Token:
        seconds, nanos = values.get(1, 0), values.get(2, 0)
        found = micros(seconds, nanos)
        return f"{seconds} seconds, {nanos} nanoseconds" if found is None else Number(found)

    return shown


def _date(values: Values, _: Types, field: Field) -> Token:
    parts = [values.get(i, 0) for i in (1, 2, 3)]
    try:
        return Number(date(*parts).toordinal() - date(1970, 1, 1).toordinal())
    except (ValueError, OverflowError):
        return "{}-{}-{}".format(*parts)


def _time_of_day(values: Values, _: Types, field: Field) -> Token:
    hours, minutes, seconds, nanos = (values.get(i, 0) for i in (1, 2, 3, 4))
    nanos_of_day = ((hours * 60 + minutes) * 60 + seconds) * 10**9 + nanos
    is_right = 0 <= hours <= 24 and 0 <= minutes < 60 and 0 <= seconds <= 60 and 0 <= nanos < 10**9
    return Number(nanos_of_day) if is_right else f"{hours}:{minutes}:{seconds} and {nanos} nanoseconds"


def _decimal(values: Values, _: Types, field: Field) -> Token:
    raw, scale = values.get(1, b""), values.get(3, 0)
    if field.scale is None:
        return {"scale": Number(scale), "value": b64encode(raw).decode()}
    return b64encode(raw).decode() if scale == field.scale else rescaled(raw, field.scale - scale)


def rescaled(raw: bytes, places: int) -> str:
    """A decimal with more (if negative, fewer) places, in base64; a text that is none, if digits would be cut."""
    value = int.from_bytes(raw, "big", signed=True)
    if raw and len(raw) <= 16 and abs(places) <= 38:
        value, rest = (value * 10**places, 0) if places > 0 else divmod(value, 10**-places)
        if not rest:
            return b64encode(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)).decode()
    return f"{value} with {places} more places"


def _wrapped(values: Values, types: Types, field: Field) -> Token:
    inner = types.messages[field.type].by_number[1]
    return _scalar(values.get(1, DEFAULTS[inner.kind]))


def _json(values: Values, _: Types, field: Field) -> Token:
    shown = {"Struct": _json_struct, "Value": _json_value, "ListValue": _json_list}
    return written(shown[field.type.rpartition(".")[2]](values))


def _json_struct(values: Values) -> Token:
    last = _entries(values.get(1, ()), str, "")
    return {name: _json_value(entry.get(2, {})) for name, entry in last.items()}


def _json_list(values: Values) -> Token:
    return [_json_value(one) for one in values.get(1, ())]


def _json_value(values: Values) -> Token:
    for number, value in values.items():
        match number:
            case 1:
                return None
            case 2:
                if value != value or value in (float("inf"), float("-inf")):
                    raise Unreadable("a google.protobuf.Value is NaN or infinite, which JSON does not have")
                is_whole = value.is_integer() and abs(value) < 2**53 and str(value) != "-0.0"
                return Number(int(value) if is_whole else repr(value))
            case 5:
                return _json_struct(value)
            case 6:
                return _json_list(value)
        return value
    raise Unreadable("a google.protobuf.Value has no value")


Known = Callable[[Values, Types, Field], Token]
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
KNOWN: Mapping[str, Known] = {
    "google.protobuf.Timestamp": _timed(timestamp_micros),
    "google.protobuf.Duration": _timed(duration_micros),
    "google.type.Date": _date,
    "google.type.TimeOfDay": _time_of_day,
    "confluent.type.Decimal": _decimal,
    **dict.fromkeys(JSON, _json),
    **dict.fromkeys(WRAPPERS, _wrapped),
}
"""Messages that become a value of their own."""
