"""Debezium's placeholders for values that it was not given, as its Postgres connector writes each type's."""

import base64
import hashlib
import json
import struct
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from files_values import event, failure, logical, opened, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = "__debezium_unavailable_value"
BYTES = list(TEXT.encode())
UUID = str(uuid.UUID(bytes=hashlib.md5(TEXT.encode(), usedforsecurity=False).digest(), version=3))
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def geometry(x: float, y: float) -> str:
    return base64_of(struct.pack("<BIIdd", 1, 0x20000001, 4326, x, y))


GEOMETRY = {
    "type": "struct",
    "name": "io.debezium.data.geometry.Geometry",
    "fields": [{"field": "wkb", "type": "bytes"}, {"field": "srid", "type": "int32"}],
}
WKB = pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])
TEXTS = pa.map_(pa.string(), pa.string())

UNSENT: dict[str, tuple[pa.DataType, dict[str, Any], Any]] = {
    "text": (pa.string(), {"type": "string"}, TEXT),
    "json": (pa.string(), logical("string", "io.debezium.data.Json"), TEXT),
    "hstore as json": (pa.string(), logical("string", "io.debezium.data.Json"), json.dumps({TEXT: TEXT})),
    "hstore as json, dense": (
        pa.string(),
        logical("string", "io.debezium.data.Json"),
        json.dumps({TEXT: TEXT}, separators=(",", ":")),
    ),
    "hstore as map": (
        TEXTS,
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
        {TEXT: TEXT},
    ),
    "bytes": (pa.binary(), {"type": "bytes"}, base64_of(TEXT.encode())),
    "bytes as base64 text": (pa.string(), {"type": "string"}, base64_of(TEXT.encode())),
    "bytes as hex text": (pa.string(), {"type": "string"}, TEXT.encode().hex()),
    "array of text": (pa.list_(pa.string()), array({"type": "string"}), [TEXT]),
    "array of bytes": (pa.list_(pa.binary()), array({"type": "bytes"}), [base64_of(TEXT.encode())]),
    "array of uuid": (pa.list_(pa.string()), array(logical("string", "io.debezium.data.Uuid")), [UUID]),
    "array of int16": (pa.list_(pa.int16()), array({"type": "int16"}), BYTES),
    "array of int32": (pa.list_(pa.int32()), array({"type": "int32"}), BYTES),
    "array of int32, wider": (pa.list_(pa.int64()), array({"type": "int32"}), BYTES),
    "array of int64": (pa.list_(pa.int64()), array({"type": "int64"}), BYTES),
    "array of float32": (pa.list_(pa.float32()), array({"type": "float"}), [float(b) for b in BYTES]),
    "array of float64": (pa.list_(pa.float64()), array({"type": "double"}), [float(b) for b in BYTES]),
    "array of boolean": (pa.list_(pa.bool_()), array({"type": "boolean"}), [True] * len(BYTES)),
    "array of date": (pa.list_(pa.date32()), array(logical("int32", "io.debezium.time.Date")), BYTES),
    "array of timestamp": (
        pa.list_(pa.timestamp("us")),
        array(logical("int64", "io.debezium.time.MicroTimestamp")),
        BYTES,
    ),
    "array of decimal": (
        pa.list_(pa.decimal128(10, 2)),
        array(logical("bytes", DECIMAL, scale="2")),
        [base64_of(bytes([b])) for b in BYTES],
    ),
    "array of decimal without a scale": (
        pa.list_(pa.decimal128(10, 2)),
        array({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}),
        [{"scale": 0, "value": base64_of(bytes([b]))} for b in BYTES],
    ),
    "geometry": (WKB, GEOMETRY, {"wkb": geometry(-99999999, -99999999), "srid": 4326}),
    "geography": (WKB, GEOMETRY, {"wkb": geometry(179.999999, 89.999999), "srid": 4326}),
}


@pytest.mark.parametrize("case", UNSENT)
def test_a_value_that_was_not_sent_is_never_stored(tmp_path: Path, spark: "SparkSession", case: str) -> None:
    kind, told, value = UNSENT[case]
    upstream = opened(tmp_path, {"id": pa.int64(), "v": kind}, {"format": "debezium"})
    line = event("u", None, {"id": 7, "v": value}, {"id": {"type": "int64"}, "v": told})
    (tmp_path / "changes" / "1.json").write_text(line)
    error = failure(upstream, spark)
    what = f"column 'v': {TEXT}: the value did not change and was not sent"
    assert error.message == f"1.json: line 1 (of id 7): {what}"
    assert "REPLICA IDENTITY FULL" in str(error.hint)


def test_a_key_that_was_not_sent_is_never_stored(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, {"id": pa.string(), "v": pa.int64()}, {"format": "debezium"})
    (tmp_path / "changes" / "1.json").write_text(event("u", None, {"id": TEXT, "v": 1}))
    assert "column 'id'" in failure(upstream, spark).message


def test_values_that_resemble_placeholders_are_data(tmp_path: Path, spark: "SparkSession") -> None:
    kinds = {"t": pa.string(), "n": pa.list_(pa.int32()), "b": pa.list_(pa.bool_()), "m": TEXTS}
    upstream = opened(tmp_path, {"id": pa.int64(), **kinds}, {"format": "debezium"})
    rows: list[dict[str, Any]] = [
        {"t": TEXT[1:], "n": BYTES[1:], "b": [True] * 27, "m": [("a", f"{TEXT}y")]},
        {"t": f"{TEXT} ", "n": [*BYTES, 1], "b": [True] * 29, "m": [(f"{TEXT}x", "b")]},
        {"t": None, "n": [None], "b": [None, True], "m": [("a", None)]},
        {"t": "", "n": [], "b": [], "m": []},
        {"t": "x", "n": None, "b": None, "m": None},
    ]
    lines = []
    for number, row in enumerate(rows):
        after = {**row, "m": None if row["m"] is None else dict(row["m"])}
        lines.append(event("c", None, {"id": number, **after}))
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    assert read(upstream, spark, *kinds) == rows
