"""Protobuf as Confluent's serializer writes it, with the schemas and references that it registers."""

import random
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.rpc import error_details_pb2
from google.type import datetime_pb2, interval_pb2
from oracle.protobuf_inputs import F, written
from oracle.readers.protobuf_rows import row
from oracle.test_protobuf import asked, of_arrow

from backfill_cli.decode.protobuf import Protobuf, reader
from backfill_cli.schema_registry.wire import Wire, message_indexes

WIRE = Wire(4, "upstream.registry")


def serialized(kind: Any, messages: list[Any]) -> tuple[Protobuf, list[bytes]]:
    """(what reads them, the messages) by what was registered and written."""
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    serializer = ProtobufSerializer(kind, registry)
    records = [serializer(one, SerializationContext("t", MessageField.VALUE)) for one in messages]
    ((id, payloads),) = {id: [records[i][5:] for i in at] for id, at in WIRE.grouped(records)[0].items()}.items()
    schema = registry.get_schema(id)
    ((indexes, length),) = {message_indexes(payload) for payload in payloads}
    return reader(schema.schema_str, references(registry, schema), indexes), [one[length:] for one in payloads]


def references(registry: Any, schema: Any) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for one in schema.references or []:
        inner = registry.get_version(one.subject, one.version).schema
        found += [*references(registry, inner), (one.name, inner.schema_str)]
    return tuple(found)


KINDS = (
    datetime_pb2.DateTime,
    interval_pb2.Interval,
    error_details_pb2.ErrorInfo,
    error_details_pb2.QuotaFailure,
    error_details_pb2.QuotaFailure.Violation,
)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_read_by_what_the_serializer_registered(kind: Any) -> None:
    rng = random.Random(1)
    messages = [kind.FromString(written(rng, kind.DESCRIPTOR, False)) for _ in range(20)]
    found, raws = serialized(kind, messages)
    check(found, raws, messages)


def check(found: Protobuf, raws: list[bytes], messages: list[Any]) -> None:
    import pyarrow as pa

    wanted = pa.schema([(one["field"], asked(one)) for one in found.schema["fields"]])
    columns, kept = found.read(raws, wanted)
    assert list(kept) == list(range(len(raws)))
    for i, message in enumerate(messages):
        expected = row(message)
        for one in wanted:
            assert of_arrow(columns[one.name][i].as_py(), one.type, expected[one.name]) == expected[one.name]


def test_a_schema_is_read_with_its_references() -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    parts = descriptor_pb2.FileDescriptorProto(name="shop/parts.proto", package="shop", syntax="proto3")
    parts.message_type.add(name="Part").field.add(name="x", number=1, type=F.TYPE_INT32, label=1)
    orders = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
    orders.dependency.extend(["shop/parts.proto", "google/protobuf/timestamp.proto"])
    orders.message_type.add(name="Other")
    order = orders.message_type.add(name="Order")
    order.field.add(name="part", number=1, type=F.TYPE_MESSAGE, type_name=".shop.Part", label=1)
    order.field.add(name="at", number=2, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    for one in (parts, orders):
        pool.AddSerializedFile(one.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    messages = [kind(part={"x": 5}, at={"seconds": 1}), kind()]
    found, raws = serialized(kind, messages)
    check(found, raws, messages)
