"""Rows and Debezium's envelopes in Avro, by schemas of a registry."""

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hint_typed import typed
from registered_avro import Topic, rows, table_change, table_envelope
from toy_registry import running

from backfill_cli.contracts.decoder import Decoded
from backfill_cli.decode import json_rows
from backfill_cli.decode.debezium import OneByOne
from backfill_cli.errors import BadData, ColumnAdded, ConfigError
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.schema import schema_text
from backfill_cli.registry import decoder
from backfill_cli.upstreams.kafka.reading import Reading

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "raw", "type": "bytes"},
    {"name": "ratio", "type": "double"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
ROW = {"type": "record", "name": "Value", "fields": FIELDS}
AT = datetime.datetime(2026, 11, 26, 12, 0, 0, 1, datetime.UTC)


def value(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "name": None if n % 3 == 0 else f"name {n}",
        "amount": Decimal(n) / 100 - 5,
        "at": AT + datetime.timedelta(seconds=n),
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=n),
        "raw": bytes([n % 256, 0]),
        "ratio": n / 7,
        "tags": ["x"] * (n % 3),
    }


@pytest.fixture(scope="module")
def topic() -> Iterator[Topic]:
    with running() as registry:
        yield Topic(registry)


@pytest.fixture
def fast_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ordinary record is read one by one."""

    def one_by_one(*_: Any) -> Decoded:
        pytest.fail("records were read one by one")

    monkeypatch.setattr(OneByOne, "decoded", one_by_one)
    monkeypatch.setattr(json_rows, "one_by_one", one_by_one)


@pytest.mark.usefixtures("fast_alone")
def test_rows_are_read_by_columns_with_their_schemas_types(topic: Topic) -> None:
    columns, found = topic.read("rows", [topic.record(ROW, value(n)) for n in range(1, 200)])
    assert {name: column["type"] for name, column in columns.items()} == {
        "id": "long",
        "name": "string",
        "amount": "decimal(10,2)",
        "at": "timestamp",
        "day": "date",
        "raw": "binary",
        "ratio": "double",
        "tags": {"type": "array", "elementType": "string", "containsNull": True},
    }
    assert rows(found) == [value(n) for n in range(1, 200)]


SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        *({"name": name, "type": "string"} for name in ("connector", "db", "schema", "table")),
        {"name": "ts_ms", "type": "long"},
        {"name": "txId", "type": ["null", "long"], "default": None},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "connect.name": "shop.public.orders.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}


def envelope(op: str, before: int | None, after: int | None) -> dict[str, Any]:
    names = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}
    return {
        "before": None if before is None else value(before),
        "after": None if after is None else value(after),
        "source": {**names, "ts_ms": 1_700_000_000_000, "txId": 7, "lsn": 1_000},
        "op": op,
        "ts_ms": 1_700_000_000_001,
    }


@pytest.mark.usefixtures("fast_alone")
def test_an_envelope_of_debezium_is_read_by_columns(topic: Topic) -> None:
    made = [envelope("c", None, n) if n % 2 else envelope("d", n, None) for n in range(1, 100)]
    made += [envelope("u", n, n) for n in range(100, 150)]
    topic = Topic(topic.registry, "orders-envelope")
    columns, found = topic.read("debezium", [topic.record(ENVELOPE, one) for one in made], ["id"])
    assert list(columns) == [one["name"] for one in FIELDS]
    assert found.op is not None
    assert found.op.to_pylist() == ["D" if one["op"] == "d" else "U" for one in made]
    told = [{"id": one["before"]["id"]} if one["op"] == "d" else one["after"] for one in made]
    assert [{name: row[name] for name in told[i]} for i, row in enumerate(rows(found))] == told


def test_a_change_of_the_key_is_two_rows(topic: Topic) -> None:
    topic = Topic(topic.registry, "orders-envelope")
    _, found = topic.read("debezium", [topic.record(ENVELOPE, envelope("u", 1, 2))], ["id"])
    assert found.op is not None
    assert (found.op.to_pylist(), found.columns["id"].to_pylist()) == (["D", "U"], [1, 2])


def test_records_that_cannot_be_read_say_why_beside_the_others(topic: Topic) -> None:
    good = topic.record(ROW, value(1))
    records = [good, good[:-3], good + b"\0", b"\0\0\0\x27\x0f", b"{}", b"", good]
    _, found = topic.read("rows", records, seen=[good])
    told = [row.get("error") for row in rows(found)]
    assert (told[0], told[-1]) == (None, None)
    assert all(told[1:-1])
    assert told[3] == f"schema id 9999 is not in the registry {topic.registry.url}"
    assert "has no schema id" in str(told[4])


def test_a_schema_of_another_encoding_is_named(topic: Topic) -> None:
    id = topic.registry.add("orders-json", '{"type": "object"}', "JSON")
    record = b"\0" + id.to_bytes(4, "big") + b"{}"
    _, found = topic.read("rows", [record], seen=[topic.record(ROW, value(1))])
    said = f"schema id {id} is JSON, but upstream.value.encoding = 'avro'"
    assert rows(found) == [{"error": said}]


def test_a_topic_without_records_has_the_columns_of_its_subject(topic: Topic) -> None:
    with running() as registry:
        empty = Topic(registry)
        with pytest.raises(BadData, match="no subject 'orders-value'"):
            empty.read("rows", [])
        empty.record(ROW, value(1))
        columns, _ = empty.read("rows", [])
    assert list(columns) == [one["name"] for one in FIELDS]


@pytest.mark.parametrize("shape", ["int", "long", {"type": "record", "name": "Key", "fields": [FIELDS[0]]}])
def test_a_key_of_a_record_is_its_column(topic: Topic, shape: Any) -> None:
    schema = shape if isinstance(shape, dict) else {"type": shape}
    record = Topic(topic.registry, "orders-key").record(schema, {"id": 7} if "fields" in schema else 7)
    columns, _ = topic.read("rows", [topic.record(ROW, value(1))])
    keys = {"id": columns["id"]}
    opened = decoder("rows").open(topic.asked(["id"], keys, of_keys=True), keys, {})
    found = rows(opened.decode(lambda: ())([record, record[:-1]]))
    assert (found[0], list(found[1])) == ({"id": 7}, ["error"])


def of(*fields: dict[str, Any], name: str = "Value") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ID = {"name": "id", "type": "long"}


def test_types_that_no_column_holds_stop_the_job_before_it_begins(topic: Topic) -> None:
    texts = [topic.record(of(ID, {"name": "v", "type": "string"}), {"id": 1, "v": "a"})]
    numbers = [topic.record(of(ID, {"name": "v", "type": "long"}), {"id": 1, "v": 1})]
    with pytest.raises(BadData, match=r"column 'v' changes its type: schema id \d+ says long"):
        topic.read("rows", texts + numbers)
    snapshot, whole = of_ddl("id BIGINT, v STRING"), (frozenset[str](), frozenset(("id", "v")))
    with pytest.raises(BadData, match="column 'v' changes its type") as refused:
        decoder("rows").columns(topic.asked(["id"], snapshot, whole=whole), lambda: texts + numbers)
    with typed(refused.value) as hint:
        hint.says("fill the table from it")
        assert rows(topic.read("rows", numbers)[1]) == [{"id": 1, "v": 1}]


def test_declared_columns_are_those_of_the_schemas_and_hold_their_values(topic: Topic) -> None:
    records = [topic.record(of(ID, {"name": "v", "type": "long"}), {"id": 1, "v": 1})]

    def declared(ddl: str) -> list[str]:
        asked = topic.asked(["id"], of_ddl(ddl))
        return list(decoder("rows").columns(asked, lambda: records).columns)

    with pytest.raises(ConfigError, match="no schema of topic 'orders' has a column 'vv'") as unknown:
        declared("id BIGINT, vv BIGINT")
    with typed(unknown.value) as hint:
        hint.says("its columns are: v")
        assert declared("id BIGINT, v BIGINT") == ["id", "v"]
    with pytest.raises(ConfigError, match="column 'v': long does not fit int") as narrow:
        declared("id BIGINT, v INT")
    with typed(narrow.value) as hint:
        assert "upstream.value.schema" in hint.settings()
        assert declared("id BIGINT, v BIGINT") == ["id", "v"]


def test_messages_of_protobuf_are_rows_by_their_schemas(topic: Topic) -> None:
    row = "message Row { int64 id = 1; optional string name = 2; }"
    text = f'syntax = "proto3"; message Other {{ string x = 1; }} {row}'
    id = topic.registry.add("orders-proto", text, "PROTOBUF")
    begin = b"\0" + id.to_bytes(4, "big") + b"\x02\x02"  # one index, 1: the second message
    records = [begin + b"\x08\x07\x12\x01a", begin + b"\x08\x08", begin + b"\x08"]
    asked = topic.asked(["id"])
    assert asked.documents is not None
    asked = replace(asked, documents=replace(asked.documents, encoding="protobuf"))
    found = decoder("rows").columns(asked, lambda: records[:2])
    read = decoder("rows").open(asked, found.columns, {}).decode(lambda: ())(records)
    assert {name: column["type"] for name, column in found.columns.items()} == {"id": "long", "name": "string"}
    assert rows(read)[:2] == [{"id": 7, "name": "a"}, {"id": 8, "name": None}]
    assert "error" in rows(read)[2]


def test_a_record_with_a_new_column_is_named_with_what_to_declare(topic: Topic) -> None:
    topic = Topic(topic.registry, "orders-grown")
    old, new = topic.record(of(ID), {"id": 1}), topic.record(of(ID, FIELDS[1]), {"id": 2, "name": "x"})
    asked = topic.asked(["id"])
    found = decoder("rows").columns(replace(asked, name="none"), lambda: [old])
    decode = decoder("rows").open(asked, found.columns, {}).decode(lambda: ())
    reading = Reading(schema_text(found.columns), decode, ("id",), decode, follows="t")
    at = pa.array([0, 0], pa.int32())
    place = {
        "kafka_partition": at,
        "kafka_offset": pa.array([7, 8], pa.int64()),
        "kafka_timestamp": pa.nulls(2, pa.timestamp("us", "UTC")),
    }
    with pytest.raises(ColumnAdded, match="partition 0, offset 8: column 'name' is new in schema id") as caught:
        reading.rows(at, place, [None, None], [old, new], Counter())
    with typed(caught.value) as hint:
        declared = of_ddl(str(hint.settings()["upstream.value.schema"]))
        assert "id" in declared
        keys = topic.asked(["id"], {"id": declared["id"]})
        pinned = decoder("rows").columns(keys, lambda: [old, new]).columns
        read = decoder("rows").open(keys, pinned, {}).decode(lambda: ())([old, new])
        assert rows(read) == [{"id": 1}, {"id": 2}]


JSON_SCHEMA = {
    "type": "object",
    "definitions": {"tag": {"type": "string"}},
    "properties": {
        "id": {"type": "integer", "connect.type": "int64", "connect.index": 0},
        "day": {
            "oneOf": [
                {"type": "null"},
                {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"},
            ],
            "connect.index": 1,
        },
        "price": {"type": ["number", "null"], "connect.index": 2},
        "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}, "connect.index": 3},
        "any": {"connect.index": 4},
    },
}


def test_json_of_a_schema_has_its_types(topic: Topic) -> None:
    id = topic.registry.add("orders-described", json.dumps(JSON_SCHEMA), "JSON")
    begin = b"\0" + id.to_bytes(4, "big")
    texts = ['{"id":1,"day":20000,"price":0.5,"tags":["a"]}', '{"id":2}', '{"id":"x"}', '{"id":3']
    records = [begin + text.encode() for text in texts]
    declared = of_ddl("id BIGINT, day DATE, price DOUBLE, tags ARRAY<STRING>")
    asked = topic.asked(["id"], declared, encoding="json-schema")
    found = decoder("rows").columns(asked, lambda: records).columns
    read = rows(decoder("rows").open(asked, found, {}).decode(lambda: ())(records))
    assert read[0] == {"id": 1, "day": datetime.date(2024, 10, 4), "price": 0.5, "tags": ["a"]}
    assert read[1] == {"id": 2, "day": None, "price": None, "tags": None}
    assert [list(one) for one in read[2:]] == [["error"], ["error"]]
    with pytest.raises(BadData, match="column 'any': type anything is not known") as refused:
        decoder("rows").columns(topic.asked(["id"], encoding="json-schema"), lambda: records)
    with typed(refused.value) as hint:
        assert "upstream.value.schema" in hint.settings()
        assert list(decoder("rows").columns(asked, lambda: records).columns) == list(declared)


@pytest.mark.usefixtures("fast_alone")
def test_records_of_other_tables_in_a_shared_topic_are_skipped_by_their_sources_alone(topic: Topic) -> None:
    people = table_envelope("people", {"name": "id", "type": "long"})
    orders = table_envelope("orders", {"name": "id", "type": "string"}, {"name": "total", "type": "long"})
    mine = [topic.record(people, table_change("people", {"id": n})) for n in range(3)]
    others = [topic.record(orders, table_change("orders", {"id": "x", "total": n})) for n in range(3)]
    records = [one for both in zip(mine, others, strict=True) for one in both]
    records.append(topic.record(people, table_change("people", {"id": 9}, db="elsewhere")))
    asked = replace(topic.asked(["id"]), table="people", options={"tables": ("people",)}, shared=True)
    debezium = decoder("debezium")
    found = debezium.columns(asked, lambda: records[:6])
    assert found.others == {"shop.orders"}
    decode = debezium.open(asked, found.columns, found.facts).decode(lambda: records)
    assert rows(decode(records)) == [{"id": n} for n in range(3)]


def test_columns_that_are_added_to_a_table_are_seen_past_tables_of_its_name(topic: Topic) -> None:
    """`widened` looks at records of the topic as they are then."""
    first = table_envelope("lines", {"name": "id", "type": "long"})
    second = table_envelope("lines", {"name": "id", "type": "long"}, {"name": "more", "type": ["null", "long"]})
    wide = topic.record(second, table_change("lines", {"id": 2, "more": 3}))
    elsewhere = topic.record(first, table_change("lines", {"id": 1}, db="elsewhere"))
    asked = replace(topic.asked(["id"]), table="lines", options={"tables": ("lines",)}, shared=True)
    with pytest.raises(ConfigError, match="is the end of several names"):
        decoder("debezium").columns(asked, lambda: [wide, elsewhere])
    known = replace(asked, source="shop.lines")
    assert [*decoder("debezium").columns(known, lambda: [wide, elsewhere]).columns] == ["id", "more"]
