"""Where the elements of one record's array or map begin and end: found one after the other, read all at once.

What many records have in common is read by cursors, a round for each element; an array that is longer than those
of the other records would take as many rounds by itself. Raises Cut for bytes that are no such elements.
"""

from collections.abc import Callable, Mapping

import numpy as np

from backfill_cli.decode.avro.schema import Type
from backfill_cli.decode.connect import DEEPEST
from backfill_cli.decode.cursors import Ints, Values

_LONGEST = 10
"""Bytes of a number."""


class Cut(Exception):
    """Bytes that end too early, or are no value; documents.py says which."""


class Extents:
    """Of the arrays or maps of a type in one record. at: behind the elements so far, starts and ends: theirs."""

    def __init__(self, kind: Type, octets: Values, at: int, end: int) -> None:
        self._kind, self._octets, self._raw = kind, octets, memoryview(octets)  # type: ignore[arg-type]
        self.at, self._end = at, end
        self.starts: list[Ints] = []
        self.ends: list[Ints] = []

    def blocks(self) -> None:
        """Adds the elements of all blocks, up to the end of the array."""
        while True:
            count, at = _block(self._raw, self.at, self._end)
            self.at, stop = at[0], at[1]
            if not count:
                return
            self.some(count)
            if stop not in (None, self.at):
                raise Cut

    def some(self, count: int) -> None:
        """Adds the next so many elements."""
        part = self._kind.parts[0]
        if self._kind.kind == "array" and part.without_bytes:
            raise Cut
        if self._kind.kind == "array" and part.kind in _NUMBERS:
            found = self._octets[self.at : min(self._end, self.at + _LONGEST * count)]
            ends = np.flatnonzero(found < 0x80)[:count] + self.at + 1
            self._add(np.concatenate([[self.at], ends[:-1]]), ends, count)
        elif self._kind.kind == "array" and (width := _width(part)):
            starts = self.at + width * np.arange(count)
            self._add(starts, starts + width, count)
        else:
            at, found_ends = self.at, []
            for _ in range(count):
                if self._kind.kind == "map":
                    at = _sized(part, self._raw, at, self._end, 0)
                at = _end(part, self._raw, at, self._end, 0)
                found_ends.append(at)
            self._add(np.array([self.at, *found_ends[:-1]], np.int64), np.array(found_ends, np.int64), count)

    def _add(self, starts: Ints, ends: Ints, count: int) -> None:
        if len(ends) < count or ends[-1] > self._end:
            raise Cut
        self.starts.append(starts)
        self.ends.append(ends)
        self.at = int(ends[-1])


def _number(raw: memoryview, at: int, end: int) -> tuple[int, int]:
    """(the number that begins at `at`, where it ends)"""
    found = shift = 0
    while at < end and shift < 7 * _LONGEST:
        byte = raw[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
    raise Cut


def _block(raw: memoryview, at: int, end: int) -> tuple[int, tuple[int, int | None]]:
    """(the number of elements, (where the first one begins, where the block says that it ends))"""
    count, at = _number(raw, at, end)
    stop = None
    if count < 0:
        count = -count
        size, at = _number(raw, at, end)
        stop = at + size
        if not at <= stop <= end:
            raise Cut
    if count > end - at:  # each takes a byte
        raise Cut
    return count, (at, stop)


# where a value ends that begins at `at`


def _end(kind: Type, raw: memoryview, at: int, end: int, depth: int) -> int:
    return _ENDS[kind.kind](kind, raw, at, end, depth)


def _varint(kind: Type, raw: memoryview, at: int, end: int, depth: int) -> int:
    while at < end:
        at += 1
        if raw[at - 1] < 0x80:
            return at
    raise Cut


def _sized(kind: Type, raw: memoryview, at: int, end: int, depth: int) -> int:
    if at < end and (size := raw[at]) < 0x80:  # most are short
        size, at = (size >> 1) ^ -(size & 1), at + 1
    else:
        size, at = _number(raw, at, end)
    if not 0 <= size <= end - at:
        raise Cut
    return at + size


def _record(kind: Type, raw: memoryview, at: int, end: int, depth: int) -> int:
    if depth > DEEPEST:
        raise Cut
    for one in kind.fields:
        at = _ENDS[one.type.kind](one.type, raw, at, end, depth + 1)
    return at


def _union(kind: Type, raw: memoryview, at: int, end: int, depth: int) -> int:
    branch, at = _number(raw, at, end)
    if not 0 <= branch < len(kind.parts):
        raise Cut
    return _end(kind.parts[branch], raw, at, end, depth)


def _elements(kind: Type, raw: memoryview, at: int, end: int, depth: int) -> int:
    part = kind.parts[0]
    while True:
        count, (at, stop) = _block(raw, at, end)
        if not count:
            return at
        if kind.kind == "array" and part.without_bytes:
            raise Cut
        for _ in range(count):
            if kind.kind == "map":
                at = _sized(part, raw, at, end, depth)
            at = _end(part, raw, at, end, depth)
        if stop not in (None, at):
            raise Cut


def _fixed(kind: Type, raw: memoryview, at: int, end: int, depth: int) -> int:
    at += _width(kind)
    if at > end:
        raise Cut
    return at


def _width(kind: Type) -> int:
    return kind.size if kind.kind == "fixed" else _WIDTHS.get(kind.kind, 0)


_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "enum")
_ENDS: Mapping[str, Callable[[Type, memoryview, int, int, int], int]] = {
    **dict.fromkeys(_NUMBERS, _varint),
    **dict.fromkeys(("boolean", "float", "double", "fixed", "null"), _fixed),
    **dict.fromkeys(("string", "bytes"), _sized),
    **dict.fromkeys(("array", "map"), _elements),
    "record": _record,
    "union": _union,
}
