"""Cursors against one record after the other, in plain Python: values, what fails, and what is left over."""

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from backfill_cli.decode.cursors import Cursors, in_order, slices, spread

Step = tuple[Callable[[Cursors], Any], Callable[[bytes, int], tuple[Any, int]]]
"""A step of cursors, and the same of one record: (its bytes, position) -> (value, next position)."""


def test_steps_are_those_of_each_record_by_itself() -> None:
    rng = random.Random(7)
    for _ in range(150):
        records = [written(rng) for _ in range(rng.randrange(40))]
        steps = [STEPS[rng.choice(sorted(STEPS))] for _ in range(rng.randrange(1, 6))]
        cursors = Cursors(records)
        found = [listed(step(cursors)) for step, _ in steps]
        for i, record in enumerate(records):
            at, values = 0, []
            try:
                for _, plain in steps:
                    value, at = plain(record, at)
                    assert at <= len(record)
                    values.append(value)
            except (AssertionError, IndexError, UnicodeDecodeError):
                assert cursors.failed[i], (records[i], steps)
                assert not cursors.left[i]
            else:
                assert not cursors.failed[i], (record, steps)
                assert repr([column[i] for column in found]) == repr(values)
                assert cursors.left[i] == (at < len(record))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_varint_has_64_bits_and_ten_bytes_at_most(number: int) -> None:
    longest = bytes([*(byte | 0x80 for byte in varint(number)), *[0x80] * 10])[:9] + bytes([number >> 63])
    more = [longest[:9] + b"\x02", longest[:9] + b"\x80\x00", b"\xff" * 10, b"\x80" * 3, b""]
    cursors = Cursors([varint(number), longest, *more, varint(number)])
    assert cursors.varint().tolist() == [number, number, 0, 0, 0, 0, 0, number]
    assert cursors.failed.tolist() == [False, False, True, True, True, True, True, False]


def test_records_are_taken_and_put_back_with_what_failed() -> None:
    cursors = Cursors([b"\x01a", b"\x02", b"\x03", b"\x00bc"])
    kind = cursors.varint()
    some = np.flatnonzero(kind != 2)
    inner = cursors.take(some)
    texts = spread(inner.texts(np.ones(len(some), np.int64)), some, 4)
    cursors.put(some, inner)
    assert texts.to_pylist() == ["a", None, "", "b"]
    assert cursors.failed.tolist() == [False, False, True, False]
    assert cursors.left.tolist() == [False, False, False, True]


def test_a_part_within_a_record_ends_there() -> None:
    cursors = Cursors([b"\x02ab!", b"\x05ab", b"\x01\xff!"])
    inside = cursors.within(cursors.varint().view(np.int64))
    assert inside.varint().tolist() == [97, 0, 0]
    cursors.fail(inside.failed)
    assert inside.left.tolist() == [True, False, False]
    assert cursors.failed.tolist() == [False, True, True]
    assert cursors.fixed("u1").tolist() == [33, 0, 0]


def test_rounds_become_lists() -> None:
    records = [b"", b"\x01", b"\x02\x03\x04", b"\x05\x06"]
    cursors, rounds, values = Cursors(records), [], []
    while len(some := np.flatnonzero(cursors.left)):
        part = cursors.take(some)
        values.append(part.varint())
        rounds.append(some)
        cursors.put(some, part)
    offsets, order = in_order(rounds, len(records))
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.concatenate(values)[order]))
    assert lists.to_pylist() == [list(record) for record in records]
    assert in_order([], 2)[0].tolist() == [0, 0, 0]


def test_slices_are_all_records_in_order_and_short() -> None:
    payloads = [b"x"] * 20_000 + [bytes(1 << 24), bytes(1 << 25), b"", b"y"]
    parts = list(slices(payloads))
    assert [payloads[i] for part in parts for i in range(part.start, part.stop)] == payloads
    assert max(part.stop - part.start for part in parts) == 10_240
    assert all(part.stop - part.start == 1 or sum(map(len, payloads[part])) <= 1 << 24 for part in parts)
    assert list(slices([])) == []


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def written(rng: random.Random) -> bytes:
    parts = [
        lambda: varint(rng.getrandbits(rng.choice([3, 7, 8, 35, 56, 57, 63, 64]))),
        lambda: struct.pack("<d", rng.choice([0.0, -0.0, 1.5, float("inf"), rng.random()])),
        lambda: rng.choice([b"", b"abc", "ä€😀".encode(), b"\xff", b"\xed\xa0\x80", b"\xc0\x80"]),
        lambda: bytes([rng.randrange(1, 4), 97, 98, 99]),
        lambda: rng.randbytes(rng.randrange(12)),
    ]
    return b"".join(rng.choice(parts)() for _ in range(rng.randrange(5)))


def plain_varint(record: bytes, at: int) -> tuple[int, int]:
    found = 0
    for i in range(10):
        found |= (record[at + i] & 127) << (7 * i)
        if record[at + i] < 128:
            assert found < 2**64
            return found, at + i + 1
    raise AssertionError


def plain_zigzag(record: bytes, at: int) -> tuple[int, int]:
    found, at = plain_varint(record, at)
    return (found >> 1) ^ -(found & 1), at


def plain_fixed(kind: str) -> Callable[[bytes, int], tuple[Any, int]]:
    def read(record: bytes, at: int) -> tuple[Any, int]:
        assert at + struct.calcsize(kind) <= len(record)
        return struct.unpack_from(kind, record, at)[0], at + struct.calcsize(kind)

    return read


def plain_bytes(record: bytes, at: int) -> tuple[bytes, int]:
    size, at = plain_zigzag(record, at)
    assert 0 <= size <= len(record) - at
    return record[at : at + size], at + size


def plain_text(record: bytes, at: int) -> tuple[str, int]:
    found, at = plain_bytes(record, at)
    return found.decode(), at


STEPS: dict[str, Step] = {
    "varint": (lambda c: c.varint(), plain_varint),
    "zigzag": (lambda c: c.zigzag(), plain_zigzag),
    "i4": (lambda c: c.fixed("<i4"), plain_fixed("<i")),
    "u4": (lambda c: c.fixed("<u4"), plain_fixed("<I")),
    "i8": (lambda c: c.fixed("<i8"), plain_fixed("<q")),
    "f4": (lambda c: c.fixed("<f4"), plain_fixed("<f")),
    "f8": (lambda c: c.fixed("<f8"), plain_fixed("<d")),
    "u1": (lambda c: c.fixed("u1"), plain_fixed("<B")),
    "skip": (lambda c: c.skip(2) or np.zeros(len(c)), lambda record, at: (0.0, at + 2)),
    "bytes": (lambda c: c.binary(c.zigzag()), plain_bytes),
    "text": (lambda c: c.texts(c.zigzag()), plain_text),
}


def listed(column: Any) -> list[Any]:
    return column.to_pylist() if isinstance(column, pa.Array) else column.tolist()


def test_where_cursors_were_is_not_changed_by_what_is_put_back() -> None:
    cursors = Cursors([b"ab", b"cd"])
    begin = cursors.at
    part = cursors.take(some := np.array([1]))
    part.skip(1)
    cursors.put(some, part)
    assert (begin.tolist(), cursors.at.tolist()) == ([0, 2], [0, 3])
