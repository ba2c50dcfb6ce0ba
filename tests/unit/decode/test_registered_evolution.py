"""Steps between two versions of a schema, as fastavro resolves them: a record of the older by the newer one."""

import io
import random
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from fastavro.read import SchemaResolutionError
from oracle.inputs import SEED, TIMES
from registered_avro import Topic, rows
from toy_registry import running

from backfill_cli.contracts.decoder import Fault
from backfill_cli.errors import BadData
from backfill_cli.registry import decoder

VALUES: dict[str, list[Any]] = {
    "int": [0, -1, 2**31 - 1, -(2**31)],
    "long": [0, 2**53 + 1, -(2**63)],
    "float": [0.5, -2.0],
    "double": [0.1, 1e300],
    "string": ["", "ä"],
    "bytes": [b"\0\xff", b""],
    "boolean": [True, False],
}
PROMOTED = {("int", "long"), ("int", "double"), ("float", "double")}
"""Avro's promotions whose type holds every value exactly: others, and of texts to bytes, are refused."""
SEEDS = 250


def typed_as(kind: str, nullable: bool) -> Any:
    return ["null", kind] if nullable else kind


def field(r: random.Random, name: str, kind: str | None = None) -> dict[str, Any]:
    chosen, nullable = kind or r.choice(list(VALUES)), r.random() < 0.5
    return {"name": name, "type": typed_as(chosen, nullable), "kind": chosen, "nullable": nullable}


def step(r: random.Random, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newer version's fields."""
    made = []
    for one in fields:
        what = r.choice(["same", "same", "rename", "drop", "type"])
        if what == "rename":
            made.append({**one, "name": f"{one['name']}_new", "aliases": [one["name"]]})
        elif what == "type" and one["name"] != "id":
            kind = r.choice(list(VALUES))
            made.append({**one, "type": typed_as(kind, one["nullable"]), "kind": kind})
        elif what == "same" or one["name"] == "id":
            made.append(one)
    for n in range(r.randrange(3)):
        new = field(r, f"added{n}")
        default = None if new["nullable"] else r.choice(VALUES[new["kind"]])
        new["default"] = default.decode("latin-1") if isinstance(default, bytes) else default
        made.append(new)
    r.shuffle(made)
    return made


def schema(fields: list[dict[str, Any]], name: str = "Value") -> dict[str, Any]:
    told = [{k: v for k, v in one.items() if k not in ("kind", "nullable")} for one in fields]
    return {"type": "record", "name": name, "fields": told}


@pytest.fixture(scope="module")
def topic() -> Iterator[Topic]:
    with running() as registry:
        yield Topic(registry, "of no topic")


def enveloped(row: Any) -> dict[str, Any]:
    """The schema of Debezium's envelopes of a row."""
    source = [{"name": name, "type": "string"} for name in ("db", "schema", "table")]
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", row["name"]], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
        {"name": "op", "type": "string"},
    ]
    return {"type": "record", "name": f"Envelope{row['name']}", "fields": fields}


def written(topic: Topic, form: str, schema: Any, value: Any) -> bytes:
    if form != "debezium":
        return topic.record(schema, value)
    source = {"db": "d", "schema": "public", "table": "orders"}
    return topic.record(
        enveloped(schema), {"before": None, "after": (schema["name"], value), "source": source, "op": "c"}
    )


@pytest.mark.parametrize("form", ["events", "rows", "debezium"])
def test_an_older_record_is_what_avro_resolves_it_to_or_refused(topic: Topic, form: str) -> None:
    compared = refused = 0
    for seed in range(int(SEEDS * TIMES)):
        r = random.Random(seed + SEED)
        old = [field(r, "id", "long"), *(field(r, f"f{n}") for n in range(r.randrange(1, 5)))]
        old[0] = {"name": "id", "type": "long", "kind": "long", "nullable": False}
        new = step(r, old)
        key = [one["name"] for one in new if "id" in (one["name"], *one.get("aliases", ())) and form != "events"]
        name = f"Value{seed}"  # so that each has an id of its own
        writer, reader = schema(old, name), schema(new, name)
        value = {
            one["name"]: None if one["nullable"] and r.random() < 0.3 else r.choice(VALUES[one["kind"]])
            for one in old
        }
        older = written(topic, form, writer, value)
        empty = {one["name"]: None if one["nullable"] else VALUES[one["kind"]][0] for one in new}
        newer = written(topic, form, reader, empty)
        before = {one["name"]: one["kind"] for one in old}
        names = [(name, one["kind"]) for one in new for name in (one["name"], *one.get("aliases", ()))]
        changed = {(before[name], kind) for name, kind in names if before.get(name, kind) != kind}
        narrowed = {(b, a) for a, b in PROMOTED}
        try:
            columns, found = topic.read(form, [older, newer], key)
        except BadData:
            found = None
        assert (found is None) == bool(changed - PROMOTED - narrowed), (seed, changed)
        if found is None:
            refused += 1
            continue
        raw = written_row(writer, value)
        try:
            told = fastavro.schemaless_reader(io.BytesIO(raw), writer, reader)
        except SchemaResolutionError:
            assert changed & narrowed, seed  # a column has the wider type of both
            continue
        for name, default in told.items():  # fastavro leaves a default of bytes as its text
            if isinstance(default, str) and columns[name]["type"] == "binary":
                told[name] = default.encode("latin-1")
        row = rows(found)[0]
        assert {name: row.get(name, row) for name in told} == told, (seed, writer, reader)
        assert {one["name"] for one in new} <= set(columns), seed
        compared += 1
    assert compared > SEEDS * TIMES // 6
    assert refused > SEEDS * TIMES // 6


def written_row(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_a_type_that_the_column_does_not_hold_stops_before_its_record(topic: Topic) -> None:
    numbers = schema([{"name": "id", "type": "long"}, {"name": "v", "type": "int"}])
    texts = schema([{"name": "id", "type": "long"}, {"name": "v", "type": "string"}])
    good, bad = topic.record(numbers, {"id": 1, "v": 2}), topic.record(texts, {"id": 1, "v": "x"})
    _, found = topic.read("rows", [good, bad], seen=[good])
    (first, second) = rows(found)
    assert first == {"id": 1, "v": 2}
    assert second["error"].startswith("column 'v': string does not fit int, in schema id ")
    with pytest.raises(BadData, match="changes its type"):
        topic.read("rows", [good, bad])


def test_a_default_is_told_apart_from_an_explicit_null(topic: Topic) -> None:
    one = schema([{"name": "id", "type": "long"}])
    two = schema([{"name": "id", "type": "long"}, {"name": "w", "type": ["string", "null"], "default": "d"}])
    records = [topic.record(one, {"id": 1}), *(topic.record(two, {"id": 2, "w": w}) for w in ("x", None))]
    _, found = topic.read("rows", records)
    assert rows(found) == [{"id": 1, "w": "d"}, {"id": 2, "w": "x"}, {"id": 2, "w": None}]
    _, before = topic.read("rows", records, seen=records[:1])
    assert before.fault is not None
    assert before.fault.to_pylist() == [None, Fault.NEW_COLUMN, Fault.NEW_COLUMN]


def test_a_field_that_was_renamed_after_the_job_began_is_its_column_by_its_alias() -> None:
    """An alias that is another column's name means nothing where that column has its own field."""
    id, city = {"name": "id", "type": "long"}, {"name": "city", "type": "string"}
    renamed = {"name": "full_name", "type": "string", "aliases": ["name", "city"]}
    with running() as registry:
        topic, of = Topic(registry), decoder("rows")
        before = schema([id, {"name": "name", "type": "string"}, city])
        records = [topic.record(before, {"id": 1, "name": "a", "city": "x"})]
        found = of.columns(topic.asked(), lambda: records)
        records.append(topic.record(schema([id, renamed, city]), {"id": 2, "full_name": "b", "city": "y"}))
        read = of.open(topic.asked(), found.columns, found.facts).decode(lambda: records)(records)
    assert rows(read) == [{"id": 1, "name": "a", "city": "x"}, {"id": 2, "name": "b", "city": "y"}]


@pytest.mark.parametrize("form", ["rows", "debezium"])
def test_a_default_of_a_key_column_names_no_row(topic: Topic, form: str) -> None:
    """A key column that was renamed at the source is missing: two rows would be the one of its default."""
    value = {"name": "v", "type": "string"}
    before = schema([{"name": "id", "type": "long", "default": 0}, value], "Before")
    after = schema([{"name": "order_id", "type": "long", "default": 0}, value], "After")
    first = written(topic, form, before, {"id": 1, "v": "a"})
    records = [first, *(written(topic, form, after, {"order_id": n, "v": "b"}) for n in (7, 8))]
    kept, *others = rows(topic.read(form, records, ["id"])[1])
    assert kept["id"] == 1
    assert all("error" in one or one["id"] is None for one in others), others
    assert len(others) == 2


UNFIT: dict[str, Any] = {
    "another type of a column": [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}],
    "a column without a type": [
        {"name": "id", "type": "long"},
        {"name": "v", "type": "int"},
        {"name": "w", "type": {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}},
    ],
}


@pytest.mark.parametrize("form", ["events", "rows", "debezium"])
@pytest.mark.parametrize("case", UNFIT)
def test_a_newest_schema_that_does_not_fit_stops_the_job_only_at_a_record_of_it(case: str, form: str) -> None:
    good = schema([{"name": "id", "type": "long"}, {"name": "v", "type": "int"}])
    unfit = schema(UNFIT[case])
    key = [] if form == "events" else ["id"]
    with running() as registry:
        topic = Topic(registry)
        record = written(topic, form, good, {"id": 1, "v": 2})
        value = {"id": 2, "v": "x" if case == "another type of a column" else 3, "w": b"\1"}
        later = written(topic, form, unfit, {one["name"]: value[one["name"]] for one in unfit["fields"]})
        columns, found = topic.read(form, [record, later], key, seen=[record])
        assert list(columns) == ["id", "v"]
        first, second = rows(found)
        assert first == {"id": 1, "v": 2}
        assert "in schema id 2" in second["error"] or "schema id 2" in second["error"]
        with pytest.raises(BadData):
            topic.read(form, [record, later], key)


def test_the_newest_schema_says_what_older_records_lack_though_no_record_has_it() -> None:
    old = schema([{"name": "id", "type": "long"}])
    new = schema([{"name": "key", "type": "long", "aliases": ["id"]}, {"name": "w", "type": "int", "default": 5}])
    with running() as registry:
        topic = Topic(registry)
        record = topic.record(old, {"id": 1})
        topic.record(new, {"key": 1, "w": 2})
        assert rows(topic.read("rows", [record], ["key"])[1]) == [{"key": 1, "w": 5}]
