"""Schemas that are none, or that nobody means: each is read, or refused by name, and at once."""

import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from oracle.inputs import SEED, TIMES

from backfill_cli.decode import block, resolved
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.decode.registered import Described, Registered, Written
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import BackfillError
from backfill_cli.formats.schemas import Unsupported, arrow_type
from backfill_cli.model.schema import schema_text
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import Schema, SchemaRegistry

DECIMAL = "org.apache.kafka.connect.data.Decimal"
RAWS = [b"", b"\0", b"\x02", b"\xff" * 12, b"\1\1\1\1", bytes(64), b'{"a":1}', b"\x0a\x02\x02\x00"]
KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}


def used(encoding: str, text: str) -> str:
    """What a job that begins with such a schema does with it; why it does not begin, empty if it does."""
    registry = SchemaRegistry.of(RegistryOptions(url="http://127.0.0.1:1"), "upstream.registry")
    try:
        reader = Registered(registry, encoding, "upstream.value.encoding").reader(Schema(1, KINDS[encoding], text))
    except Unsupported as exc:
        return str(exc)
    of = Described if encoding == "json-schema" else Written
    group = of(list(range(len(RAWS))), RAWS, reader, "schema id 1")
    for number in range(len(RAWS)):
        with suppress(Unreadable):
            group.token(number)
    try:
        told = block.pinned("topic 't'", [("schema id 1", reader.schema.get("fields") or ())])
        columns = resolved.with_told(block.columns_of("topic 't'", told, "declare them"), told)
    except BackfillError as exc:
        return str(exc)
    for one in columns.values():
        arrow_type(one["type"])
    for name in list(columns)[:1]:
        for key in ((), (name,)):
            assert JsonRows(schema_text(columns), key, documents=Groups(group))(RAWS).columns
    return ""


class Groups:
    def __init__(self, group: Any) -> None:
        self.group = group

    def groups(self, records: Any) -> Any:
        return [self.group], {}


def row(*types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{i}", "type": one, **more} for i, one in enumerate(types)]
    return {"type": "record", "name": "Value", "fields": fields}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(**parameters: Any) -> dict[str, Any]:
    return {"type": "bytes", "connect.name": DECIMAL, "connect.parameters": parameters}


def nested(levels: int, inner: Any, around: Callable[[int, Any], Any]) -> Any:
    for level in range(levels):
        inner = around(level, inner)
    return inner


def twice(level: int, inner: Any) -> Any:
    """A record with a member of a type, and another one of the same."""
    again = inner if isinstance(inner, str) else inner["name"]
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": again}]
    return {"type": "record", "name": f"R{level}", "fields": fields}


AVRO: dict[str, Any] = {
    "a fixed of more bytes than there are": row(fixed(2**70)),
    "a decimal in such a fixed": row(fixed(10**400, logicalType="decimal", precision=2)),
    "a decimal in a fixed of no bytes": row(fixed(0, logicalType="decimal", precision=1)),
    "a decimal of no precision": row(decimal(scale="3", **{"connect.decimal.precision": "0"})),
    "a decimal of another precision": row(decimal(scale="3", **{"connect.decimal.precision": "x"})),
    "a decimal with more places than digits": row(decimal(scale="8", **{"connect.decimal.precision": "3"})),
    "a decimal without a scale": row(decimal()),
    **{
        f"a decimal with scale {one!r}": row(decimal(scale=one))
        for one in ("x", None, [1], "50", "-3", "1_0", "٣")
    },
    "parameters that are none": row({"type": "bytes", "connect.name": DECIMAL, "connect.parameters": [1]}),
    "a date that is a text": row({"type": "string", "connect.name": "io.debezium.time.Date"}),
    "a time that is a record": row({**row("int"), "name": "T", "connect.name": "io.debezium.time.Timestamp"}),
    "an instant that is a number": row({"type": "int", "connect.name": "io.debezium.time.ZonedTimestamp"}),
    "aliases that are no names": row("int", aliases=[1, {"a": 1}, None, ["x"]]),
    "a default beyond the years": row(logical("int", "date"), default=99_999_999),
    "a default of too many digits": row(logical("bytes", "decimal", precision=38), default="\x7f" * 20),
    "a default that is no float": row("float", default=1e300),
    "a default that is no double": row("double", default=10**400),
    "a default without digits": row(logical("bytes", "decimal", precision=3), default=""),
    "a default that is too fine": row(logical("long", "timestamp-nanos"), default=1),
    "a default that contains itself": row(
        {"type": "record", "name": "X", "fields": [{"name": "x", "type": "X", "default": {}}]}, default={}
    ),
    "half of a surrogate pair as a name": json.loads(
        '{"type":"record","name":"V","fields":[{"name":"\\ud800","type":"int"}]}'
    ),
    "half of a surrogate pair as a symbol": row({"type": "enum", "name": "E", "symbols": ["\ud800"]}),
    "half of a surrogate pair as a default": row("string", default="\ud800"),
    "many types within one another": row(nested(300, "int", lambda _, one: {"type": "array", "items": one})),
    "more of them": row(nested(450, "int", lambda _, one: {"type": "array", "items": one})),
    "many records within one another": nested(300, "int", lambda level, one: {**row(one), "name": f"R{level}"}),
    "many records within one another by their names": row(
        *({**row(f"R{i - 1}" if i else "int"), "name": f"R{i}"} for i in range(600))
    ),
    "a type that is there 2^40 times": row(nested(40, {**row("int"), "name": "E"}, twice)),
    "a symbol twice": row({"type": "enum", "name": "E", "symbols": ["A", "A"]}),
    "a name of itself": "Value",
    "no branches": row([]),
}
JSON: dict[str, Any] = {
    "choices that are none": {"oneOf": 5},
    "no choices": {"anyOf": None},
    "types that are none": {"type": [{}]},
    "hints that are none": {"type": "object", "properties": {"a": {"type": "string", "connect.type": ["x"]}}},
    "a name that is none": {"properties": {"a": {"connect.type": "int32", "title": {"a": 1}}}, "type": "object"},
    "a decimal without a scale": {
        "type": "object",
        "properties": {"a": {"type": "number", "connect.type": "bytes", "title": DECIMAL}},
    },
    "half of a surrogate pair": {"type": "object", "properties": {"\ud800": {"type": "string"}}},
    "itself": {"$ref": "#"},
    "two that refer to one another": {"$ref": "#/d/a", "d": {"a": {"$ref": "#/d/b"}, "b": {"$ref": "#/d/a"}}},
    "many within one another": {
        "type": "object",
        "properties": {"v": nested(480, {"type": "string"}, lambda _, one: {"type": "array", "items": one})},
    },
    "one that is there 2^40 times": {
        "type": "object",
        "properties": {"x": {"$ref": "#/d/39"}},
        "d": {
            "0": {"type": "string"},
            **{
                str(i): {
                    "type": "object",
                    "properties": {name: {"$ref": f"#/d/{i - 1}"} for name in ("a", "b")},
                }
                for i in range(1, 40)
            },
        },
    },
}
META = "(confluent.field_meta)"
SCALE = '= { params: [ { key: "scale", value: "%s" } ] }'
PROTO: dict[str, str] = {
    "a character that is none": 'option java_package = "\\U00ffffff"; message M { int32 a = 1; }',
    **{f"the number {one}": f"message M {{ int32 a = {one}; }}" for one in ("0", "-1", "536870912", "9" * 30)},
    **{
        f"an enum's number {one}": f"enum E {{ A = {one}; }} message M {{ E a = 1; }}" for one in ("9" * 30, 2**40)
    },
    "a number twice": "message M { int32 a = 1; string b = 1; }",
    "a name twice": "message M { int32 a = 1; string a = 2; }",
    "a list in a oneof": "message M { oneof o { repeated int32 a = 1; } }",
    **{
        f"parameters {one}": f"message M {{ int32 a = 1 [{META} = {one}]; }}"
        for one in ("5", "{ params: 5 }", "[1]", '{ params: [ 1, "a" ] }', "{ params: [ { key: { a: 1 } } ] }")
    },
    "a text as parameters": f'message M {{ int32 a = 1 [{META}.params = "x"]; }}',
    **{
        f"a decimal with scale {one}": 'import "confluent/type/decimal.proto"; message M { '
        f"confluent.type.Decimal a = 1 [{META} {SCALE % one}]; }}"
        for one in ("x", "-5", "50")
    },
    "a wrapper of nothing": "package google.protobuf; message Int32Value {}",
    "a time that is a text": "package google.protobuf; message Timestamp { string seconds = 1; }",
    "a message that is there 2^30 times": "message M { E29 x = 1; message E0 { int32 x = 1; } "
    + " ".join(f"message E{i} {{ E{i - 1} a = 1; E{i - 1} b = 2; }}" for i in range(1, 30))
    + "}",
    "many messages within one another": "message M { E399 x = 1; message E0 { int32 x = 1; } "
    + " ".join(f"message E{i} {{ E{i - 1} a = 1; }}" for i in range(1, 400))
    + "}",
    "more of them": "message M { E1999 x = 1; message E0 { int32 x = 1; } "
    + " ".join(f"message E{i} {{ E{i - 1} a = 1; }}" for i in range(1, 2000))
    + "}",
}


@pytest.mark.parametrize("name", AVRO)
def test_a_hostile_schema_of_avro_is_read_or_refused(name: str) -> None:
    used("avro", json.dumps(AVRO[name]))


@pytest.mark.parametrize("name", JSON)
def test_a_hostile_json_schema_is_read_or_refused(name: str) -> None:
    used("json-schema", json.dumps(JSON[name]))


@pytest.mark.parametrize("name", PROTO)
def test_a_hostile_schema_of_protobuf_is_read_or_refused(name: str) -> None:
    used("protobuf", 'syntax = "proto3"; ' + PROTO[name])


def test_what_no_column_holds_is_named() -> None:
    said = used("avro", json.dumps(row(decimal())))
    assert "column 'f0': a decimal without a scale has no exact type" in said
    said = used("avro", json.dumps(AVRO["a type that is there 2^40 times"]))
    assert "has more than 20,000 members" in said
    for name in ("a message that is there 2^30 times", "many messages within one another"):
        assert "has more than 20,000 members" in used("protobuf", 'syntax = "proto3"; ' + PROTO[name])
    said = used("protobuf", 'syntax = "proto3"; ' + PROTO["a number twice"])
    assert "two fields of the message 'M' have the same numbers" in said


DEEP: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "json-schema": {
        **{word: (f'{{"{word}": [', "{}", "]}") for word in ("allOf", "anyOf", "oneOf", "enum")},
        **{
            f"{word} beside members": (f'{{"type": "object", "properties": {{"a": {{}}}}, "{word}": ', "{}", "}")
            for word in ("allOf", "if", "not", "additionalProperties", "patternProperties", "dependentSchemas")
        },
        "choices beside members": ('{"type": "object", "properties": {"a": {}}, "allOf": [', "{}", "]}"),
        "objects": ('{"type": "object", "properties": {"a": ', "{}", "}}"),
        "lists": ('{"type": "array", "items": ', "{}", "}"),
        "defaults": ('{"type": "string", "default": ', "{}", "}"),
    },
    "avro": {
        "lists": ('{"type": "array", "items": ', '"int"', "}"),
        "maps": ('{"type": "map", "values": ', '"int"', "}"),
        "unions": ('["null", ', '"int"', "]"),
        "types": ('{"type": ', '"int"', "}"),
        "attributes": ('{"type": "int", "x": ', "0", "}"),
    },
    "protobuf": {
        "messages": ("message M { int32 a = 1; ", "", "}"),
        "groups": ("optional group G = 1 { ", "", "}"),
        "options": ("option (x) = { a ", "b: 5", "}"),
    },
}  # fmt: skip


@pytest.mark.parametrize("encoding", DEEP)
def test_a_schema_of_any_depth_is_read_or_refused(encoding: str) -> None:
    chance = random.Random(SEED)
    begins = {
        "json-schema": ('{"type": "object", "properties": {"v": ', "}}"),
        "avro": ('{"type": "record", "name": "V", "fields": [{"name": "f", "type": ', "}]}"),
        "protobuf": ('syntax = "proto3"; message V { ', "}"),
    }
    for outer in DEEP[encoding].values():
        for inner in DEEP[encoding].values():
            levels = chance.choice((90, 101, 250, 300, 480, 3_000))
            first, last = begins[encoding] if chance.random() < 0.5 else ("", "")
            text = f"{first}{outer[0]}{inner[0] * levels}{inner[1]}{inner[2] * levels}{outer[2]}{last}"
            try:
                used(encoding, text)
            except Exception as exc:
                raise AssertionError(f"{levels} of {inner[0]} in {outer[0]}") from exc


# mutations: what a schema has at any place is something else

JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 5, 2**70, 1e300, "", "x", "int", "string", "record", "object", "array", "null", DECIMAL,
    [], [1], {}, {"a": 1}, ["null", "int"], {"type": "string"}, {"$ref": "#"}, "\ud800", "Value", "١",
)  # fmt: skip
GOOD: Mapping[str, Any] = {
    "avro": row(
        "int",
        ["null", "string"],
        logical("bytes", "decimal", precision=9, scale=2),
        decimal(scale="2", **{"connect.decimal.precision": "9"}),
        fixed(12, logicalType="duration"),
        {"type": "enum", "name": "E", "symbols": ["A", "B"], "connect.name": "io.debezium.data.Enum"},
        {"type": "map", "values": ["null", "int", "string"]},
        {"type": "array", "items": {"type": "record", "name": "N", "fields": [{"name": "x", "type": "int"}]}},
        logical("int", "date"),
        aliases=["g"],
    ),
    "json-schema": {
        "type": "object",
        "title": "Value",
        "definitions": {"tag": {"type": "string", "enum": ["a", "b"]}},
        "properties": {
            "a": {"type": "integer", "connect.type": "int64", "connect.index": 0},
            "b": {"oneOf": [{"type": "null"}, {"type": "number", "title": DECIMAL, "connect.type": "bytes",
                "connect.parameters": {"scale": "2"}}], "connect.index": 1},
            "c": {"type": ["number", "null"], "const": 5},
            "d": {"type": "array", "items": {"$ref": "#/definitions/tag"}},
            "e": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False},
            "f": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    },
}  # fmt: skip


def places(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for name, one in inner:
        found += places(one, (*path, name))
    return found


def changed(told: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    made = dict(told) if isinstance(told, dict) else list(told)
    made[path[0]] = changed(told[path[0]], path[1:], to)
    return made


@pytest.mark.parametrize("encoding", GOOD)
def test_a_schema_with_something_else_at_a_place_is_read_or_refused(encoding: str) -> None:
    chance, good = random.Random(SEED), GOOD[encoding]
    assert used(encoding, json.dumps(good)) == ""
    for _ in range(int(300 * TIMES)):
        made = good
        for _ in range(chance.choice((1, 1, 2))):
            made = changed(made, chance.choice(places(made)), chance.choice(JUNK))
        try:
            used(encoding, json.dumps(made))
        except Exception as exc:
            raise AssertionError(json.dumps(made)) from exc


def test_a_file_of_protobuf_with_something_else_at_a_place_is_read_or_refused() -> None:
    good = (
        'syntax = "proto3" ; package p ; import "google/protobuf/timestamp.proto" ; enum E { A = 0 ; B = 1 ; } '
        f"message M {{ int32 a = 1 [ {META} = {{ params : [ {{ key : \"scale\" , value : \"2\" }} ] }} ] ; "
        "optional string b = 2 ; repeated E c = 3 ; map < string , M > d = 4 ; oneof o { bytes e = 5 ; }"
        " google.protobuf.Timestamp t = 7 ; message N { int32 x = 1 ; } N n = 8 ; reserved 9 to 11 ; }"
    )  # fmt: skip
    words = good.split(" ")
    chance = random.Random(SEED)
    for _ in range(int(600 * TIMES)):
        made = list(words)
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(made))
            made[at : at + chance.choice((0, 1, 1))] = [
                chance.choice([*words, "9" * 30, "-1", '"\\xff"', "¿", ""])
            ]
        try:
            used("protobuf", " ".join(made))
        except Exception as exc:
            raise AssertionError(" ".join(made)) from exc
