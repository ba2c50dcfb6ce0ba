"""Finds the line of a Debezium file with the value that failed a job: looked up once, after the failure.

A row's number is the byte at which its block begins plus the rows before it in the block; the block is read again.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from backfill_cli.errors import BackfillError, BadData
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark.failures import BadRow, reading
from backfill_cli.upstreams.files.reading import json_rows, lines
from backfill_cli.upstreams.files.reading.lines import TextPart

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Row:
    """A row's line, counted from 1 (0 if there is no row), its values by column, and the CRC-32 of the line."""

    line: int = 0
    values: Mapping[str, object] = field(default_factory=dict)
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Where a failed row's file is, and how it is read."""

    where: Place
    file: File
    key: Sequence[str]


def located(error: BadRow, held: Held) -> BackfillError | None:
    """The same error, with its row's line and key; None if this file does not have the value at that place.

    A table's snapshot and its changes can have files with the same name.
    """
    try:
        with reading(held.file.path, "json"):
            row = _row(held, error.row)
    except BackfillError:  # the file has changed meanwhile: the error is reported without its line
        return None
    if error.crc != row.crc:
        return None
    keys = ", ".join(f"{name} {row.values[name]}" for name in held.key if name in row.values)
    of = f" (of {keys})" if keys else ""
    return BadData(f"{error.file}: line {row.line}{of}: {error.what}", error.hint)


def _row(held: Held, row: int) -> _Row:
    """The row with this number."""
    for part in lines.parts(held.where, [held.file], cut=True):
        if part.end is not None and not part.start <= row < part.end:
            continue
        for offset, block in json_rows.blocks(part):
            if offset <= row < offset + len(block):
                for index, found in enumerate(_of_json(block)):
                    if index == row - offset:
                        return replace(found, line=_lines_before(part, offset) + found.line)
    return _Row()


def _of_json(block: bytes) -> Iterator[_Row]:
    for number, line in json_rows.numbered(block):
        yield _Row(number + 1, _values(line), crc=zlib.crc32(line))


def _values(line: bytes) -> Mapping[str, object]:
    """The values of a line of JSON by column; those of the row that a change event of Debezium is about."""
    try:
        told = json.loads(line, parse_float=str)
    except ValueError:
        return {}
    row = told if isinstance(told, dict) else {}
    payload = row.get("payload")
    event = payload if isinstance(payload, dict) else row
    image = event.get("before" if event.get("op") == "d" else "after")
    return image if isinstance(image, dict) else row


def _lines_before(part: TextPart, offset: int) -> int:
    """How many lines the file has before this byte."""
    found = 0
    with closing(lines.whole(part)) as source:
        while offset > 0 and (more := source.read(min(offset, _BLOCK))):
            found += more.count(b"\n")
            offset -= len(more)
    return found
