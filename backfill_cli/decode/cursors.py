"""A position in each of many binary records at once: what reads Avro and Protobuf by columns, not by records.

All records lie in one buffer. A step (`varint`, `fixed`, `spans`, …) reads the next value of every record, as an
array with an element for each of them, and moves all positions behind it. A record whose bytes do not allow a step
fails: it stays at its end, and gives zeros and empty ranges from then on, so that no step has to ask. What is read
of it counts for nothing; whoever reads looks at `failed` when all is read, and at `left` for bytes left over.

    for part in slices(payloads):                 # few enough to lie in the processor's cache
        cursors = Cursors(payloads[part])
        ids = cursors.zigzag()                    # int64, one for each record
        names = cursors.texts(cursors.zigzag())   # pa.StringArray; a length first, then as many bytes
        branch = cursors.varint()
        some = np.flatnonzero(branch == 1)        # records, rising
        inner = cursors.take(some)                # cursors of these alone
        prices = spread(inner.fixed("<f8"), some, len(cursors))   # pa.Array, NULL in the other records
        cursors.put(some, inner)                  # and back, with what failed
        inside = cursors.within(cursors.varint()) # cursors over the next n bytes of each record: it ends there
        cursors.fail(inside.failed | inside.left)
        good = ~(cursors.failed | cursors.left)

Repeated values are read in rounds: in each, one value of every record that has another one; `in_order` says how
the rounds' values become lists. Records are taken in rising order always.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from backfill_cli.formats.compute import pc

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Values: TypeAlias = NDArray[Any]
_N = TypeVar("_N", bound=np.number[Any])

_PADDING = bytes(16)
"""Behind the last record: a step reads up to ten bytes before it looks where the record ends."""

_RECORDS, _BYTES = 10_240, 1 << 24
"""Of a slice: arrays of as many positions lie in the cache; what lies between costs once for each slice."""

_TOP = np.uint64(0x8080808080808080)
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)
_SWAPS = [
    (np.uint64(low), np.uint64(high), np.uint64(by))
    for low, high, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
]
"""Masks that move the 7 bits of each of 8 bytes together: pairs of 7, of 14, of 28 bits."""


def slices(payloads: Sequence[bytes]) -> Iterator[slice]:
    """The payloads in parts of so many records and bytes that one buffer holds them, at least one record each."""
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    begin, size = 0, 0
    while begin < len(payloads):
        end = min(begin + _RECORDS, int(np.searchsorted(ends, size + _BYTES, "right")))
        end = max(end, begin + 1)
        yield slice(begin, end)
        begin, size = end, int(ends[end - 1])


class Cursors:
    """at, end: where each record is read next, and where it ends, in the buffer. failed: which cannot be read."""

    __slots__ = ("_any_failed", "_bytes", "_words", "at", "end", "failed")

    def __init__(self, payloads: Sequence[bytes]) -> None:
        """payloads: together at most 2 GiB; see `slices`."""
        buffer = b"".join([*payloads, _PADDING])
        sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self._bytes = np.frombuffer(buffer, np.uint8)
        # the eight bytes from each position on, as one number
        self._words: Values = np.ndarray((len(buffer) - 7,), "<u8", buffer, strides=(1,))
        self.end: Ints = np.cumsum(sizes)
        self.at: Ints = self.end - sizes
        self.failed: Mask = np.zeros(len(payloads), np.bool_)
        self._any_failed = False

    def __len__(self) -> int:
        return len(self.at)

    @property
    def octets(self) -> Values:
        """The buffer."""
        return self._bytes

    @property
    def left(self) -> Mask:
        """Which records have bytes left."""
        return self.at < self.end

    def fail(self, which: Mask) -> None:
        """These records cannot be read."""
        if which.any():
            self.failed = self.failed | which
            self._any_failed = True
            self.at = np.where(self.failed, self.end, self.at)

    def skip(self, sizes: int | Ints) -> None:
        """Leaves out as many bytes of each record. One that has fewer fails, or one whose number is negative."""
        room = self.end - self.at
        self.at = self.at + sizes
        self.fail((room < sizes) | (np.asarray(sizes) < 0))

    def varint(self) -> NDArray[np.uint64]:
        """A number of 1 to 10 bytes with 7 bits in each, the lowest first. More than 64 bits: fails."""
        first = self._bytes[self.at]
        if not (first > 0x7F).any():
            self.skip(1)
            return self._sound(first.astype(np.uint64))
        word = self._words[self.at]
        last = ~word & _TOP
        used = last ^ (last - np.uint64(1))  # up to the byte that is the last one; all eight where none is
        found = word & used & _LOW
        for low, high, by in _SWAPS:
            found = (found & low) | ((found & high) >> by)
        sizes = (((used & _ONES) * _ONES) >> np.uint64(56)).astype(np.int64)
        longer = np.flatnonzero(last == 0)
        if len(longer):
            ninth, tenth = (self._bytes[self.at[longer] + i].astype(np.uint64) for i in (8, 9))
            goes_on = ninth > 0x7F
            tenth = np.where(goes_on, tenth, np.uint64(0))
            found[longer] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | (tenth << np.uint64(63))
            sizes[longer] = np.where(goes_on, 10, 9)
            sizes[longer[tenth > 1]] = -1
        self.skip(sizes)
        return self._sound(found)

    def zigzag(self) -> Ints:
        """A signed number as a varint: 0, -1, 1, -2, … are written as 0, 1, 2, 3, …"""
        return unzigzag(self.varint())

    def fixed(self, kind: str) -> Values:
        """Numbers of a fixed width, by numpy's name: `<i4`, `<u4`, `<i8`, `<u8`, `<f4`, `<f8`, `u1`."""
        dtype = np.dtype(kind)
        word = self._words[self.at]
        self.skip(dtype.itemsize)
        return self._sound(word.astype(f"<u{dtype.itemsize}").view(dtype))

    def spans(self, sizes: Ints) -> tuple[Ints, Ints]:
        """(where the next so many bytes of each record begin, how many they are), which are left behind."""
        starts = self.at
        self.skip(sizes)
        return starts, self._sound(sizes.copy()) if self._any_failed else sizes

    def binary(self, sizes: Ints) -> pa.Array:
        """The next so many bytes of each record, as BINARY."""
        return self._ranges(*self.spans(sizes))

    def texts(self, sizes: Ints) -> pa.Array:
        """The same as STRING. A record whose bytes are no UTF-8 fails."""
        starts, sizes = self.spans(sizes)
        raw = self._ranges(starts, sizes)
        found = _as_text(raw)
        if found is not None:
            return found
        wrong = np.fromiter((not _is_text(one) for one in raw.to_pylist()), np.bool_, len(raw))
        self.fail(wrong)
        return _as_text(self._ranges(starts, np.where(wrong, 0, sizes)))

    def take(self, which: Ints) -> "Cursors":
        """Cursors of these records, rising, in the same buffer; `put` brings back where they are then."""
        return self._part(self.at[which], self.end[which], self.failed[which])

    def put(self, which: Ints, part: "Cursors") -> None:
        """The records of `take` are where `part` is now, and those that failed there have failed here."""
        self.at = self.at.copy()  # a caller may hold it
        self.at[which] = part.at
        if part._any_failed:
            self.failed = self.failed.copy()
            self.failed[which] |= part.failed
            self._any_failed = True

    def within(self, sizes: Ints) -> "Cursors":
        """Cursors over the next so many bytes of each record, which are left behind here.

        What fails there has to be told by `fail`. A record that has failed has no bytes there.
        """
        starts, sizes = self.spans(sizes)
        return self._part(starts, starts + sizes, self.failed)

    def over(self, starts: Ints, sizes: Ints) -> "Cursors":
        """Cursors over these ranges of the buffer, which rise."""
        return self._part(starts, starts + sizes, np.zeros(len(starts), np.bool_))

    def varints_within(self) -> tuple[Ints, Ints, Ints]:
        """All varints up to the records' ends: (whose each is, where it begins, how many bytes it has).

        A record that ends inside one fails, or that has one of more than 10 bytes; its varints count for nothing.
        """
        room = self.end - self.at
        whose = np.repeat(np.arange(len(self)), room)
        positions = np.arange(len(whose)) + np.repeat(self.at - (np.cumsum(room) - room), room)
        last = np.flatnonzero(self._bytes[positions] < 0x80)
        whose, ends = whose[last], positions[last] + 1
        starts = np.empty_like(ends)
        starts[1:] = np.where(whose[1:] == whose[:-1], ends[:-1], self.at[whose[1:]])
        starts[:1] = self.at[whose[:1]]
        too_long = np.zeros(len(self), np.bool_)
        too_long[whose[ends - starts > 10]] = True
        some = np.flatnonzero(room)
        too_long[some] |= self._bytes[self.end[some] - 1] > 0x7F
        self.fail(too_long)
        return whose, starts, ends - starts

    def _part(self, at: Ints, end: Ints, failed: Mask) -> "Cursors":
        part = Cursors.__new__(Cursors)
        part._bytes, part._words = self._bytes, self._words
        part.at, part.end, part.failed = at, end, failed
        part._any_failed = self._any_failed and bool(failed.any())
        return part

    def _sound(self, found: NDArray[_N]) -> NDArray[_N]:
        """The values, 0 where a record has failed."""
        if self._any_failed:
            found[self.failed] = 0
        return found

    def _ranges(self, starts: Ints, sizes: Ints) -> pa.Array:
        """Ranges that rise, as BINARY: every other value of an array that has what lies between them, too."""
        count = len(starts)
        if not count:
            return pa.array([], pa.binary())
        offsets = np.empty(2 * count, np.int32)
        offsets[::2] = starts
        offsets[1::2] = starts + sizes
        all_ = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        )
        return all_.take(pa.array(np.arange(0, 2 * count, 2)))


def unzigzag(numbers: NDArray[np.uint64]) -> Ints:
    """0, 1, 2, 3, … as 0, -1, 1, -2, …"""
    one = np.uint64(1)
    signed: Ints = (numbers >> one).view(np.int64) ^ -(numbers & one).view(np.int64)
    return signed


def spread(values: pa.Array | Values, which: Ints, count: int) -> pa.Array:
    """An array of `count` rows that has the values in the rows `which`, rising, and NULL in all others."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if len(which) == count:
        return array
    if not len(which):
        return pa.nulls(count, array.type)
    at = np.zeros(count, np.int64)
    none = np.ones(count, np.bool_)
    at[which] = np.arange(len(which))
    none[which] = False
    return array.take(pa.array(at, mask=none))


def in_order(rounds: Sequence[Ints], count: int) -> tuple[Ints, Ints]:
    """How values that were read in rounds become lists: (offsets of the `count` lists, the values' order).

    rounds: of each round, the records that a value was read of, rising. The values of all rounds, one after the
    other, taken in this order are those of the first record, then of the second, and so on.
    """
    records = np.concatenate([np.zeros(0, np.int64), *rounds])
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(records, minlength=count), out=offsets[1:])
    return offsets, np.argsort(records, kind="stable")


def _as_text(raw: pa.Array) -> pa.Array | None:
    try:
        return pc.cast(raw, pa.string())
    except pa.ArrowInvalid:
        return None


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
