"""What the Kafka sink writes in Protobuf, read by Google's library: by docs/kafka.md, not by its schema."""

import datetime as dt
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
    pool, file = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorProto
    for path, package, message, fields in WELL_KNOWN:
        known = file(name=path, package=package, syntax="proto3")
        made = known.message_type.add(name=message)
        for number, (one, type) in enumerate(fields, 1):
            made.field.add(name=one, number=number, type=type, label=1)
        pool.AddSerializedFile(known.SerializeToString())
    root = file(name="root.proto", package="oracle", syntax="proto3", dependency=[path for path, *_ in WELL_KNOWN])
    describe(root.message_type.add(name=name), f".oracle.{name}", list(held.items()), name == "Value")
    pool.AddSerializedFile(root.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"oracle.{name}"))


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
