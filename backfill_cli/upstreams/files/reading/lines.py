"""Reads the first and last lines of a text file, which is all that planning needs."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from backfill_cli.errors import BadData
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark.failures import RENAME_HINT, reading

_BLOCK = 1 << 16
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_END = re.compile(rb"[\r\n]")


def is_compressed(file: File) -> bool:
    return file.name.endswith(_COMPRESSED)


def first(where: Place, file: File, what: str) -> str | None:
    """The first line that is not blank, without its line end; None if there is none."""
    return next(forward(where, file, what), None)


def forward(where: Place, file: File, what: str) -> Iterator[str]:
    """The lines that are not blank, without their line ends, in order."""
    with reading(file.path, what), where.fs.open_input_stream(file.path, compression="detect") as stream:
        rest = b""
        while block := stream.read(_BLOCK):
            *complete, rest = _END.split(rest + block)
            yield from (str(line, "utf-8") for line in complete if not _blank(line))
        if not _blank(rest):
            yield str(rest, "utf-8")


def last(where: Place, file: File, what: str) -> Iterator[str]:
    """The lines that are not blank, from the last one backwards. A compressed file is read whole into memory."""
    with reading(file.path, what):
        if is_compressed(file):
            with where.fs.open_input_stream(file.path, compression="detect") as stream:
                yield from (line.decode() for line in _backwards([stream.read()]))
            return
        with where.fs.open_input_file(file.path) as source:
            yield from (line.decode() for line in _backwards(_blocks(source, source.size())))


def _blocks(source: Any, size: int) -> Iterator[bytes]:
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        yield source.read_at(end - start, start)
        end = start


def _backwards(blocks: Any) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        head, *complete = _END.split(block + rest)
        yield from (line for line in reversed(complete) if not _blank(line))
        rest = head
    if not _blank(rest):
        yield rest


def _blank(line: bytes) -> bool:
    return line.strip() in (b"", b"null")


def parsed(file: File, line: str, numbers: Callable[[str], Any] = str) -> dict[str, Any]:
    """One JSON line as an object; numbers with a point become `numbers`: text, so that nothing is rounded.

    Raises BadData naming the file if the line is cut short or not an object.
    """
    try:
        value = json.loads(line.removeprefix("\ufeff"), parse_float=numbers)
    except ValueError as exc:
        shown = line if len(line) <= 120 else f"…{line[-120:]}"
        raise BadData(f"{file.path}: not a complete JSON line: {shown}", RENAME_HINT) from exc
    if not isinstance(value, dict):
        raise BadData(f"{file.path}: a line is not a JSON object: {line[:120]}", "write one object per line")
    return value
