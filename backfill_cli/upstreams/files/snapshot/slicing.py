"""Decides which reader reads a slice of a Parquet file, and which row groups the slice touches. Pure."""

from collections.abc import Mapping, Sequence

from backfill_cli.formats.group_slices import touched
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Cursor

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
