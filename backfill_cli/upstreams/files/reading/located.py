"""Finds the line of a text file with the value that failed a job: looked up once, after the failure.

A row's number is the byte at which its block begins plus the rows before it in the block; the block is read again.
"""

import csv
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backfill_cli.errors import BackfillError, BadData
from backfill_cli.formats.exact import SHOWN
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark.failures import BadRow, reading
from backfill_cli.upstreams.files.options import CsvOptions, FileFormat
from backfill_cli.upstreams.files.reading import csv_files, json_rows, lines
from backfill_cli.upstreams.files.reading.lines import TextPart

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Row:
    """A row's first line, counted from 1 (0 if there is no row), and its values by column.

    texts: of a CSV record, one of which the error shows. crc: of a line of JSON.
    """

    line: int = 0
    values: Mapping[str, object] = field(default_factory=dict)
    texts: Sequence[str] = ()
    crc: int | None = None

    def is_meant(self, error: BadRow) -> bool:
        if error.crc is not None:
            return error.crc == self.crc
        return any(text and error.what.endswith(f": {text[:SHOWN]}") for text in self.texts)


@dataclass(frozen=True, slots=True)
class Held:
    """Where a failed row's file is, and how it is read. names: columns of CSV without a header, in order."""

    where: Place
    file: File
    kind: FileFormat | None
    csv: CsvOptions
    names: Sequence[str]
    key: Sequence[str]


def located(error: BadRow, held: Held) -> BackfillError | None:
    """The same error, with its row's line and key; None if this file does not have the value at that place.

    A table's snapshot and its changes can have files with the same name.
    """
    if held.kind not in ("csv", "json"):
        return None
    try:
        with reading(held.file.path, held.kind):
            row = _row(held, error.row)
    except BackfillError:  # the file has changed meanwhile: the error is reported without its line
        return None
    if not row.is_meant(error):
        return None
    keys = ", ".join(f"{name} {row.values[name]}" for name in held.key if name in row.values)
    of = f" (of {keys})" if keys else ""
    return BadData(f"{error.file}: line {row.line}{of}: {error.what}", error.template)


def line_of(held: Held, row: int) -> int:
    """The first line, counted from 1, of the row with this number; 0 if there is none."""
    return _row(held, row).line


def _row(held: Held, row: int) -> _Row:
    """The row with this number."""
    parts = csv_files.parts(held.where, [held.file], held.csv) if held.kind == "csv" else None
    for part in parts or lines.parts(held.where, [held.file], cut=True):
        if part.end is not None and not part.start <= row < part.end:
            continue
        blocks = csv_files.blocks(held.csv, part) if held.kind == "csv" else json_rows.blocks(part)
        for offset, block in blocks:
            if offset <= row < offset + len(block):
                rows = _of_csv(held, part, offset, block) if held.kind == "csv" else _of_json(block)
                end = b"\r" if held.kind == "csv" and b"\n" not in block else b"\n"
                for index, found in enumerate(rows):
                    if index == row - offset:
                        return replace(found, line=_lines_before(part, offset, end) + found.line)
    return _Row()


def _of_csv(held: Held, part: TextPart, offset: int, block: bytes) -> Iterator[_Row]:
    """Each record's first line in the block, and its fields; blank lines are skipped."""
    options, names = held.csv, held.names
    text = io.StringIO(block.decode("utf-8", "replace"), newline="")
    records = csv.reader(text, delimiter=options.delimiter, quotechar=options.quote)
    if options.header:
        names = csv_files.header(held.where, held.file, options)
    first = options.header and part.start == 0 and offset <= len(lines.BOM)
    before = 0
    for record in records:
        if record and not first:
            yield _Row(before + 1, dict(zip(names, record, strict=False)), record)
        first = first and not record
        before = records.line_num


def _of_json(block: bytes) -> Iterator[_Row]:
    for number, line in enumerate((one.strip(json_rows.WHITE) for one in block.split(b"\n")), 1):
        if line:
            yield _Row(number, _values(line), crc=zlib.crc32(line))


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


def _lines_before(part: TextPart, offset: int, end: bytes) -> int:
    """How many lines, each with this end, the file has before this byte."""
    found = 0
    with part.fs.open_input_stream(part.path, compression="detect") as source:
        while offset > 0 and (more := source.read(min(offset, _BLOCK))):
            found += more.count(end)
            offset -= len(more)
    return found
