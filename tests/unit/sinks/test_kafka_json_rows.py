"""Rows as JSON objects: Python's json reads the same values, and our own reader the same columns."""

import base64
import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import field, schema_text
from backfill_cli.sinks.kafka.json_rows import objects

MICROS = 86_400 * 10**6
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
SINGLES = st.floats(width=32)

LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-128, 127),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "string": TEXTS,
    "binary": st.binary(max_size=6),
    "float": SINGLES,
    "double": st.floats(),
    "decimal(9,2)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "decimal(38,10)": st.integers(-(10**30), 10**30).map(lambda n: Decimal(n).scaleb(-10)),
    "date": st.integers(-719_162, 2_932_896),
    "timestamp": st.integers(-719_162 * MICROS, 2_932_897 * MICROS - 1),
    "timestamp_ntz": st.integers(-719_162 * MICROS, 2_932_897 * MICROS - 1),
}
"""By Spark type; dates and times as numbers since 1970."""

NESTED: dict[str, Any] = {
    "list": {"type": "array", "elementType": "decimal(9,2)", "containsNull": True},
    "map": {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
    "row": {"type": "struct", "fields": [field("a \"b'", "long"), field("t", "timestamp")]},
}


def array(values: list[Any], kind: str) -> pa.Array:
    of = arrow_type(kind)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int32() if kind == "date" else pa.int64()).cast(of)
    return pa.array(values, of)


def shown(value: Any, kind: str) -> Any:
    """The value as `json.loads` with exact numbers has to find it."""
    if value is None or kind in ("byte", "integer", "long", "boolean", "string"):
        return value
    if kind == "binary":
        return base64.b64encode(value).decode()
    if kind in ("float", "double"):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if kind == "date":
        return str(dt.date(1970, 1, 1) + dt.timedelta(days=value))
    if kind.startswith("timestamp"):
        at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
        return at.isoformat("T", "microseconds") + ("Z" if kind == "timestamp" else "")
    return value


def number(text: str, kind: str) -> Any:
    if kind == "float":
        return struct.unpack("f", struct.pack("f", float(text)))[0]
    return float(text) if kind == "double" else Decimal(text)


@given(st.data())
def test_a_row_is_the_object_that_pythons_json_reads(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 5))
    columns = {
        f'c {kind}"\\\n': data.draw(st.lists(st.none() | values, min_size=rows, max_size=rows), kind)
        for kind, values in LEAVES.items()
    }
    kinds = dict(zip(columns, LEAVES, strict=True))
    batch = pa.RecordBatch.from_pydict({name: array(told, kinds[name]) for name, told in columns.items()})
    for at, text in enumerate(objects(batch, list(columns)).to_pylist()):
        found = json.loads(text, parse_float=str, parse_int=str)
        assert list(found) == list(columns)
        for name, told in columns.items():
            kind, value = kinds[name], shown(told[at], kinds[name])
            read = found[name]
            if value is not None and not isinstance(value, str | bool):
                read = number(read, kind)
                assert math.copysign(1, read) == math.copysign(1, value), (kind, text)
            assert read == value, (kind, text)


@given(st.data())
def test_our_own_reader_finds_the_same_columns(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 5))
    leaves = {kind: LEAVES[kind] for kind in LEAVES}
    columns = {kind: field(kind, kind) for kind in leaves} | {name: field(name, NESTED[name]) for name in NESTED}
    nested = {
        "list": st.lists(st.none() | LEAVES["decimal(9,2)"], max_size=3),
        "map": st.dictionaries(TEXTS, st.none() | st.floats(allow_nan=False), max_size=3).map(
            lambda told: list(told.items())
        ),
        "row": st.fixed_dictionaries({"a \"b'": st.none() | LEAVES["long"], "t": st.none() | LEAVES["timestamp"]}),
    }
    told = {
        name: data.draw(st.lists(st.none() | values, min_size=rows, max_size=rows), name)
        for name, values in (leaves | nested).items()
    }
    arrays = {name: array(told[name], name) for name in leaves}
    arrays |= {name: pa.array(told[name], arrow_type(NESTED[name])) for name in nested}
    texts = [one.encode() for one in objects(pa.RecordBatch.from_pydict(arrays), list(arrays)).to_pylist()]
    found = JsonRows(schema_text(columns), kept_apart=False)(texts)
    assert found.error is None or found.error.null_count == len(found.error), found.error
    for name in columns:
        assert same(found.columns[name].to_pylist() if name in nested else bits(found.columns[name])) == same(
            arrays[name].to_pylist() if name in nested else bits(arrays[name])
        ), name


def bits(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column = column.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def same(values: list[Any]) -> str:
    """NaN is NaN, and -0.0 is not 0.0."""
    return repr(values)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (253_402_300_800_000_000, "10000-01-01T00:00:00.000000"),
        (2**63 - 1, "294247-01-10T04:00:54.775807"),
        (-(2**63), "-290308-12-21T19:59:05.224192"),
        (-62_135_596_800_000_001, "0000-12-31T23:59:59.999999"),
    ],
)
def test_times_beyond_pythons_calendar_are_written_and_read(micros: int, text: str) -> None:
    column = pa.array([micros, 0, None]).cast(pa.timestamp("us"))
    found = objects(pa.RecordBatch.from_pydict({"t": column}), ["t"]).to_pylist()
    assert found == [f'{{"t":"{text}"}}', '{"t":"1970-01-01T00:00:00.000000"}', '{"t":null}']
    read = JsonRows(schema_text({"t": field("t", "timestamp_ntz")}), kept_apart=False)([found[0].encode()])
    assert bits(read.columns["t"]) == [micros], read.error


def test_a_slice_of_nested_columns_is_its_own_rows() -> None:
    lists = pa.array([[1], [2, 3], None, []], pa.list_(pa.int64()))
    maps = pa.array([[(1, "a")], [(2, None)], None, []], pa.map_(pa.int32(), pa.string()))
    rows = pa.array([{"x": 1}, {"x": 2}, None, {"x": None}])
    batch = pa.RecordBatch.from_pydict({"l": lists, "m": maps, "r": rows}).slice(1)
    assert [json.loads(one) for one in objects(batch, ["l", "m", "r"]).to_pylist()] == [
        {"l": [2, 3], "m": {"2": None}, "r": {"x": 2}},
        {"l": None, "m": None, "r": None},
        {"l": [], "m": {}, "r": {"x": None}},
    ]
