"""Reads change files whose rows carry op, version and time in separate columns: those of AWS DMS, and feeds."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import BadData
from backfill_cli.formats import exact, schemas
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.balanced import balanced
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import Columns, field
from backfill_cli.spark.failures import CHANGES_HINT
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.changes import epoch_values
from backfill_cli.upstreams.files.changes.change_format import Inspected, undeclared
from backfill_cli.upstreams.files.options import ChangesOptions, FileFormat
from backfill_cli.upstreams.files.reading import csv_files, lines
from backfill_cli.upstreams.files.reading.footers import THREADS, footer
from backfill_cli.upstreams.files.reading.rows import frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Change files whose rows carry their op (and version, time) in separate columns, the marks.

    marks: those columns with their types in text files, in the order of CSV without a header, where they precede
    the table's own. time: the mark with the source's time, or None. declared: types of columns that text files can
    add.
    """

    table: str
    options: ChangesOptions
    marks: tuple[tuple[str, str], ...]
    time: str | None
    declared: Columns

    @property
    def extra(self) -> tuple[str, ...]:
        """Columns that a frame of these rows must pass on in addition to its changes."""
        return () if self.options.epoch is None else (own.EPOCH,)

    def inspect(self, where: Place, file: File, known: Columns, needed: str) -> Inspected:
        """The file's metadata. needed: the mark that every such file has; raises BadData without it."""
        kind = file_kind(self.options, file)
        if kind == "parquet":
            meta = footer(where, file)
            shown = schemas.of_footer(file.path, meta)
            rows, ms = meta.num_rows, largest_ms(meta, self.time) if self.time else None
        else:
            rows = None
            shown, ms = self._of_text(where, file, kind, known)
        if shown and needed not in shown:
            raise BadData(
                f"{file.path}: no column '{needed}', which every {self.options.format} file has",
                "set upstream.changes.format to what wrote them; plain appends (rows without an op) are not read "
                "as changes: set their folder as upstream.snapshot.path",
            )
        marks = dict(self._with_epoch(known))
        own.refuse_names(file.path, dict.fromkeys((*shown, *marks)), BadData)
        table = {name: column for name, column in shown.items() if name not in marks or name in known}
        return Inspected(file, rows, ms, table if shown else None)

    def frame(self, spark: "SparkSession", where: Place, files: Sequence[File], columns: Columns) -> "DataFrame":
        """`own.FILE, own.AT, marks…, own.MS, columns…` of whole files.

        A mark that a file lacks is NULL. With an epoch column there is also `own.EPOCH`.
        """
        groups: dict[tuple[tuple[str, str], ...], list[File]] = {}
        with ThreadPoolExecutor(THREADS) as pool:
            found = pool.map(lambda file: self._mark_types(where, file, columns), files)
            for file, marks in zip(files, found, strict=True):
                groups.setdefault((("", file_kind(self.options, file)), *marks), []).append(file)
        parts = [self._of_group(spark, where, group, dict(key), columns) for key, group in groups.items()]
        return balanced(lambda a, b: a.unionByName(b), parts)

    def _of_group(
        self, spark: "SparkSession", where: Place, files: Sequence[File], marks: dict[str, str], columns: Columns
    ) -> "DataFrame":
        from pyspark.sql import functions as F

        kind: Any = marks.pop("")
        read = {name: field(name, spark_type) for name, spark_type in marks.items()} | columns
        rows = frame(spark, where, files, kind, self.options.csv, read, CHANGES_HINT)
        shown = [
            (quoted(name) if name in marks else F.lit(None)).cast(text_type).alias(mark(index))
            for index, (name, text_type) in enumerate(self.marks)
        ]
        ms = F.lit(None).cast("bigint")
        if self.time in marks:
            ms = _ms(quoted(self.time), str(read[self.time]["type"]))
        if self.options.epoch is not None:
            shown.append(quoted(self.options.epoch).alias(own.EPOCH))
        return rows.select(own.FILE, own.AT, *shown, ms.alias(own.MS), *(quoted(name) for name in columns))

    def _with_epoch(self, columns: Columns) -> tuple[tuple[str, str], ...]:
        """The marks, and the epoch column if it is not one of the table's own."""
        epoch = self.options.epoch
        if epoch is None or epoch in columns or epoch in dict(self.marks):
            return self.marks
        return (*self.marks, (epoch, "string"))

    def _mark_types(self, where: Place, file: File, columns: Columns) -> tuple[tuple[str, str], ...]:
        """The marks that a file has, with the types that its reader gives them."""
        marks = self._with_epoch(columns)
        if file_kind(self.options, file) != "parquet":
            return marks
        shown = schemas.of_footer(file.path, footer(where, file))
        return tuple((name, str(shown[name]["type"])) for name, _ in marks if name in shown)

    def _of_text(self, where: Place, file: File, kind: FileFormat, known: Columns) -> tuple[Columns, int | None]:
        """(columns with marks, largest time) from the header and the last line; no columns for an empty file."""
        marks = {name: field(name, spark_type) for name, spark_type in self._with_epoch(known)}
        if kind == "json":
            last = next(iter(lines.last(where, file, kind)), None)
            image = None if last is None else lines.parsed(file, last)
            # a writer can omit NULLs: known columns stay, and a new one can be in any line
            said = (lines.parsed(file, line) for line in lines.last(where, file, kind))
            names = list(dict.fromkeys([*chain.from_iterable(said), *known]))
        else:
            header = csv_files.header(where, file, self.options.csv) if self.options.csv.header else None
            names = header if header is not None else list(marks | known)
            values = csv_files.last_record(where, file, self.options.csv, len(names))
            image = None if values is None else dict(zip(names, values, strict=True))
        if lines.first(where, file, kind) is None:
            return {}, None
        shown = marks | known | self.declared
        for name in names:
            if name not in shown:
                raise undeclared(file, name)
        return {name: shown[name] for name in names}, as_ms((image or {}).get(self.time)) if self.time else None


def mark(index: int) -> str:
    """The name of a mark in a frame of marked rows: the table can have a column with the mark's own name."""
    return own.numbered(own.MARK, index)


def file_kind(options: ChangesOptions, file: File) -> FileFormat:
    """A change file's format. Raises BadData if neither options nor name say it."""
    kind = options.reads_as(file.name)
    if kind is None:
        raise BadData(
            f"{file.path}: its name does not show its format",
            'set upstream.changes.file_format = "parquet", or "csv", or "json"',
        )
    return kind


def largest_ms(meta: Any, column: str) -> int | None:
    """The largest value of a time column by a Parquet footer's statistics, in milliseconds since 1970, or None."""
    names = [meta.schema.column(i).path for i in range(meta.num_columns)]
    if column not in names:
        return None
    index = names.index(column)
    found: list[int] = []
    for group in range(meta.num_row_groups):
        statistics = meta.row_group(group).column(index).statistics
        ms = as_ms(statistics.max) if statistics is not None and statistics.has_min_max else None
        if ms is None:
            return None
        found.append(ms)
    return max(found, default=None)


def as_ms(value: Any) -> int | None:
    """A source time as milliseconds since 1970: a datetime, milliseconds, or ISO text (UTC if it has no zone)."""
    if isinstance(value, str):
        if value.lstrip("-").isdigit():
            return int(value)
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int(zoned.timestamp() * 1000)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _ms(time: "Column", kind: str) -> "Column":
    """`as_ms` as an expression. kind: the column's type."""
    from pyspark.sql import functions as F

    if kind in ("timestamp", "timestamp_ntz", "date"):
        return F.unix_millis(time.cast("timestamp"))
    if kind == "string":
        number = F.when(time.rlike("^-?[0-9]+$"), time.try_cast("bigint"))
        return F.coalesce(number, F.unix_millis(time.try_cast("timestamp")))
    return time.cast("bigint")


class Dms:
    """One table's AWS DMS files: rows with `Op` (I, U, D), perhaps the commit time, then the table's columns.

    DMS sends the row after the change, or for a delete the row before it. It sends no old key with a key change.
    See change_format.ChangeFormat.
    """

    before_images: ClassVar[bool] = False

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns) -> None:
        marks = [(options.op_column, "string")] + (
            [(options.time_column, "string")] if options.time_column else []
        )
        self._op = options.op_column
        self._rows = MarkedRows(table.name, options, tuple(marks), options.time_column, declared)

    def inspect(self, where: Place, file: File, known: Columns) -> Inspected:
        return self._rows.inspect(where, file, known, self._op)

    def frame(
        self,
        spark: "SparkSession",
        where: Place,
        files: Sequence[File],
        columns: Columns,
        before: File | None = None,
    ) -> "DataFrame":
        from pyspark.sql import functions as F

        rows = self._rows.frame(spark, where, files, columns)
        kind = F.col(mark(0))
        op = (
            F.when(kind.isin("I", "U"), F.lit("U"))
            .when(kind == "D", F.lit("D"))
            .otherwise(exact.refused(F.col(own.FILE), f"unknown {self._op}", kind))
        )
        shown: list[Column | str] = [*self._rows.extra, *(quoted(name) for name in columns)]
        return rows.select(op.alias(own.OP), F.col(own.AT).alias(own.SEQ), own.MS, *shown)


TYPE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
_MARKS = ((TYPE, "string"), (VERSION, "long"), (TIME, "string"))


class ChangeFeed:
    """One table's change feed as Delta writes it: `_change_type`, `_commit_version`, perhaps `_commit_timestamp`.

    A file can hold several complete versions; files are in the order of their versions. Within a version the new
    rows (insert, update_postimage) win over old rows of the same key (delete, update_preimage): a preimage deletes
    its key, and the postimage inserts it again unless the key changed. Version numbers can have gaps: commits that
    change no rows (OPTIMIZE) take a number too. See change_format.ChangeFormat.
    """

    before_images: ClassVar[bool] = True

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns) -> None:
        self._table = table
        self._rows = MarkedRows(table.name, options, _MARKS, TIME, declared)

    def inspect(self, where: Place, file: File, known: Columns) -> Inspected:
        found = self._rows.inspect(where, file, known, TYPE)
        return replace(found, versions=versions(where, file, self._rows.options)) if found.columns else found

    def frame(
        self,
        spark: "SparkSession",
        where: Place,
        files: Sequence[File],
        columns: Columns,
        before: File | None = None,
    ) -> "DataFrame":
        from pyspark.sql import functions as F

        rows = self._rows.frame(spark, where, files, columns)
        kind, version = F.col(mark(0)), F.col(mark(1))
        if self._table.immutable_key:
            rows = rows.where(~kind.eqNullSafe("update_preimage"))
        op = (
            F.when(
                version.isNull(),
                exact.refused(F.col(own.FILE), f"no {VERSION} in a row with {TYPE}", kind),
            )
            .when(kind.isin("insert", "update_postimage"), F.lit("U"))
            .when(kind.isin("delete", "update_preimage"), F.lit("D"))
            .otherwise(exact.refused(F.col(own.FILE), f"unknown {TYPE}", kind))
        )
        new, image = kind.isin("insert", "update_postimage"), kind == "update_preimage"
        place = (
            version.alias("version"),
            new.alias("new"),
            F.col(own.AT).alias("at"),
            image.alias("image"),
        )
        return rows.select(
            op.alias(own.OP),
            F.struct(*place).alias(own.SEQ),
            own.MS,
            *self._rows.extra,
            *(quoted(name) for name in columns),
        )


def versions(where: Place, file: File, options: ChangesOptions) -> tuple[Cursor, Cursor] | None:
    """The lowest and the highest version in a file, from its footer if it has them; None without rows."""
    kind = file_kind(options, file)
    if kind == "csv" and not options.csv.header:
        return None
    found = epoch_values.bounds(where, file, VERSION) if kind == "parquet" else None
    if found is not None:
        return found
    held = epoch_values.read(where, file, kind, VERSION, options.csv)
    return (held.lowest, held.highest) if held.rows else None
