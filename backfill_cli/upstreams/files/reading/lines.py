"""Reads the first and last lines of a text file, which is all that planning needs."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from backfill_cli.errors import START_OVER, BadData
from backfill_cli.formats.listing import File, Place
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


def first(where: Place, file: File, what: str) -> str | None:
    """The first line that is not blank, without its line end; None if there is none."""
    return next(forward(where, file, what), None)


def forward(where: Place, file: File, what: str) -> Iterator[str]:
    """The lines that are not blank, without their line ends, in order."""
    end = _ENDS.get(what, _FEED)
    with reading(file.path, what), where.fs.open_input_stream(file.path, compression="detect") as stream:
        begun: list[bytes] = []  # the blocks of a line whose end is not read yet
        while block := stream.read(_BLOCK):
            head, *more = end.split(block)
            begun.append(head)
            _refuse_long(file, begun)
            if more:
                *complete, rest = b"".join(begun), *more
                yield from (str(line, "utf-8") for line in complete if not _blank(line))
                begun = [rest]
        if not _blank(line := b"".join(begun)):
            yield str(line, "utf-8")


def last(where: Place, file: File, what: str) -> Iterator[str]:
    """The lines that are not blank, from the last one backwards. A compressed file is read whole into memory."""
    end = _ENDS.get(what, _FEED)
    with reading(file.path, what):
        if is_compressed(file):
            with where.fs.open_input_stream(file.path, compression="detect") as stream:
                yield from (line.decode() for line in _backwards(file, [stream.read()], end))
            return
        with where.fs.open_input_file(file.path) as source:
            yield from (line.decode() for line in _backwards(file, _blocks(source, source.size()), end))


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
        f"write one row per line, and end lines with line feeds; for a file of the snapshot, then {START_OVER}",
    )


def _blank(line: bytes) -> bool:
    return line.strip() in (b"", b"null")


def parsed(file: File, line: str, numbers: Callable[[str], Any] = str) -> dict[str, Any]:
    """One JSON line as an object; numbers with a point become `numbers`: text, so that nothing is rounded.

    Raises BadData naming the file if the line is cut short or not one object.
    """
    try:
        value = json.loads(line.removeprefix("\ufeff"), parse_float=numbers)
    except ValueError as exc:
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
