"""Records with the ids of their schemas: groups, and why a record is in none. Written by fastavro."""

import io
import json
import pickle
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from toy_registry import ToyRegistry, error, running

from backfill_cli.decode.registered import RegisteredDocuments
from backfill_cli.decode.tokens import Number
from backfill_cli.errors import Transient
from backfill_cli.schema_registry import registry
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "item", "type": "shop.Item"}]}  # type: ignore[misc]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyRegistry]:
    monkeypatch.setattr(registry, "SETTLE_S", 0.0)
    with running() as one:
        yield one


def documents(toy: ToyRegistry, kind: str = "AVRO") -> RegisteredDocuments:
    opened = RegisteredDocuments(SchemaRegistry.of(RegistryOptions(url=toy.url), "upstream.registry"), kind)
    made: RegisteredDocuments = pickle.loads(pickle.dumps(opened))
    return made


def record(id: int, schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return b"\0" + id.to_bytes(4, "big") + out.getvalue()


def test_records_of_each_schema_are_a_group_and_faults_name_theirs(toy: ToyRegistry) -> None:
    toy.add("item", json.dumps(ITEM))
    first = toy.add("orders-value", json.dumps(FIRST))
    reference = {"name": "shop.Item", "subject": "item", "version": 1}
    second = toy.add("orders-value", json.dumps(SECOND), references=[reference])
    other = toy.add("other", 'syntax = "proto3"; message M {}', "PROTOBUF")
    broken = toy.add("broken", '{"type": "record"}')
    whole = fastavro.parse_schema({**SECOND, "fields": [*FIRST["fields"], {"name": "item", "type": ITEM}]})  # type: ignore[misc]
    records = [
        record(second, whole, {"id": 1, "item": {"sku": "a"}}),
        None,
        record(first, FIRST, {"id": 2}),
        b'{"id": 3}',
        record(99, FIRST, {"id": 4}),
        record(other, FIRST, {"id": 5}),
        record(broken, FIRST, {"id": 6}),
        record(second, whole, {"id": 7, "item": {"sku": "b"}}),
    ]

    groups, faults = documents(toy).groups(records)
    assert [(one.written, list(one.at)) for one in groups] == [("schema id 3", [0, 7]), ("schema id 2", [2])]
    wanted = pa.schema([("id", pa.int64()), ("item", pa.struct([("sku", pa.string())]))])
    rows, kept = groups[0].read(wanted)
    assert list(kept) == [0, 1]
    assert rows["id"].to_pylist() == [1, 7]
    assert rows["item"].to_pylist() == [{"sku": "a"}, {"sku": "b"}]
    assert groups[1].token(0) == {"id": Number("2")}
    told = {index: str(fault) for index, fault in faults.items()}
    assert told.keys() == {3, 4, 5, 6}
    assert told[3].startswith("the record has no schema id: it begins with b'{")
    assert told[4] == f"schema id 99 is not in the registry {toy.url}"
    assert told[5] == "schema id 4 is Protobuf, not Avro"
    assert told[6].startswith("schema id 5: ")


def test_the_members_of_a_document_are_those_of_its_schema(toy: ToyRegistry) -> None:
    inner = {"type": "record", "name": "V", "fields": [{"name": "Id", "type": "int"}]}
    envelope = {"type": "record", "name": "E", "fields": [{"name": "after", "type": ["null", inner]}]}
    id = toy.add("e", json.dumps(envelope))
    (group,), _ = documents(toy).groups([record(id, envelope, {"after": {"Id": n}}) for n in range(3)])
    assert list(group.unlike([0, 2], ("after",), lambda names: names == {"Id"})) == []
    assert list(group.unlike([0, 2], ("after",), lambda names: names == {"id"})) == [0, 2]
    assert (list(group.holding(["after"])), list(group.holding(["after", "op"]))) == ([0, 1, 2], [])
    assert (list(group.recased(["After"])), list(group.recased(["after", "x"]))) == ([0, 1, 2], [])


def test_a_registry_that_is_down_is_no_fault_of_a_record(toy: ToyRegistry) -> None:
    toy.always = error(503, 50301, "no leader")
    with pytest.raises(Transient):
        documents(toy).groups([record(1, FIRST, {"id": 1})])
