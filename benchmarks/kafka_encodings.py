"""The same rows of a topic in each encoding, into DuckDB: records a second, and ÷ those of plain JSON."""

import io
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Figure
from topic_job import PARTITIONS, TopicJob, in_turn, produce, registered

if TYPE_CHECKING:
    from broker import Broker

COLUMNS = "id BIGINT, customer BIGINT, status STRING, note STRING, paid BOOLEAN, weight DOUBLE"
AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "long"]},
        {"name": "status", "type": ["null", "string"]},
        {"name": "note", "type": ["null", "string"]},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "weight", "type": ["null", "double"]},
    ],
}
PROTOBUF = """\
syntax = "proto3";
message Row {
  int64 id = 1;
  optional int64 customer = 2;
  optional string status = 3;
  optional string note = 4;
  optional bool paid = 5;
  optional double weight = 6;
}
"""
JSON_SCHEMA = {
    "title": "Row",
    "type": "object",
    "properties": {
        **{key: {"type": "integer", "title": "int64"} for key in ("id", "customer")},
        **{key: {"type": "string"} for key in ("status", "note")},
        "paid": {"type": "boolean"},
        "weight": {"type": "number"},
    },
    "required": ["id"],
}
SCHEMAS = {
    "avro": ("AVRO", json.dumps(AVRO)),
    "protobuf": ("PROTOBUF", PROTOBUF),
    "json-schema": ("JSON", json.dumps(JSON_SCHEMA)),
}


def row(number: int) -> dict[str, Any]:
    """About 100 bytes of JSON."""
    return {
        "id": number,
        "customer": number * 7919 % 1_000_003,
        "status": ("new", "paid", "sent")[number % 3],
        "note": "x" * 20,
        "paid": number % 2 == 0,
        "weight": number % 1000 / 8,
    }


def in_avro(number: int) -> bytes:
    import fastavro

    into = io.BytesIO()
    fastavro.schemaless_writer(into, AVRO, row(number))
    return into.getvalue()


def in_json(number: int) -> bytes:
    return json.dumps(row(number), separators=(",", ":")).encode()


def in_protobuf() -> Callable[[int], bytes]:
    """Behind the index of the schema's first message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto3")
    message = file.message_type.add(name="Row")
    kinds = {"id": 3, "customer": 3, "status": 9, "note": 9, "paid": 8, "weight": 1}  # FieldDescriptorProto.Type
    for at, (name, kind) in enumerate(kinds.items()):
        field = message.field.add(name=name, number=at + 1, type=kind, label=1)  # type: ignore[arg-type]
        if at:
            field.proto3_optional = True
            field.oneof_index = at - 1
            message.oneof_decl.add(name=f"_{name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Row"))
    return lambda number: b"\0" + made(**row(number)).SerializeToString()


def encodings(folder: Path, kafka: "Broker", records: int, rounds: int) -> list[Figure]:
    """Each encoding in turn."""
    import registry

    from backfill_cli.spark.session import open_session

    open_session("local[*]", {})
    makers = {"json": in_json, "avro": in_avro, "protobuf": in_protobuf(), "json-schema": in_json}
    with registry.running(folder / "registry") as held:
        jobs = {}
        for name, make in makers.items():
            topic, of, head = f"rows-{name}", f'encoding = "{name}"', b""
            if name in SCHEMAS:
                head = b"\0" + registered(held.url, f"{topic}-value", *SCHEMAS[name]).to_bytes(4, "big")
            else:
                of = f'schema = "{COLUMNS}"'
            kafka.create(topic, PARTITIONS)
            produce(kafka.bootstrap, 0, records, topic, lambda number, head=head, make=make: head + make(number))
            told = {"bootstrap": kafka.bootstrap, "topic": topic, "value": f'format = "rows", {of}'}
            told |= {"key": 'key = ["id"]', "registry": held.url if head else ""}
            jobs[name] = TopicJob(folder / topic, folder, **told)
        took, cpu = in_turn(jobs, records, rounds)
    figures = []
    for name in jobs:
        rate, spent = records / statistics.median(took[name]), statistics.median(cpu[name])
        by_json = [of / mine for of, mine in zip(took["json"], took[name], strict=True)]
        note = f"rate ÷ JSON {statistics.median(by_json):.2f}, CPU {spent:.1f} s/million"
        figures.append(Figure(f"rows, {name}", rate, "records/s", "-", True, (), note, higher=True))
    return figures
