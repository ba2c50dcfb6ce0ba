"""Rows and Debezium's envelopes in Protobuf, by a registry's schemas, as Kafka Connect's converter writes them."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from orders_protobuf import SCHEMA, TYPES, envelope, library, message, row, written
from registered_avro import rows
from toy_registry import ToyRegistry, running

from backfill_cli.contracts.decoder import Asked, Decoded
from backfill_cli.decode import json_rows
from backfill_cli.decode.debezium import OneByOne
from backfill_cli.decode.registered import Registered
from backfill_cli.errors import BadData
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.schema import Columns
from backfill_cli.registry import decoder
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry

LIBRARY = library()
INDEXES = {"Key": b"\0", "Envelope": b"\x02\x02", "Value": b"\x04\x02\x00"}
"""What stands before a message: how many indexes, and these, as zigzag."""


@dataclass(frozen=True)
class Topic:
    """A topic `orders` and a toy registry of its schemas."""

    registry: ToyRegistry

    def record(self, name: str, value: Mapping[str, Any], schema: str = SCHEMA) -> bytes:
        id = self.registry.add("orders-value", schema, "PROTOBUF")
        told = message(LIBRARY[name], value).SerializeToString()
        return b"\0" + struct.pack(">I", id) + INDEXES[name] + told

    def asked(self, key: Sequence[str], declared: Columns | None) -> Asked:
        registry = SchemaRegistry.of(RegistryOptions(url=self.registry.url), "upstream.registry")
        documents = Registered(registry, "protobuf", "upstream.value.encoding")
        return Asked(
            "topic 'orders'", "orders", "orders", tuple(key), declared, {}, "upstream.value", documents=documents
        )

    def read(
        self, form: str, records: Sequence[bytes], key: Sequence[str] = (), declared: Columns | None = None
    ) -> tuple[Columns, Decoded]:
        """(the columns that these records show, the records' rows)."""
        asked, of = self.asked(key, declared), decoder(form)
        found = of.columns(asked, lambda: records)
        opened = of.open(asked, found.columns, found.facts)
        return found.columns, opened.decode(lambda: records)(records)


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
@pytest.mark.parametrize("form", ["rows", "events"])
def test_rows_are_read_by_columns_with_their_schemas_types(topic: Topic, form: str) -> None:
    columns, found = topic.read(form, [topic.record("Value", written(row(n))) for n in range(1, 200)])
    assert {name: column["type"] for name, column in columns.items()} == TYPES
    assert rows(found) == [row(n) for n in range(1, 200)]


@pytest.mark.usefixtures("fast_alone")
def test_debeziums_envelopes_are_read_by_columns(topic: Topic) -> None:
    records = [topic.record("Envelope", envelope("c", None, row(n))) for n in range(1, 100)]
    records += [topic.record("Envelope", envelope("u", row(n), row(n) | {"name": "new"})) for n in range(1, 100)]
    records.append(topic.record("Envelope", envelope("d", row(5), None)))
    columns, found = topic.read("debezium", records, ["id"])
    assert {name: column["type"] for name, column in columns.items()} == TYPES
    assert found.op is not None
    assert found.op.to_pylist() == ["U"] * 198 + ["D"]
    made = rows(found)
    assert made[:198] == [row(n) for n in range(1, 100)] + [row(n) | {"name": "new"} for n in range(1, 100)]
    assert made[198]["id"] == 5


def test_a_time_that_would_be_cut_is_a_fault_of_its_record(topic: Topic) -> None:
    told = written(row(1)) | {"at": "2026-11-26T12:00:00.000000001Z"}
    _, found = topic.read("rows", [topic.record("Value", written(row(2))), topic.record("Value", told)])
    first, second = rows(found)
    assert first == row(2)
    assert second["error"].startswith("column 'at': not a whole number of microseconds since 1970")


def test_messages_of_several_types_of_one_schema_are_told_apart(topic: Topic) -> None:
    _, found = topic.read("rows", [topic.record("Key", {"id": 1}), topic.record("Value", written(row(2)))])
    shown = rows(found)
    assert [one["id"] for one in shown] == [1, 2]


def test_the_newest_schema_of_a_subject_is_read_as_the_message_that_the_records_are(topic: Topic) -> None:
    records = [topic.record("Value", written(row(1)))]
    newer = SCHEMA.replace("message Key {", "message Another { int32 x = 1; }\nmessage Key {")
    topic.registry.add(
        "orders-value", newer.replace("uint64 wide = 9;", "uint64 wide = 9; optional int32 more = 10;"), "PROTOBUF"
    )
    columns, found = topic.read("rows", records)
    assert {name: column["type"] for name, column in columns.items()} == {**TYPES, "more": "integer"}
    assert rows(found) == [row(1) | {"more": None}]


def test_which_of_several_messages_a_topic_has_only_its_records_show() -> None:
    with running() as registry:
        topic = Topic(registry)
        registry.add("orders-value", SCHEMA, "PROTOBUF")
        with pytest.raises(
            BadData, match=r"it defines shop\.public\.orders\.Key, shop\.public\.orders\.Envelope; only records"
        ):
            topic.read("rows", [])


ODD = """
syntax = "proto2";
import "confluent/type/decimal.proto";
message Odd {
  optional int64 id = 1;
  optional Odd parent = 2;
  optional group More = 3 { optional int32 x = 4; }
  optional confluent.type.Decimal amount = 5;
  optional uint64 wide = 6;
}
"""


@pytest.mark.usefixtures("fast_alone")
def test_columns_without_a_type_are_refused_by_name_and_passed_over_where_others_are_declared() -> None:
    inner = b"\x08\x02"
    payload = b"\x08\x01" + b"\x12\x02" + inner + b"\x2a\x06\x0a\x02\x04\xd2\x18\x02" + b"\x30\x05"
    with running() as registry:
        topic = Topic(registry)
        id = registry.add("orders-value", ODD, "PROTOBUF")
        record = b"\0" + struct.pack(">I", id) + b"\0" + payload
        with pytest.raises(BadData, match="column 'parent': Odd contains itself"):
            topic.read("rows", [record])
        declared = of_ddl("id BIGINT, amount DECIMAL(9,2), wide BIGINT")
        _, found = topic.read("rows", [record], (), declared)
        assert rows(found) == [{"id": 1, "amount": Decimal("12.34"), "wide": 5}]
