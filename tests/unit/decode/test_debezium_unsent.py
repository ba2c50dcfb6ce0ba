"""Debezium's placeholders for values that it was not given, as its Postgres connector writes each type's."""

import base64
import hashlib
import json
import struct
import uuid
from typing import Any

import pytest

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Asked, Decoded, Fault
from backfill_cli.decode.debezium import decoder
from backfill_cli.formats.schemas import of_ddl

TEXT = "__debezium_unavailable_value"
BYTES = list(TEXT.encode())
UUID = str(uuid.UUID(bytes=hashlib.md5(TEXT.encode(), usedforsecurity=False).digest(), version=3))
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def logical(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "parameters": parameters}


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def geometry(x: float, y: float) -> str:
    return base64_of(struct.pack("<BIIdd", 1, 0x20000001, 4326, x, y))


GEOMETRY = {
    "type": "struct",
    "name": "io.debezium.data.geometry.Geometry",
    "fields": [{"field": "wkb", "type": "bytes"}, {"field": "srid", "type": "int32"}],
}
WKB = "STRUCT<wkb: BINARY, srid: INT>"

UNSENT: dict[str, tuple[str, dict[str, Any], Any]] = {
    "text": ("STRING", {"type": "string"}, TEXT),
    "json": ("STRING", logical("string", "io.debezium.data.Json"), TEXT),
    "hstore as json": ("STRING", logical("string", "io.debezium.data.Json"), json.dumps({TEXT: TEXT})),
    "hstore as json, dense": (
        "STRING",
        logical("string", "io.debezium.data.Json"),
        json.dumps({TEXT: TEXT}, separators=(",", ":")),
    ),
    "hstore as map": (
        "MAP<STRING, STRING>",
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
        {TEXT: TEXT},
    ),
    "bytes": ("BINARY", {"type": "bytes"}, base64_of(TEXT.encode())),
    "bytes as base64 text": ("STRING", {"type": "string"}, base64_of(TEXT.encode())),
    "bytes as hex text": ("STRING", {"type": "string"}, TEXT.encode().hex()),
    "array of text": ("ARRAY<STRING>", array({"type": "string"}), [TEXT]),
    "array of bytes": ("ARRAY<BINARY>", array({"type": "bytes"}), [base64_of(TEXT.encode())]),
    "array of uuid": ("ARRAY<STRING>", array(logical("string", "io.debezium.data.Uuid")), [UUID]),
    "array of int16": ("ARRAY<SMALLINT>", array({"type": "int16"}), BYTES),
    "array of int32": ("ARRAY<INT>", array({"type": "int32"}), BYTES),
    "array of int32, wider": ("ARRAY<BIGINT>", array({"type": "int32"}), BYTES),
    "array of int64": ("ARRAY<BIGINT>", array({"type": "int64"}), BYTES),
    "array of float32": ("ARRAY<FLOAT>", array({"type": "float"}), [float(b) for b in BYTES]),
    "array of float64": ("ARRAY<DOUBLE>", array({"type": "double"}), [float(b) for b in BYTES]),
    "array of boolean": ("ARRAY<BOOLEAN>", array({"type": "boolean"}), [True] * len(BYTES)),
    "array of date": ("ARRAY<DATE>", array(logical("int32", "io.debezium.time.Date")), BYTES),
    "array of timestamp": (
        "ARRAY<TIMESTAMP_NTZ>",
        array(logical("int64", "io.debezium.time.MicroTimestamp")),
        BYTES,
    ),
    "array of decimal": (
        "ARRAY<DECIMAL(10,2)>",
        array(logical("bytes", DECIMAL, scale="2")),
        [base64_of(bytes([b])) for b in BYTES],
    ),
    "array of decimal without a scale": (
        "ARRAY<DECIMAL(10,2)>",
        array({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}),
        [{"scale": 0, "value": base64_of(bytes([b]))} for b in BYTES],
    ),
    "geometry": (WKB, GEOMETRY, {"wkb": geometry(-99999999, -99999999), "srid": 4326}),
    "geography": (WKB, GEOMETRY, {"wkb": geometry(179.999999, 89.999999), "srid": 4326}),
}


def read(kind: str, told: dict[str, Any] | None, *changes: tuple[str, Any, Any]) -> Decoded:
    """The rows of (op, before, after). told: the field of the schema block; None: no block."""
    fields = [{"field": "id", "type": "int64"}, {**(told or {}), "field": "v"}]
    block = {"fields": [{"field": image, "fields": fields} for image in ("after", "before")]}
    records = []
    for op, before, after in changes:
        envelope = {"op": op, "before": before, "after": after, "source": {"ts_ms": 5}}
        records.append(json.dumps(envelope if told is None else {"schema": block, "payload": envelope}).encode())
    options = {"timestamps": "us", "decimals": "string"}
    asked = Asked("topic 't'", "t", "t", ("id",), of_ddl(f"id BIGINT, v {kind}"), options, "upstream.value")
    found = decoder.columns(asked, lambda: records)
    return decoder.open(asked, found.columns, found.facts).decode(lambda: records)(records)


@pytest.mark.parametrize("case", UNSENT)
def test_case_08_an_update_names_the_columns_whose_values_were_not_sent(case: str) -> None:
    kind, told, value = UNSENT[case]
    row, key = {"id": 7, "v": value}, {"id": 7, "v": None}
    found = read(kind, told, ("u", None, row), ("u", key, row), ("u", None, key))
    assert found.columns["id"].to_pylist() == [7, 7, 7]
    assert found.columns["v"].null_count == 3
    assert found.beside[own.UNSENT].to_pylist() == [["v"], ["v"], None]
    assert found.error is None or found.error.null_count == 3


@pytest.mark.parametrize("case", UNSENT)
def test_a_row_that_is_new_at_its_key_has_all_values(case: str) -> None:
    """An insert, and an update that moves the row: the sink has no value to keep."""
    kind, told, value = UNSENT[case]
    row = {"id": 7, "v": value}
    found = read(kind, told, ("c", None, row), ("r", None, row), ("u", {"id": 6, "v": None}, row))
    assert found.fault is not None
    assert found.fault.to_pylist() == [Fault.NOT_SENT] * 3
    assert {name: column.null_count for name, column in found.columns.items()} == {"id": 3, "v": 3}
    assert found.error is not None
    assert all(f"column 'v': {TEXT}: the value" in error for error in found.error.to_pylist())


def test_a_value_that_merely_holds_a_placeholder_is_a_fault() -> None:
    """Debezium has it alone in an array or a map: this is nobody knows what."""
    for kind, value in (("ARRAY<STRING>", ["a", TEXT]), ("MAP<STRING, STRING>", {"k": TEXT})):
        found = read(kind, None, ("u", None, {"id": 7, "v": value}))
        assert found.fault is not None
        assert found.fault.to_pylist() == [Fault.NOT_SENT]
