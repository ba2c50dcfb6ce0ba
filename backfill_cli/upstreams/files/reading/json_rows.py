"""Reads files of JSON, one object per line, in Spark's Python workers.

Planning looks at the first lines: a declared column that none of them has is probably misspelt.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pyarrow as pa

from backfill_cli.contracts import Piece
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.decode.tokens import DEEP, fault_of
from backfill_cli.errors import BadData, in_config
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.model.units import spell_meant
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import OR_QUARANTINE, SHOWN
from backfill_cli.upstreams.files.reading import lines, text_rows
from backfill_cli.upstreams.files.reading.lines import TextPart, chunks, opened
from backfill_cli.upstreams.files.reading.text_rows import TextRows

_WHITE = b" \t\r"


def frame(spark: SparkSession, where: Place, files: Sequence[File], rows: TextRows) -> DataFrame:
    """See text_rows.frame: one object per line."""
    return text_rows.frame(spark, lines.parts(where, files, cut=True, slices=rows.slices), _made, rows)


def _made(rows: TextRows, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    decode = JsonRows(schema_text(rows.read), kept_apart=False)
    for piece in pieces:
        found = (_Block(rows, decode, offset, block) for offset, block in blocks(piece.what) if block.strip())
        yield from text_rows.batches(piece.what, rows, "json", found)


class Lines:
    """Of a text_rows.Block: the lines of a block that are not blank, each with its number and its byte there.

    unlike: the index of each line that is no JSON though the decoders would take it, and why. null: a line that is
    null.
    """

    line_end = b"\n"
    null: bytes | None = b"null"

    def __init__(self, offset: int, block: bytes) -> None:
        self.offset, self._lines = offset, list(numbered(block))
        odd = b"\t" in block or b"Infinity" in block
        told = ((index, _unlike_json(line)) for index, (_, _, line) in enumerate(self._lines)) if odd else ()
        self.unlike = {index: why for index, why in told if why is not None}

    @property
    def records(self) -> list[bytes]:
        """What is decoded: nothing instead of a line that is no JSON, though the decoders would take it."""
        return [b"" if index in self.unlike else line for index, (_, _, line) in enumerate(self._lines)]

    def numbers(self, before: int | None) -> list[int | None]:
        """Of each line, from 1; None if it is not known how many precede the block."""
        return [None if before is None else before + number + 1 for number, _, _ in self._lines]

    @property
    def places(self) -> pa.Array:
        """INT64, the byte of the file at which each begins."""
        return pa.array([self.offset + at for _, at, _ in self._lines], pa.int64())

    def record(self, index: int) -> tuple[int, bytes]:
        number, _, line = self._lines[index]
        return number, line

    def object(self, index: int) -> Mapping[str, object]:
        """A line's members; none if it is no object."""
        try:
            found = json.loads(self._lines[index][2], parse_float=str)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class _Block(Lines):
    """See text_rows.Block."""

    def __init__(self, rows: TextRows, decode: JsonRows, offset: int, block: bytes) -> None:
        super().__init__(offset, block)
        self._key, self.hint = rows.key, rows.hint
        decoded = decode(self.records)
        self.columns = decoded.columns
        errors = [] if decoded.error is None else decoded.error.to_pylist()
        self.faults = {index: error for index, error in enumerate(errors) if error is not None} | self.unlike
        if not rows.quarantine:  # which keeps the line
            self.faults = {index: f"{error}: {self._shown(index)}" for index, error in self.faults.items()}

    def _shown(self, index: int) -> str:
        return self.record(index)[1].decode("utf-8", "replace")[:SHOWN]

    def key(self, index: int) -> Mapping[str, object]:
        row = self.object(index)
        return {name: row[name] for name in self._key if row.get(name) is not None}


def _unlike_json(line: bytes) -> str | None:
    """Why a line is no JSON: the decoders take a tab inside a text and a bare infinity, which topics can have."""
    if b"\t" not in line and b"Infinity" not in line:
        return None
    try:
        json.loads(line, parse_constant=_only_nan)
    except RecursionError:
        return DEEP
    except ValueError as exc:
        return fault_of(exc)
    return None


def _only_nan(constant: str) -> None:
    if constant != "NaN":
        raise ValueError(f"{constant} is no number of JSON")


def numbered(block: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The lines that are not blank, each with the number of lines and of bytes before it."""
    at = 0
    for number, one in enumerate(block.split(b"\n")):
        if line := one.strip(_WHITE):
            yield number, at, line
        at += len(one) + 1


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
        some = islice(lines.forward(where, file, "json"), _LINES)
        for told in lines.objects(where, file, some, skip, way_on=OR_QUARANTINE):
            looked_at += 1
            for name in told:
                missing.pop(name, None)
                shown.setdefault(name)
            if not missing:
                return
    if looked_at and missing:
        name = next(iter(missing))
        meant = spell_meant(name, [other for other in shown if other not in columns])
        raise BadData(
            f"{where.shown}: column '{name}' of upstream.snapshot.schema is in none of the {looked_at:,} lines "
            f"read{meant}",
            in_config(f'if lines omit it when it is NULL: upstream.snapshot.sparse = ["{name}"]'),
        )
