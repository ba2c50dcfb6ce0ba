"""Rows of Arrow batches as JSON objects, by columns; only bytes, which become base64, are read one by one.

Whole numbers, decimals and floats are numbers with all their digits; times are texts in ISO 8601, with `Z` where
they are instants; bytes are base64; NaN and the infinities are texts; maps are objects. What is NULL is null.
"""

import datetime as dt
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from backfill_cli.formats.compute import pc
from backfill_cli.sinks.kafka.years import DAY, END, FIRST

_ESCAPED = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
"""In this order: a backslash that is written for another character is not doubled."""

_DAYS_OF_400_YEARS = 146_097

_NULL = pa.scalar("null")
_EMPTY = pa.scalar("")


def objects(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """STRING: an object of these columns for each row."""
    return _objects([(name, batch.column(name)) for name in names], batch.num_rows)


def _objects(columns: Sequence[tuple[str, pa.Array]], rows: int) -> pa.Array:
    if not columns:
        return pa.repeat(pa.scalar("{}"), rows)
    parts: list[Any] = []
    for name, column in columns:
        parts += [pa.scalar(f"{',' if parts else '{'}{_quoted_name(name)}:"), texts(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), _EMPTY)


def _quoted_name(name: str) -> str:
    return str(_quoted(pa.array([name]))[0])


def texts(column: pa.Array) -> pa.Array:
    """STRING without NULLs: each value as JSON."""
    kind = column.type
    write = next(write for of, write in _WRITERS if of(kind))
    told = write(column)
    return pc.coalesce(told, _NULL) if column.null_count else told


def _quoted(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    if pc.any(pc.match_substring_regex(text, r'[\x00-\x1f"\\]')).as_py():
        for char, escaped in _ESCAPED.items():
            text = pc.replace_substring(text, char, escaped)
        for code in range(32) if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py() else ():
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return _in_quotes(text)


def _in_quotes(text: pa.Array) -> pa.Array:
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, text, quote, _EMPTY)


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _decimals(column: pa.Array) -> pa.Array:
    """Without an exponent, which Arrow writes for small ones."""
    text = column.cast(pa.string())
    small = pc.match_substring(text, "E")
    if not pc.any(small).as_py():
        return text
    told = [None if value is None else f"{value:f}" for value in column.to_pylist()]
    return pa.array(told, pa.string())


def _floats(column: pa.Array) -> pa.Array:
    """With a point or an exponent: -0 would be read as a whole number without a sign."""
    text = column.cast(pa.string())
    whole = pc.match_substring_regex(text, "^-?[0-9]+$")
    text = pc.if_else(whole, pc.binary_join_element_wise(text, pa.scalar(".0"), _EMPTY), text)
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() is not False:
        return text
    word = pc.if_else(pc.is_nan(column), "NaN", pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity"))
    return pc.if_else(finite, text, _in_quotes(word))


def _times(column: pa.Array) -> pa.Array:
    end = pa.scalar('"' if column.type.tz is None else 'Z"')
    return pc.binary_join_element_wise(pa.scalar('"'), moments(column), end, _EMPTY)


def moments(column: pa.Array) -> pa.Array:
    """STRING: `2026-11-26T09:00:00.000000`, by the clock of UTC where there is a zone; in any year."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    # without its zone, which Arrow would look up for each value
    text = pc.replace_substring(micros.cast(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1)
    within = pc.and_(pc.greater_equal(micros, FIRST), pc.less(micros, END))
    if pc.all(within).as_py() is not False:
        return text
    far = pa.array([None if value is None else _moment(value) for value in micros.to_pylist()], pa.string())
    return pc.if_else(within, text, far)


def _dates(column: pa.Array) -> pa.Array:
    days = column.cast(pa.int32()).cast(pa.int64())
    text = column.cast(pa.string())
    within = pc.and_(pc.greater_equal(days, FIRST // DAY), pc.less(days, END // DAY))
    if pc.all(within).as_py() is False:
        far = pa.array([None if value is None else _day(value) for value in days.to_pylist()], pa.string())
        text = pc.if_else(within, text, far)
    return _in_quotes(text)


def _moment(micros: int) -> str:
    """A time in a year that Arrow does not write."""
    days, within = divmod(micros, DAY)
    at = dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=within)
    return f"{_day(days)}T{at:%H:%M:%S.%f}"


def _day(days: int) -> str:
    """A date in such a year: the calendar repeats every 400 years."""
    cycles, day = divmod(days, _DAYS_OF_400_YEARS)
    near = dt.date(1970, 1, 1) + dt.timedelta(days=day)
    year = near.year + 400 * cycles
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{near:%m-%d}"


def _bytes(column: pa.Array) -> pa.Array:
    told = [None if value is None else b64encode(value) for value in column.to_pylist()]
    return _in_quotes(pa.array(told, pa.binary()).cast(pa.string()))


def _structs(column: pa.Array) -> pa.Array:
    fields = [(column.type.field(at).name, column.field(at)) for at in range(column.type.num_fields)]
    told = _objects(fields, len(column))
    return pc.if_else(column.is_valid(), told, pa.scalar(None, pa.string())) if column.null_count else told


def _lists(column: pa.Array) -> pa.Array:
    return _joined(column, texts(column.flatten()), "[", "]")


def _maps(column: pa.Array) -> pa.Array:
    first, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
    keys, items = (part.slice(first, end - first) for part in (column.keys, column.items))
    named = texts(keys)
    if not pa.types.is_string(keys.type):
        named = pc.if_else(pc.starts_with(named, '"'), named, _in_quotes(named))
    members = pc.binary_join_element_wise(named, pa.scalar(":"), texts(items), _EMPTY)
    return _joined(column, members, "{", "}")


def _joined(column: pa.Array, items: pa.Array, begin: str, end: str) -> pa.Array:
    """The items of each of the column's lists, or maps, between commas."""
    as_list = column.cast(pa.list_(column.type.field(0))) if pa.types.is_map(column.type) else column
    sizes = pc.coalesce(pc.list_value_length(as_list), pa.scalar(0, pa.int32()))
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    told = pc.binary_join(pa.ListArray.from_arrays(offsets, items), pa.scalar(","))
    told = pc.binary_join_element_wise(pa.scalar(begin), told, pa.scalar(end), _EMPTY)
    return pc.if_else(column.is_valid(), told, pa.scalar(None, pa.string())) if column.null_count else told


_of = pa.types
_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (lambda kind: _of.is_string(kind) or _of.is_large_string(kind), _quoted),
    (lambda kind: _of.is_integer(kind) or _of.is_boolean(kind), _plain),
    (_of.is_decimal, _decimals),
    (_of.is_floating, _floats),
    (_of.is_timestamp, _times),
    (_of.is_date, _dates),
    (lambda kind: _of.is_binary(kind) or _of.is_large_binary(kind), _bytes),
    (_of.is_struct, _structs),
    (_of.is_map, _maps),
    (lambda kind: _of.is_list(kind) or _of.is_large_list(kind), _lists),
)
