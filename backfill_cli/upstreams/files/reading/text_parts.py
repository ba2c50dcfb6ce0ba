"""Cuts text files into parts for Spark's Python workers: each line belongs to the part in which it begins."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import Piece
from backfill_cli.errors import RETRIED, Transient
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark import arrow_tasks
from backfill_cli.upstreams.files.reading import lines

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

BLOCK_BYTES = 8 << 20
PART_BYTES = 32 << 20
_STEP = 1 << 16
_ROW_BYTES = 100  # assumed size of a row when parts are divided among tasks
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class TextPart:
    """The lines of a file that begin at `start <= byte < end`; end None: the whole file, which cannot be cut.

    name: as listed. size: bytes of the part; of the file if it is compressed.
    """

    fs: "FileSystem"
    path: str
    name: str
    size: int
    start: int = 0
    end: int | None = None


def parts(where: Place, files: Sequence[File], cut: bool) -> Iterator[TextPart]:
    """The parts of these files. cut: whether a line end always ends a record, so that files can be cut."""
    for file in files:
        if not cut or lines.is_compressed(file):
            yield TextPart(where.fs, file.path, file.name, file.size)
            continue
        for start in range(0, file.size, PART_BYTES):
            end = min(file.size, start + PART_BYTES)
            yield TextPart(where.fs, file.path, file.name, end - start, start, end)


def packed(found: Iterable[TextPart], cores: int) -> tuple[tuple[Piece, ...], ...]:
    """The parts grouped into tasks, each about one core's share."""
    return arrow_tasks.packed([(Piece(0, part), max(1, part.size // _ROW_BYTES)) for part in found], cores)


def chunks(source: Any, part: TextPart, at: int) -> Iterator[tuple[bytes, bool]]:
    """The bytes from `at` to the end of the line that begins before `end`, in chunks; whether each is the last.

    Raises Transient for a file that is shorter than it was when it was listed.
    """
    while True:
        size = BLOCK_BYTES if part.end is None else min(BLOCK_BYTES, part.end - at)
        more = source.read(size) if size > 0 else b""
        at += len(more)
        if size > 0 and not more and part.end is not None:
            raise Transient(
                f"{part.path}: it became shorter while it was read: {at:,} bytes, {part.end:,} were listed",
                RETRIED,
            )
        if not more:
            yield b"", True
            return
        if part.end is not None and at >= part.end:
            yield more + _rest_of_line(source, more, part.path), True
            return
        yield more, False


def _rest_of_line(source: Any, before: bytes, path: str) -> bytes:
    rest = []
    left = lines.LONGEST
    while not before.endswith(b"\n"):
        before = source.read(_STEP)
        if not before:
            break
        end = before.find(b"\n") + 1
        rest.append(before[:end] if end else before)
        left -= len(before)
        if end:
            break
        if left < 0:
            raise lines.too_long(path)
    return b"".join(rest)


def _next_line(source: Any, part: TextPart) -> int:
    """The byte at which the part's first line begins; the part's end, or after it, if none begins there."""
    assert part.end is not None
    at = part.start - 1
    source.seek(at)
    while at < part.end:
        block: bytes = source.read(_STEP)
        end = block.find(b"\n") + 1
        if end or not block:
            return at + end
        at += len(block)
    return at


@contextmanager
def opened(part: TextPart) -> Iterator[tuple[Any, int]]:
    """The file, positioned where the part's first line begins, and that byte."""
    if part.end is None:
        with part.fs.open_input_stream(part.path, compression="detect") as source:
            yield _Unmarked(source), 0
        return
    with part.fs.open_input_file(part.path) as source:
        begin = part.start
        if begin:
            begin = _next_line(source, part)
        elif source.read(len(BOM)) == BOM:
            begin = len(BOM)
        source.seek(begin)
        yield source, begin


class _Unmarked:
    """A stream without the byte order mark at its beginning."""

    def __init__(self, source: Any) -> None:
        self._source, self._first = source, True

    def read(self, size: int) -> bytes:
        found: bytes = self._source.read(size)
        if self._first:
            self._first = False
            if found.startswith(BOM):
                more: bytes = self._source.read(len(BOM))
                return found[len(BOM) :] + more
        return found
