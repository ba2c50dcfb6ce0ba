"""Rows in each encoding of the Kafka sink: read by fastavro, protobuf and json alone, and by our own reader.

Types and values are generated: the ends of each type, NULLs at any depth, names that collide with ours.
"""

import base64
import datetime as dt
import io
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any

import fastavro
import jsonschema
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hint_typed import typed
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka_messages import agree, class_of, described, fields_by_path, message_class, refuse_reserved, row_of
from sink_contract import a_table
from toy_registry import ToyRegistry, running

from backfill_cli.contracts import SinkTable
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.errors import BadData
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import columns_of, field, schema_text
from backfill_cli.sinks.kafka import KafkaSinkOptions
from backfill_cli.sinks.kafka.encodings import Records, records_of, refuse_unwritable

ENCODINGS = ("avro", "json-schema", "protobuf", "json")
UTC = dt.UTC


def whole(bits: int) -> list[int]:
    return [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]


def digits(precision: int, scale: int) -> list[Decimal]:
    exact = Context(prec=100)
    return [Decimal(n).scaleb(-scale, exact) for n in (0, 1, -1, -128, 10**precision - 1, 1 - 10**precision)]


FLOATS = [0.0, -0.0, 0.5, -1.5, float("nan"), float("inf"), float("-inf")]
MOMENTS = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1970, 1, 1)]
MOMENTS += [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 11, 26, 9, 0, 0, 123_456)]
SCALARS: dict[str, list[Any]] = {
    "byte": whole(8),
    "short": whole(16),
    "integer": whole(32),
    "long": whole(64),
    "boolean": [True, False],
    "float": [*FLOATS, 2.0**-149, struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]],
    "double": [*FLOATS, 5e-324, 1.7976931348623157e308, 0.1],
    "string": ["", "a", "\0", 'é😀"\\\n', "x" * 300],
    "binary": [b"", b"\0", b"\xff" * 200],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(1969, 12, 31)],
    "timestamp": [one.replace(tzinfo=UTC) for one in MOMENTS],
    "timestamp_ntz": MOMENTS,
    "decimal(9,2)": digits(9, 2),
    "decimal(38,0)": digits(38, 0),
    "decimal(38,38)": digits(38, 38),
}
NAMES = ("a", "a_b", "aB", "a__b", "b", "_", "_x", "x", "a_array", "a_map", "a_struct", "items", "Item", "value")
NAMES += ("entries", "google", "message", "optional", "Value", "Key", "null", "confluent", "string", "map")


def kinds() -> st.SearchStrategy[Any]:
    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique_by=str.lower)
        structs = names.flatmap(lambda found: st.tuples(*(inner.map(lambda k, n=n: field(n, k)) for n in found)))
        return st.one_of(
            inner.map(lambda k: {"type": "array", "elementType": k, "containsNull": True}),
            inner.map(lambda k: {"type": "map", "keyType": "string", "valueType": k, "valueContainsNull": True}),
            structs.map(lambda fields: {"type": "struct", "fields": list(fields)}),
        )

    return st.recursive(st.sampled_from(sorted(SCALARS)), nested, max_leaves=4)


def values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, str):
        return st.none() | st.sampled_from(SCALARS[kind])
    if kind["type"] == "array":
        return st.none() | st.lists(values(kind["elementType"]), max_size=3)
    if kind["type"] == "map":
        return st.none() | st.dictionaries(
            st.sampled_from(["", "k", "é\0"]), values(kind["valueType"]), max_size=2
        )
    return st.none() | st.fixed_dictionaries({one["name"]: values(one["type"]) for one in kind["fields"]})


@st.composite
def tables(draw: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(column → its type, rows); `id` is the key."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique_by=str.lower))
    held = {"id": draw(st.sampled_from([one for one in SCALARS if one not in ("float", "double")]))}
    held |= {name: draw(kinds()) for name in names}
    row = st.fixed_dictionaries({name: values(kind) for name, kind in held.items() if name != "id"})
    rows = draw(st.lists(row, min_size=1, max_size=4))
    key = st.sampled_from(SCALARS[held["id"]])
    return held, [{"id": draw(key), **one} for one in rows]


@pytest.fixture(scope="module")
def registry() -> Iterator[ToyRegistry]:
    with running() as toy:
        yield toy


def written(registry: ToyRegistry, encoding: str, held: dict[str, Any], topic: str = "shop.t") -> Records:
    told = {"bootstrap_servers": "h:1", "encoding": encoding, "registry": {"url": registry.url}}
    return records_of(KafkaSinkOptions.model_validate(told), table_of(held), topic)


def table_of(held: dict[str, Any]) -> SinkTable:
    schema = schema_text({name: field(name, kind) for name, kind in held.items()})
    return replace(a_table(), schema=schema)


def batch_of(held: dict[str, Any], rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """A slice of a larger one, as Parquet's readers hand them over."""
    filled = [rows[-1], *rows, rows[0]]
    columns = {
        name: pa.array([as_arrow(row[name], kind) for row in filled], arrow_type(kind))
        for name, kind in held.items()
    }
    return pa.RecordBatch.from_pydict(columns).slice(1, len(rows))


def as_arrow(value: Any, kind: Any) -> Any:
    """Maps as pairs."""
    if value is None or isinstance(kind, str):
        return value
    if kind["type"] == "array":
        return [as_arrow(one, kind["elementType"]) for one in value]
    if kind["type"] == "map":
        return [(key, as_arrow(one, kind["valueType"])) for key, one in value.items()]
    return {one["name"]: as_arrow(value[one["name"]], one["type"]) for one in kind["fields"]}


@settings(max_examples=40, deadline=None)
@given(tables())
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_type_and_value_is_what_other_readers_and_ours_read(
    registry: ToyRegistry, encoding: str, of: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    held, rows = of
    registry.subjects.clear()  # each table has a topic of its own
    records, batch = written(registry, encoding, held), batch_of(held, rows)
    refuse_unwritable(encoding, table_of(held))
    found = records.values.of(batch)
    read = READERS[encoding](registry, "shop.t-value", "Value", held)
    assert [shown(read(one)) for one in found] == list(map(shown, rows))
    keys = records.keys.of(batch)
    read_key = READERS[encoding](registry, "shop.t-key", "Key", {"id": held["id"]})
    assert [shown(read_key(one)) for one in keys] == [shown({"id": row["id"]}) for row in rows]
    columns = columns_of(table_of(held).schema)
    read_as = schema_text(records.read_as(columns))
    decode = JsonRows(read_as, ("id",), kept_apart=False, documents=records.documents)
    decoded = decode(records.bare(found))
    assert decoded.error is None or decoded.error.null_count == len(rows), decoded.error
    back = records.again(decoded.columns, columns)
    for name in held:
        assert back[name].type == batch.column(name).type, name
        assert repr(back[name].to_pylist()) == repr(batch.column(name).to_pylist()), name


def shown(value: Any) -> str:
    """-0.0 and NaN are themselves; entries of a map have no order."""
    if isinstance(value, dict):
        return str(sorted((key, shown(one)) for key, one in value.items()))
    return str(list(map(shown, value))) if isinstance(value, list) else repr(value)


# -- readers that share no code with the product ------------------------------------------------------------------

Read = Callable[[bytes], dict[str, Any]]


def schema_of(registry: ToyRegistry, subject: str, record: bytes) -> str:
    """The schema that a record names. Of the same text as an older version of the subject, it is that one."""
    id = int.from_bytes(record[1:5], "big")
    assert record[0] == 0
    assert id in registry.subjects[subject]
    return str(registry.schemas[id]["schema"])


def by_fastavro(registry: ToyRegistry, subject: str, _name: str, _held: dict[str, Any]) -> Read:
    def read(record: bytes) -> dict[str, Any]:
        out = io.BytesIO(record[5:])
        schema: Any = json.loads(schema_of(registry, subject, record))
        found: Any = fastavro.schemaless_reader(out, fastavro.parse_schema(schema), None)
        assert out.read() == b""
        return dict(found)

    return read


def by_json(registry: ToyRegistry, subject: str, _name: str, held: dict[str, Any]) -> Read:
    def read(record: bytes) -> dict[str, Any]:
        told = record
        if record[:1] == b"\0":
            told = record[5:]
            jsonschema.validate(json.loads(told), json.loads(schema_of(registry, subject, record)))
        found = json.loads(told, parse_float=str, parse_int=str)
        return {name: of_json(found[name], kind) for name, kind in held.items()}

    return read


def of_json(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if not isinstance(kind, str):
        if kind["type"] == "array":
            return [of_json(one, kind["elementType"]) for one in value]
        if kind["type"] == "map":
            return {key: of_json(one, kind["valueType"]) for key, one in value.items()}
        return {one["name"]: of_json(value[one["name"]], one["type"]) for one in kind["fields"]}
    if kind.startswith("decimal"):
        return Decimal(value)
    if kind in ("byte", "short", "integer", "long"):
        return int(value)
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", float(value)))[0]
    match kind:
        case "double":
            return float(value)
        case "binary":
            return base64.b64decode(value)
        case "date":
            return dt.date.fromisoformat(value)
        case "timestamp":
            return dt.datetime.fromisoformat(value)
        case "timestamp_ntz":
            return dt.datetime.fromisoformat(value)
    return value


def by_protobuf(registry: ToyRegistry, subject: str, name: str, held: dict[str, Any]) -> Read:
    message = message_class(name, held)

    def read(record: bytes) -> dict[str, Any]:
        schema_of(registry, subject, record)
        assert record[5:6] == b"\0", "the first message"
        found = message.FromString(record[6:])
        assert found.SerializeToString(deterministic=True) == record[6:] or has_map(held), "no unknown fields"
        return row_of(found, held)

    return read


def has_map(kind: Any) -> bool:
    """Whether entries of maps can be in another order."""
    return "map" in str(kind)


READERS = {"avro": by_fastavro, "json-schema": by_json, "json": by_json, "protobuf": by_protobuf}


# -- what cannot be written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "title"), [("avro", "Avro"), ("protobuf", "Protobuf")])
def test_names_and_maps_without_a_counterpart_are_refused_at_any_depth(encoding: str, title: str) -> None:
    by_number = {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True}
    inside = {"type": "array", "elementType": by_number, "containsNull": True}
    struct_of = {"type": "struct", "fields": [field("é", "long")]}
    told = ((inside, f"a map by bigint has no counterpart in {title}"), (struct_of, f"'é' is no name in {title}"))
    for kind, why in told:
        with pytest.raises(BadData, match=why) as refused:
            refuse_unwritable(encoding, table_of({"id": "long", "x": kind}))
        with typed(refused.value) as hint:
            hint.says("rename or cast it in the transform's select, or leave it out")
            refuse_unwritable(encoding, table_of({"id": "long", "x": "string"}))
    refuse_unwritable("json", table_of({"id": "long", "x": struct_of}))


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
@pytest.mark.parametrize(("encoding", "title"), [("avro", "Avro"), ("protobuf", "Protobuf")])
def test_years_beyond_9999_are_refused_at_any_depth_and_json_keeps_them(
    registry: ToyRegistry, kind: str, encoding: str, title: str
) -> None:
    far = pa.array([3_000_000 * (1 if kind == "date" else 86_400 * 10**6)])
    far = far.cast(pa.int32()) if kind == "date" else far
    at, id, offsets = far.cast(arrow_type(kind)), pa.array([1], pa.int64()), pa.array([0, 1], pa.int32())
    columns: dict[str, tuple[Any, pa.Array]] = {
        "at": (kind, at),
        "list": (field_of("array", kind), pa.ListArray.from_arrays(offsets, at)),
        "map": (field_of("map", kind), pa.MapArray.from_arrays(offsets, pa.array(["k"]), at)),
        "row": (
            {"type": "struct", "fields": [field("x", kind)]},
            pa.StructArray.from_arrays([at], fields=[pa.field("x", at.type)]),
        ),
    }
    what = "date" if kind == "date" else "time"
    for name, (of, column) in columns.items():
        registry.subjects.clear()
        records = written(registry, encoding, {"id": "long", name: of})
        batch = pa.RecordBatch.from_pydict({"id": id, name: column})
        match = f"column '{name}': a {what} after the last one that a record in {title} holds"
        with pytest.raises(BadData, match=match) as refused:
            records.values.of(batch)
    with typed(refused.value) as hint:
        hint.says("start over, with another value for it in the transform's select")
        as_text = pa.RecordBatch.from_pydict({"id": id, "at": pa.array(["+10183"])})
        written(registry, encoding, {"id": "long", "at": "string"}, "other").values.of(as_text)
    held = {"id": "long", "at": kind}
    decode = JsonRows(table_of(held).schema, kept_apart=False)
    batch = pa.RecordBatch.from_pydict({"id": id, "at": at})
    assert decode(written(registry, "json", held).values.of(batch)).columns["at"].equals(at)


def field_of(form: str, kind: Any) -> dict[str, Any]:
    if form == "array":
        return {"type": form, "elementType": kind, "containsNull": True}
    return {"type": form, "keyType": "string", "valueType": kind, "valueContainsNull": True}


def test_fields_of_protobuf_keep_their_numbers_whatever_the_order_of_columns(registry: ToyRegistry) -> None:
    registry.subjects.clear()
    written(registry, "protobuf", {"id": "long", "a": "long", "b": "string"})
    registry.schemas[registry.subjects["shop.t-value"][-1]]["schema"] += "// by hand\n"
    records = written(registry, "protobuf", {"id": "long", "c": "long", "b": "string"})
    batch = batch_of({"id": "long", "c": "long", "b": "string"}, [{"id": 1, "c": 2, "b": "x"}])
    (found,) = records.values.of(batch)
    assert found[6:] == b"\x08\x01\x20\x02\x1a\x01x"


SHORT = ("byte", "integer", "long", "boolean", "string", "binary", "date", "timestamp", "decimal(9,2)")


@st.composite
def chains(draw: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Tables of jobs that write into one topic, one after the other, each with a row."""

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        structs = st.dictionaries(st.sampled_from(("x", "y", "x_array")), inner, min_size=1, max_size=3)
        return st.one_of(
            inner.map(lambda kind: field_of("array", kind)),
            inner.map(lambda kind: field_of("map", kind)),
            structs.map(lambda held: {"type": "struct", "fields": [field(*one) for one in held.items()]}),
        )

    kinds = st.recursive(st.sampled_from(SHORT), nested, max_leaves=4)
    names = st.sampled_from(("a", "b", "a_array", "a_struct"))
    told = st.lists(st.dictionaries(names, kinds, min_size=1, max_size=4), min_size=2, max_size=5)
    tables = [{"id": "long", **held} for held in draw(told)]
    return [(held, draw(st.fixed_dictionaries({n: values(k) for n, k in held.items()}))) for held in tables]


@settings(max_examples=60, deadline=None)
@given(chains())
@example([({"id": "long", "a": kind}, {"id": 1, "a": 1}) for kind in ("byte", "integer", "byte")])
def test_no_number_of_protobuf_changes_its_name_or_is_used_again_whatever_jobs_write_a_topic(
    registry: ToyRegistry, chain: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    registry.subjects.clear()
    held: dict[tuple[int, ...], tuple[str, str]] = {}
    gone: set[tuple[int, ...]] = set()
    consumers, before = list[Any](), dict[tuple[int, ...], tuple[str, str]]()
    for columns, row in chain:
        of = columns | {"id": "long"}
        (record,) = written(registry, "protobuf", of).values.of(batch_of(of, [row]))
        text = schema_of(registry, "shop.t-value", record)
        written(registry, "protobuf", of)
        assert schema_of(registry, "shop.t-value", record) == text, "a job that starts again has the same schema"
        file = described(text)
        refuse_reserved(file.message_type[0])
        refuse_enclosed(file.message_type[0])
        consumers.append(class_of(file))
        now = fields_by_path(consumers[-1].DESCRIPTOR)
        assert not gone & now.keys(), "a number that was used is used again"
        assert all(held[path] == now[path] for path in held.keys() & now.keys())
        for path in before.keys() - now.keys():
            refuse_unless_reserved(consumers[-1].DESCRIPTOR, path, now)
        gone |= before.keys() - now.keys()
        held, before = held | now, now
        for at, consumer in enumerate(consumers):
            agree(consumer.FromString(record[6:]), of, row, whole=at == len(consumers) - 1)


def refuse_unless_reserved(message: Any, path: tuple[int, ...], now: dict[tuple[int, ...], Any]) -> None:
    """Fails for a field that is gone from a message that is still there, and that is not reserved in it."""
    inside = path[:-1]
    if inside and inside not in now:
        return
    for number in inside:
        message = message.fields_by_number[number].message_type
    told = descriptor_pb2.DescriptorProto()
    message.CopyToProto(told)
    assert any(span.start <= path[-1] < span.end for span in told.reserved_range)


def refuse_enclosed(message: Any, above: tuple[str, ...] = ()) -> None:
    """Fails for a message with the name of one that it is in: Java has no such classes."""
    assert message.name not in above
    for one in message.nested_type:
        refuse_enclosed(one, (*above, message.name))


def test_names_of_messages_that_a_topic_has_by_now_stay(registry: ToyRegistry) -> None:
    registry.subjects.clear()
    held = {"id": "long", "a": field_of("array", field_of("array", "long"))}
    text = schema_of(registry, "shop.t-value", write(registry, held))
    assert "message Item_ {" in text
    assert "message value_array {" in text
    newest = registry.schemas[registry.subjects["shop.t-value"][-1]]
    newest["schema"] = text.replace("value_array", "value_array_").replace("Item_", "Item")
    assert schema_of(registry, "shop.t-value", write(registry, held)) == newest["schema"]


def write(registry: ToyRegistry, held: dict[str, Any]) -> bytes:
    """A record of NULLs."""
    (record,) = written(registry, "protobuf", held).values.of(batch_of(held, [{**dict.fromkeys(held), "id": 1}]))
    return record


def test_what_another_program_reserved_is_written_as_it_can_be(registry: ToyRegistry) -> None:
    registry.subjects.clear()
    write(registry, {"id": "long"})
    newest = registry.schemas[registry.subjects["shop.t-value"][-1]]
    before = newest["schema"]
    newest["schema"] = before.replace("{", '{ reserved "a\\"b", "c d", "e"; int64 last = 536870911;', 1)
    held = {"id": "long", "last": "long", "b": "long"}
    (message,) = described(schema_of(registry, "shop.t-value", write(registry, held))).message_type
    assert {one.name: one.number for one in message.field} == {"id": 1, "last": 536_870_911, "b": 2}
    assert message.reserved_name == ["e"]
    newest = registry.schemas[registry.subjects["shop.t-value"][-1]]
    newest["schema"] = before.replace("{", "{ reserved 2 to max;", 1)
    with pytest.raises(BadData, match="leaves no number for another field") as refused:
        write(registry, held)
    with typed(refused.value) as hint:
        hint.says("reserve fewer numbers in a newer schema of the subject")
        newest["schema"] = before.replace("{", "{ reserved 2, 5 to max;", 1)
        write(registry, held)


def test_a_new_field_of_protobuf_has_no_number_that_is_reserved_by_hand(registry: ToyRegistry) -> None:
    registry.subjects.clear()
    written(registry, "protobuf", {"id": "long", "a": "long"})
    newest = registry.schemas[registry.subjects["shop.t-value"][-1]]
    newest["schema"] = newest["schema"].replace("{", '{ reserved 3, 4 to 6, 8 to 18999; reserved "z";', 1)
    held = {"id": "long", "b": "long", "c": "long", "z": "long"}
    (record,) = written(registry, "protobuf", held).values.of(batch_of(held, [{"id": 1, "b": 2, "c": 3, "z": 4}]))
    (message,) = described(schema_of(registry, "shop.t-value", record)).message_type
    assert {one.name: one.number for one in message.field} == {"id": 1, "b": 7, "c": 20_000, "z": 20_001}
    assert [(span.start, span.end) for span in message.reserved_range] == [(2, 7), (8, 19_000)]
    assert message.reserved_name == ["a"]
