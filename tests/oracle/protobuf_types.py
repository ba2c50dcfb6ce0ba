"""What each type of Protobuf becomes in a table, measured: its extremes, and values that no column holds."""

from base64 import b64encode
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, empty_pb2, json_format, message_factory
from google.protobuf.message import Message

from backfill_cli.decode import protobuf
from oracle.avro_types import REFUSED, Found, compared, shown_as
from oracle.protobuf_inputs import FILES, F, base64

UTC_ZONE = ZoneInfo("UTC")
MOST = {bits: (2 ** (bits - 1) - 1, -(2 ** (bits - 1))) for bits in (32, 64)}
Values = list[tuple[Any, Any]]
"""(a value in Protobuf's JSON, or the bytes of its field's message; what it is in a table)"""

_PARAMS = b"\x82\x44\x1c" + b"\x12\x0a\x0a\x05scale\x12\x012" + b"\x12\x0e\x0a\x09precision\x12\x019"
"""Confluent's option of a field: scale 2, precision 9."""


def same(*some: Any) -> Values:
    return [(one, one) for one in some]


def _whole(bits: int) -> Values:
    return same(0, *MOST[bits])


def decimal(unscaled: int, scale: int) -> Any:
    raw = unscaled.to_bytes(17, "big", signed=True)
    while len(raw) > 1 and raw[0] in (0, 255) and (raw[0] ^ raw[1]) < 128:
        raw = raw[1:]
    return {"value": b64encode(raw).decode(), "precision": 9, "scale": scale}


_TIMES: Values = [
    ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC_ZONE)),
    ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC_ZONE)),
    ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC_ZONE)),
    ("2024-02-29T12:00:00.000000001Z", REFUSED),
    (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", REFUSED),
]
_DATES: Values = [
    ({"year": 1, "month": 1, "day": 1}, date(1, 1, 1)),
    ({"year": 2024, "month": 2, "day": 29}, date(2024, 2, 29)),
    ({"year": 9999, "month": 12, "day": 31}, date(9999, 12, 31)),
    ({"year": 2023, "month": 2, "day": 29}, REFUSED),
    ({"year": 2023, "month": 2}, REFUSED),
]
_DECIMALS: Values = [
    (decimal(12345, 2), Decimal("123.45")),
    (decimal(-(10**9) + 1, 2), Decimal("-9999999.99")),
    (decimal(5, 0), Decimal("5.00")),
    (decimal(1250, 3), Decimal("1.25")),
    (decimal(1251, 3), REFUSED),
    (decimal(10**9, 2), REFUSED),
    ({"scale": 2}, REFUSED),
]

TYPES: dict[str, tuple[F, Values]] = {}


def _add(name: str, kind: Any, values: Values, **more: Any) -> None:
    of = {"type": kind} if isinstance(kind, int) else {"type": F.TYPE_MESSAGE, "type_name": f".{kind}"}
    TYPES[name] = F(**{"name": "f", "number": 1, "label": F.LABEL_OPTIONAL, **of, **more}), values


for _name in ("int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64"):
    _add(_name, F.Type.Value(f"TYPE_{_name.upper()}"), _whole(32 if "32" in _name else 64))
for _name in ("uint32", "fixed32"):
    _add(_name, F.Type.Value(f"TYPE_{_name.upper()}"), same(0, 2**32 - 1))
for _name in ("uint64", "fixed64"):
    _add(_name, F.Type.Value(f"TYPE_{_name.upper()}"), [(n, Decimal(n)) for n in (0, 2**64 - 1)])
_add("float", F.TYPE_FLOAT, [(-0.0, -0.0), (1.5, 1.5), (2.0**-149, 2.0**-149), ("Infinity", float("inf"))])
_add("double", F.TYPE_DOUBLE, [*same(0.1, 5e-324, 1.7976931348623157e308), ("-Infinity", float("-inf"))])
_add("bool", F.TYPE_BOOL, same(True, False))
_add("string", F.TYPE_STRING, same("", "ä€😀", "\0"))
_add("bytes", F.TYPE_BYTES, [("", b""), ("AP8=", b"\0\xff")])
_add("enum", F.TYPE_ENUM, [("A", "A"), ("B", "B"), (7, "7")], type_name=".t.E")
_add("enum (proto2)", F.TYPE_ENUM, [("A", "A"), (b"\x08\x07", REFUSED)], type_name=".t.E")
_add("message", "t.Part", [(None, None), ({}, {"x": 0}), ({"x": 5}, {"x": 5})])
_add("message without fields", "google.protobuf.Empty", [])
_add("message that contains itself", "t.Tree", [])
_add("group (proto2)", F.TYPE_GROUP, [], type_name=".t.Row.G")
_add("repeated", F.TYPE_INT32, [([], []), ([1, 2], [1, 2])], label=F.LABEL_REPEATED)
_add("map", "t.Row.FEntry", [({}, []), ({"5": {"x": 1}}, [("5", {"x": 1})])], label=F.LABEL_REPEATED)
_add("optional, or in a oneof", F.TYPE_INT32, [(None, None), (0, 0)], oneof_index=0)
_add("neither (proto3)", F.TYPE_INT32, [(None, 0), (0, 0)])
_add("int8 of Kafka Connect", F.TYPE_INT32, [(127, 127), (128, REFUSED)])
_add("google.protobuf.Timestamp", "google.protobuf.Timestamp", _TIMES)
_add(
    "google.protobuf.Duration",
    "google.protobuf.Duration",
    [("315576000000s", 315_576_000_000 * 10**6), ("-1.000001s", -1_000_001), ("0.000000001s", REFUSED)],
)
_add("google.protobuf.Int32Value", "google.protobuf.Int32Value", [(None, None), (0, 0), (-5, -5)])
_add("google.protobuf.UInt64Value", "google.protobuf.UInt64Value", [(None, None), ("0", Decimal(0))])
_add("google.protobuf.StringValue", "google.protobuf.StringValue", [(None, None), ("", "")])
_add("google.protobuf.BytesValue", "google.protobuf.BytesValue", [(None, None), ("AP8=", b"\0\xff")])
_add(
    "google.protobuf.Struct", "google.protobuf.Struct", [({}, "{}"), ({"a": [1, None, 0.5]}, '{"a":[1,null,0.5]}')]
)
_add("google.protobuf.Value", "google.protobuf.Value", [("a", '"a"'), (True, "true")])
_add("google.protobuf.ListValue", "google.protobuf.ListValue", [([], "[]"), (["a"], '["a"]')])
_add(
    "google.protobuf.Any",
    "google.protobuf.Any",
    [(b"\x0a\x05\x0a\x01t\x12\x00", {"type_url": "t", "value": b""})],
)
_add("google.type.Date", "google.type.Date", _DATES)
_add("google.type.TimeOfDay", "google.type.TimeOfDay", [({"hours": 23, "nanos": 5}, 82_800_000_000_005)])
_add("confluent.type.Decimal of a scale", "confluent.type.Decimal", _DECIMALS)
_add("confluent.type.Decimal", "confluent.type.Decimal", [])

_CONFLUENT = descriptor_pb2.FileDescriptorProto(
    name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3"
)
_OF_DECIMAL = _CONFLUENT.message_type.add(name="Decimal")
for _n, (_name, _kind) in enumerate((("value", 12), ("precision", 13), ("scale", 5)), 1):
    _OF_DECIMAL.field.add(name=_name, number=_n, type=_kind, label=F.LABEL_OPTIONAL)


def measured(name: str) -> Found:
    """What a type becomes; raises AssertionError for a value that is another one in the table."""
    field, values = TYPES[name]
    made = _file(name, field)
    library = _library(made)
    raws = [_written(library, value) for value, _ in values]
    reader = protobuf.reader(base64(made), (), (0,))
    of_other_scale = {
        i for i, (value, _) in enumerate(values) if isinstance(value, dict) and value.get("scale") != 2
    }
    return compared(name, reader, raws, [expected for _, expected in values], frozenset(of_other_scale))


def _file(name: str, field: F) -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    if "proto2" in name:
        made.syntax = "proto2"
    made.dependency.extend([*(one.name for one in FILES), any_pb2.DESCRIPTOR.name, empty_pb2.DESCRIPTOR.name])
    made.dependency.append(_CONFLUENT.name)
    row, part, tree = (made.message_type.add(name=one) for one in ("Row", "Part", "Tree"))
    part.field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    tree.field.add(name="x", number=1, type=F.TYPE_MESSAGE, type_name=".t.Tree", label=F.LABEL_OPTIONAL)
    enum = made.enum_type.add(name="E")
    enum.value.add(name="A", number=0)
    enum.value.add(name="B", number=1)
    row.field.add().CopyFrom(field)
    if field.HasField("oneof_index"):
        row.oneof_decl.add(name="o")
    entry = row.nested_type.add(name="FEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_MESSAGE, type_name=".t.Part", label=F.LABEL_OPTIONAL)
    if field.type == F.TYPE_GROUP:
        row.nested_type.add(name="G")
    if name.endswith("of a scale"):
        row.field[0].options.MergeFromString(_PARAMS)
    if name.startswith("int8"):
        row.field[0].options.MergeFromString(b"\x82\x44\x16\x12\x14\x0a\x0cconnect.type\x12\x04int8")
    if field.type_name != ".t.Row.FEntry":
        row.nested_type.remove(entry)
    return made


def _library(made: descriptor_pb2.FileDescriptorProto) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for one in (*FILES, any_pb2.DESCRIPTOR, empty_pb2.DESCRIPTOR):
        pool.AddSerializedFile(one.serialized_pb)
    pool.AddSerializedFile(_CONFLUENT.SerializeToString())
    pool.AddSerializedFile(made.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Row"))


def _written(library: Any, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value if value[:1] == b"\x0a" or len(value) == 2 else b"\x0a" + bytes([len(value)]) + value
    message: Message = json_format.ParseDict({} if value is None else {"f": value}, library())
    return message.SerializeToString()


def table() -> str:
    return shown_as("## Protobuf", {name: measured(name) for name in TYPES})
