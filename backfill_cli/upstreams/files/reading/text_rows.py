"""Rows of text files as workers make them; of one that cannot be read an error with file, line and key, or a row
to be quarantined.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from backfill_cli.contracts import Piece, own
from backfill_cli.errors import BadData, Fatal, Hint
from backfill_cli.formats import frames
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import Columns, field
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import RENAME_HINT, SAME_PACKAGE
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading.lines import TextPart, packed, whole

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Faults = Callable[[Mapping[str, Any]], Mapping[int, str]]
"""Arrow columns of rows → the index of each row that cannot be taken, and why."""

_STEP = 1 << 20
QUARANTINED = (("file", "string"), ("line", "long"), ("value", "binary"), ("reason", "string"))


@dataclass(frozen=True, slots=True)
class TextRows:
    """How the records of some files of text become rows, in a worker.

    csv: how files of CSV are written. names: of their fields, in order. columns: of the rows; NULL where a record
    has no such value. hint: of a record that cannot be read. key: columns whose values an error shows. faults: why
    rows cannot be taken, though their values can be read. quarantine: such a record is a row with
    `own.QUARANTINED` instead of an error. reads: the index of each file's read, by its name: rows have `own.READ`.
    way_on: what else can be done about such a record, after the hint.
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


def schema(rows: TextRows) -> "StructType":
    """What workers make of text files: `own.FILE STRING, own.ROW BIGINT, columns…`, perhaps `own.READ INT` and
    `own.QUARANTINED STRUCT<file, line, value BINARY, reason>`.

    The latter is NULL in a row that can be read, otherwise its columns mean nothing.
    """
    made = {own.FILE: field(own.FILE, "string"), own.ROW: field(own.ROW, "long"), **rows.columns}
    if rows.reads is not None:
        made[own.READ] = field(own.READ, "integer")
    return frames.struct_type(made | quarantined(rows))


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
    """`own.FILE, own.AT`, the marks and the columns of these parts: see `schema`. make: runs in workers.

    Raises Fatal if workers do not have this package.
    """
    if not arrow_tasks.workers_know_us(spark):
        raise Fatal("text files are read by backfill-cli in Spark's executors, which lack it", SAME_PACKAGE)
    values = [quoted(name).alias(name, metadata=column["metadata"]) for name, column in rows.columns.items()]
    marks = [own.READ] if rows.reads is not None else []
    marks += [own.QUARANTINED] if rows.quarantine else []
    tasks, made = packed(parts, arrow_tasks.cores(spark)), schema(rows)
    found = (
        arrow_tasks.frame(spark, partial(make, rows), tasks, made) if tasks else spark.createDataFrame([], made)
    )
    at = F.struct(F.col(own.FILE).alias("file"), F.col(own.ROW).alias("row"))
    return found.select(own.FILE, at.alias(own.AT), *marks, *values)


class Block(Protocol):
    """Rows that were read together. faults: the index of each that cannot be read, and why.

    offset: the byte of the file at which they begin. line_end: of the file's lines. hint: of the first fault.
    """

    offset: int
    line_end: bytes
    columns: dict[str, pa.Array]
    faults: dict[int, str]
    hint: Hint | str

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


class BadRows:
    """Keeps rows that cannot be read apart, while a part of a file is read once from its beginning.

    The lines before the part are counted once, and only if there is such a row.
    """

    def __init__(self, part: TextPart, rows: TextRows) -> None:
        self._part, self._rows = part, rows
        self._source: Any = None
        self._at = self._lines = 0

    def __enter__(self) -> "BadRows":
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            self._source.close()

    def apart(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The block's rows: see `schema`. Raises BadData for the first that cannot be read, unless quarantined."""
        count = len(next(iter(block.columns.values())))
        columns = {
            own.FILE: pa.repeat(pa.scalar(self._part.name, pa.string()), count),
            own.ROW: block.places,
            **block.columns,
        }
        if self._rows.reads is not None:
            read = pa.scalar(self._rows.reads[self._part.name], pa.int32())
            columns[own.READ] = pa.repeat(read, count)
        faults = self._rows.faults(block.columns) if self._rows.faults is not None else {}
        block.faults.update({index: fault for index, fault in faults.items() if index not in block.faults})
        kind = pa.struct({name: arrow_type(kind) for name, kind in QUARANTINED})
        if not self._rows.quarantine:
            if block.faults:
                raise self._error(block, min(block.faults))
            yield pa.RecordBatch.from_pydict(columns)
            return
        kept = [self._kept(block, index) if index in block.faults else None for index in range(count)]
        yield pa.RecordBatch.from_pydict({**columns, own.QUARANTINED: pa.array(kept, kind)})

    def _error(self, block: Block, index: int) -> BadData:
        line, _ = block.record(index)
        keys = ", ".join(f"{name} {value}" for name, value in block.key(index).items())
        where = f"line {self._before(block) + line + 1}{f' (of {keys})' if keys else ''}"
        return BadData(
            f"{self._part.name}: {where}: {block.faults[index]}", Hint.of(block.hint) + self._rows.way_on
        )

    def _kept(self, block: Block, index: int) -> dict[str, object]:
        line, record = block.record(index)
        number = self._before(block) + line + 1
        return {"file": self._part.path, "line": number, "value": record, "reason": block.faults[index]}

    def _before(self, block: Block) -> int:
        """How many lines the file has before a block."""
        if self._source is None:
            self._source = whole(self._part)
        while self._at < block.offset and (more := self._source.read(min(_STEP, block.offset - self._at))):
            self._lines += more.count(block.line_end)
            self._at += len(more)
        return self._lines
