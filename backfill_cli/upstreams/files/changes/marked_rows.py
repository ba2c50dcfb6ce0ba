"""Reads change files whose rows carry op, version and time in separate columns: those of AWS DMS, and feeds."""

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count
from typing import Any, ClassVar

import pyarrow as pa

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import BadData, Hint, in_config
from backfill_cli.formats import frames, row_groups, schemas, skip_counts
from backfill_cli.formats.compute import pc
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.balanced import balanced
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import Columns, counts_of, field
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.failures import CHANGES_HINT, OR_QUARANTINE, SHOWN, refused
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.changes import epoch_values, order
from backfill_cli.upstreams.files.changes.change_format import ChangeFormat, Inspected, undeclared
from backfill_cli.upstreams.files.options import FILE_FORMATS, ChangesOptions, FileFormat
from backfill_cli.upstreams.files.reading import (
    avro_envelopes,
    avro_files,
    csv_files,
    json_rows,
    lines,
    parquet_rows,
)
from backfill_cli.upstreams.files.reading.footers import THREADS, footer, statistics_of
from backfill_cli.upstreams.files.reading.text_rows import TextRows, quarantined
from backfill_cli.upstreams.files.snapshot.pin import refuse_nested


@dataclass(frozen=True, slots=True)
class Ops:
    """What the first mark, `column`, says. version: the second one, if every row must have it."""

    column: str
    upserts: tuple[str, ...]
    deletes: tuple[str, ...]
    version: str | None = None

    def faults(self, columns: Mapping[str, Any]) -> Mapping[int, str]:
        """Rows of text files, as Arrow columns, whose marks cannot be applied. Runs in a worker."""
        kinds, known = _texts(columns[self.column]), pa.array((*self.upserts, *self.deletes))
        faults = dict.fromkeys(_indices(pc.invert(pc.is_in(kinds, known))), f"unknown {self.column}")
        if self.version is not None:
            lacking = _indices(columns[self.version].is_null())
            faults |= dict.fromkeys(lacking, f"no {self.version} in a row with {self.column}")
        told = kinds.cast(pa.binary())  # of Parquet, it can be no text
        texts = {at: (told[at].as_py() or b"NULL").decode("utf-8", "replace")[:SHOWN] for at in faults}
        return {at: f"{what}: {texts[at]}" for at, what in faults.items()}

    @property
    def op(self) -> Column:
        """`own.OP` of a row that workers read, which have judged it; NULL if it is quarantined."""
        kind = F.col(mark(0))
        return F.when(kind.isin(*self.upserts), F.lit("U")).when(kind.isin(*self.deletes), F.lit("D"))

    def judged(self, key: Sequence[str], way_on: Hint) -> Column:
        """`own.OP` of a row that Spark read; an error where `faults` has one, or where the key is NULL."""
        kind, number = F.col(mark(0)), (F.col(f"{own.AT}.row") + 1).cast("string")
        where = F.concat(own.FILE, F.lit(": row "), number)
        of_op = f"in a row with {self.column}"
        fault = F.when(self.op.isNull(), F.lit(f"unknown {self.column}"))
        if self.version is not None:
            fault = F.when(F.col(mark(1)).isNull(), F.lit(f"no {self.version} {of_op}")).otherwise(fault)
        for name in key:
            null = F.lit(f"column '{name}': the key is NULL {of_op}")
            fault = F.coalesce(fault, F.when(quoted(name).isNull(), null))
        return F.when(fault.isNotNull(), refused(where, fault, kind, CHANGES_HINT + way_on)).otherwise(self.op)


def _texts(column: pa.Array) -> pa.Array:
    """A mark as text: in Parquet it can be bytes."""
    return column.cast(options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))


def _indices(mask: pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


class MarkedRows(ChangeFormat):
    """Change files whose rows carry their op (and version, time) in separate columns, the marks.

    See change_format.ChangeFormat. marks: those columns with their types in text files, in the order of CSV
    without a header, where they precede the table's own. ops: what the first of them means, which every file has.
    time: the mark with the source's time, or None. declared: types of columns that text files can add.
    quarantines: `own.QUARANTINED` tells rows that cannot be read.
    """

    def __init__(
        self,
        table: TableSpec,
        options: ChangesOptions,
        marks: tuple[tuple[str, str], ...],
        ops: Ops,
        time: str | None,
        declared: Columns,
        quarantines: bool,
    ) -> None:
        self.table, self.options, self.declared, self.quarantines = table, options, declared, quarantines
        self.marks, self.ops, self.time = marks, ops, time
        self.way_on = Hint() if options.epoch else OR_QUARANTINE

    @property
    def named(self) -> Mapping[str, str]:
        """The marks that an option names, by that option."""
        return {}

    def _refuse_alike(self, file: File, known: Columns) -> None:
        """Without a header a mark has the name that its option gives it: a column's, or none but for its case."""
        taken = {own.fold(name): name for name in known}
        for option, name in self.named.items():
            if taken.get(own.fold(name), name) != name:
                at = f"upstream.changes.{option}"
                free = next(one for n in count(2) if own.fold(one := f"{name}_{n}") not in taken)
                raise BadData(
                    f"{file.path}: {at} is '{name}', as the table's column '{taken[own.fold(name)]}'",
                    in_config(
                        f'without a header, any name will do that no column has in any case: {at} = "{free}"'
                    ),
                )

    @abstractmethod
    def _placed(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """(the rows that are changes, `own.SEQ`). rows: see `_of_group`."""

    def inspect(self, where: Place, file: File, known: Columns, applied: bool = False) -> Inspected:
        kind = file_kind(self.options, file)
        if kind == "parquet":
            meta = footer(where, file)
            shown = schemas.of_footer(file.path, meta)
            rows, ms = meta.num_rows, largest_ms(meta, self.time) if self.time else None
        elif kind == "avro":
            shown, rows, ms = avro_files.columns(where, file), avro_envelopes.count(where, file), None
            shown = shown if rows else {}
        else:
            rows = None
            shown, ms = self._of_text(where, file, kind, known, applied or self.quarantines)
        if shown and self.ops.column not in shown:
            raise BadData(
                f"{file.path}: no column '{self.ops.column}', which every {self.options.format} file has",
                in_config(
                    "set upstream.changes.format to what wrote them; plain appends (rows without an op) are "
                    "not read as changes: set their folder as upstream.snapshot.path"
                ),
            )
        marks = dict(self._with_epoch(known))
        own.refuse_names(file.path, dict.fromkeys((*shown, *marks)), BadData)
        table = {name: column for name, column in shown.items() if name not in marks or name in known}
        return Inspected(file, rows, ms, table if shown else None, counts=counts_of(table))

    def frame(
        self,
        spark: SparkSession,
        where: Place,
        files: Sequence[File],
        columns: Columns,
        known: Columns,
        before: File | None = None,
        skips: skip_counts.Place | None = None,
    ) -> DataFrame:
        groups: dict[tuple[_Reader, tuple[tuple[str, str], ...]], list[File]] = {}
        with ThreadPoolExecutor(THREADS) as pool:
            found = pool.map(lambda file: self._read_by(spark, where, file, columns), files)
            for file, how in zip(files, found, strict=True):
                groups.setdefault(how, []).append(file)
        parts = [self._of_group(spark, where, group, *how, columns) for how, group in groups.items()]
        rows = order.placed(balanced(lambda a, b: a.unionByName(b), parts), order.places(files))
        rows, place = self._placed(rows)
        more = [own.EPOCH] if self.options.epoch is not None else []
        more += [own.QUARANTINED] if self.quarantines else []
        return rows.select(place.alias(own.SEQ), own.OP, own.MS, *more, *(quoted(name) for name in columns))

    def _of_group(
        self,
        spark: SparkSession,
        where: Place,
        files: Sequence[File],
        by: "_Reader",
        typed: tuple[tuple[str, str], ...],
        columns: Columns,
    ) -> DataFrame:
        """`own.FILE, own.AT, marks…, own.OP, own.MS, columns…` of files that are read alike, with these marks.

        A mark that they lack is NULL. With an epoch column there is also `own.EPOCH`.
        """
        marks = {name: field(name, spark_type) for name, spark_type in typed}
        read = marks | columns
        csv = self.options.csv
        key = self.table.key if csv.header else ()
        how = TextRows(
            csv,
            tuple(read),
            read,
            CHANGES_HINT,
            key,
            self.ops.faults,
            self.quarantines,
            way_on=self.way_on,
            not_null=self.table.key,
            domain=self.table.domain,
        )
        rows = by(spark, where, files, how)
        shown = [
            (quoted(name) if name in marks else F.lit(None)).cast(text_type).alias(mark(index))
            for index, (name, text_type) in enumerate(self.marks)
        ]
        ms = _ms(quoted(self.time), str(read[self.time]["type"])) if self.time in marks else F.lit(None)
        shown.append(ms.cast("bigint").alias(own.MS))
        if self.options.epoch is not None:
            shown.append(quoted(self.options.epoch).alias(own.EPOCH))
        if self.quarantines:
            none = F.lit(None).cast(frames.struct_type(quarantined(how))[own.QUARANTINED].dataType)
            shown.append((none if by is _by_spark else F.col(own.QUARANTINED)).alias(own.QUARANTINED))
        made = rows.select(own.FILE, own.AT, *shown, *(quoted(name) for name in columns))
        op = self.ops.judged(self.table.key, self.way_on) if by is _by_spark else self.ops.op
        return made.withColumn(own.OP, op)

    def _with_epoch(self, columns: Columns) -> tuple[tuple[str, str], ...]:
        """The marks, and the epoch column if it is not one of the table's own."""
        epoch = self.options.epoch
        if epoch is None or epoch in columns or epoch in dict(self.marks):
            return self.marks
        return (*self.marks, (epoch, "string"))

    def _read_by(
        self, spark: SparkSession, where: Place, file: File, columns: Columns
    ) -> "tuple[_Reader, tuple[tuple[str, str], ...]]":
        """What reads a file, and the marks that it has, with the types that this reader gives them."""
        marks, kind = self._with_epoch(columns), file_kind(self.options, file)
        if kind == "avro":
            typed = avro_files.columns(where, file)
            return avro_files.frame, tuple((name, str(typed[name]["type"])) for name, _ in marks if name in typed)
        if kind != "parquet":
            return csv_files.frame if kind == "csv" else json_rows.frame, marks
        meta = footer(where, file)
        shown = schemas.of_footer(file.path, meta)
        by_workers = (
            self.quarantines
            and schemas.calendar_is_plain(meta)
            and row_groups.rebased_by(spark) is None
            and arrow_tasks.workers_know_us(spark)
        )
        found = tuple((name, str(shown[name]["type"])) for name, _ in marks if name in shown)
        return parquet_rows.whole_files if by_workers else _by_spark, found

    def _of_text(
        self, where: Place, file: File, kind: FileFormat, known: Columns, skip: bool
    ) -> tuple[Columns, int | None]:
        """(columns with marks, largest time) from the header and the last line; no columns for an empty file.

        skip: see lines.objects.
        """
        marks = {name: field(name, spark_type) for name, spark_type in self._with_epoch(known)}
        image: Mapping[str, Any] | None = None
        if kind == "json":
            some = lines.last(where, file, kind)
            said = lines.objects(where, file, some, skip, way_on=self.way_on)
            image = next(said, None)
            # a writer can omit NULLs: known columns stay, and a new one can be in any line
            names = list(dict.fromkeys([*(image or {}), *chain.from_iterable(said), *known]))
        else:
            header = csv_files.header(where, file, self.options.csv) if self.options.csv.header else None
            if header is None:
                self._refuse_alike(file, known)
            names = header if header is not None else list(marks | known)
            with suppress(*([BadData] if skip else [])):
                values = csv_files.last_record(where, file, self.options.csv, len(names), self.way_on)
                image = None if values is None else dict(zip(names, values, strict=True))
        if lines.first(where, file, kind) is None:
            return {}, None
        shown = marks | known | self.declared
        for name in names:
            if name not in shown:
                raise undeclared(file, name, shown)
        if kind == "csv":
            refuse_nested({n: c for n in names if not isinstance((c := shown[n])["type"], str)}, file.path)
        return {name: shown[name] for name in names}, as_ms((image or {}).get(self.time)) if self.time else None


_Reader = Callable[[SparkSession, Place, Sequence[File], TextRows], DataFrame]


def _by_spark(spark: SparkSession, where: Place, files: Sequence[File], rows: TextRows) -> DataFrame:
    """Parquet as Spark reads it, which tells no row that it cannot read from the others."""
    return frames.parquet(spark, where, files, rows.columns)


def mark(index: int) -> str:
    """The name of a mark in a frame of marked rows: the table can have a column with the mark's own name."""
    return own.numbered(own.MARK, index)


def file_kind(options: ChangesOptions, file: File) -> FileFormat:
    """A change file's format. Raises BadData if neither options nor name say it."""
    kind = options.reads_as(file.name)
    if kind is None:
        fits = (json.dumps(one) for one in FILE_FORMATS[options.format])
        raise BadData(
            f"{file.path}: its name does not show its format",
            in_config(f"set upstream.changes.file_format = {', or '.join(fits)}"),
        )
    return kind


def largest_ms(meta: Any, column: str) -> int | None:
    """The largest value of a time column by a Parquet footer's statistics, in milliseconds since 1970, or None."""
    found: list[int] = []
    for statistics in statistics_of(meta, column):
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


def _ms(time: Column, kind: str) -> Column:
    """`as_ms` as an expression. kind: the column's type."""
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return F.unix_millis(time.cast("timestamp"))
    if kind == "string":
        number = F.when(time.rlike("^-?[0-9]+$"), time.try_cast("bigint"))
        return F.coalesce(number, F.unix_millis(time.try_cast("timestamp")))
    return time.cast("bigint")


class Dms(MarkedRows):
    """One table's AWS DMS files: rows with `Op` (I, U, D), perhaps the commit time, then the table's columns.

    DMS sends the row after the change, or for a delete the row before it. It sends no old key with a key change.
    """

    before_images: ClassVar[bool] = False

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns, quarantines: bool) -> None:
        op, time = options.op_column, options.time_column
        marks = tuple((name, "string") for name in (op, time) if name)
        super().__init__(table, options, marks, Ops(op, ("I", "U"), ("D",)), time, declared, quarantines)

    @property
    def named(self) -> Mapping[str, str]:
        time = self.options.time_column
        return {"op_column": self.options.op_column, **({"time_column": time} if time else {})}

    def _placed(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        return rows, F.col(own.AT)


TYPE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
_MARKS = ((TYPE, "string"), (VERSION, "long"), (TIME, "string"))
_OPS = Ops(TYPE, ("insert", "update_postimage"), ("delete", "update_preimage"), VERSION)


class ChangeFeed(MarkedRows):
    """One table's change feed as Delta writes it: `_change_type`, `_commit_version`, perhaps `_commit_timestamp`.

    A file can hold several complete versions; files are in the order of their versions. Within a version the new
    rows (insert, update_postimage) win over old rows of the same key (delete, update_preimage): a preimage deletes
    its key, and the postimage inserts it again unless the key changed. Version numbers can have gaps: commits that
    change no rows (OPTIMIZE) take a number too.
    """

    before_images: ClassVar[bool] = True

    def __init__(self, table: TableSpec, options: ChangesOptions, declared: Columns, quarantines: bool) -> None:
        super().__init__(table, options, _MARKS, _OPS, TIME, declared, quarantines)

    def inspect(self, where: Place, file: File, known: Columns, applied: bool = False) -> Inspected:
        found = super().inspect(where, file, known, applied)
        skip = applied or self.quarantines
        return replace(found, versions=self._versions(where, file, skip)) if found.columns else found

    def _versions(self, where: Place, file: File, skip: bool) -> tuple[Cursor, Cursor] | None:
        """The lowest and the highest version in a file, from its footer if it has them; None without rows."""
        kind, csv = file_kind(self.options, file), self.options.csv
        if kind == "csv" and not csv.header:
            return None
        if kind == "parquet" and (found := epoch_values.bounds(where, file, VERSION)) is not None:
            return found
        held = epoch_values.read(where, file, kind, VERSION, csv, skip, self.way_on)
        return (held.lowest, held.highest) if held.rows else None

    def _placed(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        kind, version = F.col(mark(0)), F.col(mark(1))
        if self.table.immutable_key:
            rows = rows.where(~kind.eqNullSafe("update_preimage"))
        new, image = kind.isin(*_OPS.upserts), kind == "update_preimage"
        place = (version.alias("version"), new.alias("new"), F.col(own.AT).alias("at"), image.alias("image"))
        return rows, F.struct(*place)
