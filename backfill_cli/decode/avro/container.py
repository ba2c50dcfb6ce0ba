"""Object container files of Avro: a schema, then blocks of records, compressed each by itself.

A block says how many records it has, but not where each one begins: the cursors of all blocks pass over their
records together, and every record is then read like one of a topic.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa

from backfill_cli.decode.avro import columns
from backfill_cli.decode.avro.schema import Type
from backfill_cli.decode.cursors import Cursors, Ints
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.formats.schemas import Unsupported

MAGIC = b"Obj\x01"
_SYNC = 16
_LARGEST = 1 << 28
"""Bytes of a block, or of a header's value: what says more is damaged."""

_GROUP = 1 << 25
"""Bytes of blocks whose records are found together."""


@dataclass(frozen=True, slots=True)
class Header:
    """schema: the writer's, as text. sync: what ends each block."""

    schema: str
    codec: str
    sync: bytes


def header(source: IO[bytes]) -> Header:
    """The header of a file, which is read to its end. Raises Unreadable, or Unsupported for an unknown codec."""
    if source.read(len(MAGIC)) != MAGIC:
        raise Unreadable("not an object container file of Avro")
    told: dict[str, bytes] = {}
    while count := _number(source):
        if count < 0:
            count, _ = -count, _number(source)
        for _ in range(count):
            name = _bytes(source, _number(source)).decode("utf-8", "replace")
            told[name] = _bytes(source, _number(source))
    try:
        schema = told["avro.schema"].decode()
    except (KeyError, UnicodeDecodeError):
        raise Unreadable("a header without a schema") from None
    codec = told.get("avro.codec", b"null").decode("utf-8", "replace")
    if codec not in _CODECS:
        raise Unsupported(f"codec '{codec}' is not read: {', '.join(_CODECS)} are")
    return Header(schema, codec, _bytes(source, _SYNC))


def blocks(source: IO[bytes], head: Header) -> Iterator[tuple[int, bytes]]:
    """(number of records, their bytes) of each block behind a header. Raises Unreadable."""
    number = 0
    while first := source.read(1):
        number += 1
        try:
            count = _number(source, first)
            raw = _bytes(source, _number(source))
            if _bytes(source, _SYNC) != head.sync:
                raise Unreadable("does not end with the file's marker")
            if count < 0:
                raise Unreadable(f"has {count} records")
            yield count, _CODECS[head.codec](raw)
        except (Unreadable, zlib.error, pa.ArrowException, OSError, ValueError) as exc:
            raise Unreadable(f"block {number:,}: {exc}") from None


def records(kind: Type, found: Iterator[tuple[int, bytes]]) -> Iterator[list[bytes]]:
    """The records of a file's blocks in order, in lists of several blocks. Raises Unreadable.

    kind: the type of a record.
    """
    number, held, size = 0, list[tuple[int, bytes]](), 0
    for one in found:
        held.append(one)
        size += len(one[1])
        if size > _GROUP:
            yield _cut(kind, held, number)
            number, held, size = number + len(held), [], 0
    if held:
        yield _cut(kind, held, number)


def _cut(kind: Type, held: list[tuple[int, bytes]], before: int) -> list[bytes]:
    """before: blocks before these, for errors."""
    counts = np.array([count for count, _ in held], np.int64)
    cursors = Cursors([raw for _, raw in held])
    begin = cursors.at
    cursors.fail(counts > (0 if kind.without_bytes else cursors.end - begin))  # each takes a byte
    bounds: list[tuple[Ints, Ints]] = []
    left = counts.copy()
    going = np.flatnonzero((left > 0) & ~cursors.failed)
    while len(going):
        part = cursors.take(going)
        columns.skip(kind, part)
        cursors.put(going, part)
        bounds.append((going, part.at - begin[going]))
        left[going] -= 1
        going = going[(left[going] > 0) & ~part.failed]
    wrong = np.flatnonzero(cursors.failed | cursors.left)
    if len(wrong):
        raise Unreadable(f"block {before + int(wrong[0]) + 1:,}: not {counts[wrong[0]]:,} records of its schema")
    return _pieces(held, bounds)


def _pieces(held: list[tuple[int, bytes]], bounds: list[tuple[Ints, Ints]]) -> list[bytes]:
    """The records of each block, by where they end in it. bounds: of each round, the blocks and these ends."""
    none = np.zeros(0, np.int64)
    of = np.concatenate([none, *(going for going, _ in bounds)])
    ends = np.concatenate([none, *(end for _, end in bounds)])
    order = np.argsort(of, kind="stable")
    found: list[bytes] = []
    last, at = -1, 0
    for block, end in zip(of[order].tolist(), ends[order].tolist(), strict=True):
        if block != last:
            last, at = block, 0
        found.append(held[block][1][at:end])
        at = end
    return found


def _number(source: IO[bytes], first: bytes = b"") -> int:
    found = 0
    for shift in range(0, 70, 7):
        byte = (first if first and not shift else _bytes(source, 1))[0]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1)
    raise Unreadable("a number of more than 64 bits")


def _bytes(source: IO[bytes], size: int) -> bytes:
    if not 0 <= size <= _LARGEST:
        raise Unreadable(f"a length of {size}")
    raw = source.read(size)
    if len(raw) < size:
        raise Unreadable("cut short")
    return bytes(raw)


def _inflated(raw: bytes) -> bytes:
    found = zlib.decompressobj(-15)
    made = found.decompress(raw, _LARGEST)
    if not found.eof:
        raise Unreadable("cut short, or too large")
    return made


def _from_snappy(raw: bytes) -> bytes:
    """Snappy has the size in front, and Avro a checksum behind."""
    size = 0
    for i, byte in enumerate(raw[:5]):
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            break
    if size > _LARGEST:
        raise Unreadable("too large")
    made = bytes(pa.Codec("snappy").decompress(raw[:-4], size, asbytes=True))
    if zlib.crc32(made) != int.from_bytes(raw[-4:], "big"):
        raise Unreadable("its checksum is another one")
    return made


def _from_zstd(raw: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as source:
        made: Any = source.read(_LARGEST)
    return bytes(made)


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda raw: raw,
    "deflate": _inflated,
    "snappy": _from_snappy,
    "zstandard": _from_zstd,
}
