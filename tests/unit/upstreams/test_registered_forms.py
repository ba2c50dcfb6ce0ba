"""What `init` makes of records that name their schemas by a registry's ids."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hint_typed import typed
from toy_registry import ToyRegistry, running
from unit.decode import registered_avro

from backfill_cli.contracts import Named, Told
from backfill_cli.errors import UsageError
from backfill_cli.kafka.cluster import Seen
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry
from backfill_cli.upstreams.kafka import look, registered_forms
from backfill_cli.upstreams.kafka.forms import About, Form, Record

ID = {"name": "id", "type": "long"}
KEY = {"type": "record", "name": "Key", "fields": [ID]}
ROW = {"type": "record", "name": "Value", "fields": [ID, {"name": "name", "type": "string"}]}
SOURCE = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
}


@pytest.fixture
def registry() -> Iterator[ToyRegistry]:
    with running() as made:
        yield made


def values(registry: ToyRegistry, schema: Any, *told: Any, subject: str = "orders-value") -> list[bytes]:
    topic = registered_avro.Topic(registry, subject)
    return [topic.record(schema, one) for one in told]


def form_of(
    registry: ToyRegistry,
    told: Sequence[bytes | None],
    keys: Sequence[bytes | None] = (),
    compacted: bool | None = None,
) -> Form | None:
    records = [Record(0, at, keys[at] if keys else None, value) for at, value in enumerate(told)]
    of = SchemaRegistry.of(RegistryOptions(url=registry.url), "upstream.registry")
    at = {"registry.url": Told(registry.url)}
    return registered_forms.form_of(records, About("orders", "orders", (), compacted), of, at)


def options(form: Form | None) -> dict[str, object]:
    assert form is not None
    return {name: one.value for name, one in form.options.items()}


def test_rows_of_a_compacted_topic_have_the_key_and_the_encodings_of_their_schemas(registry: ToyRegistry) -> None:
    told = [*values(registry, ROW, {"id": 1, "name": "a"}, {"id": 2, "name": "b"}), None]
    keys = values(registry, KEY, {"id": 1}, {"id": 2}, {"id": 1}, subject="orders-key")
    form = form_of(registry, told, keys, compacted=True)
    assert options(form) == {
        "value.format": "rows",
        "value.encoding": "avro",
        "key.format": "avro",
        "registry.url": registry.url,
    }
    assert form is not None
    assert (form.key.value, form.columns) == (["id"], ("id", "name"))
    assert form.said == "rows in Avro, 2 columns, schema id 1; key id"


def test_envelopes_are_recognised_by_their_schema_and_have_the_key_of_their_records(registry: ToyRegistry) -> None:
    row = {"id": 1, "name": "a"}
    told = values(registry, ENVELOPE, {"before": None, "after": row, "source": {"table": "orders"}, "op": "c"})
    form = form_of(registry, told, values(registry, KEY, {"id": 1}, subject="orders-key"))
    assert options(form)["value.format"] == "debezium"
    assert form is not None
    assert (form.key.value, form.columns) == (["id"], ("id", "name"))


def test_keys_without_a_schema_are_those_of_their_own_format(registry: ToyRegistry) -> None:
    told = values(registry, ROW, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    form = form_of(registry, told, [b"a", b"b"], compacted=True)
    assert options(form)["key.format"] == "bytes"
    assert form is not None
    assert form.key.value == ["name"]


def test_values_that_no_schema_reads_are_counted_and_never_taken_for_json(registry: ToyRegistry) -> None:
    told = [b'{"id":1}', *values(registry, ROW, {"id": 1, "name": "a"}), b"\0\0\0\0\x63", b"zzz"]
    form = form_of(registry, told)
    assert form is not None
    assert form.options["value.format"].value == "events"
    said = "3 values of 4 read cannot be read by a schema (the first at partition 0, offset 0): such a record"
    assert form.options["value.format"].why.startswith(said)


def test_of_a_topic_without_values_the_subject_tells_the_encoding(registry: ToyRegistry) -> None:
    assert options(form_of(registry, []))["value.encoding"] is None
    values(registry, ROW, {"id": 1, "name": "a"})
    found = options(form_of(registry, [None], values(registry, KEY, {"id": 1}, subject="orders-key")))
    assert (found["value.encoding"], found["key.format"], found["value.format"]) == ("avro", "avro", None)


def test_a_topic_of_two_encodings_is_refused(registry: ToyRegistry) -> None:
    told = values(registry, ROW, {"id": 1, "name": "a"})
    other = registry.add("orders-value", json.dumps({"type": "object"}), "JSON")
    with pytest.raises(UsageError, match="several encodings: schema id 1 is AVRO, 2 is JSON") as caught:
        form_of(registry, [*told, b"\0" + other.to_bytes(4, "big") + b"{}"])
    with typed(caught.value) as hint:
        hint.says("name a topic of one encoding")
        assert options(form_of(registry, told))["value.encoding"] == "avro"


def test_ids_that_the_registry_does_not_have_are_named(
    registry: ToyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_cli.schema_registry.registry.SETTLE_S", 0.0)
    with pytest.raises(UsageError, match="not known: schema id 99 is not in the registry http") as caught:
        form_of(registry, [b"\0\0\0\0\x63"])
    with typed(caught.value) as hint:
        hint.says("correct it")
        assert (
            options(form_of(registry, values(registry, ROW, {"id": 1, "name": "a"})))["value.encoding"] == "avro"
        )


def test_values_without_ids_are_not_of_a_registry(registry: ToyRegistry) -> None:
    assert form_of(registry, [b'{"id":1}']) is None


@pytest.mark.parametrize(
    ("told", "ids"),
    [
        ([b"\0\0\0\0\7x", None, b"\0\0\0\0\3"], [3, 7]),
        ([b"\0" + (9).to_bytes(8, "big") + b"x"], [9]),
        ([b"\0\0\0\0\7x", b"{}"], []),
        ([b"\0\0\0\0\0x"], []),
        ([b"\0\xff\xff\xff\xff"], []),
        ([None], []),
    ],
)
def test_ids_are_seen_where_every_value_begins_with_one(told: list[bytes | None], ids: list[int]) -> None:
    assert registered_forms.ids_in([Record(0, at, None, value) for at, value in enumerate(told)]) == ids


def looking(url: str, *told: bytes) -> look.Looking:
    at = look.Url.of(url)
    records = [Record(0, offset, None, value) for offset, value in enumerate(told)]
    return look.Looking(at, at, Seen("c", "t", {0: 0}, {0: len(told)}), records, None)


def test_a_topic_that_needs_a_registry_says_how_to_name_one(registry: ToyRegistry) -> None:
    told, about = values(registry, ROW, {"id": 1, "name": "a"}), About("orders", "orders")
    with pytest.raises(UsageError, match=r"values begin with ids of schemas \(1\)") as caught:
        look.form_of(looking("kafka://broker/orders", *told), about)
    with typed(caught.value) as hint:
        (named,) = hint.commands()
        place = named[-1].replace("http://127.0.0.1:8081", registry.url)
        assert options(look.form_of(looking(place, *told), about))["registry.url"] == registry.url


def test_a_registry_that_nothing_needs_is_left_out(registry: ToyRegistry) -> None:
    url, about = f"kafka://broker/orders?schema.registry.url={registry.url}", About("orders", "orders")
    with pytest.raises(UsageError, match="no value begins with the id of a schema") as caught:
        look.form_of(looking(url, b'{"id":1}'), about)
    with typed(caught.value) as hint:
        (named,) = hint.commands()
        assert "value.schema" in options(look.form_of(looking(named[-1], b'{"id":1}'), about))


@pytest.mark.parametrize("wrong", ["url=ftp://x", "url=http://127.0.0.1:1", "user=app", "nonsense=1"])
def test_a_registry_that_cannot_be_asked_is_named_with_how_to_write_it(registry: ToyRegistry, wrong: str) -> None:
    told, about = values(registry, ROW, {"id": 1, "name": "a"}), About("orders", "orders")
    url = f"kafka://broker/orders?schema.registry.url={registry.url}&schema.registry.{wrong}"
    with pytest.raises(UsageError) as caught:
        look.form_of(looking(url, *told), about)
    with typed(caught.value) as hint:
        place = hint.commands()[0][-1]
        assert place.startswith("kafka://broker:9092/orders?schema.registry.url=")
        correct = place.replace("http://127.0.0.1:8081", registry.url)
        assert options(look.form_of(looking(correct, *told), about))["registry.url"] == registry.url


def test_a_password_of_the_registry_is_a_reference_to_it() -> None:
    url = "kafka://broker/orders?schema.registry.url=http://r:1&schema.registry.password=secret"
    with pytest.raises(UsageError, match=r"schema\.registry\.password: a secret"):
        look.look(Named(url, url))
