"""What later versions of a JSON Schema say beside an object's properties, in a job that runs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from registered_avro import Topic, rows
from toy_registry import running

from backfill_cli.contracts.decoder import Fault
from backfill_cli.errors import BadData
from backfill_cli.registry import decoder

ID, NAME = {"type": "integer"}, {"type": "string"}
FIRST = {"type": "object", "properties": {"id": ID, "name": NAME}}
OF_MORE = {"properties": {"more": {"type": "string"}}}
WORDS: dict[str, Any] = {
    "if": {"properties": {"id": {"const": 1}}},
    "then": OF_MORE,
    "allOf": [{"required": ["id"]}, OF_MORE],
    "anyOf": [OF_MORE, {"properties": {"id": {"minimum": 0}}}],
    "oneOf": [{"allOf": [OF_MORE]}],
    "dependentSchemas": {"name": OF_MORE},
    "dependencies": {"name": ["id"], "id": OF_MORE},
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": {"type": "string"},
}
ANY = ("patternProperties", "additionalProperties")


@pytest.fixture(scope="module")
def topic() -> Iterator[Topic]:
    with running() as registry:
        yield Topic(registry, "orders")


def record(topic: Topic, schema: Any, document: Any) -> bytes:
    id = topic.registry.add("of-no-topic", json.dumps(schema), "JSON")
    return b"\0" + id.to_bytes(4, "big") + json.dumps(document).encode()


def read(topic: Topic, begun: list[bytes], records: list[bytes]) -> Any:
    """What a job of rows reads that began when the topic had other records."""
    asked, of = topic.asked(["id"], encoding="json-schema"), decoder("rows")
    columns = of.columns(asked, lambda: begun).columns
    return of.open(asked, columns, {}).decode(lambda: ())(records)


WHOLE = {"2.0": 2, "1e2": 100, "-0.0": 0, "1.50e1": 15, "-9.223372036854775808e18": -(2**63), "7": 7}
BROKEN = ["2.5", "1e-1", "9.3e18", "1e99", "1e99999999999999999999", '"2"', "NaN", "true"]


@pytest.mark.parametrize("by", ["columns", "one by one"])
@pytest.mark.parametrize("kind", ["integer", "array"])
def test_an_integer_is_a_number_without_a_fraction_however_it_is_written(topic: Topic, by: str, kind: str) -> None:
    """Since draft 6. An array, or a column that Arrow cannot read, has a group read one by one."""
    n = {"type": "integer"} if kind == "integer" else {"type": "array", "items": ID}
    more = {"t": {"type": "array", "items": NAME}} if by == "one by one" else {}
    schema = {"type": "object", "properties": {"id": ID, "n": n, **more}}
    id = topic.registry.add("of-no-topic", json.dumps(schema), "JSON")

    def written(number: str) -> bytes:
        return (
            b"\0"
            + id.to_bytes(4, "big")
            + f'{{"id": 1.0, "n": {number if kind == "integer" else f"[{number}]"}}}'.encode()
        )

    begun, records = [written("1")], [written(one) for one in (*WHOLE, *BROKEN)]
    found = read(topic, begun, records)
    assert found.error is not None
    assert [error is None for error in found.error.to_pylist()] == [True] * len(WHOLE) + [False] * len(BROKEN)
    read_as = [one if kind == "integer" or one is None else one[0] for one in found.columns["n"].to_pylist()]
    assert read_as[: len(WHOLE)] == list(WHOLE.values())
    assert set(found.columns["id"].to_pylist()[: len(WHOLE)]) == {1}
    assert [rows(read(topic, begun, [one]))[0].get("n") for one in records] == found.columns["n"].to_pylist()


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_is_added_beside_the_properties_stops_no_job_that_runs(topic: Topic, word: str) -> None:
    first = record(topic, FIRST, {"id": 1, "name": "a"})
    later = {**FIRST, word: WORDS[word]}
    records = [first, record(topic, later, {"id": 2, "name": "b", "more": "x"})]
    found = read(topic, [first], records)
    assert rows(found) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    with pytest.raises(BadData, match=f"column '{word}'"):
        read(topic, records, records)


@pytest.mark.parametrize("word", WORDS)
def test_a_column_that_is_added_with_such_a_word_is_followed(topic: Topic, word: str) -> None:
    first = record(topic, FIRST, {"id": 1, "name": "a"})
    wider = {**FIRST, "properties": {**FIRST["properties"], "added": {"type": "boolean"}}, word: WORDS[word]}
    new = record(topic, wider, {"id": 2, "added": True})
    found = read(topic, [first], [new])
    assert found.fault.to_pylist() == [Fault.NEW_COLUMN]
    asked = replace(topic.asked(["id"], encoding="json-schema"), begun=True)
    columns = decoder("rows").columns(asked, lambda: [new, first]).columns
    assert list(columns) == ["id", "name", "added"]
    decoded = decoder("rows").open(asked, columns, {}).decode(lambda: ())([first, new])
    assert rows(decoded) == [{"id": 1, "name": "a", "added": None}, {"id": 2, "name": None, "added": True}]


@pytest.mark.parametrize("word", ANY)
def test_a_column_that_such_a_word_describes_instead_is_never_null(topic: Topic, word: str) -> None:
    first = record(topic, FIRST, {"id": 1, "name": "a"})
    moved = {"type": "object", "properties": {"id": ID}, word: WORDS[word]}
    records = [record(topic, moved, one) for one in ({"id": 2}, {"id": 3, "name": "b"}, {"id": 4, "other": "c"})]
    records.append(record(topic, moved, {"id": 5}).replace(b"}", b', "n\\u0061me": "d"}'))
    found = rows(read(topic, [first], records))
    assert [list(one) for one in found] == [["id", "name"], ["error"], ["id", "name"], ["error"]]
    assert f"describes it by '{word}' rather than by 'properties'" in found[1]["error"]


@pytest.mark.parametrize("word", [word for word in WORDS if word not in ANY and word != "if"])
def test_a_column_that_only_a_choice_has_is_never_null(topic: Topic, word: str) -> None:
    schema = {"type": "object", "properties": {"id": ID, "more": NAME}}
    first = record(topic, schema, {"id": 1, "more": "a"})
    moved = {"type": "object", "properties": {"id": ID}, word: WORDS[word]}
    records = [record(topic, moved, one) for one in ({"id": 2}, {"id": 3, "more": "b"}, {"id": 4, "other": "c"})]
    found = rows(read(topic, [first], records))
    assert [list(one) for one in found] == [["id", "more"], ["error"], ["id", "more"]]


def test_a_member_that_gets_another_type_with_such_a_word_stops_the_job(topic: Topic) -> None:
    first = record(topic, FIRST, {"id": 1, "name": "a"})
    typed = {"id": {"properties": {"name": ID}}}
    other = {**FIRST, "properties": {"id": ID, "name": {}}, "dependentSchemas": typed}
    found = read(topic, [first], [record(topic, other, {"id": 2, "name": 5})])
    assert found.fault.to_pylist() == [Fault.SCHEMA_BLOCK]


def test_a_word_within_a_struct_stops_no_job_that_runs(topic: Topic) -> None:
    first = {"type": "object", "properties": {"id": ID, "of": FIRST}}
    later = {"type": "object", "properties": {"id": ID, "of": {**FIRST, "if": OF_MORE}}}
    begun = [record(topic, first, {"id": 1, "of": {"id": 1, "name": "a"}})]
    found = read(topic, begun, [record(topic, later, {"id": 2, "of": {"id": 5, "name": "b", "more": "c"}})])
    assert rows(found) == [{"id": 2, "of": {"id": 5, "name": "b"}}]
    with pytest.raises(BadData, match="type members by if"):
        read(topic, [record(topic, later, {"id": 2})], begun)
