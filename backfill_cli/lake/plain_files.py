"""Ranges of a lake table's keys read from its Parquet files directly, by pyarrow in Spark's Python workers.

Only plain files are read this way: every row of such a file is a row of the table, and its columns are the
table's own, of the same types. Anything else (deletion vectors, mapped, missing or widened columns, nested types,
dates of an old calendar) is left to the format's own reader in Spark.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from backfill_cli.contracts import ArrowTasks
from backfill_cli.formats import group_slices, row_groups, schemas
from backfill_cli.formats.frames import struct_type
from backfill_cli.formats.row_groups import FileSlice, Within
from backfill_cli.lake.key_ranges import WHOLE, KeyRead, Point
from backfill_cli.model.schema import Columns
from backfill_cli.spark.api import load

COMPARED = (*WHOLE, "date")
"""Types of keys that are compared here. Others have inexact statistics: Delta keeps timestamps in milliseconds."""

THREADS = 16
"""Footers read at once."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of which every row is a row of the table.

    path: as the file system knows it. low, high: bounds of the first key column, inclusive; None where they are
    unknown, or where keys can be NULL.
    """

    path: str
    low: Point | None
    high: Point | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """A plain file's row groups. rows: of each. spans: bounds of its keys, inclusive; None if unknown."""

    rows: tuple[int, ...]
    spans: tuple[tuple[int, int] | None, ...]

    def reached(self, within: Within | None) -> tuple[int, int]:
        """`after <= row index < up_to` of the row groups that can have rows within; equal if there are none."""
        held = range(len(self.rows))
        if within is not None:
            held = range(*_ends([n for n in held if _meets(self.spans[n], within)]))
        return sum(self.rows[: held.start]), sum(self.rows[: held.stop])


def _ends(groups: Sequence[int]) -> tuple[int, int]:
    return (groups[0], groups[-1] + 1) if groups else (0, 0)


def _meets(span: tuple[int, int] | None, within: Within) -> bool:
    if span is None:
        return True
    low, high = span
    return (within.low is None or high >= within.low) and (within.high is None or low < within.high)


class PlainFiles:
    """The files of one table at one version. Nothing is read before `tasks`.

    key: the first key column. apart: the paths of files that are known not to be plain. ids: the field id of each
    column in every file; None where columns are identified by their names alone.
    """

    def __init__(
        self,
        fs: FileSystem,
        files: Sequence[DataFile],
        key: str,
        columns: Columns,
        apart: frozenset[str] = frozenset(),
        ids: Mapping[str, int] | None = None,
    ) -> None:
        self._fs, self._key, self._columns, self._ids = fs, key, columns, ids
        self._compared = columns[key]["type"] in COMPARED and all(
            isinstance(file.low, int) and isinstance(file.high, int) for file in files
        )
        self._files = sorted(files, key=lambda file: int(file.low or 0)) if self._compared else list(files)
        self._lows = [int(file.low or 0) for file in self._files] if self._compared else []
        self._reach = list(accumulate((int(f.high or 0) for f in self._files), max)) if self._compared else []
        self._groups: dict[str, _Layout | None] = dict.fromkeys(apart)
        """By path; None of a file that is not plain."""

    def paths(self) -> list[str]:
        return [file.path for file in self._files]

    def tasks(self, reads: Sequence[KeyRead], cores: int) -> ArrowTasks | None:
        """The rows of these reads; None where a file that they need is not plain."""
        if not self._compared and any(one.low is not None or one.high is not None for one in reads):
            return None
        wanted = [(index, file, one) for index, one in enumerate(reads) for file in self._touched(one)]
        self._know({file.path for _, file, _ in wanted})
        slices: list[tuple[int, FileSlice]] = []
        for index, file, one in wanted:
            layout = self._groups[file.path]
            if layout is None:
                return None
            within = self._within(file, one)
            after, up_to = layout.reached(within)
            if after < up_to:
                parts = group_slices.tasks(layout.rows, after, up_to)
                slices += [(index, FileSlice(self._fs, file.path, part, within)) for part in parts]
        return row_groups.tasks(slices, cores, self._columns)

    def overlapping(self) -> list[tuple[tuple[str, ...], int]] | None:
        """The paths of files whose keys overlap, and their rows together, in the order of keys.

        By the bounds that the files state themselves: a log can be wrong about them. None if one states none, or
        is not plain.
        """
        self._know(set(self.paths()))
        stated: list[tuple[int, int, str, int]] = []
        for path in self.paths():
            layout = self._groups[path]
            bounds = None if layout is None else _bounds(layout.spans)
            if layout is None or bounds is None:
                return None
            stated.append((*bounds, path, sum(layout.rows)))
        groups: list[tuple[tuple[str, ...], int]] = []
        reach: int | None = None
        for low, high, path, rows in sorted(stated):
            if reach is None or low > reach:
                groups.append(((), 0))
            paths, count = groups[-1]
            groups[-1] = ((*paths, path), count + rows)
            reach = high if reach is None else max(reach, high)
        return groups

    def _touched(self, one: KeyRead) -> Iterator[DataFile]:
        """The files that can have rows of this read."""
        if not self._compared:
            yield from self._files
            return
        first = 0 if one.low is None else bisect_left(self._reach, int(one.low))
        last = len(self._files) if one.high is None else bisect_left(self._lows, int(one.high))
        for file in self._files[first:last]:
            if one.low is None or int(file.high or 0) >= int(one.low):
                yield file

    def _within(self, file: DataFile, one: KeyRead) -> Within | None:
        """What is kept of the file's rows; None for all of them."""
        low = None if one.low is None or int(file.low or 0) >= int(one.low) else int(one.low)
        high = None if one.high is None or int(file.high or 0) < int(one.high) else int(one.high)
        return None if low is None and high is None else Within(self._key, low, high)

    def _know(self, paths: set[str]) -> None:
        unknown = [path for path in paths if path not in self._groups]
        with ThreadPoolExecutor(THREADS) as pool:
            self._groups.update(zip(unknown, pool.map(self._plain_groups, unknown), strict=True))

    def _plain_groups(self, path: str) -> _Layout | None:
        load()
        from pyspark.sql.pandas.types import to_arrow_schema

        try:
            footer = pq.read_metadata(path, filesystem=self._fs)
        except (OSError, pa.ArrowException):
            return None  # the format's own reader says what is wrong with it
        if not is_plain(footer, to_arrow_schema(struct_type(self._columns)), self._ids):
            return None
        rows = tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups))
        return _Layout(rows, _spans(footer, self._key, self._columns[self._key]["type"]))


def bounded(path: str, key: str, kind: object) -> DataFile:
    """A file on this machine, with the bounds of its key that its row groups state. kind: the key's Spark type."""
    return DataFile(path, *(bounds_of([path], key, kind) or (None, None)))


def bounds_of(paths: Iterable[str], key: str, kind: object) -> tuple[int, int] | None:
    """As `bounded`, of these files together, of which some can have no row; None if a row group states none."""
    try:
        return _bounds([span for path in paths for span in _spans(pq.read_metadata(path), key, kind)])
    except (OSError, pa.ArrowException):
        return None


def _bounds(spans: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Those of all row groups together; None if they are unknown of one, or there is none."""
    known = [span for span in spans if span is not None]
    if not known or len(known) < len(spans):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _spans(footer: pq.FileMetaData, key: str, kind: object) -> tuple[tuple[int, int] | None, ...]:
    """The bounds of the key in each row group; None if they are unknown, inexact, or some key is NULL.

    As the file has them, dates in days: Python lacks some of these.
    """
    leaves = [n for n in range(footer.num_columns) if footer.schema.column(n).path == key]
    if len(leaves) != 1 or kind not in COMPARED:
        return tuple(None for _ in range(footer.num_row_groups))
    told = [footer.row_group(n).column(leaves[0]).statistics for n in range(footer.num_row_groups)]
    exact = [one is not None and one.has_min_max and one.null_count == 0 for one in told]
    return tuple(
        (int(one.min_raw), int(one.max_raw)) if known else None for one, known in zip(told, exact, strict=True)
    )


def is_plain(footer: pq.FileMetaData, columns: pa.Schema, ids: Mapping[str, int] | None = None) -> bool:
    """Whether pyarrow reads these columns of the file exactly as Spark does. ids: see PlainFiles."""
    if not schemas.calendar_is_plain(footer) or not schemas.spark_reads(footer):
        return False
    held = footer.schema.to_arrow_schema()
    physical = {leaf.path: leaf.physical_type for leaf in map(footer.schema.column, range(footer.num_columns))}
    by_spark = schemas.written_by_spark(footer)
    return all(
        held.names.count(one.name) == 1
        and (ids is None or _id(held.field(one.name)) == ids[one.name])
        and _same(held.field(one.name).type, one.type, physical.get(one.name) == "INT96", by_spark)
        for one in columns
    )


def _id(field: pa.Field) -> int | None:
    told = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if told is None else int(told)


_SAME: Mapping[str, Sequence[str]] = {
    "string": ("string", "large_string", "string_view"),
    "binary": ("binary", "large_binary", "binary_view"),
}


def _same(kind: pa.DataType, wanted: pa.DataType, int96: bool, by_spark: bool) -> bool:
    """Whether a column of this type in a file holds values of the wanted one. by_spark: whether Spark wrote it."""
    if pa.types.is_nested(wanted):
        return False
    if int96:  # Spark's own are instants, of others nobody knows
        return by_spark and pa.types.is_timestamp(wanted) and wanted.tz is not None
    return kind == wanted or str(kind) in _SAME.get(str(wanted), ())
