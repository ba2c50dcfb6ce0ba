"""Protobuf messages by columns: all messages of a batch at once, without those that only `one.py` can read.

Each message is read up to its next tag. The messages with the least tag are read one field further, so that where
fields come in the order of their numbers, as all libraries write them, each field is read once for all messages.
What is rare is left to `one.py`: a field that occurs twice, groups, values that have no exact counterpart.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from backfill_cli.decode.cursors import Cursors, Ints, Mask, Values, in_order, slices, unzigzag
from backfill_cli.decode.protobuf import one, wire
from backfill_cli.decode.protobuf.types import Field, Message, Types
from backfill_cli.decode.tokens import Token
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.compute import pc

_DONE = 1 << 62
"""The place of a message that is read to its end: behind all tags."""

_STEPS, _FEW = 64, 32
"""A message of so many fields more than usual is read faster one by one, unless as many others are like it."""

_WIDTHS = {
    "fixed64": "<u8",
    "sfixed64": "<i8",
    "double": "<f8",
    "fixed32": "<u4",
    "sfixed32": "<i4",
    "float": "<f4",
}
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999."""


class Unwanted(Exception):
    """A member is asked for as a type in which this module does not read it."""


def read(
    payloads: Sequence[bytes], types: Types, name: str, wanted: pa.Schema
) -> tuple[dict[str, pa.Array], Sequence[int]]:
    """(these members of messages of a type, a row for each message that could be read; their indices, rising)."""
    parts: list[pa.StructArray] = []
    kept: list[int] = []
    try:
        for part in slices(payloads):
            found, good = _slice(payloads[part], types, types.messages[name], pa.struct(wanted))
            parts.append(found)
            kept += (good + part.start).tolist()
    except Unwanted:
        parts, kept = [], []
    if not parts:
        return {one.name: pa.array([], one.type) for one in wanted}, []
    whole = pa.concat_arrays(parts)
    return {name: whole.field(i) for i, name in enumerate(wanted.names)}, kept


def _slice(
    payloads: Sequence[bytes], types: Types, message: Message, wanted: pa.StructType
) -> tuple[pa.StructArray, Ints]:
    cursors = Cursors(payloads)
    batch = _Batch(types, cursors)
    rows = np.arange(len(payloads))
    found = _Struct(batch, message, wanted, _Rows(rows, cursors.at.copy()))
    found.put(rows, cursors)
    array = found.array()
    good = np.flatnonzero(~(cursors.failed | batch.failed))
    return (array if len(good) == len(rows) else array.take(pa.array(good))), good


class _Batch:
    """What all columns of a slice share. failed: the messages that are left out."""

    def __init__(self, types: Types, cursors: Cursors) -> None:
        self.types, self.cursors = types, cursors
        self.failed: Mask = np.zeros(len(cursors), np.bool_)

    def fail(self, owners: Ints) -> None:
        self.failed[owners] = True


@dataclass(frozen=True)
class _Rows:
    """The messages that can have a field, outer ones or inner ones: a row for each.

    owners: of which message of the batch each is a part. begins: where it begins, rising.
    """

    owners: Ints
    begins: Ints

    def __len__(self) -> int:
        return len(self.owners)


class _Column(Protocol):
    """The values of a field, one in each row."""

    def put(self, rows: Ints, cursors: Cursors) -> None:
        """Reads the value that each cursor is at, or that it encloses, into these rows."""
        ...

    def array(self) -> pa.Array:
        """All values, in rows without one the default."""
        ...


class _Numbers:
    def __init__(self, batch: _Batch, field: Field, of: _Rows) -> None:
        self._batch, self._kind, self._of = batch, field.kind, of
        self._enum = batch.types.enums.get(field.type)
        default = self._enum.default if self._enum is not None else 0
        self._values: Values = np.full(len(of), default, _dtype(field.kind))

    def put(self, rows: Ints, cursors: Cursors) -> None:
        with np.errstate(invalid="ignore"):  # some NaN are said to be no numbers when they become wider
            self._values[rows] = _numbers(cursors, self._kind)

    def array(self) -> pa.Array:
        if self._enum is None:
            return pa.array(self._values)
        numbers, at = np.unique(self._values, return_inverse=True)
        names = [self._enum.names.get(number) for number in numbers.tolist()]
        if self._enum.closed and None in names:
            unknown = np.array([name is None for name in names])
            self._batch.fail(self._of.owners[unknown[at]])
        texts = [str(n) if name is None else name for name, n in zip(names, numbers.tolist(), strict=True)]
        return pa.array(texts, pa.string()).take(pa.array(at))


class _Spans:
    """Texts, bytes, and messages that are read one by one."""

    def __init__(
        self, batch: _Batch, field: Field, of: _Rows, read: Callable[[bytes], Token] | None = None
    ) -> None:
        self._batch, self._field, self._of, self._read = batch, field, of, read
        self._starts = of.begins.copy()
        self._sizes: Ints = np.zeros(len(of), np.int64)
        self._some: Mask = np.zeros(len(of), np.bool_)

    def put(self, rows: Ints, cursors: Cursors) -> None:
        self._starts[rows] = cursors.at
        self._sizes[rows] = cursors.end - cursors.at
        self._some[rows] = ~cursors.failed

    def array(self) -> pa.Array:
        spans = self._batch.cursors.over(self._starts, self._sizes)
        if self._field.kind == "string":
            found = spans.texts(self._sizes)
            self._batch.fail(self._of.owners[spans.failed])
            return found
        raw = spans.binary(self._sizes)
        return raw if self._read is None else self._one_by_one(raw, self._read)

    def _one_by_one(self, raw: pa.Array, read: Callable[[bytes], Token]) -> pa.Array:
        found: list[Token] = [None] * len(raw)
        for row in np.flatnonzero(self._some).tolist():
            try:
                found[row] = read(raw[row].as_py())
            except Unreadable:
                self._batch.fail(self._of.owners[row : row + 1])
        return pa.array(found, pa.string())


class _Struct:
    """A message: its fields that are asked for. seen: by number, which messages have a field."""

    def __init__(self, batch: _Batch, message: Message, wanted: pa.StructType, of: _Rows) -> None:
        self._batch, self._of, self._wanted, self._message = batch, of, list(wanted), message
        asked = {one.name: one.type for one in wanted}
        self._columns: dict[int, _Column] = {}
        self.seen: dict[int, Mask] = {}
        tags: dict[int, Field] = {}
        in_oneofs = {f.oneof for f in message.fields if f.name in asked and f.oneof is not None}
        for field in message.fields:
            if field.kind == "group" or not (field.name in asked or field.oneof in in_oneofs):
                continue
            tags[field.number << 3 | one.KINDS[field.kind]] = field
            if field.repeated:
                tags[field.number << 3 | wire.SIZED] = field
            if field.name in asked:
                self._columns[field.number] = _column(batch, field, asked[field.name], of)
            if not field.repeated:
                self.seen[field.number] = np.zeros(len(of), np.bool_)
        self._tags = np.array(sorted(tags), np.int64)
        self._fields = [tags[tag] for tag in self._tags.tolist()]

    def put(self, rows: Ints, cursors: Cursors) -> None:
        """Reads messages to their ends. What cannot be read fails in `cursors`."""
        self._put(rows, cursors)
        for field in self._message.fields:
            if field.required and field.number in self.seen:
                cursors.fail(~self.seen[field.number][rows])

    def _put(self, rows: Ints, cursors: Cursors) -> None:
        tags: Ints = np.zeros(len(rows), np.int64)
        places: Ints = np.full(len(rows), _DONE, np.int64)
        steps: Ints = np.zeros(len(rows), np.int64)
        those, least = np.arange(len(rows)), _DONE
        while True:
            part = cursors if len(those) == len(rows) else cursors.take(those)
            if least != _DONE:
                self._step(rows[those], part, tags[those], least)
            tags[those], places[those] = self._next(part)
            if part is not cursors:
                cursors.put(those, part)
            least = int(places.min(initial=_DONE))
            if least == _DONE:
                return
            those = np.flatnonzero(places == least)
            steps[those] += 1
            if len(those) < _FEW:
                longest = steps[those] > _STEPS + 4 * len(self._tags)
                if longest.any():
                    cursors.fail(np.isin(np.arange(len(rows)), those[longest]))

    def _next(self, part: Cursors) -> tuple[Ints, Ints]:
        """(next tag, its place among those that are read) of each message; -1: another, _DONE: none."""
        left = np.flatnonzero(part.left)
        tags: Ints = np.zeros(len(part), np.int64)
        places: Ints = np.full(len(part), _DONE, np.int64)
        if not len(left):
            return tags, places
        ahead = part if len(left) == len(part) else part.take(left)
        found = _short(ahead, wire.MOST_TAG)
        ahead.fail(found < 8)
        if ahead is not part:
            part.put(left, ahead)
        tags[left] = found
        place = np.searchsorted(self._tags, found)
        if len(self._tags):
            known = self._tags[np.minimum(place, len(self._tags) - 1)] == found
            place = np.where(known, place, -1)
        else:
            place = np.full(len(found), -1)
        places[left] = np.where(ahead.failed, _DONE, place)
        return tags, places

    def _step(self, rows: Ints, part: Cursors, tags: Ints, place: int) -> None:
        """Reads one field of each message."""
        if place < 0:
            if self._message.is_entry:
                part.fail(np.ones(len(part), np.bool_))
            self._skip(part, tags & 7)
            return
        field, kind = self._fields[place], int(self._tags[place]) & 7
        if not field.repeated:
            others = [self.seen[number] for number in self._message.oneofs.get(field.number, ())]
            for seen in (self.seen[field.number], *others):
                part.fail(seen[rows])
            self.seen[field.number][rows] = True
        column = self._columns.get(field.number)
        if column is None:
            self._skip(part, tags & 7)
        elif kind == wire.SIZED:
            inner = part.within(_short(part, wire.MOST_SIZE))
            if isinstance(column, _Many):
                column.put_packed(rows, inner)
            else:
                column.put(rows, inner)
            part.fail(inner.failed)
        else:
            column.put(rows, part)

    def _skip(self, part: Cursors, kinds: Ints) -> None:
        for kind in np.unique(kinds).tolist():
            those = np.flatnonzero(kinds == kind)
            some = part if len(those) == len(part) else part.take(those)
            match kind:
                case wire.VARINT:
                    some.varint()
                case wire.SIZED:
                    some.skip(_short(some, wire.MOST_SIZE))
                case wire.FIXED64 | wire.FIXED32:
                    some.skip(8 if kind == wire.FIXED64 else 4)
                case _:
                    some.fail(np.ones(len(some), np.bool_))
            if some is not part:
                part.put(those, some)

    def array(self) -> pa.StructArray:
        by_name = {field.name: field for field in self._message.fields}
        found = []
        for asked in self._wanted:
            field = by_name.get(asked.name)
            if field is None or field.number not in self._columns:
                found.append(pa.nulls(len(self._of), asked.type))
                continue
            array = self._columns[field.number].array()
            if field.presence or field.required:
                array = _where(self.seen[field.number], array)
            found.append(array if array.type == asked.type else _cast(array, asked.type))
        return pa.StructArray.from_arrays(found, fields=self._wanted) if found else _no_members(len(self._of))


class _Many:
    """A repeated field: first where its values are, then the values of all lists as one column."""

    def __init__(self, batch: _Batch, field: Field, of: _Rows, asked: pa.DataType) -> None:
        self._batch, self._field, self._of, self._asked = batch, field, of, asked
        self._rounds: list[tuple[Ints, Ints, Ints]] = []

    def put(self, rows: Ints, cursors: Cursors) -> None:
        starts = cursors.at
        if one.KINDS[self._field.kind] == wire.VARINT:
            cursors.varint()
        else:
            cursors.skip(np.dtype(_WIDTHS[self._field.kind]).itemsize)
        self._add(rows, starts, cursors.at - starts, cursors.failed)

    def put_packed(self, rows: Ints, inner: Cursors) -> None:
        """The same where the cursors enclose values: one, or any number without tags."""
        kind = one.KINDS[self._field.kind]
        if kind == wire.SIZED:
            self._add(rows, inner.at, inner.end - inner.at, inner.failed)
        elif kind == wire.VARINT:
            of, starts, sizes = inner.varints_within()
            self._add(rows[of], starts, sizes, inner.failed[of])
        else:
            width = np.dtype(_WIDTHS[self._field.kind]).itemsize
            counts, rest = np.divmod(inner.end - inner.at, width)
            inner.fail(rest > 0)
            of = np.repeat(np.arange(len(rows)), counts)
            nth = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
            self._add(rows[of], inner.at[of] + nth * width, np.full(len(of), width), inner.failed[of])

    def _add(self, rows: Ints, starts: Ints, sizes: Ints, failed: Mask) -> None:
        good = ~failed
        self._rounds.append((rows[good], starts[good], sizes[good]) if failed.any() else (rows, starts, sizes))

    def array(self) -> pa.Array:
        offsets, order = in_order([rows for rows, _, _ in self._rounds], len(self._of))
        none: Ints = np.zeros(0, np.int64)
        rounds = [(none, none, none), *self._rounds]
        rows, starts, sizes = (np.concatenate(parts)[order] for parts in zip(*rounds, strict=True))
        of = _Rows(self._of.owners[rows], starts)
        inner = self._batch.cursors.over(starts, sizes)
        entry = self._batch.types.messages.get(self._field.type)
        if pa.types.is_map(self._asked) != (entry is not None and entry.is_entry):
            raise Unwanted
        if entry is not None and entry.is_entry:
            return self._map(entry, pa.array(offsets, pa.int32()), rows, of, inner)
        column = _single(self._batch, self._field, self._asked.value_type, of)
        column.put(np.arange(len(rows)), inner)
        self._batch.fail(of.owners[inner.failed])
        values = column.array()
        if values.type != self._asked.value_type:
            values = _cast(values, self._asked.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=self._asked)

    def _map(self, entry: Message, offsets: pa.Array, rows: Ints, of: _Rows, inner: Cursors) -> pa.Array:
        asked = pa.struct([("key", self._asked.key_type), ("value", self._asked.item_type)])
        column = _Struct(self._batch, entry, asked, of)
        column.put(np.arange(len(rows)), inner)
        self._batch.fail(of.owners[inner.failed])
        if entry.by_number[2].kind == "message":
            self._batch.fail(of.owners[~column.seen[2]])
        entries = column.array()
        codes = entries.field(0).dictionary_encode().indices.to_numpy(zero_copy_only=False)
        pairs = rows * (int(codes.max(initial=0)) + 1) + codes
        _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
        self._batch.fail(of.owners[first[counts > 1]])
        return pa.MapArray.from_arrays(offsets, entries.field(0), entries.field(1), type=self._asked)


class _Counted:
    """A message that means a number: of its members, by `count`, which also says which ones mean none."""

    def __init__(self, batch: _Batch, field: Field, of: _Rows) -> None:
        names, self._count = _COUNTED[field.type]
        self._batch, self._of = batch, of
        asked = pa.struct([(name, pa.int64()) for name in names])
        self._inner = _Struct(batch, batch.types.messages[field.type], asked, of)
        self._some: Mask = np.zeros(len(of), np.bool_)

    def put(self, rows: Ints, cursors: Cursors) -> None:
        self._inner.put(rows, cursors)
        self._some[rows] = True

    def array(self) -> pa.Array:
        values, odd = self._count(*(part.to_numpy(zero_copy_only=False) for part in self._inner.array().flatten()))
        self._batch.fail(self._of.owners[odd & self._some])
        return pa.array(np.where(odd, 0, values))


class _Decimal:
    """Confluent's decimal with the scale that its field states; those of another are left out."""

    def __init__(self, batch: _Batch, field: Field, of: _Rows) -> None:
        self._batch, self._of, self._scale = batch, of, field.scale
        asked = pa.struct([("value", pa.binary()), ("scale", pa.int64())])
        self._inner = _Struct(batch, batch.types.messages[field.type], asked, of)
        self._some: Mask = np.zeros(len(of), np.bool_)

    def put(self, rows: Ints, cursors: Cursors) -> None:
        self._inner.put(rows, cursors)
        self._some[rows] = True

    def array(self) -> pa.Array:
        value, scale = self._inner.array().flatten()
        odd = self._some & (scale.to_numpy(zero_copy_only=False) != self._scale)
        self._batch.fail(self._of.owners[odd])
        return value


class _Wrapped:
    """A wrapper's value."""

    def __init__(self, batch: _Batch, field: Field, asked: pa.DataType, of: _Rows) -> None:
        self._inner = _Struct(batch, batch.types.messages[field.type], pa.struct([("value", asked)]), of)

    def put(self, rows: Ints, cursors: Cursors) -> None:
        self._inner.put(rows, cursors)

    def array(self) -> pa.Array:
        return self._inner.array().field(0)


def _column(batch: _Batch, field: Field, asked: pa.DataType, of: _Rows) -> _Column:
    """Raises Unwanted for a type in which the field is not read here."""
    if not field.repeated:
        return _single(batch, field, asked, of)
    if not (pa.types.is_list(asked) or pa.types.is_map(asked)):
        raise Unwanted
    return _Many(batch, field, of, asked)


def _single(batch: _Batch, field: Field, asked: pa.DataType, of: _Rows) -> _Column:
    if field.kind != "message":
        if field.kind in ("string", "bytes"):
            return _Spans(batch, field, of)
        return _Numbers(batch, field, of)
    if field.type in _COUNTED:
        return _Counted(batch, field, of)
    if field.type == "confluent.type.Decimal" and pa.types.is_binary(asked) and field.scale is not None:
        return _Decimal(batch, field, of)
    if field.type in one.WRAPPERS:
        return _Wrapped(batch, field, asked, of)
    if field.type in one.KNOWN and field.type != "confluent.type.Decimal":
        return _Spans(batch, field, of, lambda raw: one.known(raw, batch.types, field))
    if not pa.types.is_struct(asked):
        raise Unwanted
    return _Struct(batch, batch.types.messages[field.type], asked, of)


def _short(cursors: Cursors, most: int) -> Ints:
    """A tag or a length."""
    before = cursors.at
    found = cursors.varint()
    cursors.fail((cursors.at - before > wire.MOST_SHORT) & ~cursors.failed | (found > most))
    found_: Ints = np.where(cursors.failed, 0, found.astype(np.int64))
    return found_


def _dtype(kind: str) -> str:
    if kind == "bool":
        return "?"
    return {"uint64": "<u8", "fixed64": "<u8", "float": "<f8", "double": "<f8"}.get(kind, "<i8")


def _numbers(cursors: Cursors, kind: str) -> Values:
    if kind in _WIDTHS:
        return cursors.fixed(_WIDTHS[kind])
    found = cursors.varint()
    match kind:
        case "bool":
            return np.not_equal(found, 0)
        case "uint64":
            return found
        case "int64":
            return found.view(np.int64)
        case "sint64":
            return unzigzag(found)
    low: NDArray[np.uint64] = found & np.uint64(0xFFFF_FFFF)
    if kind == "uint32":
        return low.view(np.int64)
    if kind == "sint32":
        return unzigzag(low)
    signed: Values = low.astype(np.uint32).view(np.int32)
    return signed


def _where(some: Mask, array: pa.Array) -> pa.Array:
    """The values where they are there, NULL elsewhere."""
    if some.all():
        return array
    if isinstance(array, pa.StructArray):
        return pa.StructArray.from_arrays(array.flatten(), fields=list(array.type), mask=pa.array(~some))
    return pc.if_else(pa.array(some), array, pa.scalar(None, array.type))


def _cast(array: pa.Array, asked: pa.DataType) -> pa.Array:
    """Numbers and booleans as texts, as JSON has them. Raises Unwanted for other types."""
    if pa.types.is_string(asked) and (pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)):
        return array.cast(asked)
    raise Unwanted


def _no_members(count: int) -> pa.StructArray:
    return pa.array([{}] * count, pa.struct([]))


# messages that mean numbers

Counted = tuple[Values, Mask]


def _timestamp(seconds: Values, nanos: Values) -> Counted:
    odd = (seconds < _SECONDS[0]) | (seconds > _SECONDS[1]) | (nanos < 0) | (nanos >= 10**9) | (nanos % 1000 != 0)
    return seconds * 10**6 + nanos // 1000, odd


def _duration(seconds: Values, nanos: Values) -> Counted:
    most = 315_576_000_000
    odd = (seconds < -most) | (seconds > most) | (np.abs(nanos) >= 10**9) | (nanos % 1000 != 0)
    odd |= (np.sign(seconds) * np.sign(nanos)) < 0
    return seconds * 10**6 + nanos // 1000, odd


def _date(year: Values, month: Values, day: Values) -> Counted:
    odd = (year < 1) | (year > 9999) | (month < 1) | (month > 12)
    months = np.where(odd, 0, (year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[D]").astype(np.int64)
    return first + day - 1, odd | (day < 1) | (day > after - first)


def _time_of_day(hours: Values, minutes: Values, seconds: Values, nanos: Values) -> Counted:
    odd = np.zeros(len(hours), np.bool_)
    for part, least_wrong in ((hours, 25), (minutes, 60), (seconds, 61), (nanos, 10**9)):
        odd |= (part < 0) | (part >= least_wrong)
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + nanos, odd


_COUNTED: Mapping[str, tuple[tuple[str, ...], Callable[..., Counted]]] = {
    "google.protobuf.Timestamp": (("seconds", "nanos"), _timestamp),
    "google.protobuf.Duration": (("seconds", "nanos"), _duration),
    "google.type.Date": (("year", "month", "day"), _date),
    "google.type.TimeOfDay": (("hours", "minutes", "seconds", "nanos"), _time_of_day),
}
