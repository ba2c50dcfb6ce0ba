"""Avro records by columns: what is asked for of many records of one schema, read by cursors.

All cursors go through the schema together: what is asked for becomes Arrow arrays, everything else is passed over.
What a cursor cannot read fails, and is left to documents.py, which says why. So is what takes more than `DEEPEST`
records within each other, of a type that contains itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from backfill_cli.decode.avro.connect import DURATION
from backfill_cli.decode.avro.extents import Cut, Extents
from backfill_cli.decode.avro.schema import Type
from backfill_cli.decode.cursors import Cursors, Ints, Mask, in_order, slices, spread
from backfill_cli.formats.schemas import Unsupported

DEEPEST = 100
"""Records within each other that are read: so many steps of Python's stack are always there."""

_FEW = 32
"""So many records or less, of which each has another element, are read one after the other."""

_LEAVES = {
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}


def read(kind: Type, payloads: Sequence[bytes], asked: pa.DataType) -> tuple[pa.Array, Sequence[int]]:
    """(what is asked for of each record that could be read; the indices of those, rising).

    A member that the schema does not have is NULL. `check` has to agree with what is asked for.
    """
    parts: list[Any] = []
    kept: list[Mask] = []
    for part in slices(payloads):
        cursors = Cursors(payloads[part])
        found: Any = _values(kind, asked, cursors, 0)
        good = ~(cursors.failed | cursors.left)
        kept.append(good)
        parts.append(found if good.all() else found.filter(pa.array(good)))
    rows = pa.concat_arrays(parts) if parts else pa.nulls(0, asked)
    if len(rows) == len(payloads):
        return rows, range(len(payloads))
    return rows, np.flatnonzero(np.concatenate(kept)).tolist()


def skip(kind: Type, cursors: Cursors) -> None:
    """Each cursor is behind the next value."""
    _values(kind, None, cursors, 0)


def check(kind: Type, wanted: pa.DataType, at: str = "") -> None:
    """Raises Unsupported, naming the member, if a type's values are not read as what is asked for."""
    if kind.kind == "union":
        branches = kind.branches
        if len(branches) == 1:
            return check(branches[0][2], wanted, at)
        if branches and pa.types.is_struct(wanted):
            for _, name, one in branches:
                if (inner := _members(wanted).get(name)) is not None:
                    check(one, inner, f"{at}.{name}")
            return None
    if kind.kind == "record" and pa.types.is_struct(wanted):
        for field in kind.fields:
            if (inner := _members(wanted).get(field.name)) is not None:
                check(field.type, inner, f"{at}.{field.name}")
        return None
    if kind.kind == "array" and pa.types.is_list(wanted):
        return check(kind.parts[0], wanted.value_type, f"{at}[]")
    if kind.kind == "map" and pa.types.is_map(wanted) and wanted.key_type == pa.string():
        return check(kind.parts[0], wanted.item_type, f"{at}{{}}")
    if kind.kind == "null" or _LEAVES.get(kind.kind) == wanted:
        return None
    if kind.kind == "fixed" and kind.logical == "uuid" and wanted == pa.string():
        return None
    if kind.kind == "fixed" and kind.logical == "duration" and pa.types.is_struct(wanted):
        return None
    told = kind.logical or kind.kind
    raise Unsupported(f"'{at.removeprefix('.')}': {told} is not read as {wanted}")


def _values(kind: Type, wanted: pa.DataType | None, cursors: Cursors, depth: int) -> pa.Array | None:
    """The next value of each record, as asked for; None for what is only passed over."""
    if wanted is None and not len(cursors):
        return None
    match kind.kind:
        case "record":
            return _record(kind, wanted, cursors, depth)
        case "union":
            return _union(kind, wanted, cursors, depth)
        case "array" | "map":
            return _blocks(kind, wanted, cursors, depth)
        case "string":
            return _text(wanted, cursors)
        case "bytes" | "fixed":
            return _bytes(kind, wanted, cursors)
        case "enum":
            return _enum(kind, wanted, cursors)
        case "null":
            return None if wanted is None else pa.nulls(len(cursors), wanted)
    return _number(kind, wanted, cursors)


def _number(kind: Type, wanted: pa.DataType | None, cursors: Cursors) -> pa.Array | None:
    if kind.kind in ("float", "double"):
        with np.errstate(invalid="ignore"):  # a NaN that signals
            return pa.array(cursors.fixed("<f4" if kind.kind == "float" else "<f8").astype(np.float64))
    if kind.kind == "boolean":
        byte = cursors.fixed("u1")
        cursors.fail(byte > 1)
        return pa.array(byte == 1)
    number = cursors.zigzag()
    if kind.kind == "int":
        cursors.fail(number != number.astype(np.int32))
    return pa.array(number)


def _text(wanted: pa.DataType | None, cursors: Cursors) -> pa.Array | None:
    sizes = cursors.zigzag()
    if wanted is not None:
        return cursors.texts(sizes)
    cursors.skip(sizes)
    return None


def _bytes(kind: Type, wanted: pa.DataType | None, cursors: Cursors) -> pa.Array | None:
    sizes = cursors.zigzag() if kind.kind == "bytes" else np.full(len(cursors), kind.size, np.int64)
    if wanted is None:
        cursors.skip(sizes)
        return None
    if kind.logical == "uuid" and wanted == pa.string():
        return _uuids(cursors)
    if kind.logical == "duration":
        parts = {name: pa.array(cursors.fixed("<u4").astype(np.int64)) for name in DURATION}
        return _struct(wanted, parts, len(cursors))
    return cursors.binary(sizes)


_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_HYPHENS = (8, 13, 18, 23)
_DIGITS = [i for i in range(36) if i not in _HYPHENS]


def _uuids(cursors: Cursors) -> pa.Array:
    raw = np.stack([cursors.fixed("u1") for _ in range(16)], axis=1)
    told = np.full((len(raw), 36), ord("-"), np.uint8)
    told[:, _DIGITS[::2]] = _HEX[raw >> 4]
    told[:, _DIGITS[1::2]] = _HEX[raw & 15]
    offsets = np.arange(0, 36 * len(raw) + 1, 36, dtype=np.int32)
    return pa.StringArray.from_buffers(len(raw), pa.py_buffer(offsets), pa.py_buffer(told))


def _enum(kind: Type, wanted: pa.DataType | None, cursors: Cursors) -> pa.Array | None:
    index = cursors.zigzag()
    wrong = (index < 0) | (index >= len(kind.symbols))
    cursors.fail(wrong)
    if wanted is None:
        return None
    index[wrong] = len(kind.symbols)
    return pa.array([*kind.symbols, ""], pa.string()).take(pa.array(index))


def _record(kind: Type, wanted: pa.DataType | None, cursors: Cursors, depth: int) -> pa.Array | None:
    if wanted is None and depth > DEEPEST:
        cursors.fail(np.ones(len(cursors), np.bool_))
        return None
    asked = _members(wanted)
    parts = {one.name: _values(one.type, asked.get(one.name), cursors, depth + 1) for one in kind.fields}
    return None if wanted is None else _struct(wanted, parts, len(cursors))


def _union(kind: Type, wanted: pa.DataType | None, cursors: Cursors, depth: int) -> pa.Array | None:
    branch = cursors.zigzag()
    cursors.fail((branch < 0) | (branch >= len(kind.parts)))
    alone = len(kind.branches) == 1
    asked = _members(None if alone else wanted)
    parts: dict[str, pa.Array | None] = {}
    for i, name, one in kind.branches:
        inner = wanted if alone else asked.get(name)
        if len(cursors) and (branch == i).all():
            parts[name] = _values(one, inner, cursors, depth)
            continue
        some = np.flatnonzero((branch == i) & ~cursors.failed)
        part = cursors.take(some)
        found = _values(one, inner, part, depth)
        cursors.put(some, part)
        parts[name] = None if inner is None else spread(found, some, len(cursors))
    if wanted is None:
        return None
    if not parts:
        return pa.nulls(len(cursors), wanted)
    if alone:
        return next(iter(parts.values()))
    none = [i for i, one in enumerate(kind.parts) if one.kind == "null"]
    return _struct(wanted, parts, len(cursors), np.isin(branch, none) if none else None)


def _blocks(kind: Type, wanted: pa.DataType | None, cursors: Cursors, depth: int) -> pa.Array | None:
    """Arrays and maps: blocks of elements, each with their number before it, the last one without any."""
    rounds: list[Ints] = []
    values: list[tuple[pa.Array | None, pa.Array | None]] = []
    going = np.flatnonzero(~cursors.failed)
    while len(going):
        part = cursors.take(going)
        if len(going) <= _FEW:
            some = _rest(kind, wanted, part, np.arange(len(going)), None, depth)
            cursors.put(going, part)
            rounds.append(going[some.of])
            values.append(some.values)
            break
        counts, end = _block(part)
        if kind.kind == "array" and kind.parts[0].without_bytes:
            part.fail(counts > 0)
        members, left = np.flatnonzero((counts > 0) & ~part.failed), counts.copy()
        while len(members):
            if len(members) <= _FEW:
                some = _rest(kind, wanted, part, members, left, depth)
                rounds.append(going[members[some.of]])
                values.append(some.values)
                break
            one = part.take(members)
            keys = _text(None if wanted is None else pa.string(), one) if kind.kind == "map" else None
            found = _values(kind.parts[0], _element(wanted), one, depth)
            if wanted is not None:
                rounds.append(going[members])
                values.append((keys, found))
            part.put(members, one)
            left[members] -= 1
            members = members[(left[members] > 0) & ~part.failed[members]]
        part.fail((end >= 0) & (part.at != end))
        cursors.put(going, part)
        going = going[(counts > 0) & ~part.failed]
    return None if wanted is None else _lists(wanted, rounds, values, cursors)


@dataclass(frozen=True, slots=True)
class _Rest:
    """of: whose each value is. values: (keys, values), as `_lists` takes them."""

    of: Ints
    values: tuple[pa.Array | None, pa.Array | None]


def _rest(
    kind: Type, wanted: pa.DataType | None, cursors: Cursors, those: Ints, left: Ints | None, depth: int
) -> _Rest:
    """The next so many elements of these records, or all blocks of their arrays; cursors are behind them then."""
    starts: list[Ints] = []
    ends: list[Ints] = []
    of: list[Ints] = []
    wrong = np.zeros(len(cursors), np.bool_)
    at = cursors.at.copy()
    for i in those.tolist():
        found = Extents(kind, cursors.octets, int(at[i]), int(cursors.end[i]))
        try:
            found.blocks() if left is None else found.some(int(left[i]))
        except Cut:
            wrong[i] = True
            continue
        at[i] = found.at
        starts += found.starts
        ends += found.ends
        of.append(np.full(sum(map(len, found.ends)), i, np.int64))
    cursors.at = at
    cursors.fail(wrong)
    none: Ints = np.zeros(0, np.int64)
    begin, whose = np.concatenate([none, *starts]), np.concatenate([none, *of])
    inner = cursors.over(begin, np.concatenate([none, *ends]) - begin)
    keys = _text(None if wanted is None else pa.string(), inner) if kind.kind == "map" else None
    found_values = _values(kind.parts[0], _element(wanted), inner, depth)
    bad = np.zeros(len(cursors), np.bool_)
    bad[whose[inner.failed | inner.left]] = True
    cursors.fail(bad)
    return _Rest(np.searchsorted(those, whose), (keys, found_values))


def _block(cursors: Cursors) -> tuple[Ints, Ints]:
    """(the number of elements, where the block ends, -1 where it does not say so) of each record's next block."""
    counts = cursors.zigzag()
    end = np.full(len(cursors), -1, np.int64)
    some = np.flatnonzero(counts < 0)
    if len(some):
        part = cursors.take(some)
        sizes = part.zigzag()
        part.fail((sizes < 0) | (sizes > part.end - part.at))
        cursors.put(some, part)
        end[some] = part.at + sizes
        counts[some] = -counts[some]
    cursors.fail((counts < 0) | (counts > cursors.end - cursors.at))  # each takes a byte; the least number is odd
    counts[cursors.failed] = 0
    end[cursors.failed] = -1
    return counts, end


def _element(wanted: pa.DataType | None) -> pa.DataType | None:
    if wanted is None:
        return None
    return wanted.item_type if pa.types.is_map(wanted) else wanted.value_type


def _lists(
    wanted: pa.DataType,
    rounds: Sequence[Ints],
    values: Sequence[tuple[pa.Array | None, pa.Array | None]],
    cursors: Cursors,
) -> pa.Array:
    ends, order = in_order(rounds, len(cursors))
    offsets, taken = pa.array(ends, pa.int32()), pa.array(order)
    none = pa.nulls(0, _element(wanted))
    items = pa.concat_arrays([none, *(found for _, found in values)]).take(taken)
    if not pa.types.is_map(wanted):
        return pa.ListArray.from_arrays(offsets, items, type=wanted)
    keys = pa.concat_arrays([pa.nulls(0, pa.string()), *(found for found, _ in values)]).take(taken)
    _refuse_twice(keys, ends, cursors)
    return pa.MapArray.from_arrays(offsets, keys, items, wanted)


def _refuse_twice(keys: pa.Array, ends: Ints, cursors: Cursors) -> None:
    """A record fails that has a key twice in a map. ends: the offsets of the records' maps."""
    known = keys.dictionary_encode()
    code = known.indices.to_numpy().astype(np.int64)
    record = np.repeat(np.arange(len(cursors)), np.diff(ends))
    pairs = np.sort(record * len(known.dictionary) + code)
    twice = np.zeros(len(cursors), np.bool_)
    twice[pairs[1:][pairs[1:] == pairs[:-1]] // max(len(known.dictionary), 1)] = True
    cursors.fail(twice)


def _struct(
    wanted: pa.DataType, parts: dict[str, pa.Array | None], count: int, none: np.ndarray | None = None
) -> pa.Array:
    """A struct of what was read, NULL for members that the schema does not have. none: where it is NULL itself."""
    arrays = [pa.nulls(count, one.type) if (found := parts.get(one.name)) is None else found for one in wanted]
    mask = None if none is None else pa.array(none)
    if not arrays:
        return pa.array([{}] * count, wanted)
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=mask)


@cache
def _members(wanted: pa.DataType | None) -> dict[str, pa.DataType]:
    return {} if wanted is None else {one.name: one.type for one in wanted}
