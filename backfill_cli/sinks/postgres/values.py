"""Converts staged Arrow columns to what PostgreSQL's binary COPY reads, and values it returns to Spark's types.

ADBC encodes a column by its Arrow type; the server decodes the bytes by the type of its own column. So dates and
times are sent as the integers that PostgreSQL stores, infinities included, which ADBC's own encoding refuses.
"""

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backfill_cli.contracts import own
from backfill_cli.sinks.sql.dialect import Column

DAYS_TO_2000 = 10_957
MICROS_TO_2000 = DAYS_TO_2000 * 86_400_000_000
"""PostgreSQL counts from 2000, Spark and Parquet from 1970."""
ENDLESS_DAYS, ENDLESS_MICROS = 2**31 - 1, 2**63 - 1
"""Infinity as DuckDB and Parquet store it, negated for -infinity; PostgreSQL's -infinity is one less."""
UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


class Refused(Exception):
    """A staged value that PostgreSQL cannot hold. row: its index among the rows of these files, from 0."""

    def __init__(self, row: int, column: str, what: str, paths: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.row, self.column, self.what, self.paths = row, column, what, paths


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type of the column's Spark type."""
    kind = _scalar(column.spark)
    return pa.list_(kind) if column.array else kind


def _scalar(spark: str) -> pa.DataType:
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", spark):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    simple = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return simple.get(spark, pa.string())


def sent_schema(columns: tuple[Column, ...], extra: tuple[str, ...] = ()) -> pa.Schema:
    """The Arrow schema of what is sent: the columns, then those of `extra`, which only staged files have."""
    staged = {own.OP: pa.string(), own.UNSENT: pa.list_(pa.string())}
    fields = [(column.name, _sent_type(column)) for column in columns]
    return pa.schema([*fields, *((name, staged[name]) for name in extra)])


def _sent_type(column: Column) -> pa.DataType:
    if column.array:
        return pa.list_(pa.int16()) if column.spark == "byte" else arrow_type(column)
    raw = {
        "byte": pa.int16(),
        "date": pa.int32(),
        "timestamp": pa.int64(),
        "timestamp_ntz": pa.int64(),
        "uuid": pa.binary(),
    }
    return raw.get(column.spark) or arrow_type(column)


def sent(column: Column, values: pa.Array) -> pa.Array:
    """A staged column as it is sent. Raises Refused for a value that the type cannot hold, with its row there."""
    given = values.cast(arrow_type(column))
    if column.array:
        return given.cast(_sent_type(column))
    match column.spark:
        case "byte":
            return given.cast(pa.int16())
        case "date":
            return _since_2000(column, given.cast(pa.int32()), DAYS_TO_2000, ENDLESS_DAYS)
        case "timestamp" | "timestamp_ntz":
            return _since_2000(column, given.cast(pa.int64()), MICROS_TO_2000, ENDLESS_MICROS)
        case "uuid":
            return _uuids(column, given)
        case _:
            return given


def _since_2000(column: Column, given: pa.Array, shift: int, endless: int) -> pa.Array:
    if not len(given) or given.null_count == len(given):
        return given
    extremes = pc.min_max(given).as_py()
    if -endless + shift < extremes["min"] and extremes["max"] < endless:
        return pc.subtract(given, pa.scalar(shift, given.type))
    # Infinities are kept; a finite value that the subtraction cannot represent is out of PostgreSQL's range.
    ends = pc.or_(pc.equal(given, endless), pc.equal(given, -endless))
    outside = pc.and_(pc.less_equal(given, -endless + shift), pc.invert(ends))
    if pc.any(outside).as_py():
        row = pc.index(outside, True).as_py()
        raise Refused(
            row, column.name, f"{given[row].as_py()} since 1970 is before PostgreSQL's first {column.type}"
        )
    kept = pc.if_else(
        pc.equal(given, endless), pa.scalar(endless, given.type), pa.scalar(-endless - 1, given.type)
    )
    moved = pc.subtract(pc.if_else(ends, pa.scalar(shift, given.type), given), pa.scalar(shift, given.type))
    return pc.if_else(ends, kept, moved)


def _uuids(column: Column, given: pa.Array) -> pa.Array:
    plain = pc.match_substring_regex(given, UUID)
    if pc.any(pc.invert(plain)).as_py():
        row = pc.index(plain, False).as_py()
        raise Refused(row, column.name, f"{given[row].as_py()!r} is not a UUID")
    bare = pc.replace_substring(given, "-", "")
    return pa.array([None if text is None else bytes.fromhex(text) for text in bare.to_pylist()], pa.binary())


def selected(column: Column, of: str) -> str:
    """SQL that reads a column so that ADBC delivers it exactly to `received`: dates and times as numbers."""
    match column.spark:
        case "uuid" | "json":
            return f"{of}::text"
        case "date" | "timestamp" | "timestamp_ntz" if not column.array:
            return since_1970(column.spark, of)
        case spark if spark.startswith("decimal("):
            return f"{of}::text[]" if column.array else f"{of}::text"
        case _:
            return of


def since_1970(spark: str, of: str) -> str:
    """SQL of a date in days, or a timestamp in microseconds, since 1970; infinities as Parquet stores them."""
    if spark == "date":
        number, endless = f"({of} - DATE '1970-01-01')::bigint", ENDLESS_DAYS
    else:
        number, endless = f"(extract(epoch FROM {of}) * 1000000)::bigint", ENDLESS_MICROS
    ends = f"CASE WHEN {of} > '1970-01-01' THEN {endless} ELSE {-endless} END"
    return f"CASE WHEN pg_catalog.isfinite({of}) THEN {number} WHEN {of} IS NOT NULL THEN {ends} END"


def received(column: Column, values: Any) -> pa.Array:
    """What `selected` read, as Spark's type. Raises pyarrow's error for a value that no job can have written."""
    plain = values.storage if isinstance(values, pa.ExtensionArray) else values
    kind = arrow_type(column)
    if pa.types.is_date32(kind):
        return plain.cast(pa.int32()).cast(kind)
    return plain.cast(kind)
