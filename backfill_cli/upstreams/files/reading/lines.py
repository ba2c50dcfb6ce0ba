"""Reads text files as lines: the first and last ones for planning, or cut into parts for Spark's Python workers.

Each line belongs to the part in which it begins.
"""

import difflib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow.fs import FileSystem

from backfill_cli.contracts import Piece
from backfill_cli.errors import RETRIED, START_OVER, BadData, Transient
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import RENAME_HINT, reading

_BLOCK = 1 << 16
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_ENDS = {"csv": re.compile(rb"[\r\n]")}
_FEED = re.compile(rb"\n")
"""Line ends by format: in JSON a carriage return can be white space between tokens."""

LONGEST = 256 << 20
"""Bytes of the longest line that is read: a longer one would fill the memory."""


def is_compressed(file: File) -> bool:
    return file.name.endswith(_COMPRESSED)


def first(where: Place, file: File, what: str, skip: bool = False) -> str | None:
    """The first line that is not blank, without its line end; None if there is none. skip: see `objects`."""
    return next(forward(where, file, what, skip), None)


def forward(where: Place, file: File, what: str, skip: bool = False) -> Iterator[str]:
    """The lines that are not blank, without their line ends, in order. skip: see `objects`."""
    end = _ENDS.get(what, _FEED)
    with reading(file.path, what), where.fs.open_input_stream(file.path, compression="detect") as stream:
        begun: list[bytes] = []  # the blocks of a line whose end is not read yet
        while block := stream.read(_BLOCK):
            head, *more = end.split(block)
            begun.append(head)
            _refuse_long(file, begun)
            if more:
                *complete, rest = b"".join(begun), *more
                yield from (_text(line, skip) for line in complete if not _blank(line))
                begun = [rest]
        if not _blank(line := b"".join(begun)):
            yield _text(line, skip)


def last(where: Place, file: File, what: str, skip: bool = False) -> Iterator[str]:
    """The lines that are not blank, from the last one backwards. A compressed file is read whole into memory.

    skip: see `objects`.
    """
    end = _ENDS.get(what, _FEED)
    with reading(file.path, what):
        if is_compressed(file):
            with where.fs.open_input_stream(file.path, compression="detect") as stream:
                yield from (_text(line, skip) for line in _backwards(file, [stream.read()], end))
            return
        with where.fs.open_input_file(file.path) as source:
            yield from (_text(line, skip) for line in _backwards(file, _blocks(source, source.size()), end))


def _blocks(source: Any, size: int) -> Iterator[bytes]:
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        yield source.read_at(end - start, start)
        end = start


def _backwards(file: File, blocks: Iterable[bytes], end: re.Pattern[bytes]) -> Iterator[bytes]:
    ended: list[bytes] = []  # the blocks, from the last one backwards, of a line whose beginning is not read yet
    for block in blocks:
        head, *complete = end.split(block)
        if complete:
            complete[-1] += b"".join(reversed(ended))
            yield from (line for line in reversed(complete) if not _blank(line))
            ended = []
        ended.append(head)
        _refuse_long(file, ended)
    if not _blank(line := b"".join(reversed(ended))):
        yield line


def _refuse_long(file: File, blocks: Iterable[bytes]) -> None:
    if sum(map(len, blocks)) > LONGEST:
        raise too_long(file.path)


def too_long(path: str) -> BadData:
    return BadData(
        f"{path}: a line is longer than {LONGEST >> 20} MiB",
        "write one row per line, and end lines with line feeds; for a file of the snapshot, then " + START_OVER,
    )


def _blank(line: bytes) -> bool:
    return line.strip() in (b"", b"null")


def _text(line: bytes, skip: bool) -> str:
    return line.decode("utf-8", "surrogateescape" if skip else "strict")


def nearest(name: str, others: Sequence[str]) -> str | None:
    """The one of these names that a declared column probably means."""
    low = {other.strip().lower(): other for other in reversed(others)}
    found = difflib.get_close_matches(name.strip().lower(), list(low), 1, 0.6)
    return low[found[0]] if found else None


def objects(
    file: File, some: Iterable[str], skip: bool, numbers: Callable[[str], Any] = str
) -> Iterator[dict[str, Any]]:
    """These lines of JSON as objects; see `parsed`. skip: leave out what is none: it is quarantined as a row."""
    for line in some:
        try:
            line.encode()
            yield parsed(file, line, numbers)
        except (BadData, UnicodeEncodeError):
            if not skip:
                raise


def parsed(file: File, line: str, numbers: Callable[[str], Any] = str) -> dict[str, Any]:
    """One JSON line as an object; numbers with a point become `numbers`: text, so that nothing is rounded.

    Raises BadData naming the file if the line is cut short or not one object.
    """
    try:
        value = json.loads(line.removeprefix("\ufeff"), parse_float=numbers)
    except (ValueError, RecursionError) as exc:  # nested hundreds deep
        shown = (line if len(line) <= 120 else f"…{line[-120:]}").replace("\r", "\\r")
        if isinstance(exc, json.JSONDecodeError) and exc.msg == "Extra data":
            raise BadData(
                f"{file.path}: more than one JSON value on a line: {shown}",
                "write one object per line, and end lines with line feeds",
            ) from exc
        raise BadData(f"{file.path}: not a complete JSON line: {shown}", RENAME_HINT) from exc
    if not isinstance(value, dict):
        raise BadData(f"{file.path}: a line is not a JSON object: {line[:120]}", "write one object per line")
    return value


BLOCK_BYTES = 8 << 20
PART_BYTES = 32 << 20
_ROW_BYTES = 100  # assumed size of a row when parts are divided among tasks
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class TextPart:
    """The lines of a file that begin at `start <= byte < end`; end None: the whole file, which cannot be cut.

    name: as listed. size: bytes of the part; of the file if it is compressed.
    """

    fs: FileSystem
    path: str
    name: str
    size: int
    start: int = 0
    end: int | None = None


def parts(where: Place, files: Sequence[File], cut: bool) -> Iterator[TextPart]:
    """The parts of these files. cut: whether a line end always ends a record, so that files can be cut."""
    for file in files:
        if not cut or is_compressed(file):
            yield TextPart(where.fs, file.path, file.name, file.size)
            continue
        for start in range(0, file.size, PART_BYTES):
            end = min(file.size, start + PART_BYTES)
            yield TextPart(where.fs, file.path, file.name, end - start, start, end)


def packed(found: Iterable[TextPart], cores: int) -> tuple[tuple[Piece, ...], ...]:
    """The parts grouped into tasks, each about one core's share."""
    return arrow_tasks.packed([(Piece(0, part), rows_of(part)) for part in found], cores)


def rows_of(part: TextPart) -> int:
    """About how many rows a part holds."""
    return max(1, part.size // _ROW_BYTES)


def whole(part: TextPart) -> Any:
    """The part's file from its beginning, decompressed."""
    return part.fs.open_input_stream(part.path, compression="detect")


@contextmanager
def opened(part: TextPart) -> Iterator[tuple[io.BufferedReader, int]]:
    """The file, positioned where the part's first line begins, and that byte: `end` if none begins there."""
    with whole(part) if part.end is None else part.fs.open_input_file(part.path) as raw:
        source = io.BufferedReader(raw, _BLOCK)
        if part.start and part.end is not None:
            source.seek(part.start - 1)
            begin = part.start - 1 + len(source.readline(part.end - part.start + 1))
        else:
            begin = len(source.read(len(BOM))) if source.peek(len(BOM)).startswith(BOM) else 0
        yield source, begin


def chunks(source: io.BufferedReader, part: TextPart, at: int) -> Iterator[tuple[bytes, bool]]:
    """The bytes from `at` to the end of the line that begins before `end`, in chunks; whether each is the last.

    Raises Transient for a file that is shorter than it was when it was listed.
    """
    last = False
    while not last:
        size = BLOCK_BYTES if part.end is None else min(BLOCK_BYTES, part.end - at)
        more = source.read(size) if size > 0 else b""
        at += len(more)
        if size > 0 and not more and part.end is not None:
            raise Transient(
                f"{part.path}: it became shorter while it was read: {at:,} bytes, {part.end:,} were listed",
                RETRIED,
            )
        last = not more or at == part.end
        if more and last and not more.endswith(b"\n"):
            rest = source.readline(LONGEST)
            if len(rest) == LONGEST:
                raise too_long(part.path)
            more += rest
        yield more, last
