"""Records that Confluent's own serializers write, by a real registry: a job's rows are those that Python wrote."""

import datetime
import decimal
import json
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import demo_topic
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from kafka_topics import Topic, new_topic
from registry_job import Job
from unit.decode import orders_protobuf as protobuf

from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry, UnknownSchema

if TYPE_CHECKING:
    from broker import Broker
    from registry import Registry

ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "town", "type": "string"}, {"name": "zip", "type": ["null", "string"], "default": None}],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "to", "type": "shop.Address"},
]
NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
KEY = {"type": "record", "name": "Key", "fields": FIELDS[:1]}


def orders(numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "note": None if n % 3 == 0 else f"nöte {n}",
            "price": decimal.Decimal(n * 7 - 500).scaleb(-2),
            "day": datetime.date(1969, 12, 1) + datetime.timedelta(n),
            "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
            + datetime.timedelta(microseconds=n * 1_000_003),
            "who": uuid.UUID(int=n),
            "state": ("NEW", "PAID")[n % 2],
            "tags": [f"t{i}" for i in range(n % 4)],
            "to": {"town": f"T{n}", "zip": None if n % 2 else str(n)},
        }
        for n in numbers
    ]


@pytest.fixture
def client(schema_registry: "Registry") -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": schema_registry.url})


def write_avro(client: SchemaRegistryClient, topic: Topic, fields: list[dict[str, Any]], rows: list[Any]) -> None:
    """These rows are in the topic; their schema refers to the subject `shop.Address`."""
    client.register_schema("shop.Address", Schema(json.dumps(ADDRESS), "AVRO"))
    refers = [SchemaReference("shop.Address", "shop.Address", 1)]
    whole = Schema(json.dumps({"type": "record", "name": "Order", "fields": fields}), "AVRO", refers)
    value, key = AvroSerializer(client, whole), AvroSerializer(client, json.dumps(KEY))
    of_value, of_key = (SerializationContext(topic.name, one) for one in (MessageField.VALUE, MessageField.KEY))
    keys = [key({"id": row["id"]}, of_key) for row in rows]
    topic.write([value(row, of_value) for row in rows], 0, keys)


def test_avro_rows_the_newest_of_each_key(
    broker: "Broker", schema_registry: "Registry", client: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    first, later = orders(range(200)), [{**one, "note": "later"} for one in orders(range(150, 260))]
    write_avro(client, topic, FIELDS, first)
    job = Job(
        broker.bootstrap,
        topic.name,
        tmp_path,
        registry={"url": schema_registry.url},
        value={"encoding": "avro"},
        key={"format": "avro"},
    )
    assert job.rows() == [{**one, "who": str(one["who"])} for one in first]
    write_avro(client, topic, FIELDS, later)
    newest = {one["id"]: one | {"who": str(one["who"])} for one in (*first, *later)}
    assert job.rows() == [newest[id] for id in sorted(newest)]


def order_message() -> Any:
    """The class of a message with a field of each kind that `orders` has. Its file imports another one."""
    pool, file = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorProto
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    kinds = descriptor_pb2.FieldDescriptorProto
    places = file(name="shop/place.proto", package="shop", syntax="proto3")
    places.message_type.add(name="Place").field.add(name="town", number=1, type=kinds.TYPE_STRING, label=1)
    made = file(name="shop/order.proto", package="shop", syntax="proto3")
    made.dependency.extend(["shop/place.proto", "google/protobuf/timestamp.proto"])
    made.message_type.add(name="Before")
    state = made.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    fields = made.message_type.add(name="Order").field
    fields.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    fields.add(name="state", number=2, type=kinds.TYPE_ENUM, type_name=".shop.State", label=1)
    fields.add(name="tags", number=3, type=kinds.TYPE_STRING, label=3)
    fields.add(name="at", number=4, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    fields.add(name="to", number=5, type=kinds.TYPE_MESSAGE, type_name=".shop.Place", label=1)
    for one in (places, made):
        pool.AddSerializedFile(one.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_events(
    broker: "Broker", schema_registry: "Registry", client: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic, kind, names = new_topic(broker), order_message(), ("id", "state", "tags", "at")
    told = orders(range(120))
    rows = [{name: one[name] for name in names} | {"to": {"town": one["to"]["town"]}} for one in told]
    write, of_value = ProtobufSerializer(kind, client), SerializationContext(topic.name, MessageField.VALUE)
    topic.write([write(kind(**row), of_value) for row in rows])
    value = {"format": "events", "encoding": "protobuf"}
    job = Job(broker.bootstrap, topic.name, tmp_path, value=value, registry={"url": schema_registry.url})
    assert job.rows() == rows


def test_debeziums_envelopes_in_protobuf(
    broker: "Broker", schema_registry: "Registry", client: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic, of = new_topic(broker), protobuf.library()

    def write(changes: Sequence[tuple[str, Any, Any]]) -> None:
        value, key = (ProtobufSerializer(of[name], client) for name in ("Envelope", "Key"))
        of_value, of_key = (
            SerializationContext(topic.name, one) for one in (MessageField.VALUE, MessageField.KEY)
        )
        told = [protobuf.message(of["Envelope"], protobuf.envelope(*change)) for change in changes]
        keys = [of["Key"](id=(before or after)["id"]) for _, before, after in changes]
        topic.write([value(one, of_value) for one in told], 0, [key(one, of_key) for one in keys])

    rows = [protobuf.row(n) for n in range(1, 60)]
    write([("c", None, one) for one in rows])
    write([("u", rows[0], rows[0] | {"name": "new"}), ("d", rows[1], None)])
    job = Job(
        broker.bootstrap,
        topic.name,
        tmp_path,
        registry={"url": schema_registry.url},
        value={"format": "debezium", "encoding": "protobuf"},
        key={"format": "protobuf"},
    )
    assert job.rows() == [rows[0] | {"name": "new"}, *rows[2:]]


def test_json_schema_events(
    broker: "Broker", schema_registry: "Registry", client: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic, names = new_topic(broker), ("id", "state", "tags")
    rows = [{name: one[name] for name in names} for one in orders(range(120))]
    kinds: dict[str, Any] = {"id": {"type": "integer"}, "state": {"type": "string"}}
    kinds["tags"] = {"type": "array", "items": {"type": "string"}}
    text = json.dumps({"title": "Order", "type": "object", "properties": kinds, "required": list(names)})
    write, of_value = JSONSerializer(text, client), SerializationContext(topic.name, MessageField.VALUE)
    topic.write([write(row, of_value) for row in rows])
    value = {"format": "events", "encoding": "json-schema"}
    job = Job(broker.bootstrap, topic.name, tmp_path, value=value, registry={"url": schema_registry.url})
    assert job.rows() == rows


def test_what_the_demo_writes_is_avro(schema_registry: "Registry", client: SchemaRegistryClient) -> None:
    write, told = (
        demo_topic.in_avro(schema_registry.url, "demo"),
        [demo_topic.order(n) for n in (0, 63, 64, 1 << 40)],
    )
    value = AvroDeserializer(client)
    of_value = SerializationContext("demo", MessageField.VALUE)
    assert [value(write(one)[1], of_value) for one in told] == told
    assert [value(write(one)[0], of_value) for one in told] == [{"id": one["id"]} for one in told]


def test_ids_of_apicurio(schema_registry: "Registry") -> None:
    """A global id is one of a version; two versions with one text have one content."""
    url = schema_registry.url
    of_contents = SchemaRegistry.of(RegistryOptions(url=url), "upstream.registry")
    for n in range(3):
        of_contents.register(f"twice-{n}", "AVRO", '{"type": "fixed", "name": "Twice", "size": 7}')
    id = of_contents.register("after", "AVRO", '{"type": "fixed", "name": "After", "size": 7}')
    with urllib.request.urlopen(
        f"{schema_registry.server}/apis/registry/v2/groups/default/artifacts/after/meta"
    ) as told:
        global_id = json.load(told)["globalId"]
    assert global_id > id
    own = SchemaRegistry.of(RegistryOptions(url=url, id_bytes=8, global_ids=True), "upstream.registry")
    assert own.by_id(global_id).text == of_contents.by_id(id).text
    with pytest.raises(UnknownSchema):
        own.by_id(1_000_000)
