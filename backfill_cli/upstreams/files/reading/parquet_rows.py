"""Reads Parquet files in Spark's Python workers, where a row that cannot be read is told from the others.

A row has no line, and no bytes of its own: it is shown by its number, and kept as JSON.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSystem

from backfill_cli.contracts import ArrowTasks, Piece
from backfill_cli.errors import Hint
from backfill_cli.formats import group_slices, row_groups
from backfill_cli.formats.conditions import meeting
from backfill_cli.formats.group_slices import GroupSlice
from backfill_cli.formats.listing import File, Place
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.pushdown import Condition
from backfill_cli.model.schema import schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.upstreams.files.reading import text_rows
from backfill_cli.upstreams.files.reading.footers import THREADS, footer, group_rows
from backfill_cli.upstreams.files.reading.text_rows import TextRows


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """A slice of a file. name: as listed. path: within `fs`."""

    fs: FileSystem
    path: str
    name: str
    slice: GroupSlice

    def __str__(self) -> str:
        return self.path if self.slice.after == 0 else f"{self.path}, from row {self.slice.after + 1} on"


def parts(where: Place, file: File, groups: Sequence[int], after: int, up_to: int) -> list[ParquetPart]:
    """The rows `after <= row index < up_to` of a file. groups: rows of each row group."""
    slices = group_slices.tasks(groups, after, up_to) if after < up_to else ()
    return [ParquetPart(where.fs, file.path, file.name, one) for one in slices]


def tasks(found: Iterable[tuple[int, ParquetPart]], cores: int, rows: TextRows) -> ArrowTasks:
    """The columns, perhaps `own.QUARANTINED`, of these parts. found: each with the index of the plan's read."""
    schema = schema_text(rows.columns | text_rows.quarantined(rows))
    return ArrowTasks(partial(_unplaced, rows, _types(rows)), _packed(found, cores), schema)


def frame(
    spark: SparkSession, found: Iterable[ParquetPart], rows: TextRows, where: Sequence[Condition] = ()
) -> DataFrame:
    """See text_rows.of_tasks. where: rows that do not meet all of these are left out."""
    pieces = _packed(((0, part) for part in found), arrow_tasks.cores(spark))
    return text_rows.of_tasks(spark, pieces, partial(_made, rows, _types(rows), tuple(where)), rows)


def whole_files(spark: SparkSession, where: Place, files: Sequence[File], rows: TextRows) -> DataFrame:
    """`frame` of all rows of these files."""
    with ThreadPoolExecutor(THREADS) as pool:
        groups = list(pool.map(lambda file: group_rows(footer(where, file)), files))
    found = (parts(where, file, one, 0, sum(one)) for file, one in zip(files, groups, strict=True))
    return frame(spark, chain.from_iterable(found), rows)


def _packed(found: Iterable[tuple[int, ParquetPart]], cores: int) -> tuple[tuple[Piece, ...], ...]:
    pieces = [(Piece(read, part), part.slice.up_to - part.slice.after) for read, part in found]
    return arrow_tasks.packed(pieces, cores)


def _types(rows: TextRows) -> pa.Schema:
    return pa.schema([(name, arrow_type(column["type"])) for name, column in rows.columns.items()])


def _made(
    rows: TextRows, types: pa.Schema, where: Sequence[Condition], pieces: Sequence[Piece]
) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    for piece in pieces:
        blocks = _blocks(rows, types, piece.what, where)
        for batch in text_rows.batches(piece.what, rows, "parquet", blocks):
            yield meeting(batch, where)


def _unplaced(rows: TextRows, types: pa.Schema, part: ParquetPart) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    for _, columns in text_rows.unplaced(part, rows, "parquet", _blocks(rows, types, part)):
        yield pa.RecordBatch.from_pydict(columns)


def _blocks(
    rows: TextRows, types: pa.Schema, part: ParquetPart, where: Sequence[Condition] = ()
) -> "Iterator[_Block]":
    for first, batch in row_groups.raw_batches(part.fs, part.path, part.slice, types.names, where):
        yield _Block(rows, types, first, batch)


class _Block:
    """See text_rows.Block. first: the index of its first row in the file. raw: as they are in the file."""

    line_end = b""

    def __init__(self, rows: TextRows, types: pa.Schema, first: int, raw: pa.RecordBatch) -> None:
        self.offset, self._raw, self._key, self._hint = first, raw, rows.key, rows.hint
        self.columns: dict[str, pa.Array] = {}
        self.faults: dict[int, str] = {}
        for field in types:
            if field.name not in raw.schema.names:
                self.columns[field.name] = pa.nulls(raw.num_rows, field.type)
                continue
            column, faults = row_groups.converted(raw.column(field.name), field.type, rows.quarantine)
            self.columns[field.name] = column
            for index, why in faults.items():
                self.faults.setdefault(index, f"column '{field.name}': {why}")

    @property
    def hint(self) -> Hint | str:
        return self._hint

    @property
    def places(self) -> pa.Array:
        return pa.array(range(self.offset, self.offset + self._raw.num_rows), pa.int64())

    def record(self, index: int) -> tuple[int, bytes]:
        row = {name: _plain(self._raw.column(name)[index]) for name in self._raw.schema.names}
        return index, json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_shown).encode()

    def key(self, index: int) -> Mapping[str, object]:
        there = (name for name in self._key if name in self._raw.schema.names)
        told = {name: _plain(self._raw.column(name)[index]) for name in there}
        return {name: value for name, value in told.items() if value is not None}


def _plain(value: pa.Scalar) -> Any:
    """A value in Python; of what Python cannot hold, at any depth, the count or the bytes that stand for it."""
    try:
        return value.as_py()
    except (ValueError, OverflowError, pa.ArrowException):  # a time beyond its calendar, what is no text
        match value:
            case pa.StringScalar():
                return value.as_buffer().to_pybytes()
            case pa.StructScalar():
                return {name: _plain(value[name]) for name in value}
            case pa.MapScalar():  # as its `as_py`: keys need not be texts
                return [(_plain(one["key"]), _plain(one["value"])) for one in value.values]
            case pa.ListScalar():
                return [_plain(one) for one in value.values]
        return getattr(value, "value", f"a {value.type} that cannot be shown")


def _shown(value: Any) -> str:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
