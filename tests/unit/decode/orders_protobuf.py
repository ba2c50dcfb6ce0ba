"""Orders in Protobuf, as Debezium writes them by Kafka Connect's converter: schema, library's classes, values."""

import datetime
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2
from google.type import date_pb2

SCHEMA = """
syntax = "proto3";
package shop.public.orders;

import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";

message Key {
  int64 id = 1;
}
message Envelope {
  Value before = 1;
  Value after = 2;
  Source source = 3;
  block transaction = 4;
  string op = 5;
  int64 ts_ms = 6;

  message Value {
    int64 id = 1;
    optional string name = 2;
    confluent.type.Decimal amount = 3 [(confluent.field_meta) = {
      params: [
        { value: "10", key: "precision" },
        { value: "2", key: "scale" }
      ]
    }];
    google.protobuf.Timestamp at = 4;
    google.type.Date day = 5;
    bytes raw = 6;
    double ratio = 7;
    repeated string tags = 8;
    uint64 wide = 9;
  }
  message Source {
    string version = 1;
    string connector = 2;
    string name = 3;
    int64 ts_ms = 4;
    string snapshot = 5;
    string db = 6;
    string schema = 7;
    string table = 8;
    int64 txId = 9;
    int64 lsn = 10;
  }
  message block {
    string id = 1;
    int64 total_order = 2;
  }
}
"""
"""As Confluent's ProtobufConverter registers it."""

_OF = {
    "Key": {"id": "int64"},
    "Envelope": {"before": "Value", "after": "Value", "source": "Source", "transaction": "block", "op": "string"}
    | {"ts_ms": "int64"},
    "Value": {"id": "int64", "name": "string", "amount": "confluent.type.Decimal"}
    | {"at": "google.protobuf.Timestamp", "day": "google.type.Date", "raw": "bytes", "ratio": "double"}
    | {"tags": "string", "wide": "uint64"},
    "Source": {
        "version": "string",
        "connector": "string",
        "name": "string",
        "ts_ms": "int64",
        "snapshot": "string",
    }
    | {"db": "string", "schema": "string", "table": "string", "txId": "int64", "lsn": "int64"},
    "block": {"id": "string", "total_order": "int64"},
}
_PARAMS = b"\x82\x44\x1d" + b"\x12\x0a\x0a\x05scale\x12\x012" + b"\x12\x0f\x0a\x09precision\x12\x0210"
"""Confluent's option of a field: scale 2, precision 10."""
F = descriptor_pb2.FieldDescriptorProto


def library() -> Mapping[str, Any]:
    """Google's classes of these messages, keys in a file of their own."""
    decimal = descriptor_pb2.FileDescriptorProto(
        name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3"
    )
    package = "shop.public.orders"
    made = descriptor_pb2.FileDescriptorProto(name="orders.proto", package=package, syntax="proto3")
    keys = descriptor_pb2.FileDescriptorProto(name="keys.proto", package=package, syntax="proto3")
    made.dependency.extend([timestamp_pb2.DESCRIPTOR.name, date_pb2.DESCRIPTOR.name, decimal.name])
    _message(decimal, "Decimal", {"value": "bytes", "precision": "uint32", "scale": "int32"})
    for name, fields in _OF.items():
        _message(keys if name == "Key" else made, name, fields)
    pool = descriptor_pool.DescriptorPool()
    for one in (timestamp_pb2.DESCRIPTOR.serialized_pb, date_pb2.DESCRIPTOR.serialized_pb):
        pool.AddSerializedFile(one)
    for file in (decimal, keys, made):
        pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in _OF}


def _message(file: Any, name: str, fields: Mapping[str, str]) -> None:
    message = file.message_type.add(name=name)
    for number, (one, kind) in enumerate(fields.items(), 1):
        field = message.field.add(name=one, number=number, label=F.LABEL_OPTIONAL, json_name=one)
        if one == "tags":
            field.label = F.LABEL_REPEATED
        if f"TYPE_{kind.upper()}" in F.Type.keys():  # noqa: SIM118
            field.type = F.Type.Value(f"TYPE_{kind.upper()}")
        else:
            full = kind if "." in kind else f"{file.package}.{kind}"
            field.type, field.type_name = F.TYPE_MESSAGE, f".{full}"
        if name == "Value" and one == "name":
            field.proto3_optional, field.oneof_index = True, 0
            message.oneof_decl.add(name="_name")
        if one == "amount":
            field.options.MergeFromString(_PARAMS)


AT = datetime.datetime(2026, 11, 26, 12, 0, 0, 1, datetime.UTC)
TYPES = {
    "id": "long",
    "name": "string",
    "amount": "decimal(10,2)",
    "at": "timestamp",
    "day": "date",
    "raw": "binary",
    "ratio": "double",
    "tags": {"type": "array", "elementType": "string", "containsNull": True},
    "wide": "decimal(20,0)",
}


def row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "name": None if n % 3 == 0 else f"name {n}",
        "amount": Decimal(n) / 100 - 5,
        "at": AT + datetime.timedelta(seconds=n),
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=n),
        "raw": bytes([n % 256, 0]),
        "ratio": n / 7,
        "tags": ["x"] * (n % 3),
        "wide": Decimal(2**64 - n),
    }


def written(told: Mapping[str, Any]) -> dict[str, Any]:
    """A row in Protobuf's JSON."""
    unscaled = int(told["amount"] * 100)
    number = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    found = {name: value for name, value in told.items() if value is not None}
    return found | {
        "amount": {"value": b64encode(number).decode(), "precision": 10, "scale": 2},
        "at": told["at"].isoformat().replace("+00:00", "Z"),
        "day": {"year": told["day"].year, "month": told["day"].month, "day": told["day"].day},
        "raw": b64encode(told["raw"]).decode(),
        "wide": int(told["wide"]),
    }


def envelope(op: str, before: Any, after: Any, lsn: int = 1) -> dict[str, Any]:
    source = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "orders"}
    images = {"before": before, "after": after}
    shown = {name: written(image) for name, image in images.items() if image is not None}
    return {"op": op, "ts_ms": 5, "source": {**source, "ts_ms": 4, "lsn": lsn, "snapshot": "false"}, **shown}


def message(kind: Any, told: Mapping[str, Any]) -> Any:
    """A message of a class, from Protobuf's JSON."""
    return json_format.ParseDict(told, kind())
