"""Debezium's placeholders in Avro: within arrays, maps and structs, too, which are read by columns."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from registered_avro import Topic, rows
from test_debezium_unsent import BYTES, TEXT, UUID
from toy_registry import running

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Decoded, Fault
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.registry import decoder

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "wkb", "type": "bytes"}, {"name": "srid", "type": "int"}],
}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "x", "type": ["null", "string"]},
        {"name": "y", "type": {"type": "array", "items": "bytes"}},
        {"name": "z", "type": {"type": "map", "values": "string"}},
    ],
}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


WHOLE: dict[str, tuple[Any, Any, Any]] = {
    "text": ("string", TEXT, "a"),
    "bytes": ("bytes", TEXT.encode(), b"a"),
    "array of text": (array("string"), [TEXT], ["a", "b"]),
    "array of text or null": (array(["null", "string"]), [TEXT], [None]),
    "array of bytes": (array("bytes"), [TEXT.encode()], [b"a"]),
    "array of uuid": (array("string"), [UUID], []),
    "array of int": (array("int"), BYTES, [1]),
    "array of long": (array("long"), BYTES, [*BYTES[:-1], 0]),
    "array of float": (array("float"), [float(b) for b in BYTES], [0.5]),
    "array of double": (array("double"), [float(b) for b in BYTES], [95.0]),
    "array of boolean": (array("boolean"), [True] * len(BYTES), [True] * 27),
    "array of date": (array({"type": "int", "logicalType": "date"}), BYTES, [1]),
    "array of decimal": (array(DECIMAL), [bytes([b]) for b in BYTES], [b"\1"]),
    "map": ({"type": "map", "values": "string"}, {TEXT: TEXT}, {"a": "b"}),
}
"""By column: its type, its placeholder, and another value."""
WITHIN: dict[str, tuple[Any, Any, Any]] = {
    "array of several": (array("string"), ["a", TEXT], []),
    "array of arrays": (array(array("bytes")), [[b"a"], [TEXT.encode()]], [[]]),
    "array of arrays of numbers": (array(array("int")), [[1], BYTES], [[1]]),
    "value of a map": ({"type": "map", "values": "string"}, {"a": TEXT}, {}),
    "key of a map": ({"type": "map", "values": "int"}, {TEXT: 1}, {}),
    "member of a record": (INNER, {"x": TEXT, "y": [], "z": {}}, {"x": None, "y": [], "z": {}}),
    "bytes in it": (INNER, {"x": None, "y": [TEXT.encode()], "z": {}}, {"x": "a", "y": [b""], "z": {"a": "b"}}),
    "map in it": (INNER, {"x": None, "y": [], "z": {TEXT: TEXT}}, {"x": "a", "y": [b""], "z": {"a": "b"}}),
    "record in an array": (array(INNER), [{"x": TEXT, "y": [], "z": {}}], []),
}
"""The same where a value has a placeholder in it, which Debezium does not write: nobody knows what it is."""


@pytest.fixture(scope="module")
def topic() -> Iterator[Topic]:
    with running() as registry:
        yield Topic(registry, "of no topic")


def row_of(kind: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": kind}],
    }


def envelopes(topic: Topic, kind: Any, *changes: tuple[str, Any, Any]) -> Decoded:
    """The rows of (op, before, after)."""
    source = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
    fields = [
        {"name": "before", "type": ["null", row_of(kind)]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
    ]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    records = [
        topic.record(schema, {"op": op, "before": before, "after": after, "source": {"table": "orders"}})
        for op, before, after in changes
    ]
    return topic.read("debezium", records, ["id"])[1]


@pytest.mark.parametrize("case", WHOLE)
def test_an_update_names_what_was_not_sent_and_an_insert_that_lacks_it_is_refused(topic: Topic, case: str) -> None:
    kind, placeholder, other = WHOLE[case]
    row, full = {"id": 7, "v": placeholder}, {"id": 7, "v": other}
    found = envelopes(
        topic, kind, ("u", None, row), ("u", full, row), ("c", None, full), ("c", None, row), ("r", None, row)
    )
    assert found.beside[own.UNSENT].to_pylist() == [["v"], ["v"], None, None, None]
    assert found.columns["id"].to_pylist() == [7, 7, 7, None, None]
    assert [one is None for one in found.columns["v"].to_pylist()] == [True, True, False, True, True]
    assert found.fault is not None
    assert found.fault.to_pylist() == [None, None, None, Fault.NOT_SENT, Fault.NOT_SENT]


@pytest.mark.parametrize("case", WITHIN)
def test_a_placeholder_within_a_value_is_refused(topic: Topic, case: str) -> None:
    kind, odd, other = WITHIN[case]
    found = envelopes(topic, kind, ("u", None, {"id": 7, "v": odd}), ("u", None, {"id": 8, "v": other}))
    assert found.fault is not None
    assert found.fault.to_pylist() == [Fault.NOT_SENT, None]
    assert found.columns["id"].to_pylist() == [None, 8]


@pytest.mark.parametrize("case", WHOLE | WITHIN)
def test_rows_out_of_their_envelopes_keep_what_was_not_sent_or_are_refused(topic: Topic, case: str) -> None:
    kind, odd, other = (WHOLE | WITHIN)[case]
    schema = row_of(kind)
    schema["fields"].append({"name": "__op", "type": "string"})
    values = [
        {"id": 7, "v": odd, "__op": "u"},
        {"id": 7, "v": odd, "__op": "c"},
        {"id": 8, "v": other, "__op": "c"},
    ]
    _, found = topic.read("rows", [topic.record(schema, one) for one in values], ["id"])
    told = rows(found)
    assert "error" in told[1]
    assert told[2]["id"] == 8
    if case in WITHIN:
        assert "the value was not sent" in told[0]["error"]
    else:
        assert (told[0]["v"], found.beside[own.UNSENT].to_pylist()) == (None, [["v"], None, None])


# keys of records

KEYS = [{"name": "region", "type": "string"}, {"name": "id", "type": "long"}]


def deleted(topic: Topic, schema: Any, value: Any, columns: Any) -> Any:
    """What a tombstone whose key is this deletes."""
    opened = decoder("rows").open(topic.asked(["id", "region"], columns, of_keys=True), columns, {})
    (found,) = rows(opened.decode(lambda: ())([Topic(topic.registry, "orders-key").record(schema, value)]))
    return found


def test_a_key_of_several_columns_is_read_by_their_names_and_never_by_a_default(topic: Topic) -> None:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long", "aliases": ["old_id"]},
            {"name": "region", "type": "string", "default": "eu"},
            {"name": "v", "type": "int"},
        ],
    }
    columns, _ = topic.read("rows", [topic.record(value, {"id": 1, "region": "us", "v": 1})], ["id", "region"])
    columns = {name: columns[name] for name in ("id", "region")}

    def key(*fields: Any) -> dict[str, Any]:
        return {"type": "record", "name": "Key", "fields": list(fields)}

    right = {"id": 7, "region": "us"}
    assert deleted(topic, key(*KEYS), {"region": "us", "id": 7}, columns) == right
    optional = [{"name": one["name"], "type": ["null", one["type"]], "default": None} for one in KEYS]
    assert deleted(topic, key(*optional), right, columns) == right
    assert deleted(topic, ["null", key(*optional)], right, columns) == right
    renamed = key(KEYS[0], {"name": "old_id", "type": "int"})
    assert deleted(topic, renamed, {"region": "us", "old_id": 7}, columns) == right
    more = key(*KEYS, {"name": "shard", "type": "int"})
    assert deleted(topic, more, {**right, "shard": 1}, columns) == right
    # the region is not known: NULL, which is refused
    assert deleted(topic, key(KEYS[1]), {"id": 7}, columns) == {"id": 7, "region": None}
    assert deleted(topic, key(*optional), {"id": 7, "region": None}, columns) == {"id": 7, "region": None}
    for schema, told in (({"type": "long"}, 7), (["long", "string"], 7), (["null", key(*KEYS)], None)):
        found = deleted(topic, schema, told, columns)
        assert "error" in found or found == {"id": None, "region": None}


# members whose names differ in case, and documents that are none


def described(topic: Topic, properties: Any, texts: list[str]) -> list[Any]:
    """The ids of JSON documents by a schema with these properties."""
    schema = {"type": "object", "properties": properties}
    id = topic.registry.add("orders-cased", json.dumps(schema), "JSON")
    records = [b"\0" + id.to_bytes(4, "big") + text.encode() for text in texts]
    asked = topic.asked([], of_ddl("id BIGINT"), encoding="json-schema")
    columns = decoder("rows").columns(asked, lambda: records).columns
    return rows(decoder("rows").open(asked, columns, {}).decode(lambda: ())(records))


def test_a_member_is_a_column_by_its_name_as_it_is_written(topic: Topic) -> None:
    texts = ['{"id":1}', '{"Id":2}', '{"Id":3,"id":4}', '{"id":null,"ID":5}', "{}"]
    found = described(topic, {"id": {"type": "integer"}}, texts)
    assert [one.get("id") for one in found] == [1, None, 4, None, None]
    assert ["differs from a column only in case" in one.get("error", "") for one in found] == [0, 1, 0, 1, 0]
    both = described(topic, {"id": {"type": "integer"}, "Id": {"type": "integer"}}, texts[:3])
    assert both == [{"id": 1}, {"id": None}, {"id": 4}]


def test_a_field_of_an_older_schema_that_differs_in_case_is_no_column_and_no_null(topic: Topic) -> None:
    old, new = ({"type": "record", "name": "Value", "fields": [{"name": n, "type": "long"}]} for n in ("Id", "id"))
    records = [topic.record(old, {"Id": 1}), topic.record(new, {"id": 2})]
    asked = topic.asked([], of_ddl("id BIGINT"))
    columns = decoder("rows").columns(asked, lambda: records).columns
    first, second = rows(decoder("rows").open(asked, columns, {}).decode(lambda: ())(records))
    assert "member 'Id' differs from a column only in case" in first["error"]
    assert second == {"id": 2}


@pytest.mark.parametrize("form", ["rows", "events"])
def test_a_document_that_is_null_is_no_row(topic: Topic, form: str) -> None:
    schema = ["null", {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}]
    records = [topic.record(schema, {"id": 1}), topic.record(schema, None)]
    _, found = topic.read(form, records, ["id"] if form == "rows" else [])
    assert rows(found) == [{"id": 1}, {"error": "not a JSON object"}]
