"""Reads slices of Parquet files by row group, with pyarrow in Spark's Python workers.

Spark's own reader selects a slice by `_metadata.row_index` and reads the whole file for it; this one reads only
the row groups that hold the slice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks, Piece
from backfill_cli.errors import RESTORE, START_OVER, BadData
from backfill_cli.formats.group_slices import GroupSlice
from backfill_cli.formats.schemas import WIDER, arrow_schema
from backfill_cli.model.pushdown import Condition
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.failures import reading

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_CORRECTED = "CORRECTED"
_REBASE = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
"""How Spark reads old dates of files that do not name their writer; `[spark.conf]` can set another way."""

_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 << 20
"""Batches of wide rows are smaller, which bounds a task's memory."""


def rebased_by(spark: SparkSession) -> str | None:
    """The setting by which Spark's reader can change old dates, which pyarrow does not; None if there is none."""
    return rebasing(spark.conf.get)


def rebasing(get: Callable[[str, str], str | None]) -> str | None:
    """As `rebased_by`, where no Spark is open. get: a setting, or else the default that it is given."""
    return next((mode for mode in _REBASE if get(mode, _CORRECTED) != _CORRECTED), None)


@dataclass(frozen=True, slots=True)
class Within:
    """The rows with `low <= column < high`; None is open-ended. The column holds integers or dates, and no NULLs.

    low, high: integers; a date as days since 1970.
    """

    column: str
    low: int | None
    high: int | None

    def rows_of(self, batch: Any, path: str) -> Any:
        """The rows of an Arrow batch that are within the bounds. Raises BadData for a NULL. path: named in it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = batch.column(self.column)
        if keys.null_count:
            raise BadData(
                f"{path}: column '{self.column}' is NULL in some rows, and the table's statistics say in none",
                "write the table's rows again, with a value in each, and so its statistics; then " + START_OVER,
            )
        numbers = (keys.cast(pa.int32()) if pa.types.is_date(keys.type) else keys).cast(pa.int64())
        kept = None if self.low is None else pc.greater_equal(numbers, self.low)
        if self.high is not None:
            below = pc.less(numbers, self.high)
            kept = below if kept is None else pc.and_(kept, below)
        return batch if kept is None else batch.filter(kept)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A slice of one file. path: within `fs`. within: reads only these of its rows; None for all."""

    fs: "FileSystem"
    path: str
    slice: GroupSlice
    within: Within | None = None


def tasks(slices: Sequence[tuple[int, FileSlice]], cores: int, columns: Columns) -> ArrowTasks:
    """The rows of the slices. slices: each with the index of the plan's read it is from."""
    pieces = [(Piece(read, one), one.slice.up_to - one.slice.after) for read, one in slices]
    parts = arrow_tasks.packed(pieces, cores)
    return ArrowTasks(partial(_of_slice, schema=arrow_schema(columns)), parts, schema_text(columns))


def _of_slice(one: FileSlice, schema: Any) -> Iterator[Any]:
    """Runs in a worker. The file is part of a pinned snapshot."""
    with reading(one.path, "parquet", RESTORE):
        for batch in batches(one.fs, one.path, one.slice, schema):
            kept = batch if one.within is None else one.within.rows_of(batch, one.path)
            if kept.num_rows:
                yield kept


def batches(fs: "FileSystem", path: str, part: GroupSlice, schema: Any) -> Iterator[Any]:
    """Arrow batches of a slice with the types of `schema` (pyarrow.Schema), in row order.

    Raises pyarrow's error for a missing or damaged file, BadData if a value does not fit its type exactly.
    """
    for first, batch in raw_batches(fs, path, part, schema.names):
        yield from _exactly(batch, schema, path, first).to_batches()


def raw_batches(
    fs: "FileSystem", path: str, part: GroupSlice, names: Sequence[str], where: Sequence[Condition] = ()
) -> Iterator[tuple[int, Any]]:
    """Arrow batches of a slice as the file has them, each with the index of its first row in the file.

    names: of the columns; one that the file lacks is left out. where: row groups without a row that meets all of
    these are, too.
    """
    import pyarrow.parquet as pq

    from backfill_cli.formats.conditions import groups_meeting

    with fs.open_input_file(path) as source:
        reader = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        groups, size = range(part.first_group, part.last_group + 1), _batch_rows(reader.metadata, part)
        read = groups_meeting(reader.metadata, reader.schema_arrow, where, groups) if where else list(groups)
        rows = {group: reader.metadata.row_group(group).num_rows for group in groups}
        for run in _runs(read):
            begin = part.start + sum(rows[group] for group in groups if group < run[0])
            for batch in reader.iter_batches(size, row_groups=run, columns=list(names)):
                low, high = max(part.after - begin, 0), min(part.up_to - begin, batch.num_rows)
                if low < high:
                    yield begin + low, batch.slice(low, high - low)
                begin += batch.num_rows
                if begin >= part.up_to:
                    return


def _runs(groups: Sequence[int]) -> Iterator[list[int]]:
    """Row groups, with those that follow each other together."""
    for _, run in groupby(enumerate(groups), lambda one: one[1] - one[0]):
        yield [group for _, group in run]


def _batch_rows(footer: Any, part: GroupSlice) -> int:
    """Rows that take about _BATCH_BYTES, by the sizes of their row groups; no more than the slice needs."""
    groups = [footer.row_group(i) for i in range(part.first_group, part.last_group + 1)]
    width = sum(g.total_byte_size for g in groups) / max(1, sum(g.num_rows for g in groups))
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, width)), part.up_to - part.start))


def _exactly(batch: Any, schema: Any, path: str, first: int) -> Any:
    """The batch as a table with the types of `schema`. Raises BadData naming a row and column with an unfit value.

    first: the index of its first row in the file.
    """
    import pyarrow as pa

    columns = []
    for field in schema:
        column, faults = converted(batch.column(field.name), field.type)
        for index, why in faults.items():
            raise BadData(
                f"{path}: row {first + index + 1}: column '{field.name}': {why}", f"{WIDER}, then " + START_OVER
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def converted(column: Any, kind: Any, whole: bool = False) -> tuple[Any, Mapping[int, str]]:
    """The column with this type, NULL where a value does not fit it exactly, and why at each such index, rising.

    whole: also where the file holds what its own type does not allow, such as text that is not UTF-8.
    """
    import pyarrow as pa

    def read(some: Any) -> Any:
        found = _typed(some, kind)
        if whole:
            found.validate(full=True)
        return found

    def fault(low: int, high: int) -> str | None:
        try:  # taken, not sliced: a slice of nested values still holds all their items
            read(column.take(pa.array(range(low, high), pa.int64())))
        except pa.ArrowInvalid as exc:
            return f"a value is not a {kind}: {exc}"
        return None

    try:
        return read(column), {}
    except pa.ArrowInvalid:
        faults = dict(_faults(fault, 0, len(column)))
    there = [None if index in faults else index for index in range(len(column))]
    return read(column.take(pa.array(there, pa.int64()))), faults


def _faults(fault: Callable[[int, int], str | None], low: int, high: int) -> Iterator[tuple[int, str]]:
    """Each index in `low <= index < high` that has one, found by halving."""
    why = fault(low, high)
    if why is None:
        return
    if high - low == 1:
        yield low, why
        return
    yield from _faults(fault, low, (low + high) // 2)
    yield from _faults(fault, (low + high) // 2, high)


def _typed(column: Any, kind: Any) -> Any:
    """The column converted to this type. Raises pyarrow's error for a value that does not fit."""
    import pyarrow as pa

    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_fixed_size_binary(column.type) and pa.types.is_string(kind):
        return pa.array([None if value is None else _uuid(value.hex()) for value in column.to_pylist()], kind)
    return column.cast(kind)


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
