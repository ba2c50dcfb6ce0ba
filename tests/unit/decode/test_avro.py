"""Schemas of Avro: names, references, what Kafka Connect calls their types; and records of none of them."""

import json
from typing import Any

import pyarrow as pa
import pytest

from backfill_cli.decode.avro import Avro, schema
from backfill_cli.decode.connect import own_type
from backfill_cli.decode.tokens import DEEP
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import shown


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    """Of fields, or of types of fields that are named f0, f1, …"""
    named = [one if is_field(one) else {"name": f"f{i}", "type": one} for i, one in enumerate(fields)]
    return {"type": "record", "name": "R", "fields": named, **more}


def is_field(one: Any) -> bool:
    return isinstance(one, dict) and "name" in one and one["type"] not in ("record", "enum", "fixed")


def of(*fields: Any, **more: Any) -> Avro:
    return Avro(json.dumps(record(*fields, **more)))


def field(kind: Any, **more: Any) -> dict[str, Any]:
    """What Connect says of the one field of a record of this type."""
    return dict(of({"name": "f", "type": kind, **more}).schema["fields"][0])


@pytest.mark.parametrize(
    ("kind", "spark"),
    [
        ("int", "integer"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("boolean", "boolean"),
        ("string", "string"),
        ("bytes", "binary"),
        (["null", "string"], "string"),
        ([{"type": "string", "avro.java.string": "String"}], "string"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": "double"}, "map<string,double>"),
        (["null", "int", "string"], "struct<int:int,string:string>"),
        ({**record("int"), "name": "S"}, "struct<f0:int>"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "integer"),
        ({"type": "long", "logicalType": "time-micros"}, "long"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, "timestamp_ntz"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "string"),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            "struct<months:bigint,days:bigint,milliseconds:bigint>",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, "decimal(9,0)"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, "decimal(9,0)"),
        # not what the specification allows: as if there were no logical type
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 10}, "binary"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, "binary"),
        ({"type": "bytes", "logicalType": "decimal"}, "binary"),
        ({"type": "bytes", "logicalType": "decimal", "precision": True}, "binary"),
        ({"type": "bytes", "logicalType": "big-decimal"}, "binary"),
        ({"type": "fixed", "name": "F", "size": 8, "logicalType": "uuid"}, "binary"),
        ({"type": "string", "logicalType": "timestamp-millis"}, "string"),
        ({"type": "int", "logicalType": "timestamp-millis"}, "integer"),
        # as Kafka Connect and Debezium write them
        ({"type": "int", "connect.type": "int16"}, "short"),
        (
            {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp", "connect.version": 1},
            "timestamp_ntz",
        ),
        (
            {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 64,
                "scale": 2,
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            },
            "decimal(10,2)",
        ),
    ],
)
def test_a_type_becomes_the_one_of_spark_that_holds_it(kind: Any, spark: str) -> None:
    found = own_type(field(kind))[0]
    assert found == spark if isinstance(found, str) else shown(found) == spark


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("null", "a column that is always NULL has no type"),
        (["null", "R"], "R contains itself: no column has such a type"),
        ({"type": "array", "items": {"type": "map", "values": "R"}}, "R contains itself"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "a decimal of 39 digits"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "E has no fields"),
    ],
)
def test_a_type_that_no_column_has_is_refused_by_name(kind: Any, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        own_type(field(kind))


@pytest.mark.parametrize(
    ("kind", "default", "told"),
    [
        ("int", 5, "5"),
        ("double", 5, "5.0"),
        ("double", "NaN", "NaN"),
        ("bytes", "\x00\xff", "AP8="),
        (["null", "int"], None, None),
        (["int", "null"], 5, "5"),
        (["string", "int"], "a", {"string": "a", "int": None}),
        ({"type": "map", "values": "long"}, {"a": 1}, {"a": "1"}),
        ({"type": "array", "items": "string"}, ["a"], ["a"]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        (
            {"type": "record", "name": "S", "fields": [{"name": "x", "type": "int", "default": 3}]},
            {},
            {"x": "3"},
        ),
    ],
)
def test_a_default_is_told_as_a_value(kind: Any, default: Any, told: Any) -> None:
    assert field(kind, default=default)["default"] == told


@pytest.mark.parametrize(
    ("kind", "default"), [("int", "x"), ("int", 2**31), (["null", "int"], "x"), ("bytes", "€")]
)
def test_a_default_that_is_no_value_is_none(kind: Any, default: Any) -> None:
    assert "default" not in field(kind, default=default)
    assert "default" not in field("int")


def test_a_field_keeps_its_aliases() -> None:
    assert field("int", aliases=["old", "older"])["aliases"] == ["old", "older"]


def test_names_are_of_the_namespace_they_stand_in() -> None:
    text = {
        "type": "record",
        "name": "a.b.Outer",
        "namespace": "not.this",
        "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
            {"name": "f", "type": {"type": "fixed", "name": "E", "namespace": "", "size": 2}},
            {
                "name": "r",
                "type": {
                    "type": "record",
                    "name": "In",
                    "namespace": "c",
                    "fields": [{"name": "e", "type": ["a.b.E", "E"]}],
                },
            },
            {"name": "simple", "type": ["E", "c.In"]},
        ],
    }
    fields = {one.name: one.type for one in schema.parsed(json.dumps(text)).fields}
    assert [fields["e"].name, fields["f"].name, fields["r"].name] == ["a.b.E", "E", "c.In"]
    both = fields["r"].fields[0].type
    assert both.parts == (fields["e"], fields["f"])  # there is no c.E
    assert [name for _, name, _ in both.branches] == ["a.b.E", "E"]
    assert [one.name for one in fields["simple"].parts] == ["a.b.E", "c.In"]
    assert [name for _, name, _ in fields["simple"].branches] == ["E", "In"]


def test_named_types_come_from_other_schemas_in_any_order() -> None:
    money = json.dumps(
        {"type": "record", "name": "shop.Money", "fields": [{"name": "c", "type": "shop.Currency"}]}
    )
    currency = json.dumps({"type": "enum", "name": "shop.Currency", "symbols": ["EUR", "CZK"]})
    text = json.dumps(record("shop.Money", "shop.Currency"))
    for references in ([money, currency], [currency, money]):
        found = Avro(text, references)
        assert found.token(b"\x02\x00") == {"f0": {"c": "CZK"}, "f1": "EUR"}
    with pytest.raises(Unsupported, match=r"type 'shop\.Money' is not defined"):
        Avro(text, [money])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "the schema is not JSON"),
        ('{"type": "record", "name": "", "fields": []}', "a record without a name"),
        ('{"type": "enum", "name": "a.", "symbols": []}', "an enum without a name"),
        ('{"type": "record", "name": "R"}', "type 'R' without fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "a field without a name or a type"),
        ('{"type": "fixed", "name": "F", "size": -1}', "fixed 'F' without a size"),
        ('{"type": "no"}', "type 'no' is not defined"),
        ('["int", "int"]', "two branches that are both int"),
        ('["null", ["int"]]', "a union directly within a union"),
        ("3", "no type: 3"),
        (json.dumps(record("int", {"name": "f0", "type": "int"})), "two fields 'f0'"),
        (json.dumps(record({"type": "fixed", "name": "R", "size": 1})), "type 'R' is defined twice"),
        ('{"type": ' * 2000 + '"int"' + "}" * 2000, "nested too deep"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        Avro(text)


def test_a_schema_may_be_of_one_value_as_those_of_keys_are() -> None:
    for text in ('"long"', "long", '{"type": "long"}', '["null", "long"]'):
        reader = Avro(text)
        raw = b"\x02\x0e" if "null" in text else b"\x0e"
        columns, kept = reader.read([raw, b""], pa.schema([("id", pa.int64())]))
        assert (columns["id"].to_pylist(), list(kept), reader.token(raw)) == ([7], [0], "7")


@pytest.mark.parametrize(
    ("kind", "raw", "why"),
    [
        ("string", b"\x04a", "cut short in 'f0' at byte 0"),
        ("string", b"\x01", "a length of -1 in 'f0' at byte 0"),
        ("string", b"\x02a!", "1 bytes too many at byte 2"),
        ("string", b"\x02\xff", "not UTF-8 text in 'f0' at byte 0"),
        ("string", b"\xff" * 9 + b"\x01", f"a length of {-(2**63)}"),
        ("long", b"\xff" * 9 + b"\x02", "a number of more than 64 bits in 'f0' at byte 0"),
        ("long", b"\xff" * 11, "a number of more than 64 bits in 'f0' at byte 0"),
        ("int", b"\x80\x80\x80\x80\x10", "2147483648 is no int"),
        ("boolean", b"\x02", "2 is no boolean"),
        (["null", "int"], b"\x04", "the schema has 2 branches here, not one of number 2 in 'f0'"),
        ({"type": "enum", "name": "E", "symbols": []}, b"\x00", "the schema has 0 symbols here"),
        ({"type": "array", "items": "int"}, b"\xfe" * 5 + b"\x01", "a block of [0-9]+ elements"),
        ({"type": "array", "items": "int"}, b"\x03\x02\x02\x02\x00", "a block that does not end where it says"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x00", "a block of [0-9]+ elements"),
        ({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x80\x40\x00", "a block of [0-9]+ elements"),
        ({"type": "array", "items": "null"}, b"\x02\x00", "1 elements that have no bytes"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x02\x00", 'the name "a" occurs twice'),
        (
            {"type": "array", "items": {**record("int"), "name": "S"}},
            b"\x04\x02\x80",
            r"cut short in 'f0\[1\]\.f0'",
        ),
    ],
)
def test_a_record_that_is_none_says_why_and_where(kind: Any, raw: bytes, why: str) -> None:
    reader = of(kind, "null")
    with pytest.raises(Unreadable, match=why):
        dict(
            reader.token(raw)["f0"].items()
            if isinstance(kind, dict) and kind["type"] == "map"
            else reader.token(raw)
        )
    leaf = {"array": pa.list_(pa.int64()), "map": pa.map_(pa.string(), pa.int64()), "boolean": pa.bool_()}
    named = kind.get("type") if isinstance(kind, dict) else kind
    wanted = pa.string() if named in ("string", "enum") else leaf.get(str(named), pa.int64())
    if "elements that" not in why and isinstance(kind, dict) and isinstance(kind.get("items"), dict):
        wanted = pa.list_(pa.struct([("f0", pa.int64())]))
    assert list(reader.read([raw], pa.schema([("f0", wanted)]))[1]) == []


def test_what_contains_itself_is_passed_over_to_a_depth() -> None:
    reader = of("int", ["null", "R"], {"type": "array", "items": "R"})
    wanted = pa.schema([("f0", pa.int64())])
    deep = b"\x02\x00\x00"
    for depth in range(150):
        deep = bytes([2 * (depth % 60)]) + (
            b"\x02" + deep + b"\x00" if depth % 2 else b"\x00\x02" + deep + b"\x00"
        )
        assert list(reader.read([deep, b"\x02\x00\x00"], wanted)[1]) == ([0, 1] if depth < 100 else [1])
    with pytest.raises(Unreadable, match=DEEP):
        reader.token(deep)
    with pytest.raises(Unreadable, match=DEEP):
        reader.token(b"\x00\x02" * 1_000_000)
    assert list(reader.read([b"\x00\x02" * 1_000_000], wanted)[1]) == []


def test_a_member_is_null_where_the_schema_has_none_and_refused_where_it_is_another() -> None:
    reader = of("int", ["null", {**record("string"), "name": "S"}])
    wanted = [
        ("f0", pa.int64()),
        ("no", pa.string()),
        ("f1", pa.struct([("f0", pa.string()), ("no", pa.int64())])),
    ]
    columns, _ = reader.read([b"\x02\x02\x02a", b"\x04\x00"], pa.schema(wanted))
    assert columns["no"].to_pylist() == [None, None]
    assert columns["f1"].to_pylist() == [{"f0": "a", "no": None}, None]
    with pytest.raises(Unsupported, match=r"'f1\.f0': string is not read as int64"):
        reader.read([], pa.schema([("f1", pa.struct([("f0", pa.int64())]))]))


def test_many_records_are_read_in_parts() -> None:
    reader = of("int", "string")
    raws = [b"\x02\x04ab", b"\x04\x00"] * 10_000 + [b"\x02"]
    columns, kept = reader.read(raws, pa.schema([("f1", pa.string()), ("f0", pa.int64())]))
    assert columns["f0"].to_pylist() == [1, 2] * 10_000
    assert columns["f1"].to_pylist() == ["ab", ""] * 10_000
    assert list(kept) == list(range(20_000))
    assert reader.read([], pa.schema([("f0", pa.int64())]))[0]["f0"].to_pylist() == []
