"""Values of columns as Arrow: from a chunk that ADBC read, and from the text in the log. Both give the same.

This holds as long as both sessions have `types.SETTINGS`.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from backfill_cli.errors import BadData
from backfill_cli.upstreams.postgres.types import Column, arrow_type, is_native, spark_type

if TYPE_CHECKING:
    import pyarrow as pa

V = TypeVar("V")


def as_arrow(
    table: str,
    columns: Sequence[Column],
    values: Sequence[Sequence[V]],
    convert: Callable[[Column, Sequence[V]], "pa.Array"],
    key: Callable[[int], str],
) -> "list[pa.Array]":
    """Each column's values by `convert`, which is `from_adbc` or `from_text`. key: a row's key for messages.

    Raises BadData naming table, key, column and value.
    """
    arrays = []
    for column, given in zip(columns, values, strict=True):
        try:
            arrays.append(convert(column, given))
        except BadData:
            at, bad = _first_bad(partial(convert, column), given)
            assert isinstance(bad, BadData)
            raise BadData(f"table {table!r}, key {_short(key(at))}: {bad.message}", bad.hint) from bad
    return arrays


def _first_bad(convert: "Callable[[Any], pa.Array]", values: Any) -> tuple[int, Exception]:
    """The place of the first value that cannot be converted, and why; there is one. Found by bisection."""
    low, high = 0, len(values)
    while low < high:
        half = (low + high + 1) // 2
        try:
            convert(values[low:half])
            low = half
        except (BadData, ValueError) as bad:
            if half - low == 1:
                return low, bad
            high = half
    raise AssertionError("values that are refused together, and none alone")


def from_adbc(column: Column, array: "pa.Array | pa.ChunkedArray") -> "pa.Array":
    """What ADBC read of `selected`, as the Spark field's Arrow type.

    Raises BadData naming column and value for a date or timestamp that is infinite or outside the years 1 to 9999,
    NaN in a decimal, and an array that is not one-dimensional with indexes from 1.
    """
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    target = arrow_type(column)
    if pa.types.is_temporal(target):
        _require_in_range(column, array)
    if array.type == target:
        return array
    return array.cast(target) if is_native(column) else _parsed(column, array.cast(pa.string()), target)


def from_text(column: Column, values: Sequence[str | bytes | None]) -> "pa.Array":
    """The same from the text that pgoutput sends (str, or its UTF-8)."""
    import pyarrow as pa

    try:
        text = pa.array(values, pa.string())
    except pa.ArrowInvalid as exc:
        raise BadData(
            f"column {column.name!r}: {exc}", "the database's encoding must be UTF8, or convertible to it"
        ) from exc
    return _parsed(column, text, arrow_type(column))


def _parsed(column: Column, text: "pa.StringArray", target: "pa.DataType") -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(target):
        return text
    if pa.types.is_boolean(target):
        return pc.equal(text, "t")
    if pa.types.is_binary(target):
        return pa.array([None if v is None else bytes.fromhex(v[2:]) for v in text.to_pylist()], target)
    if pa.types.is_list(target):
        return _parsed_arrays(column, text, target)
    try:
        return text.cast(target)
    except pa.ArrowInvalid:
        at, _ = _first_bad(lambda part: part.cast(target), text)
        raise _bad(column, str(text[at].as_py())) from None


def _parsed_arrays(column: Column, text: "pa.StringArray", target: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    flat: list[str | None] = []
    ends, nulls = [0], []
    for value in text.to_pylist():
        if value is not None:
            try:
                flat += elements(value, column.delimiter)
            except NotOneDimensional:
                raise _no_list(column, value) from None
        nulls.append(value is None)
        ends.append(len(flat))
    items = _parsed(column, pa.array(flat, pa.string()), target.value_type)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, target, mask=pa.array(nulls, pa.bool_()))


_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719162, 2932896
"""0001-01-01 and 9999-12-31, in days since 1970."""


def _require_in_range(column: Column, array: "pa.Array") -> None:
    """All are of the years 1 to 9999. Raises BadData.

    PostgreSQL's go from 4713 BC to beyond 200,000; its infinities are the largest and smallest whole numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_date = pa.types.is_date(array.type)
    numbers = array.cast(pa.int32()).cast(pa.int64()) if is_date else array.cast(pa.int64())
    found = pc.min_max(numbers).as_py()
    first, last = (_FIRST_DAY, _LAST_DAY) if is_date else (_FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)
    for value in (found["min"], found["max"]):
        if value is not None and not first <= value <= last:
            raise _bad(column, _shown(value, is_date, first))


def _shown(value: int, is_date: bool, first: int) -> str:
    """What a number from ADBC stands for: ADBC adds the years from 1970 to 2000 without checking for overflow."""
    bits, offset = (32, 10957) if is_date else (64, 10957 * _DAY_US)
    half = 1 << (bits - 1)
    stored = (value - offset + half) % (2 * half) - half
    named = {half - 1: "infinity", -half: "-infinity"}
    return named.get(stored, "before the year 1" if stored < 0 else "after the year 9999")


def _no_list(column: Column, value: str) -> BadData:
    return BadData(
        f"column {column.name!r} ({column.type_name}): {_short(value)} is not a list of one dimension, from 1 on",
        "correct the row upstream, or keep such values in a column of text or jsonb",
    )


def _bad(column: Column, value: str) -> BadData:
    kind = spark_type(column)
    inner = kind["elementType"] if isinstance(kind, dict) else kind
    meant = f"{inner} of the years 1 to 9999" if inner in ("date", "timestamp", "timestamp_ntz") else inner
    return BadData(
        f"column {column.name!r} ({column.type_name}): {_short(value)} is not a valid {meant}",
        "correct the row upstream; or keep such values in a column of text, or of numeric without a scale",
    )


def _short(value: str) -> str:
    """For a message."""
    return value if len(value) <= 60 else f"{value[:60]}…"


class NotOneDimensional(ValueError):
    """An array with several dimensions, or whose first index is not 1: no list is equal to it."""


def elements(text: str, delimiter: str = ",") -> list[str | None]:
    """The text of each element. Raises NotOneDimensional."""
    if text[0] != "{":
        raise NotOneDimensional(text)  # "[2:3]={…}"
    inner = text[1:-1]
    if inner[:1] == "{":
        raise NotOneDimensional(text)
    if '"' in inner:
        return _quoted(inner, delimiter)
    if not inner:
        return []
    items: list[str | None] = [*inner.split(delimiter)]
    return [None if item == "NULL" else item for item in items] if "NULL" in inner else items


_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _quoted(inner: str, delimiter: str) -> list[str | None]:
    found: list[str | None] = []
    for item in re.finditer(rf'"((?:[^"\\]|\\.)*)"|[^{re.escape(delimiter)}"]+', inner, re.DOTALL):
        if item[1] is not None:
            found.append(_ESCAPED.sub(r"\1", item[1]))
        else:
            found.append(None if item[0] == "NULL" else item[0])
    return found
