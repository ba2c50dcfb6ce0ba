"""What each type of Avro becomes in a table, measured: its extremes, and values that no column holds."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pyarrow as pa

from backfill_cli.decode import arrow_values, stored, values
from backfill_cli.decode.avro import Avro
from backfill_cli.decode.connect import encoding, own_type
from backfill_cli.decode.json_schema import JsonSchema
from backfill_cli.decode.protobuf import Protobuf
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import shown
from oracle.avro_inputs import Schema, without_logical

Reader = Avro | Protobuf | JsonSchema
REFUSED = object()
EPOCH, NOON = datetime(1970, 1, 1), datetime(2024, 2, 29, 12, 0, 0, 123456)
UTC_ZONE = ZoneInfo("UTC")
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
ZONED = {"millis": 1000, "micros": 1, "nanos": None}


def _since(of: datetime, unit: str) -> int:
    micros = round((of - EPOCH).total_seconds() * 10**6) if of not in (FIRST, LAST) else _exact(of)
    return {"millis": micros // 1000, "micros": micros, "nanos": micros * 1000}[unit]


def _exact(of: datetime) -> int:
    apart = of - EPOCH
    return (apart.days * 86_400 + apart.seconds) * 10**6 + apart.microseconds


def _times(unit: str, local: bool) -> dict[Any, Any]:
    cut = 1000 if unit == "millis" else 1
    some = [EPOCH, NOON] if unit == "nanos" else [EPOCH, NOON, FIRST, LAST]
    kept = [one.replace(microsecond=one.microsecond // cut * cut) for one in some]
    found: dict[Any, Any] = {_since(one, unit): one if local else one.replace(tzinfo=UTC_ZONE) for one in kept}
    return found | ({1: REFUSED, 2**63 - 1: REFUSED} if unit == "nanos" else {_since(LAST, unit) + 1: REFUSED})


def _same(*some: Any) -> dict[Any, Any]:
    return {one: one for one in some}


def _decimal(precision: int, scale: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for number in (0, 1, -1, 10**precision - 1, 1 - 10**precision):
        found[number.to_bytes(16, "big", signed=True)] = Decimal(
            (number < 0, Decimal(abs(number)).as_tuple()[1], -scale)
        )
    return found | {(10**precision).to_bytes(16, "big", signed=True): REFUSED, bytes(17): REFUSED, b"": REFUSED}


def _named(kind: str, **more: Any) -> Schema:
    return {"type": kind, "name": "N", **more}


def _logical(kind: str, name: str, **more: Any) -> Schema:
    return {"type": kind, "logicalType": name, **more}


WHOLE = (0, -1, 2**31 - 1, -(2**31))
UUID = "01234567-89ab-cdef-0123-456789abcdef"
TYPES: dict[str, tuple[Schema, Mapping[Any, Any]]] = {
    "null": ("null", {None: None}),
    "boolean": ("boolean", _same(True, False)),
    "int": ("int", _same(*WHOLE)),
    "long": ("long", _same(*WHOLE, 2**63 - 1, -(2**63))),
    "float": ("float", _same(-0.0, 1.5, 2.0**-149, float("inf"))),
    "double": ("double", _same(0.0, 0.1, 5e-324, 1.7976931348623157e308, float("-inf"))),
    "bytes": ("bytes", _same(b"", b"\0\xff")),
    "string": ("string", _same("", "ä€😀", "\0")),
    "enum": (_named("enum", symbols=["A", "B"]), _same("A", "B")),
    "fixed": (_named("fixed", size=2), _same(b"\0\xff")),
    "array": ({"type": "array", "items": "int"}, {(): [], (1, 2): [1, 2]}),
    "map": ({"type": "map", "values": "int"}, {(): [], (("a", 1),): [("a", 1)]}),
    "record": (_named("record", fields=[{"name": "x", "type": "int"}]), {(("x", 1),): {"x": 1}}),
    "record without fields": (_named("record", fields=[]), {}),
    "record that contains itself": (_named("record", fields=[{"name": "x", "type": ["null", "N"]}]), {}),
    "union of null and a type": (["null", "int"], {None: None, 1: 1}),
    "union of several types": (
        ["null", "int", "string"],
        {None: None, 1: {"int": 1, "string": None}, "a": {"int": None, "string": "a"}},
    ),
    "decimal(9,2) in bytes": (_logical("bytes", "decimal", precision=9, scale=2), _decimal(9, 2)),
    "decimal(38,10) in bytes": (_logical("bytes", "decimal", precision=38, scale=10), _decimal(38, 10)),
    "decimal(39,0) in bytes": (_logical("bytes", "decimal", precision=39), {}),
    "decimal(38,10) in fixed": (
        _named("fixed", size=16, logicalType="decimal", precision=38, scale=10),
        {raw: one for raw, one in _decimal(38, 10).items() if len(raw) == 16},
    ),
    "big-decimal": (_logical("bytes", "big-decimal"), _same(b"\0\x02")),
    "date": (
        _logical("int", "date"),
        {0: date(1970, 1, 1), -719162: date(1, 1, 1), 2932896: date(9999, 12, 31), 2932897: REFUSED},
    ),
    "time-millis": (_logical("int", "time-millis"), _same(0, 86_399_999)),
    "time-micros": (_logical("long", "time-micros"), _same(0, 86_399_999_999)),
    **{f"timestamp-{unit}": (_logical("long", f"timestamp-{unit}"), _times(unit, False)) for unit in ZONED},
    **{
        f"local-timestamp-{unit}": (_logical("long", f"local-timestamp-{unit}"), _times(unit, True))
        for unit in ZONED
    },
    "uuid in string": (_logical("string", "uuid"), _same(UUID)),
    "uuid in fixed": (_named("fixed", size=16, logicalType="uuid"), {bytes.fromhex(UUID.replace("-", "")): UUID}),
    "duration": (
        _named("fixed", size=12, logicalType="duration"),
        {b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff": {"months": 1, "days": 2, "milliseconds": 2**32 - 1}},
    ),
}


@dataclass
class Found:
    """column: the type. fault: why there is none. refused: what is said of values that are refused."""

    column: str
    fault: str
    refused: list[str]


def measured(name: str) -> Found:
    """What a type becomes; raises AssertionError for a value that is another one in the table."""
    schema, of = TYPES[name]
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "f", "type": schema}]}
    return compared(name, Avro(json.dumps(whole)), [_written(whole, value) for value in of], list(of.values()))


def compared(
    name: str,
    reader: Reader,
    raws: list[bytes],
    expected: list[Any],
    rare: frozenset[int] = frozenset(),
    binary: bool = True,
) -> Found:
    """What the field `f` of documents becomes. expected: its values, REFUSED for one that no column holds.

    rare: those that are not read by columns. binary: as of `Group`.
    """
    told = reader.schema["fields"][0]
    try:
        kind, more = own_type(told)
    except Unsupported as exc:
        return Found("", str(exc), [])
    how = encoding(told, kind)
    one_by_one, refused = _one_by_one(reader, raws, kind, how)
    for value, by_itself in zip(expected, one_by_one, strict=True):
        assert repr(by_itself) == repr(value), (name, value, by_itself)
    found = Found(more.get("logical", shown(kind)), "", sorted(set(refused)))
    raw_type = arrow_values.read_as(kind, how, False, binary)
    if raw_type is None:
        return found
    columns, kept = reader.read(raws, pa.schema([("f", raw_type)]))
    assert all(i in kept or i in rare or value is REFUSED for i, value in enumerate(expected)), (name, kept)
    column, odd = arrow_values.converted(columns["f"], kind, how)
    is_odd = [False] * len(kept) if odd is None else odd.to_pylist()
    # what is odd by columns, or left out there, is read again by itself
    by_column = {i: column[n].as_py() for n, i in enumerate(kept) if not is_odd[n]}
    for i, value in enumerate(expected):
        assert i not in by_column or repr(by_column[i]) == repr(value), (name, value, by_column[i])
    return found


def _written(schema: Schema, value: Any) -> bytes:
    kind = schema["fields"][0]["type"]
    name = kind.get("type") if isinstance(kind, dict) else kind
    told = list(value) if name == "array" else dict(value) if name in ("map", "record") else value
    into = io.BytesIO()
    fastavro.schemaless_writer(into, fastavro.parse_schema(without_logical(schema)), {"f": told})
    return into.getvalue()


def _one_by_one(reader: Reader, raws: list[bytes], kind: Any, how: Any) -> tuple[list[Any], list[str]]:
    read = values.of_debezium(kind, how)
    found: list[Any] = []
    refused = []
    for raw in raws:
        try:
            found.append(stored.array([read(reader.token(raw)["f"])], kind)[0].as_py())
        except Unreadable as exc:
            found.append(REFUSED)
            refused.append(str(exc).partition(":")[0])
    return found, refused


def table() -> str:
    return shown_as("## Avro", {name: measured(name) for name in TYPES})


def shown_as(head: str, types: Mapping[str, Found]) -> str:
    lines = [head, "", "| type | column | refused |", "| --- | --- | --- |"]
    for name, found in types.items():
        lines.append(f"| {name} | {found.column or 'refused'} | {found.fault or '; '.join(found.refused)} |")
    return "\n".join(lines).replace("  ", " ") + "\n"
