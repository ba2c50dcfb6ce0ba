"""Turns snapshot reads into one Spark frame: whole files together, slices by the cheaper reader."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import or_

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER
from backfill_cli.formats import frames, group_slices
from backfill_cli.formats.group_slices import touched
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.balanced import balanced
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Cursor
from backfill_cli.model.pushdown import Condition
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.options import FileFormat
from backfill_cli.upstreams.files.reading import avro_files, csv_files, json_rows, parquet_rows
from backfill_cli.upstreams.files.reading.parquet_rows import ParquetPart
from backfill_cli.upstreams.files.reading.text_rows import TextRows

PINNED = "fix the file, then " + START_OVER + ": the files of a pinned snapshot must not change"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a Parquet file is divided. groups: rows of each row group.

    plain: whether pyarrow reads its dates as Spark does. by_spark: whether Spark's reader can read all columns.
    """

    groups: tuple[int, ...]
    plain: bool
    by_spark: bool = True


@dataclass(frozen=True, slots=True)
class Readers:
    """Which reader reads which splits. cut: slices by file for Spark's reader, as `after <= row index < up_to`."""

    whole: tuple[str, ...]
    cut: Mapping[str, tuple[tuple[int, int], ...]]
    groups: tuple[tuple[str, group_slices.GroupSlice], ...]


def choose(
    reads: Sequence[SnapshotRead],
    counts: Mapping[str, int],
    layout: Callable[[str], Layout],
    workers: bool = True,
) -> Readers:
    """Assign reads of Parquet splits to readers.

    counts: rows of each split. layout: of a split, called once for each. workers: whether Python workers can read.
    Reads of one split must not overlap; empty reads are dropped.
    """
    by_split: dict[str, list[tuple[int, int]]] = {}
    for read in reads:
        after, end = bounds(read, counts)
        if after < end:
            by_split.setdefault(read.split, []).append((after, end))
    whole: list[str] = []
    cut: dict[str, tuple[tuple[int, int], ...]] = {}
    grouped: list[tuple[str, group_slices.GroupSlice]] = []
    for split, slices in by_split.items():
        how = layout(split)
        if not how.by_spark:
            grouped += [(split, part) for s in slices for part in group_slices.tasks(how.groups, *s)]
            continue
        if sum(end - after for after, end in slices) == counts[split]:
            whole.append(split)
            continue
        if workers and how.plain and all(by_row_group(how.groups, *s) for s in slices):
            grouped += [(split, part) for s in slices for part in group_slices.tasks(how.groups, *s)]
        else:
            cut[split] = tuple(slices)
    return Readers(tuple(whole), cut, tuple(grouped))


def parquet_frame(
    spark: SparkSession,
    where: Place,
    files: Mapping[str, File],
    readers: Readers,
    how: TextRows,
    met: Sequence[Condition] = (),
) -> DataFrame:
    """The rows of `readers`, with the columns of `how`, in any order.

    met: workers leave out rows that do not meet all of these; Spark's own reader does so by the `where` after it.
    """
    columns = how.columns
    parts: list[DataFrame] = []
    names = [quoted(name) for name in columns]
    if readers.whole:
        paths = [where.spark_path(files[split]) for split in readers.whole]
        parts.append(frames.reader(spark, columns).parquet(*paths).select(*names))
    if readers.cut:
        cut = [files[split] for split in readers.cut]
        frame = frames.reader(spark, columns).parquet(*(where.spark_path(file) for file in cut))
        parts.append(frame.where(_in_slices(frame, where, cut, readers.cut)).select(*names))
    if readers.groups:
        slices = [ParquetPart(where.fs, files[split].path, split, part) for split, part in readers.groups]
        parts.append(parquet_rows.frame(spark, slices, how, met).select(*names))
    if not parts:
        return spark.createDataFrame([], frames.struct_type(columns))
    return balanced(lambda a, b: a.unionByName(b), parts)


def _in_slices(
    frame: DataFrame, where: Place, files: Sequence[File], slices: Mapping[str, tuple[tuple[int, int], ...]]
) -> Column:
    index, name = frames.metadata(frame, "row_index"), frames.file_name(frame, where, files)
    conditions = []
    for file in files:
        rows = balanced(or_, [(index >= low) & (index < high) for low, high in slices[file.name]])
        conditions.append(rows if len(files) == 1 else (name == file.name) & rows)
    return balanced(or_, conditions)


def text_frame(
    spark: SparkSession,
    where: Place,
    files: Mapping[str, File],
    reads: Sequence[SnapshotRead],
    kind: FileFormat,
    how: TextRows,
) -> DataFrame:
    """The rows of closed reads of JSON, CSV and Avro files: the given columns, and `own.READ INT`, whose they are.

    With `own.QUARANTINED` if asked for: then the columns of a row that cannot be read are NULL.
    """
    make = {"csv": csv_files.frame, "avro": avro_files.frame}.get(kind, json_rows.frame)
    rounds: list[dict[str, int]] = []  # in each one read of a file
    for index, read in enumerate(reads):
        free = next((one for one in rounds if read.split not in one), None)
        if free is None:
            rounds.append(free := {})
        free[read.split] = index
    found = []
    for mine in rounds:
        sliced = {name: _bytes(reads[index], files) for name, index in mine.items() if _is_slice(reads[index])}
        told = replace(how, reads=mine, slices=sliced)
        found.append(marked(make(spark, where, [files[name] for name in mine], told), how))
    return balanced(lambda a, b: a.unionByName(b), found)


def _is_slice(read: SnapshotRead) -> bool:
    return index_of(read.after) > 0 or read.up_to is not None


def _bytes(read: SnapshotRead, files: Mapping[str, File]) -> tuple[int, int]:
    return index_of(read.after), files[read.split].size if read.up_to is None else index_of(read.up_to)


def marked(frame: DataFrame, how: TextRows) -> DataFrame:
    """The rows without their places; the columns of one that is quarantined are NULL."""
    if not how.quarantine:
        return frame.drop(own.FILE, own.AT)
    good = F.col(own.QUARANTINED).isNull()
    values = [
        F.when(good, quoted(name)).alias(name, metadata=column["metadata"]) for name, column in how.columns.items()
    ]
    marks = [name for name in (own.READ, own.QUARANTINED) if name in frame.columns]
    return frame.select(*values, *marks)


SHARE = 0.25
"""A slice is read by row group if its row groups hold at most this share of the file's rows; otherwise by Spark's
own reader, which is faster per row but always reads the whole file (measured: 5 M rows, 25,000-row slices)."""


def index_of(cursor: Cursor | None) -> int:
    """The row index of a cursor in a file; 0 for the beginning."""
    return 0 if cursor is None else int(cursor)


def bounds(read: SnapshotRead, rows: Mapping[str, int]) -> tuple[int, int]:
    """`after <= row index < end` of a closed read. rows: of each split."""
    return index_of(read.after), rows[read.split] if read.up_to is None else index_of(read.up_to)


def by_row_group(groups: Sequence[int], after: int, up_to: int) -> bool:
    """Whether a slice is read by row group: the groups touched hold at most a quarter of the file's rows."""
    hit = touched(groups, after, up_to)
    return sum(groups[hit.first_group : hit.last_group + 1]) <= SHARE * sum(groups)
