"""Reads text files as lines: the first and last ones for planning, or cut into parts for Spark's Python workers.

Each line belongs to the part in which it begins.
"""

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from pyarrow.fs import FileSystem

from backfill_cli.contracts import Piece
from backfill_cli.decode import tokens
from backfill_cli.errors import RETRIED, START_OVER, BadData, Hint, Transient
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import RENAME_HINT, SHOWN, reading

_BLOCK = 1 << 16
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_ENDS = {"csv": re.compile(rb"[\r\n]")}
_FEED = re.compile(rb"\n")
"""Line ends by format: in JSON a carriage return can be white space between tokens."""

LONGEST = 256 << 20
"""Bytes of the longest line that is read: a longer one would fill the memory."""


def is_compressed(file: File) -> bool:
    return file.name.endswith(_COMPRESSED)


def first(where: Place, file: File, what: str) -> str | None:
    """The first line that is not blank, without its line end; None if there is none."""
    return next(forward(where, file, what), None)


def forward(where: Place, file: File, what: str) -> Iterator[str]:
    """The lines that are not blank, without their line ends, in order; see `_text`."""
    return (_text(line) for line, _ in _ended(where, file, what) if not _blank(line))


def _ended(where: Place, file: File, what: str) -> Iterator[tuple[bytes, bool]]:
    """All lines, without their line ends, and whether each has one."""
    end = _ENDS.get(what, _FEED)
    with reading(file.path, what), where.fs.open_input_stream(file.path, compression="detect") as stream:
        begun: list[bytes] = []  # the blocks of a line whose end is not read yet
        while block := stream.read(_BLOCK):
            head, *more = end.split(block)
            begun.append(head)
            _refuse_long(file, begun)
            if more:
                *complete, rest = b"".join(begun), *more
                yield from ((line, True) for line in complete)
                begun = [rest]
        yield b"".join(begun), False


def count(where: Place, file: File, what: str) -> int:
    """How many lines a file has, with those that are `null`, without blank ones."""
    return sum(1 for line, _ in _ended(where, file, what) if line.strip())


def last(where: Place, file: File, what: str) -> Iterator[str]:
    """The lines that are not blank, from the last one backwards; see `_text`. A compressed file is read whole into
    memory.
    """
    end = _ENDS.get(what, _FEED)
    with reading(file.path, what):
        if is_compressed(file):
            with where.fs.open_input_stream(file.path, compression="detect") as stream:
                yield from map(_text, _backwards(file, [stream.read()], end))
            return
        with where.fs.open_input_file(file.path) as source:
            yield from map(_text, _backwards(file, _blocks(source, source.size()), end))


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


def _text(line: bytes) -> str:
    """Bytes that are not UTF-8 become surrogates, so that a line that is no text can be found again, and named."""
    return line.decode("utf-8", "surrogateescape")


def is_text(line: str) -> bool:
    """Whether a line was UTF-8: see `_text`."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def objects(
    where: Place,
    file: File,
    some: Iterable[str],
    skip: bool,
    numbers: Callable[[str], Any] = str,
    way_on: Hint = Hint(),  # noqa: B008
) -> Iterator[dict[str, Any]]:
    """These lines of JSON as objects; see `parsed`. skip: leave out what is none: it is quarantined as a row."""
    for line in some:
        try:
            yield parsed(where, file, line, numbers, way_on)
        except BadData:
            if not skip:
                raise


def parsed(
    where: Place,
    file: File,
    line: str,
    numbers: Callable[[str], Any] = str,
    way_on: Hint = Hint(),  # noqa: B008
) -> dict[str, Any]:
    """One JSON line as an object; numbers with a point become `numbers`: text, so that nothing is rounded.

    Raises BadData naming the line if it is cut short or not one object. way_on: see `refused`.
    """
    try:
        value = json.loads(line.removeprefix("\ufeff"), parse_float=numbers)
        if isinstance(value, dict) and is_text(line):
            return value
        why = tokens.NO_OBJECT
    except RecursionError:
        why = tokens.DEEP
    except ValueError as exc:
        why = tokens.fault_of(exc)
    why = why if is_text(line) else tokens.NO_TEXT
    raise refused(where, file, line, why, _ONE_EACH if why in (tokens.MORE, tokens.NO_OBJECT) else "", way_on)


_ONE_EACH = "write one object per line, and end lines with line feeds"


def refused(
    where: Place,
    file: File,
    line: str,
    why: str,
    hint: Hint | str = "",
    way_on: Hint = Hint(),  # noqa: B008
) -> BadData:
    """The error for a line as `forward` and `last` show it, with its number.

    hint: by default, to correct the line, or to wait for the rest of one that has no end. way_on: what else can be
    done about such a line.
    """
    sought = line.encode("utf-8", "surrogateescape").strip()
    every = enumerate(_ended(where, file, "json"), 1)
    number, ended = next(((at, ended) for at, (one, ended) in every if one.strip() == sought), (0, True))
    shown = sought.decode("utf-8", "replace").replace("\r", "\\r")[:SHOWN]
    hint = Hint.of(hint or ("correct the line" if ended else RENAME_HINT)) + way_on
    return BadData(f"{file.path}: line {number}: {why}: {shown}", hint)


BLOCK_BYTES = 8 << 20
PART_BYTES = 32 << 20
SLICE_PART_BYTES = 4 << 20
SLICED_BYTES = 1 << 20
"""A file of text that is larger is read in slices: a smaller one would not show a slice in its progress."""
LEAST_SLICE = 4
"""Bytes of a slice: what begins a file (BOM) is in its first one, with the first byte of its first line."""
_ROW_BYTES = 100  # assumed size of a row when parts are divided among tasks
BOM = b"\xef\xbb\xbf"


class Part(Protocol):
    """A part of a file. name: as listed. path: within `fs`."""

    @property
    def fs(self) -> FileSystem: ...

    @property
    def path(self) -> str: ...

    @property
    def name(self) -> str: ...


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


Slices = Mapping[str, tuple[int, int]]
"""By the name of a file the lines that are read of it: those that begin at `start <= byte < end`."""

WHOLE: Slices = {}


def parts(where: Place, files: Sequence[File], cut: bool, slices: Slices = WHOLE) -> Iterator[TextPart]:
    """The parts of these files. cut: whether a line end always ends a record, so that files can be cut."""
    for file in files:
        if not cut or is_compressed(file):
            yield TextPart(where.fs, file.path, file.name, file.size)
            continue
        begin, stop = slices.get(file.name, (0, file.size))
        step = SLICE_PART_BYTES if file.name in slices else PART_BYTES
        for start in range(begin, stop, step):
            end = min(stop, start + step)
            yield TextPart(where.fs, file.path, file.name, end - start, start, end)


def end_of(where: Place, file: File, after: int, rows: int, what: str) -> int:
    """A byte up to which about so many lines begin, from a byte on; at or beyond the file's size if all do.

    Exact as far as the lines of one block reach; beyond it they count as long as these. Whoever reads up to any
    byte reads each line once, as it is read where it begins.
    """
    if after + rows >= file.size:  # no line is shorter than its end
        return file.size
    with reading(file.path, what), where.fs.open_input_file(file.path) as source:
        block = source.read_at(min(_BLOCK, file.size - after), after)
    ends = [found.end() for found in islice(_FEED.finditer(block), rows)]
    if len(ends) == rows:
        return after + max(ends[-1], LEAST_SLICE)
    length = ends[-1] / len(ends) if ends else len(block)
    return after + max(math.ceil(rows * length), LEAST_SLICE)


def packed(found: Iterable[TextPart], cores: int) -> tuple[tuple[Piece, ...], ...]:
    """The parts grouped into tasks, each about one core's share."""
    return arrow_tasks.packed([(Piece(0, part), rows_of(part)) for part in found], cores)


def rows_of(part: TextPart) -> int:
    """About how many rows a part holds."""
    return max(1, part.size // _ROW_BYTES)


def whole(part: Part) -> Any:
    """The part's file from its beginning, decompressed."""
    return part.fs.open_input_stream(part.path, compression="detect")


_STEP = 1 << 20


def ends_before(part: TextPart, byte: int) -> tuple[int, int]:
    """How many line feeds and how many carriage returns the part's file has before a byte."""
    feeds = returns = 0
    with whole(part) as source:
        while byte > 0 and (more := source.read(min(_STEP, byte))):
            feeds, returns, byte = feeds + more.count(b"\n"), returns + more.count(b"\r"), byte - len(more)
    return feeds, returns


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
