"""Values as both sides are compared: tagged, so that 1, True, 1.0 and Decimal(1) are four things.

None | (tag, content), content being
  bool: a bool · int: an int · dec: text of a Decimal, its scale kept · f4, f8: the bits in hex, one NaN for all
  · text: str · bytes: hex · day: days since 1970 · at: microseconds since 1970 in UTC · wall: the same without
  a zone · uuid: text · list: values · struct: (name, value) pairs in order · map: (key, value) pairs, sorted.
"""

import datetime as dt
import math
import struct
import uuid
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

Value = Any
Row = dict[str, Value]

EPOCH = dt.datetime(1970, 1, 1)
DAY = dt.date(1970, 1, 1).toordinal()


def double(value: float) -> Value:
    return ("f8", "nan" if math.isnan(value) else struct.pack(">d", value).hex())


def single(value: float) -> Value:
    """value: one that a FLOAT holds exactly."""
    return ("f4", "nan" if math.isnan(value) else struct.pack(">f", value).hex())


def decimal(value: Decimal, scale: int) -> Value:
    """value: one that has no more than `scale` digits after its point."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    moved = exponent + scale
    assert moved >= 0 or not any(digits[moved:]), value
    unscaled = (
        int("".join(map(str, digits))) * 10**moved if moved >= 0 else int("".join(map(str, digits))[:moved] or 0)
    )
    text = str(unscaled).rjust(scale + 1, "0")
    whole, after = (text[:-scale], text[-scale:]) if scale else (text, "")
    return ("dec", ("-" if sign and unscaled else "") + whole + ("." + after if scale else ""))


def micros(value: dt.datetime) -> int:
    """Microseconds since 1970 of a time without a zone."""
    return (value - EPOCH) // dt.timedelta(microseconds=1)


def hyphened(digits: str) -> str:
    return str(uuid.UUID(hex=digits))


def mapped(pairs: Any) -> Value:
    return ("map", tuple(sorted(pairs, key=repr)))


def of_arrow(value: pa.Scalar) -> Value:
    """An Arrow value as DuckDB gives it."""
    kind = value.type
    if not value.is_valid:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        inner = of_arrow(value.value)
        return ("uuid", hyphened(inner[1])) if "uuid" in str(kind) else inner
    if pa.types.is_boolean(kind):
        return ("bool", value.as_py())
    if pa.types.is_integer(kind):
        return ("int", value.as_py())
    if pa.types.is_decimal(kind):
        return decimal(value.as_py(), kind.scale)
    if pa.types.is_float32(kind):
        return single(value.as_py())
    if pa.types.is_float64(kind):
        return double(value.as_py())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return ("text", value.as_py())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return ("bytes", value.as_py().hex())
    if pa.types.is_date32(kind):
        return ("day", value.value)
    if pa.types.is_timestamp(kind):
        assert kind.unit == "us", kind
        return ("wall" if kind.tz is None else "at", value.value)
    if pa.types.is_map(kind):
        return mapped((of_arrow(one["key"]), of_arrow(one["value"])) for one in value.values)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", tuple(of_arrow(one) for one in value.values))
    if pa.types.is_struct(kind):
        return ("struct", tuple((field.name, of_arrow(value[field.name])) for field in kind))
    raise AssertionError(f"no plain value of {kind}")


@cache
def type_name(written: str) -> str:
    """A type as DuckDB itself writes it."""
    with duckdb.connect() as con:
        return str(con.execute(f"SELECT typeof(CAST(NULL AS {written}))").fetchall()[0][0])


def of_duckdb(path: Path, table: str) -> tuple[dict[str, str], list[Row]]:
    """The table's columns with DuckDB's types, and its rows, in any order."""
    with duckdb.connect(str(path), read_only=True) as con:
        types = {name: kind for name, kind, *_ in con.execute(f'DESCRIBE "{table}"').fetchall()}
        held = con.sql(f'SELECT * FROM "{table}"').to_arrow_table()
    return types, rows_of(held, types)


def types_of(held: pa.Table) -> dict[str, str]:
    """An Arrow table's columns with DuckDB's types."""
    with duckdb.connect() as con:
        con.register("held", held)
        return {name: kind for name, kind, *_ in con.execute("DESCRIBE held").fetchall()}


def rows_of(held: pa.Table, types: dict[str, str]) -> list[Row]:
    columns = [held.column(i) for i in range(held.num_columns)]
    names = list(types)
    return [
        {name: _of_column(types[name], column[i]) for name, column in zip(names, columns, strict=True)}
        for i in range(held.num_rows)
    ]


def _of_column(kind: str, value: pa.Scalar) -> Value:
    plain = of_arrow(value)
    return ("uuid", plain[1]) if kind == "UUID" and plain is not None else plain
