"""Columns of binary encodings: what values.py makes of each value, or odd where it refuses one."""

import base64
import random
from typing import Any

import pyarrow as pa
import pytest

from backfill_cli.decode import arrow_values, stored, values
from backfill_cli.decode.connect import encoding
from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.tokens import Number, Token
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.model.schema import SparkType, field

Kind = tuple[SparkType, dict[str, Any]]


def decimal(precision: int, scale: int, of: int | None = None) -> Kind:
    told = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
    return f"decimal({precision},{scale})", told | {"parameters": {"scale": str(scale if of is None else of)}}


def array(one: Kind) -> Kind:
    kind: SparkType = {"type": "array", "elementType": one[0], "containsNull": True}
    return kind, {"type": "array", "items": one[1]}


def mapped(one: Kind) -> Kind:
    kind: SparkType = {"type": "map", "keyType": "string", "valueType": one[0], "valueContainsNull": True}
    return kind, {"type": "map", "keys": {"type": "string"}, "values": one[1]}


def struct(*ones: Kind) -> Kind:
    kind: SparkType = {"type": "struct", "fields": [field(f"f{i}", one[0]) for i, one in enumerate(ones)]}
    return kind, {"type": "struct", "fields": [{**one[1], "field": f"f{i}"} for i, one in enumerate(ones)]}


LONG: Kind = ("long", {"type": "int64"})
SHORT: Kind = ("short", {"type": "int16"})
DAY: Kind = ("date", {"type": "int32", "name": "io.debezium.time.Date"})
NANOS: Kind = ("timestamp_ntz", {"type": "int64", "name": "io.debezium.time.NanoTimestamp"})
MONEY = decimal(9, 2)
VARIABLE: Kind = (
    "decimal(20,4)",
    {
        "type": "struct",
        "name": "io.debezium.data.VariableScaleDecimal",
        "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
    },
)
KINDS = [
    MONEY,
    decimal(38, 10),
    decimal(9, 2, of=3),
    decimal(38, 0),
    VARIABLE,
    array(VARIABLE),
    ("binary", {"type": "bytes"}),
    array(MONEY),
    array(LONG),
    mapped(NANOS),
    struct(SHORT, array(struct(DAY, MONEY)), ("string", {"type": "string"})),
    array(array(mapped(struct(SHORT)))),
]


@pytest.mark.parametrize(("kind", "told"), KINDS)
def test_a_column_is_what_its_values_are_one_by_one(kind: SparkType, told: dict[str, Any]) -> None:
    chance = random.Random(5)
    how = encoding(told, kind)
    raw_type = arrow_values.read_as(kind, how, False, binary=True)
    read = values.of_debezium(kind, how)
    for count in (0, 1, 300):
        tokens = [token(chance, told) for _ in range(count)]
        raws = [None, *(raw(one, told) for one in tokens), None]
        column = pa.array(raws, raw_type)
        check(tokens, read, kind, how, column[1:-1])
        check([one for one in tokens if one is not None], read, kind, how, column.filter(column.is_valid()))
        check([None, *tokens, None], read, kind, how, column)


def check(tokens: list[Token], read: values.Reader, kind: SparkType, how: Encoding, column: pa.Array) -> None:
    found, odd = arrow_values.converted(column, kind, how)
    found.validate(full=True)
    right, wrong = [], []
    for one in tokens:
        try:
            right.append(read(one))
            wrong.append(False)
        except Unreadable:
            right.append(None)
            wrong.append(True)
    assert (odd.to_pylist() if odd is not None else [False] * len(column)) == wrong
    good = pa.array([not one for one in wrong], pa.bool_())
    assert found.filter(good).equals(stored.array(right, kind).filter(good))


def token(chance: random.Random, told: dict[str, Any]) -> Token:
    if chance.random() < 0.15:
        return None
    match told["type"]:
        case "struct" if told.get("name"):
            return {"scale": Number(chance.choice([0, 2, 4, 6, -3, 10**6])), "value": token(chance, MONEY[1])}
        case "struct":
            return {one["field"]: token(chance, one) for one in told["fields"]}
        case "array":
            return [token(chance, told["items"]) for _ in range(chance.choice([0, 1, 1, 3]))]
        case "map":
            return {str(i): token(chance, told["values"]) for i in range(chance.choice([0, 1, 2]))}
        case "string":
            return chance.choice(["", "a", "ä" * 30])
        case "bytes":
            digits = chance.choice([0, 3, 8, 9, 30, 38, 40, 45]) if told.get("name") else 3
            number = chance.randrange(10**digits) * chance.choice([1, -1, 10, 1000])
            size = (number.bit_length() // 8 + 1) + (chance.random() < 0.1)
            return base64.b64encode(
                b"" if chance.random() < 0.05 else number.to_bytes(size, "big", signed=True)
            ).decode()
    whole = (0, -1, 5, 40_000, 3_000_000, -(2**31), 10**18, 10**18 + 1, 2**63 - 1)
    return Number(chance.choice([one for one in whole if abs(one) <= 2**31 or told["type"] == "int64"]))


def raw(one: Token, told: dict[str, Any]) -> Any:
    """The token as an encoding reads it by columns."""
    if one is None:
        return None
    match told["type"]:
        case "struct":
            return {f["field"]: raw(one[f["field"]], f) for f in told["fields"]}
        case "array":
            return [raw(each, told["items"]) for each in one]
        case "map":
            return [(name, raw(each, told["values"])) for name, each in one.items()]
        case "string":
            return one
        case "bytes":
            return base64.b64decode(one)
    return int(one)
