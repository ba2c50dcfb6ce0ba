"""Protobuf's wire format of one message at a time. What is refused here, Google's own library refuses."""

from typing import NamedTuple

from backfill_cli.decode.unreadable import Unreadable

VARINT, FIXED64, SIZED, GROUP, END_GROUP, FIXED32 = range(6)
MOST_TAG = 2**32 - 1
MOST_SIZE = 2**31 - 1
MOST_SHORT = 5
"""Bytes of a tag or a length."""
MOST_LONG = 10
"""Bytes of a value."""
DEEP = 100
"""Messages and groups within one another."""

CUT = "cut short: a Protobuf message ends inside a field"
LONG = "no Protobuf message: a number of too many bytes"
TAG = "no Protobuf message: no field has the number 0"
KIND = "no Protobuf message: a field of an unknown wire type"
UNENDED = "no Protobuf message: a group ends that was not begun, or does not end"
TOO_DEEP = "Protobuf messages nested too deep"


class Read(NamedTuple):
    """A field as it is written. value: an int of 64 bits, or where its bytes begin (ending at `end`)."""

    number: int
    kind: int
    value: int
    end: int


def varint(data: bytes, at: int, end: int, most: int = MOST_LONG) -> tuple[int, int]:
    """(number of 64 bits, unsigned; where it ends). Raises Unreadable."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift == 7 * most:
            raise Unreadable(LONG)
    raise Unreadable(CUT)


def field(data: bytes, at: int, end: int, depth: int) -> Read:
    """The field that begins at `at`. Raises Unreadable."""
    tag, at = _tag(data, at, end)
    if tag < 8:
        raise Unreadable(TAG)
    kind = tag & 7
    if kind == VARINT:
        value, at = varint(data, at, end)
        return Read(tag >> 3, kind, value, at)
    return Read(tag >> 3, kind, *_extent(data, at, end, tag, depth))


def _tag(data: bytes, at: int, end: int) -> tuple[int, int]:
    tag, at = varint(data, at, end, MOST_SHORT)
    if tag > MOST_TAG:
        raise Unreadable(LONG)
    return tag, at


def _extent(data: bytes, at: int, end: int, tag: int, depth: int) -> tuple[int, int]:
    kind = tag & 7
    if kind == SIZED:
        size, at = varint(data, at, end, MOST_SHORT)
        if size > MOST_SIZE:
            raise Unreadable(LONG)
        after = at + size
    elif kind == FIXED64:
        after = at + 8
    elif kind == FIXED32:
        after = at + 4
    elif kind == GROUP:
        after = _group(data, at, end, tag, depth)
    else:
        raise Unreadable(UNENDED if kind == END_GROUP else KIND)
    if after > end:
        raise Unreadable(CUT)
    return at, after


def _group(data: bytes, at: int, end: int, begun: int, depth: int) -> int:
    """Where a group ends whose fields begin at `at`."""
    open_groups = [begun]
    while open_groups:
        if depth + len(open_groups) > DEEP:
            raise Unreadable(TOO_DEEP)
        tag, at = _tag(data, at, end)
        kind = tag & 7
        if kind == END_GROUP:
            if tag - 1 != open_groups.pop():
                raise Unreadable(UNENDED)
        elif kind == GROUP:
            open_groups.append(tag)
        elif kind == VARINT:
            _, at = varint(data, at, end)
        else:
            _, at = _extent(data, at, end, tag, depth)
    return at
