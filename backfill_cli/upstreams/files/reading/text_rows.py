"""Rows of text files as workers make them; of one that cannot be read an error with file, line and key, or a row
to be quarantined.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from backfill_cli.contracts import Piece, own
from backfill_cli.contracts.domain import Domain
from backfill_cli.decode.held import refused
from backfill_cli.errors import BadData, Fatal, Hint
from backfill_cli.formats import frames
from backfill_cli.formats.compute import pc
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import Columns, field
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import RENAME_HINT, SAME_PACKAGE, reading
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import folder_columns, lines
from backfill_cli.upstreams.files.reading.lines import Part, TextPart, packed, whole

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Faults = Callable[[Mapping[str, Any]], Mapping[int, str]]
"""Arrow columns of rows → the index of each row that cannot be taken, and why."""

_STEP = 1 << 20
QUARANTINED = (("file", "string"), ("line", "long"), ("value", "binary"), ("reason", "string"))
_KEPT = pa.struct({name: arrow_type(kind) for name, kind in QUARANTINED})


@dataclass(frozen=True, slots=True)
class TextRows:
    """How the records of some files of text become rows, in a worker.

    csv: how files of CSV are written. names: of their fields, in order. columns: of the rows; NULL where a record
    has no such value. hint: of a record that cannot be read. key: columns whose values an error shows. faults: why
    rows cannot be taken, though their values can be read. quarantine: such a record is a row with
    `own.QUARANTINED` instead of an error. reads: the index of each file's read, by its name: rows have `own.READ`.
    way_on: what else can be done about such a record, after the hint. not_null: columns of the key. domain: of the
    values. folders: the columns whose values are in the names of folders, and whether files have them, too.
    slices: which bytes are read of files that are not read whole.
    """

    csv: CsvOptions
    names: tuple[str, ...]
    columns: Columns
    hint: Hint | str = RENAME_HINT
    key: tuple[str, ...] = ()
    faults: Faults | None = None
    quarantine: bool = False
    reads: Mapping[str, int] | None = None
    way_on: Hint = Hint()  # noqa: RUF009
    not_null: tuple[str, ...] = ()
    domain: Domain = Domain()  # noqa: RUF009
    folders: Mapping[str, bool] = field_of(default_factory=dict)
    slices: lines.Slices = field_of(default_factory=dict)

    @property
    def read(self) -> Columns:
        """The columns that files have."""
        return {name: column for name, column in self.columns.items() if self.folders.get(name, True)}


def schema(rows: TextRows) -> "StructType":
    """What workers make of files: `own.FILE STRING, own.ROW BIGINT`, perhaps `own.READ INT`, `columns…`, perhaps
    `own.QUARANTINED STRUCT<file, line, value BINARY, reason>`.

    The latter is NULL in a row that can be read, otherwise its columns mean nothing.
    """
    made = {own.FILE: field(own.FILE, "string"), own.ROW: field(own.ROW, "long")}
    if rows.reads is not None:
        made[own.READ] = field(own.READ, "integer")
    return frames.struct_type(made | rows.columns | quarantined(rows))


def quarantined(rows: TextRows) -> Columns:
    """`own.QUARANTINED`, if rows that cannot be read are quarantined."""
    kind = {"type": "struct", "fields": [field(name, kind) for name, kind in QUARANTINED]}
    return {own.QUARANTINED: field(own.QUARANTINED, kind)} if rows.quarantine else {}


def frame(
    spark: SparkSession,
    parts: Iterable[TextPart],
    make: Callable[[TextRows, Sequence[Piece]], Iterator[pa.RecordBatch]],
    rows: TextRows,
) -> DataFrame:
    """The rows of these parts, as `of_tasks`. Raises Fatal if workers do not have this package."""
    if not arrow_tasks.workers_know_us(spark):
        raise Fatal("text files are read by backfill-cli in Spark's executors, which lack it", SAME_PACKAGE).of("")
    return of_tasks(spark, packed(parts, arrow_tasks.cores(spark)), partial(make, rows), rows)


def of_tasks(
    spark: SparkSession,
    tasks: Sequence[Sequence[Piece]],
    make: Callable[[Sequence[Piece]], Iterator[pa.RecordBatch]],
    rows: TextRows,
) -> DataFrame:
    """`own.FILE, own.AT`, the marks and the columns: see `schema`. make: runs in workers."""
    values = [quoted(name).alias(name, metadata=column["metadata"]) for name, column in rows.columns.items()]
    marks = [own.READ] if rows.reads is not None else []
    marks += [own.QUARANTINED] if rows.quarantine else []
    made = schema(rows)
    found = arrow_tasks.frame(spark, make, tasks, made, of_rows=True) if tasks else spark.createDataFrame([], made)
    at = F.struct(F.col(own.FILE).alias("file"), F.col(own.ROW).alias("row"))
    return found.select(own.FILE, at.alias(own.AT), *marks, *values)


class Block(Protocol):
    """Rows that were read together. faults: the index of each that cannot be read, and why.

    offset: the byte of the file at which they begin, or the row. line_end: of the file's lines; empty for rows
    without lines. hint: of the first fault.
    """

    offset: int
    line_end: bytes
    columns: dict[str, pa.Array]
    faults: dict[int, str]

    @property
    def hint(self) -> Hint | str: ...

    @property
    def places(self) -> pa.Array:
        """INT64, of each row in its file, rising."""
        ...

    def record(self, index: int) -> tuple[int, bytes]:
        """How many lines of the block precede a row's record, and the record."""
        ...

    def key(self, index: int) -> Mapping[str, object]:
        """The values that identify a row, as far as they are known, by column."""
        ...


def batches(part: Part, rows: TextRows, kind: str, blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """The rows of a part of a file: see `schema`, and `unplaced`."""
    for block, columns in unplaced(part, rows, kind, blocks):
        places = block.places
        marks = {own.FILE: pa.repeat(pa.scalar(part.name, pa.string()), len(places)), own.ROW: places}
        if rows.reads is not None:
            marks[own.READ] = pa.repeat(pa.scalar(rows.reads[part.name], pa.int32()), len(places))
        yield pa.RecordBatch.from_pydict(marks | columns)


def unplaced(
    part: Part, rows: TextRows, kind: str, blocks: Iterable[Block]
) -> Iterator[tuple[Block, dict[str, pa.Array]]]:
    """The rows of each block: see `schema`, but without the marks of their place. kind: the format, for messages.

    Runs in a worker. Raises BadData naming the file, and the first row that cannot be read, unless quarantined.
    """
    with reading(part.path, kind, rows.hint), _BadRows(part, rows) as bad:
        for block in blocks:
            yield block, bad.apart(block)


class _BadRows:
    """Keeps rows that cannot be read apart, while a part of a file is read once from its beginning.

    The lines before the part are counted once, and only if there is such a row.
    """

    def __init__(self, part: Part, rows: TextRows) -> None:
        self._part, self._rows = part, rows
        self._source: Any = None
        self._at = self._lines = 0

    def __enter__(self) -> "_BadRows":
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            self._source.close()

    def apart(self, block: Block) -> dict[str, pa.Array]:
        """The block's rows. Raises BadData for the first that cannot be read, unless it is quarantined."""
        rows, found = self._rows, block.faults
        if rows.folders:
            count = len(block.places)
            block.columns, unlike = folder_columns.added(
                block.columns, count, self._part.name, rows.columns, rows.folders
            )
            found |= {index: why for index, why in unlike.items() if index not in found}
        told = rows.faults(block.columns) if rows.faults is not None else {}
        told = {**refused(rows.columns, block.columns, rows.domain), **told}
        found |= {index: fault for index, fault in told.items() if index not in found}
        for name in rows.not_null:
            if block.columns[name].null_count:
                lacking = pc.indices_nonzero(block.columns[name].is_null()).to_pylist()
                found |= {index: f"column '{name}': the key is NULL" for index in lacking if index not in found}
        if not rows.quarantine:
            if found:
                raise self._error(block, min(found))
            return block.columns
        count = len(next(iter(block.columns.values())))
        kept = [self._kept(block, index) if index in found else None for index in range(count)] if found else None
        return block.columns | {own.QUARANTINED: pa.nulls(count, _KEPT) if kept is None else pa.array(kept, _KEPT)}

    def _error(self, block: Block, index: int) -> BadData:
        keys = ", ".join(f"{name} {value}" for name, value in block.key(index).items())
        where = f"{'line' if block.line_end else 'row'} {self._number(block, index)}"
        return BadData(
            f"{self._part.name}: {where}{f' (of {keys})' if keys else ''}: {block.faults[index]}",
            Hint.of(block.hint) + self._rows.way_on,
        )

    def _kept(self, block: Block, index: int) -> dict[str, object]:
        number, (_, record) = self._number(block, index), block.record(index)
        return {"file": self._part.path, "line": number, "value": record, "reason": block.faults[index]}

    def _number(self, block: Block, index: int) -> int:
        """Of a row's line, or of the row itself, from 1."""
        within, _ = block.record(index)
        return (self._before(block) if block.line_end else block.offset) + within + 1

    def _before(self, block: Block) -> int:
        """How many lines the file has before a block."""
        if self._source is None:
            self._source = whole(self._part)
        while self._at < block.offset and (more := self._source.read(min(_STEP, block.offset - self._at))):
            self._lines += more.count(block.line_end)
            self._at += len(more)
        return self._lines
