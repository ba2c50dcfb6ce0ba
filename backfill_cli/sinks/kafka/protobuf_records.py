"""Rows as Protobuf messages: the schema of a table's columns, and messages of Arrow batches, by columns.

Messages are those of proto3. All fields of a value have presence, so that NULL is a field that is not there; those
of a key have none, and are left out where they have the default of their type, as all writers do. A list or a map
is a message of its own: `repeated` and `map` alone cannot tell NULL from an empty one, nor hold NULL.

    column                        type
    TINYINT, SMALLINT             int32, whose option says so, as Kafka Connect's converter writes it
    DECIMAL                       confluent.type.Decimal, whose option has the digits
    DATE, TIMESTAMP               google.type.Date, google.protobuf.Timestamp
    TIMESTAMP_NTZ                 string, in ISO 8601: Protobuf has no time without a zone
    ARRAY                         message { repeated Item items = 1; message Item { optional … value = 1; } }
    MAP                           message { map<string, Item> entries = 1; message Item { optional … value = 1; } }
    STRUCT                        a message

A field keeps the number that it has in the subject's newest schema, at any depth. That of a field which is gone,
or of another type, is reserved, and no other field gets it: older records and consumers have it.
"""

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from backfill_cli.decode.protobuf import types
from backfill_cli.decode.protobuf.files import MOST_NUMBER, Reserved
from backfill_cli.errors import BadData
from backfill_cli.model.schema import Columns, SparkType, decimal_of
from backfill_cli.sinks.kafka.binary_values import Parts, days, floats, micros, spans, unscaled, varint
from backfill_cli.sinks.kafka.json_rows import moments
from backfill_cli.sinks.kafka.years import refuse_far

_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_SECOND = 10**6
_EPOCH = dt.date(1970, 1, 1).toordinal()

# -- schemas ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message. kind: its column's. message: its type, if that is a message nested in its own."""

    name: str
    number: int
    kind: SparkType
    message: "Message | None" = None


@dataclass(frozen=True, slots=True)
class Message:
    """form: `struct`; `array` or `map` of the one field `value` of its items. reserved: beside the fields.

    item: what the message of its items is called, of an array or a map.
    """

    name: str
    form: str
    fields: tuple[Field, ...]
    reserved: Reserved
    item: str = ""


Messages = Mapping[str, types.Message]
"""By their full names."""


def message_of(full: str, columns: Columns, newest: Messages) -> Message:
    """The message of a table's columns. newest: what the subject's newest schema has, whose numbers stay."""
    name = full.rpartition(".")[2]
    fields, reserved = _fields_of(full, [(one, column["type"]) for one, column in columns.items()], newest, {name})
    return Message(name, "struct", fields, reserved)


def _fields_of(
    full: str, columns: Sequence[tuple[str, SparkType]], newest: Messages, above: Set[str]
) -> tuple[tuple[Field, ...], Reserved]:
    """The fields of a message of this full name, and what it has to reserve.

    above: its own name and those of the messages that it is in: Java allows no class of these names in it.
    """
    before = newest.get(full, types.Message(full, (), False))
    known = {one.name: one for one in before.fields}
    taken = {one for one, _ in columns}
    made = [Field(one, 0, kind, _nested(full, one, kind, taken, newest, above)) for one, kind in columns]
    kept = {one.name: known[one.name].number for one in made if _is_known(known.get(one.name), one, full)}
    gone = [one for one in before.fields if one.name not in kept]
    names = {*filter(_NAME.fullmatch, before.reserved.names), *(one.name for one in gone)}
    reserved = Reserved(
        _merged([*before.reserved.ranges, *((one.number, one.number) for one in gone)]),
        tuple(sorted(names - {one.name for one in made})),
    )
    free = _free(kept.values(), reserved)
    numbers = {one.name: kept[one.name] if one.name in kept else next(free, 0) for one in made}
    if 0 in numbers.values():
        raise BadData(
            f"message {full}: the newest schema of its subject leaves no number for another field",
            "reserve fewer numbers in a newer schema of the subject, or name another topic",
        )
    return tuple(replace(one, number=numbers[one.name]) for one in made), reserved


def _is_known(before: types.Field | None, field: Field, full: str) -> bool:
    """Whether the field can be what it was: readers of either schema read the other's records."""
    if before is None or before.repeated:
        return False
    type = _type(field) if field.message is None else f".{full}.{field.message.name}"
    there = f".{before.type}" if before.type else before.kind
    return there == type or {there, type} == {"int32", "int64"}


def _merged(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same numbers in as few ranges as can be."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return tuple(found)


def _free(kept: Collection[int], reserved: Reserved) -> Iterator[int]:
    """Numbers that no field has, or had: first those after all that are kept."""
    taken = _merged([*reserved.ranges, _OF_PROTOBUF, _BEYOND, *((one, one) for one in kept)])
    gaps = [range(end + 1, first) for (_, end), (first, _) in pairwise([(0, 0), *taken])]
    last = max(kept, default=0)
    for gap in (*(one for one in gaps if one.start > last), *(one for one in gaps if one.start < last)):
        yield from gap


_OF_PROTOBUF, _BEYOND = (19_000, 19_999), (MOST_NUMBER + 1, MOST_NUMBER + 1)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Of a field. Another program may have reserved a name that none can have."""


def _nested(
    full: str, name: str, kind: SparkType, taken: set[str], newest: Messages, above: Set[str]
) -> Message | None:
    """The message of a nested type, in the message `full`.

    taken: names of this message that it cannot have; its own is added. The name that it has in the newest schema
    stays, if it can; another one is none of those above.
    """
    if isinstance(kind, str):
        return None
    form = str(kind["type"])
    own = f"{name}_{form}"
    before = next((one.type for one in newest[full].fields if one.name == name), "") if full in newest else ""
    there = before.removeprefix(f"{full}.")
    stays = there.rstrip("_") == own and there not in taken
    own = there if stays else _other(own, taken | above)
    taken.add(own)
    inside, above = f"{full}.{own}", {*above, own}
    if form == "struct":
        columns = [(one["name"], one["type"]) for one in kind["fields"]]
        return Message(own, form, *_fields_of(inside, columns, newest, above))
    item = _ITEM if f"{inside}.{_ITEM}" in newest else _other(_ITEM, above)
    held = kind["elementType"] if form == "array" else kind["valueType"]
    return Message(own, form, *_fields_of(f"{inside}.{item}", [("value", held)], newest, {*above, item}), item)


def _other(name: str, taken: Set[str]) -> str:
    while name in taken:
        name += "_"
    return name


_ITEM = "Item"
"""The message of a list's items, or of a map's values."""

_SCALARS = {
    **dict.fromkeys(("byte", "short", "integer"), "int32"),
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "bool",
    "string": "string",
    "binary": "bytes",
    "timestamp_ntz": "string",
    "date": ".google.type.Date",
    "timestamp": ".google.protobuf.Timestamp",
}
_META = {"byte": {"connect.type": "int8"}, "short": {"connect.type": "int16"}}
_META_FILE = "confluent/meta.proto"
_FILES = {
    "date": "google/type/date.proto",
    "timestamp": "google/protobuf/timestamp.proto",
    "decimal": "confluent/type/decimal.proto",
}


def schema_of(package: str, message: Message, presence: bool) -> str:
    """The text of a file with this message alone."""
    kinds = set(_kinds(message))
    imports = {file for kind in kinds for name, file in _FILES.items() if kind.split("(")[0] == name}
    if any(_meta(kind) for kind in kinds):
        imports.add(_META_FILE)
    lines = ['syntax = "proto3";', "", *([f"package {package};", ""] if package else [])]
    lines += [*(f'import "{file}";' for file in sorted(imports)), *([""] if imports else [])]
    return "\n".join([*lines, *_lines(message, presence), ""])


def _kinds(message: Message) -> Iterator[str]:
    for one in message.fields:
        if one.message is not None:
            yield from _kinds(one.message)
        elif isinstance(one.kind, str):
            yield one.kind


def _lines(message: Message, presence: bool) -> Iterator[str]:
    yield f"message {message.name} {{"
    if message.form == "struct":
        yield from _fields(message, presence)
    else:
        item = Message(message.item, "struct", message.fields, message.reserved)
        many = f"repeated {item.name} items" if message.form == "array" else f"map<string, {item.name}> entries"
        yield f"  {many} = 1;"
        yield from (f"  {line}" for line in _lines(item, presence=True))
    yield "}"


def _fields(message: Message, presence: bool) -> Iterator[str]:
    if message.reserved.ranges:
        told = (str(first) if first == end else f"{first} to {end}" for first, end in message.reserved.ranges)
        yield f"  reserved {', '.join(told)};"
    if message.reserved.names:
        yield "  reserved " + ", ".join(f'"{name}"' for name in message.reserved.names) + ";"
    jsons = [_json_name(one.name) for one in message.fields]
    for one, json in zip(message.fields, jsons, strict=True):
        label = "optional " if presence else ""
        options = [f'json_name = "{one.name}"'] if jsons.count(json) > 1 else []
        if meta := _meta(one.kind):
            params = ", ".join(f'{{key: "{key}", value: "{value}"}}' for key, value in meta.items())
            options.append(f"(confluent.field_meta) = {{params: [{params}]}}")
        said = f" [{', '.join(options)}]" if options else ""
        yield f"  {label}{_type(one)} {one.name} = {one.number}{said};"
        if one.message is not None:
            yield from (f"  {line}" for line in _lines(one.message, presence=True))


def _type(field: Field) -> str:
    if field.message is not None:
        return field.message.name
    assert isinstance(field.kind, str)
    return ".confluent.type.Decimal" if field.kind.startswith("decimal") else _SCALARS[field.kind]


def _meta(kind: SparkType) -> Mapping[str, str]:
    """What a field's option says of its column's type."""
    if not isinstance(kind, str):
        return {}
    if kind.startswith("decimal"):
        precision, scale = decimal_of(kind)
        return {"precision": str(precision), "scale": str(scale)}
    return _META.get(kind, {})


def _json_name(name: str) -> str:
    """What a field is called in JSON, if it does not say so: two of one message must differ."""
    return re.sub(r"_+(.?)", lambda found: found[1].upper(), name)


# -- messages -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProtobufRecords:
    """Records of one message. prefix: the schema's id, and which of its messages it is.

    presence: whether fields that have the default of their type are written.
    """

    message: Message
    prefix: bytes
    presence: bool

    def of(self, batch: pa.RecordBatch) -> list[bytes]:
        fields, prefix = self.message.fields, self.prefix
        refuse_far({one.name: {"type": one.kind} for one in fields}, batch, "Protobuf")
        parts = [_written(batch.column(one.name), one, self.presence) for one in fields]
        return [prefix + b"".join(row) for row in zip(*parts, strict=True)]


def _written(column: pa.Array, field: Field, presence: bool) -> list[bytes]:
    """A field of each row; nothing where it is NULL."""
    wire, encode = _encoding(field.kind)
    tag = varint(field.number << 3 | wire)
    parts = encode(column) if field.message is None else _messages(column, field.message)
    if presence or _type(field) not in _DEFAULTS:
        return [b"" if one is None else tag + one for one in parts]
    return [b"" if one is None or one == b"\0" else tag + one for one in parts]


_DEFAULTS = ("int32", "int64", "bool", "string", "bytes")
"""Types of a key's fields that are not written where they are 0, false or empty, which is one byte then."""


def _messages(column: pa.Array, message: Message) -> Parts:
    """Nested messages of each row, with their lengths."""
    if message.form == "struct":
        children = [_written(column.field(i), one, True) for i, one in enumerate(message.fields)]
        told: list[bytes] = [b"".join(row) for row in zip(*children, strict=True)]
    else:
        told = _many(column, message)
    return [_sized(one) if valid else None for one, valid in zip(told, column.is_valid().to_pylist(), strict=True)]


_ITEMS, _KEY, _VALUE = b"\x0a", b"\x0a", b"\x12"
"""The tags of `items` and `entries`, and of an entry's two fields."""


def _many(column: pa.Array, message: Message) -> list[bytes]:
    """The items of each row's list, or the entries of its map."""
    held, each = spans(column)
    (value,) = message.fields
    many = column.items if message.form == "map" else column.values
    items = [_sized(one) for one in _written(many[held], value, True)]
    if message.form == "map":
        entries = zip(_texts(column.keys[held]), items, strict=True)
        items = [_sized(b"".join((_KEY, key or b"\0", _VALUE, item))) for key, item in entries]
    items = [_ITEMS + one for one in items]
    return [b"".join(items[a:b]) for a, b in each]


def _sized(told: bytes) -> bytes:
    return varint(len(told)) + told


def _whole(column: pa.Array) -> Parts:
    return [None if value is None else varint(value) for value in column.to_pylist()]


def _texts(column: pa.Array) -> Parts:
    return _bytes(column.cast(pa.binary()))


def _bytes(column: pa.Array) -> Parts:
    return [None if value is None else _sized(value) for value in column.to_pylist()]


def _local(column: pa.Array) -> Parts:
    return _texts(moments(column))


def _timestamps(column: pa.Array) -> Parts:
    return [None if one is None else _sized(_moment(one)) for one in micros(column)]


def _moment(since: int) -> bytes:
    """since: 1970, in microseconds."""
    seconds, rest = divmod(since, _SECOND)
    told = b"\x08" + varint(seconds) if seconds else b""
    return told + b"\x10" + varint(rest * 1_000) if rest else told


def _dates(column: pa.Array) -> Parts:
    return [None if one is None else _sized(_day(one)) for one in days(column)]


def _day(since: int) -> bytes:
    """since: 1970, in days."""
    date = dt.date.fromordinal(since + _EPOCH)
    return b"".join((b"\x08", varint(date.year), b"\x10", varint(date.month), b"\x18", varint(date.day)))


def _decimals(kind: str) -> Callable[[pa.Array], Parts]:
    precision, scale = decimal_of(kind)
    digits = b"\x10" + varint(precision) + (b"\x18" + varint(scale) if scale else b"")

    def write(column: pa.Array) -> Parts:
        told = unscaled(column)
        return [None if one is None else _sized(b"\x0a" + _sized(one) + digits) for one in told]

    return write


_ENCODINGS: dict[str, tuple[int, Callable[[pa.Array], Parts]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (_VARINT, _whole)),
    "boolean": (_VARINT, _whole),
    "float": (_FIXED32, floats("<f")),
    "double": (_FIXED64, floats("<d")),
    "string": (_SIZED, _texts),
    "binary": (_SIZED, _bytes),
    "date": (_SIZED, _dates),
    "timestamp": (_SIZED, _timestamps),
    "timestamp_ntz": (_SIZED, _local),
}


def _encoding(kind: SparkType) -> tuple[int, Callable[[pa.Array], Parts]]:
    if not isinstance(kind, str):
        return _SIZED, _bytes  # by `_messages`
    return (_SIZED, _decimals(kind)) if kind.startswith("decimal") else _ENCODINGS[kind]


# -- read back ----------------------------------------------------------------------------------------------------


def read_as(kind: SparkType) -> SparkType:
    """The type that a column's messages are read as."""
    if isinstance(kind, str):
        return "string" if kind == "timestamp_ntz" else kind
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [{**one, "type": read_as(one["type"])} for one in kind["fields"]]}
    of_list = kind["type"] == "array"
    item = _one_field("value", read_as(kind["elementType" if of_list else "valueType"]))
    if of_list:
        return _one_field("items", {"type": "array", "elementType": item, "containsNull": True})
    whole = {"type": "map", "keyType": "string", "valueType": item, "valueContainsNull": True}
    return _one_field("entries", whole)


def _one_field(name: str, kind: SparkType) -> SparkType:
    return {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]}


def again(column: pa.Array, kind: SparkType) -> pa.Array:
    """The column that was read as `read_as(kind)`, in its type. Raises ArrowInvalid for a text that is no time."""
    if isinstance(kind, str):
        return column.cast(pa.timestamp("us")) if kind == "timestamp_ntz" else column
    none = column.is_null()
    if kind["type"] == "struct":
        children = [again(column.field(i), one["type"]) for i, one in enumerate(kind["fields"])]
        names = [one["name"] for one in kind["fields"]]
        fields = [pa.field(name, child.type) for name, child in zip(names, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=none)
    held = column.field(0)
    first, end = held.offsets[0].as_py(), held.offsets[len(held)].as_py()
    of_list = kind["type"] == "array"
    items = (held.values if of_list else held.items).slice(first, end - first)
    values = again(items.field(0), kind["elementType" if of_list else "valueType"])
    *starts, end = (at - first for at in held.offsets.to_pylist())
    begins = [None if gone else at for at, gone in zip(starts, none.to_pylist(), strict=True)]
    offsets = pa.array([*begins, end], pa.int32())
    if of_list:
        return pa.ListArray.from_arrays(offsets, values, type=pa.list_(pa.field("element", values.type)))
    return pa.MapArray.from_arrays(offsets, held.keys.slice(first, end), values)
