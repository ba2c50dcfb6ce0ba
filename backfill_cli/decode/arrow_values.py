"""The rules of values.py for whole columns: what Arrow parsed, as arrays of the columns' types.

Each function also says which values it cannot convert exactly, or is not sure of: their records are read again one
by one, by values.py, which says what is wrong with them.
"""

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from backfill_cli.decode import stored, texts, values
from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.decode.values import FIRST_DAY, LAST_DAY, bounds_of
from backfill_cli.formats.compute import pc
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import SparkType, decimal_of

Odd: TypeAlias = pa.Array | None
"""BOOLEAN without NULLs: whether a value has to be read again; None: none has."""

_VARIABLE = pa.struct([("scale", pa.int64()), ("value", pa.binary())])
_RAW = {"boolean": pa.bool_(), "float": pa.float64(), "double": pa.float64(), "string": pa.string()}


def read_as(kind: SparkType, how: Encoding, in_json: bool, binary: bool = False) -> pa.DataType | None:
    """What is read for a column by columns; None for one whose values only values.py can read.

    in_json: plain JSON, whose decimals are numbers, and times texts. An instant of Debezium is one or the other.
    binary: an encoding that has bytes, and decimals as bytes, rather than texts; nested types are read, too.
    """
    if how.kind == "variable":
        return _VARIABLE if binary else None
    if not isinstance(kind, str):
        return _nested_as(kind, how) if binary else None
    if binary and how.kind in ("base64", "unscaled"):
        return pa.binary()
    if how.kind in ("days", "units", "whole") or (how.kind == "plain" and kind in values.BITS):
        return pa.int64()
    if how.kind == "plain":
        return _RAW[kind]
    if how.kind == "double":
        return pa.float64()
    if how.kind == "number" or (in_json and kind.startswith("decimal")):
        # Arrow shifts a number to its scale before it looks at its digits: 76 of them, of 128 bits only 38, fit
        return pa.decimal256(*decimal_of(kind))
    return pa.string()


def _nested_as(kind: dict[str, Any], how: Encoding) -> pa.DataType | None:
    parts = {name: read_as(_part(kind, name), one, False, True) for name, one in how.inner}
    if None in parts.values():
        return None
    if kind["type"] == "struct":
        return pa.struct(list(parts.items()))
    return pa.list_(parts[""]) if kind["type"] == "array" else pa.map_(pa.string(), parts[""])


def _part(kind: dict[str, Any], name: str) -> SparkType:
    """The type of a struct's field, or of elements or values."""
    if kind["type"] == "struct":
        found: SparkType = next(one["type"] for one in kind["fields"] if one["name"] == name)
        return found
    element: SparkType = kind["elementType" if kind["type"] == "array" else "valueType"]
    return element


def converted(raw: pa.Array, kind: SparkType, how: Encoding) -> tuple[pa.Array, Odd]:
    """The column in its own type, NULL where a value is odd."""
    if not isinstance(kind, str):
        return _struct(raw, kind, how) if kind["type"] == "struct" else _lists(raw, kind, how)
    if raw.type == _VARIABLE:
        return _variable(raw, kind)
    if raw.type == pa.binary():
        return (raw, None) if how.kind == "base64" else _big_endian(raw, kind, how)
    if raw.type == pa.int64():
        if how.kind == "days":
            return _within(raw, FIRST_DAY, LAST_DAY, lambda days: days.cast(pa.int32()).cast(pa.date32()))
        if how.kind in ("units", "instant"):
            return _units(raw, how.unit or "us", kind)
        edge = 1 << (values.BITS[kind] - 1)
        return (raw, None) if kind == "long" else _within(raw, -edge, edge - 1, lambda a: a.cast(arrow_type(kind)))
    if pa.types.is_decimal(raw.type):
        precision, scale = decimal_of(kind)
        least, most = (pa.scalar(Decimal((sign, (9,) * precision, -scale)), raw.type) for sign in (1, 0))
        return _within(raw, least, most, lambda a: a.cast(arrow_type(kind)))
    if raw.type == pa.float64():
        if how.kind == "double":
            return _each(raw, kind, lambda value: values.of_double(value, kind))
        return _floats(raw, kind)
    if raw.type == pa.bool_() or kind == "string":
        return raw, None
    if how.kind == "base64":
        return _each(raw, kind, values.of_base64)
    if how.kind == "unscaled":
        scale = decimal_of(kind)[1] if how.scale is None else how.scale
        return _each(raw, kind, lambda text: values.of_unscaled(text, scale, kind))
    if how.kind == "instant":
        return _each(raw, kind, lambda text: values.of_text(text, kind))
    if texts.are_usual(raw, kind):
        try:
            return raw.cast(arrow_type(kind)), None
        except (pa.ArrowException, ValueError):
            pass
    return _each(raw, kind, lambda text: values.of_text(text, kind))


def either(a: Odd, b: Odd) -> Odd:
    return a if b is None else b if a is None else pc.or_(a, b)


def _masked(array: pa.Array, odd: pa.Array) -> tuple[pa.Array, Odd]:
    """The array without its odd values. odd: NULL where there is no value."""
    odd = pc.fill_null(odd, False)
    if not pc.any(odd).as_py():
        return array, None
    return pc.if_else(odd, pa.scalar(None, array.type), array), odd


def _within(raw: pa.Array, low: Any, high: Any, cast: Callable[[Any], Any]) -> tuple[pa.Array, Odd]:
    fitting, odd = _masked(raw, pc.or_(pc.less(raw, low), pc.greater(raw, high)))
    return cast(fitting), odd


def _units(raw: pa.Array, unit: str, kind: str) -> tuple[pa.Array, Odd]:
    low, high = bounds_of(unit)
    outside = pc.or_(pc.less(raw, low), pc.greater(raw, high))
    if unit == "ns":
        micros = pc.divide(raw, 1000)
        outside = pc.or_(outside, pc.not_equal(pc.multiply(micros, 1000), raw))
        # division rounds towards zero, which is exact where nothing is left
        fitting, odd = _masked(micros, outside)
    else:
        fitting, odd = _masked(raw, outside)
        fitting = pc.multiply(fitting, 1000) if unit == "ms" else fitting
    return fitting.cast(arrow_type(kind)), odd


def _floats(raw: pa.Array, kind: str) -> tuple[pa.Array, Odd]:
    """A zero of negative sign is odd: written as a whole number it has none."""
    bits = raw.view(pa.int64())
    odd = pc.or_(pc.invert(pc.is_finite(raw)), pc.equal(bits, pa.scalar(-(2**63), pa.int64())))
    if kind == "float":
        size = pc.abs(raw)
        tie = pc.equal(pc.bit_wise_and(bits, 0x1FFFFFFF), 0x10000000)
        subnormal = pc.and_(pc.less(size, 2.0**-126), pc.greater(size, 0.0))
        odd = pc.or_(odd, pc.or_(pc.or_(tie, subnormal), pc.greater(size, 3.4028234663852886e38)))
        raw, odd = _masked(raw, odd)
        return raw.cast(pa.float32(), safe=False), odd
    return _masked(raw, odd)


def _big_endian(raw: pa.Array, kind: str, how: Encoding) -> tuple[pa.Array, Odd]:
    scale = decimal_of(kind)[1]
    if how.scale not in (None, scale):
        return _each(raw, kind, lambda found: values.of_big_endian(found, how.scale or 0, kind))
    from backfill_cli.decode.big_endian import decimals

    made = decimals(raw, scale)
    found, odd = converted(made, kind, how)
    lost = pc.and_(pc.is_null(made), pc.is_valid(raw))
    return found, either(odd, lost) if pc.any(lost).as_py() else odd


def _variable(raw: pa.Array, kind: str) -> tuple[pa.Array, Odd]:
    """Decimals with their scale beside them, each distinct one once."""
    known: dict[tuple[int | None, bytes | None], Any] = {}
    found, odd = [], []
    for there, *pair in zip(raw.is_valid().to_pylist(), *(one.to_pylist() for one in raw.flatten()), strict=True):
        scale, value = one = (pair[0], pair[1])
        if one not in known:
            known[one] = None
            if scale is not None and value is not None:
                with suppress(Unreadable):
                    known[one] = values.of_big_endian(value, scale, kind)
        found.append(known[one])
        odd.append(there and known[one] is None)
    return stored.array(found, kind), pa.array(odd, pa.bool_()) if any(odd) else None


def _struct(raw: pa.Array, kind: dict[str, Any], how: Encoding) -> tuple[pa.Array, Odd]:
    parts = dict(zip((one.name for one in raw.type), raw.flatten(), strict=True))
    found, odd = [], None
    for name, one in how.inner:
        made, bad = converted(parts[name], _part(kind, name), one)
        found.append(made)
        odd = either(odd, bad)
    return pa.StructArray.from_arrays(found, fields=list(arrow_type(kind)), mask=raw.is_null()), odd


def _lists(raw: pa.Array, kind: dict[str, Any], how: Encoding) -> tuple[pa.Array, Odd]:
    """Arrays and maps: one with an odd entry is odd."""
    is_map = pa.types.is_map(raw.type)
    entries = raw.view(pa.list_(raw.type.field(0))) if is_map else raw
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(entries), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    flat = entries.flatten()
    ((_, one),) = how.inner
    made, odd = converted(flat.field(1) if is_map else flat, _part(kind, ""), one)
    if odd is not None:
        odd = pc.is_in(pa.array(range(len(raw)), pa.int64()), pc.list_parent_indices(entries).filter(odd))
    if is_map:
        return pa.MapArray.from_arrays(offsets, flat.field(0), made, arrow_type(kind), mask=raw.is_null()), odd
    return pa.ListArray.from_arrays(offsets, made, type=arrow_type(kind), mask=raw.is_null()), odd


def _each(raw: pa.Array, kind: str, read: Callable[[Any], Any]) -> tuple[pa.Array, Odd]:
    """One by one, each distinct value once."""
    known: dict[Any, Any] = {None: None}
    found, odd = [], []
    for value in raw.to_pylist():
        if value not in known:
            try:
                known[value] = read(value)
            except Unreadable:
                known[value] = None
                odd.append(value)
        found.append(known[value])
    made = stored.array(found, kind)
    return made, pc.fill_null(pc.is_in(raw, pa.array(odd, raw.type)), False) if odd else None
