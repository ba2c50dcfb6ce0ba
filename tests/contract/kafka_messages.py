"""What the Kafka sink writes in Protobuf, read by Google's library: by docs/kafka.md, not by its schema."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PB = descriptor_pb2.FieldDescriptorProto
WELL_KNOWN = [
    ("date.proto", "google.type", "Date", [(n, PB.TYPE_INT32) for n in ("year", "month", "day")]),
    ("at.proto", "google.protobuf", "Timestamp", [("seconds", PB.TYPE_INT64), ("nanos", PB.TYPE_INT32)]),
    (
        "decimal.proto",
        "confluent.type",
        "Decimal",
        [("value", PB.TYPE_BYTES), ("precision", PB.TYPE_UINT32), ("scale", PB.TYPE_INT32)],
    ),
]
TYPES = {
    **dict.fromkeys(("byte", "short", "integer"), PB.TYPE_INT32),
    "long": PB.TYPE_INT64,
    "float": PB.TYPE_FLOAT,
    "double": PB.TYPE_DOUBLE,
    "boolean": PB.TYPE_BOOL,
    "string": PB.TYPE_STRING,
    "timestamp_ntz": PB.TYPE_STRING,
    "binary": PB.TYPE_BYTES,
}


def message_class(name: str, held: Mapping[str, Any]) -> Any:
    """The class of a message whose fields f1, f2, … are columns of these Spark types. name: Key or Value."""
    root = descriptor_pb2.FileDescriptorProto(package="oracle")
    describe(root.message_type.add(name=name), f".oracle.{name}", list(held.items()), name == "Value")
    return class_of(root)


def class_of(root: Any) -> Any:
    """The class of a file's only message."""
    pool, file = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorProto
    for path, package, message, fields in WELL_KNOWN:
        known = file(name=path, package=package, syntax="proto3")
        made = known.message_type.add(name=message)
        for number, (one, type) in enumerate(fields, 1):
            made.field.add(name=one, number=number, type=type, label=1)
        pool.AddSerializedFile(known.SerializeToString())
    root.name, root.syntax = "root.proto", "proto3"
    root.dependency.extend(path for path, *_ in WELL_KNOWN)
    pool.AddSerializedFile(root.SerializeToString())
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{root.package}.{root.message_type[0].name}")
    )


_LINE = re.compile(r"(?:(optional|repeated) )?([.\w]+|map<string, \w+>) (\w+) = (\d+)(?: \[.*\])?;")
_SCALARS = {"int32": PB.TYPE_INT32, "int64": PB.TYPE_INT64, "float": PB.TYPE_FLOAT, "double": PB.TYPE_DOUBLE}
_SCALARS |= {"bool": PB.TYPE_BOOL, "string": PB.TYPE_STRING, "bytes": PB.TYPE_BYTES}


def described(text: str) -> Any:
    """The file that the text of a schema is, line by line: only what the sink writes."""
    root = descriptor_pb2.FileDescriptorProto()
    inside: list[tuple[str, Any]] = []
    for line in map(str.strip, text.splitlines()):
        if found := re.fullmatch(r"package ([\w.]+);", line):
            root.package = found[1]
        elif found := re.fullmatch(r"message (\w+) {", line):
            scope, parent = inside[-1] if inside else (f".{root.package}", None)
            made = (root.message_type if parent is None else parent.nested_type).add(name=found[1])
            inside.append((f"{scope}.{found[1]}", made))
        elif line == "}":
            inside.pop()
        elif line.startswith("reserved "):
            _reserve(inside[-1][1], line.removeprefix("reserved ").removesuffix(";").split(", "))
        elif line and not line.startswith(("syntax ", "import ")):
            of = _LINE.fullmatch(line)
            assert of is not None, line
            _add(*inside[-1], *of.groups())
    return root


def _reserve(message: Any, told: Sequence[str]) -> None:
    for one in told:
        if one.startswith('"'):
            message.reserved_name.append(one.strip('"'))
        else:
            first, *end = map(int, one.split(" to "))
            message.reserved_range.add(start=first, end=(end or [first])[0] + 1)


def _add(scope: str, message: Any, label: str | None, kind: str, name: str, number: str) -> None:
    made = message.field.add(name=name, number=int(number), label=1)
    if kind in _SCALARS:
        made.type = _SCALARS[kind]
    elif kind.startswith("map<"):
        made.label, made.type, made.type_name = 3, PB.TYPE_MESSAGE, f"{scope}.EntriesEntry"
        entry = message.nested_type.add(name="EntriesEntry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=PB.TYPE_STRING)
        item = f"{scope}.{kind.removeprefix('map<string, ')[:-1]}"
        entry.field.add(name="value", number=2, label=1, type=PB.TYPE_MESSAGE, type_name=item)
    else:
        made.type, made.type_name = PB.TYPE_MESSAGE, kind if kind.startswith(".") else f"{scope}.{kind}"
        made.label = 3 if label == "repeated" else 1
    if label == "optional" and kind in _SCALARS:
        made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"X_{name}")


def fields_by_path(described: Any, path: tuple[int, ...] = ()) -> dict[tuple[int, ...], tuple[str, str]]:
    """The numbers of a field, from the message inwards → its name and the name of its type."""
    found = {}
    for one in described.fields:
        own = (*path, one.number)
        nested = one.message_type
        whole = one.type in (PB.TYPE_INT32, PB.TYPE_INT64)
        found[own] = (one.name, nested.full_name if nested else "whole" if whole else str(one.type))
        found |= fields_by_path(nested, own) if nested else {}
    return found


def refuse_reserved(message: Any) -> None:
    """Fails for a field that the message reserves, at any depth: a pool does not look."""
    numbers = {n for span in message.reserved_range for n in range(span.start, span.end)}
    assert numbers.isdisjoint(one.number for one in message.field)
    assert set(message.reserved_name).isdisjoint(one.name for one in message.field)
    for one in message.nested_type:
        refuse_reserved(one)


def agree(message: Any, kinds: Mapping[str, Any], row: Mapping[str, Any], whole: bool) -> None:
    """Fails where a message, as a consumer by some schema sees it, has what the row does not have under that name.

    kinds: of the row's columns. whole: whether the consumer has the schema of the record, and so all of it.
    """
    assert not whole or set(message.DESCRIPTOR.fields_by_name) == set(kinds)
    for one, _ in message.ListFields():
        assert one.name in kinds, f"{one.name} is what another column was written as"
    for name, kind in kinds.items():
        there = name in message.DESCRIPTOR.fields_by_name and message.HasField(name)
        if not there:
            assert not whole or row[name] is None
        elif isinstance(kind, str):
            assert of_message(message, name, kind) == row[name]
        elif kind["type"] == "struct":
            of = {one["name"]: one["type"] for one in kind["fields"]}
            agree(getattr(message, name), of, row[name], whole)
        else:
            _agree_each(getattr(message, name), kind, row[name], whole)


def _agree_each(message: Any, kind: Any, held: Any, whole: bool) -> None:
    if kind["type"] == "array":
        assert len(message.items) == len(held)
        pairs, inner = list(zip(message.items, held, strict=True)), kind["elementType"]
    else:
        assert message.entries.keys() == held.keys()
        pairs, inner = [(message.entries[key], held[key]) for key in held], kind["valueType"]
    for one, value in pairs:
        agree(one, {"value": inner}, {"value": value}, whole)


def row_of(message: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a message."""
    return {name: of_message(message, f"f{n}", kind) for n, (name, kind) in enumerate(held.items(), 1)}


def describe(message: Any, full: str, fields: Sequence[tuple[str, Any]], presence: bool) -> None:
    """Fields f1, f2, … of these types, each nested type a message n1, n2, …"""
    for number, (_, kind) in enumerate(fields, 1):
        made = message.field.add(name=f"f{number}", number=number, label=1)
        if isinstance(kind, str) and kind in TYPES:
            made.type = TYPES[kind]
            if presence:
                made.proto3_optional = True
                made.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_f{number}")
            continue
        made.type = PB.TYPE_MESSAGE
        if isinstance(kind, str):
            made.type_name = {"date": ".google.type.Date", "timestamp": ".google.protobuf.Timestamp"}.get(
                kind, ".confluent.type.Decimal"
            )
            continue
        made.type_name = f"{full}.n{number}"
        inner = message.nested_type.add(name=f"n{number}")
        if kind["type"] == "struct":
            describe(inner, made.type_name, [(one["name"], one["type"]) for one in kind["fields"]], True)
            continue
        item = inner.nested_type.add(name="I")
        of_list = kind["type"] == "array"
        describe(item, f"{made.type_name}.I", [("", kind["elementType" if of_list else "valueType"])], True)
        many = inner.field.add(name="f1", number=1, label=3, type=PB.TYPE_MESSAGE, type_name=f"{made.type_name}.I")
        if not of_list:
            many.type_name = f"{made.type_name}.F1Entry"
            entry = inner.nested_type.add(name="F1Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=1, type=PB.TYPE_STRING)
            entry.field.add(name="value", number=2, label=1, type=PB.TYPE_MESSAGE, type_name=f"{made.type_name}.I")


def of_message(message: Any, name: str, kind: Any) -> Any:
    described = message.DESCRIPTOR.fields_by_name[name]
    if described.has_presence and not message.HasField(name):
        return None
    value = getattr(message, name)
    if not isinstance(kind, str):
        if kind["type"] == "struct":
            told = enumerate(kind["fields"], 1)
            return {one["name"]: of_message(value, f"f{n}", one["type"]) for n, one in told}
        if kind["type"] == "array":
            return [of_message(one, "f1", kind["elementType"]) for one in value.f1]
        return {key: of_message(value.f1[key], "f1", kind["valueType"]) for key in value.f1}
    if kind == "date":
        return dt.date(value.year, value.month, value.day)
    if kind == "timestamp":
        assert 0 <= value.nanos < 10**9
        since = dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + since
    if kind == "timestamp_ntz":
        return dt.datetime.fromisoformat(value)
    if kind.startswith("decimal"):
        assert f"decimal({value.precision},{value.scale})" == kind
        return Decimal(int.from_bytes(value.value, "big", signed=True)).scaleb(-value.scale, Context(prec=100))
    return value
