"""Reads files of JSON, one object per line, in Spark's Python workers.

Planning looks at the first lines: a declared column that none of them has is probably misspelt.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import pyarrow as pa

from backfill_cli.contracts import Piece, own
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.decode.tokens import NOT_WHOLE
from backfill_cli.errors import BadData, Hint, in_config
from backfill_cli.formats.exact import SHOWN
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import reading
from backfill_cli.upstreams.files.reading import lines, text_rows
from backfill_cli.upstreams.files.reading.lines import TextPart, chunks, opened
from backfill_cli.upstreams.files.reading.text_rows import BadRows, TextRows

_WHITE = b" \t\r"


def frame(spark: SparkSession, where: Place, files: Sequence[File], rows: TextRows) -> DataFrame:
    """See text_rows.frame: one object per line."""
    return text_rows.frame(spark, lines.parts(where, files, cut=True), _made, rows)


def _made(rows: TextRows, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    decode = JsonRows(schema_text(rows.columns), kept_apart=False)
    for piece in pieces:
        with reading(piece.what.path, "json", rows.hint), BadRows(piece.what, rows) as bad:
            for offset, block in blocks(piece.what):
                if block.strip():
                    yield from bad.apart(_Block(rows, decode, offset, block))


class _Block:
    """See text_rows.Block: the lines of a block that are not blank."""

    line_end = b"\n"

    def __init__(self, rows: TextRows, decode: JsonRows, offset: int, block: bytes) -> None:
        self.offset, self._key = offset, rows.key
        self._lines = list(numbered(block))
        decoded = decode([line for _, line in self._lines])
        self.columns = decoded.columns
        errors = [] if decoded.error is None else decoded.error.to_pylist()
        self.faults = {index: error for index, error in enumerate(errors) if error is not None}
        for index, (_, line) in enumerate(self._lines):
            odd = b"\t" in line or b"Infinity" in line
            if odd and index not in self.faults and not _is_strict(line):
                self.faults[index] = NOT_WHOLE
        if not rows.quarantine:  # which keeps the line
            self.faults = {index: f"{error}: {self._shown(index)}" for index, error in self.faults.items()}

    def _shown(self, index: int) -> str:
        return self._lines[index][1].decode("utf-8", "replace")[:SHOWN]

    def record(self, index: int) -> tuple[int, bytes]:
        return self._lines[index]

    def key(self, index: int) -> Mapping[str, object]:
        try:
            row = json.loads(self._lines[index][1], parse_float=str)
        except (ValueError, RecursionError):
            return {}
        return {name: row[name] for name in self._key if name in row} if isinstance(row, dict) else {}


def _is_strict(line: bytes) -> bool:
    """Whether a line is JSON: the decoder takes a tab inside a text and a bare infinity, which topics can have."""
    try:
        json.loads(line, parse_constant=_only_nan)
    except (ValueError, RecursionError):
        return False
    return True


def _only_nan(constant: str) -> None:
    if constant != "NaN":
        raise ValueError(constant)


def numbered(block: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with the number of lines before it."""
    for number, one in enumerate(block.split(b"\n")):
        if line := one.strip(_WHITE):
            yield number, line


def line_frame(spark: SparkSession, where: Place, files: Sequence[File], hint: Hint | str) -> DataFrame:
    """`own.FILE, own.AT, own.LINE BINARY`: the lines that are not blank. Executors need this package.

    hint: of a damaged file.
    """
    schema = f"{own.FILE} STRING, {own.ROW} BIGINT, {own.LINE} BINARY"
    parts = lines.parts(where, files, cut=True)
    return text_rows.placed(spark, parts, partial(_line_batches, hint), schema, own.LINE)


def _line_batches(hint: Hint | str, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    for piece in pieces:
        with reading(piece.what.path, "json", hint):
            for offset, block in blocks(piece.what):
                found = [line for _, line in numbered(block)]
                files = pa.repeat(pa.scalar(piece.what.name, pa.string()), len(found))
                at = pa.array(range(offset, offset + len(found)), pa.int64())
                made = {own.FILE: files, own.ROW: at, own.LINE: pa.array(found, pa.binary())}
                yield pa.RecordBatch.from_pydict(made)


def blocks(part: TextPart) -> Iterator[tuple[int, bytes]]:
    """Complete lines in blocks, each with the byte at which it begins."""
    with opened(part) as (source, at):
        held = b""
        for more, last in chunks(source, part, at):
            block = held + more
            cut = len(block) if last else block.rfind(b"\n") + 1
            if not cut and len(block) > lines.LONGEST:
                raise lines.too_long(part.path)
            if cut:
                yield at, block[:cut]
            held, at = block[cut:], at + cut


_FILES = 8
_LINES = 1_000
"""The lines per file and the files that are read: as a rule the first line shows all columns."""


def refuse_unseen(
    where: Place, files: Sequence[File], columns: Columns, sparse: Sequence[str], skip: bool
) -> None:
    """Raises BadData for a declared column that is in none of the lines read, unless it is `sparse`.

    Lines can omit NULLs, as Spark's do, and then do not show whether a column is misspelt or always NULL.
    skip: see lines.objects.
    """
    missing = {name: None for name in columns if name not in sparse}
    shown: dict[str, None] = {}
    looked_at = 0
    for file in files[:_FILES]:
        for told in lines.objects(file, islice(lines.forward(where, file, "json", skip), _LINES), skip):
            looked_at += 1
            for name in told:
                missing.pop(name, None)
                shown.setdefault(name)
            if not missing:
                return
    if looked_at and missing:
        name = next(iter(missing))
        near = lines.nearest(name, [other for other in shown if other not in columns])
        hint = f"did you mean '{near}'? " if near else ""
        raise BadData(
            f"{where.shown}: column '{name}' of upstream.snapshot.schema is in none of the {looked_at} lines read",
            in_config(f'{hint}If lines omit it when it is NULL: upstream.snapshot.sparse = ["{name}"]'),
        )
