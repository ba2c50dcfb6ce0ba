"""Values of Arrow columns as bytes, by columns: what Avro and Protobuf write alike."""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise

import pyarrow as pa

Parts = Sequence[bytes | None]
"""The bytes of each row's value; None where it is NULL."""

_64 = (1 << 64) - 1


@cache
def _short(number: int) -> bytes:
    return bytes((number,))


def varint(number: int) -> bytes:
    """Of a number of 64 bits, a negative one by its complement."""
    if 0 <= number < 0x80:
        return _short(number)
    number &= _64
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def floats(form: str) -> Callable[[pa.Array], Parts]:
    """form: as `struct` names it."""
    pack = struct.Struct(form).pack
    return lambda column: [None if value is None else pack(value) for value in column.to_pylist()]


def unscaled(column: pa.Array) -> Parts:
    """Decimals as whole numbers, in as few bytes as each has, the first one's first bit its sign: as Java does."""
    raw, at = column.buffers()[1], 16 * column.offset
    held = memoryview(raw)[at : at + 16 * len(column)]
    numbers = (int.from_bytes(held[i : i + 16], "little", signed=True) for i in range(0, len(held), 16))
    told = zip(numbers, column.is_valid().to_pylist(), strict=True)
    return [_signed(one) if there else None for one, there in told]


def _signed(number: int) -> bytes:
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def micros(column: pa.Array) -> list[int | None]:
    """Timestamps since 1970."""
    found: list[int | None] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return found


def days(column: pa.Array) -> list[int | None]:
    """Dates since 1970."""
    found: list[int | None] = column.cast(pa.int32()).to_pylist()
    return found


def spans(column: pa.Array) -> tuple[slice, Iterator[tuple[int, int]]]:
    """(all items of the rows' lists, or maps, in the array's; where each row's begin and end among these)."""
    ends = column.offsets.to_pylist()
    return slice(ends[0], ends[-1]), pairwise(end - ends[0] for end in ends)
