"""Which reader reads a slice of a Parquet file, and which row groups it touches: pure."""

from collections.abc import Mapping, Sequence

from backfill_cli.formats.group_slices import touched
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Cursor

SHARE = 0.25
"""Up to this share of a file's rows its row groups are read one by one; above it, by Spark's own reader, which is
faster a row but reads the whole file whatever the slice (measured: 5 M rows, 25,000-row slices)."""


def index_of(cursor: Cursor | None) -> int:
    """The row index that a cursor of a file is; 0 for its begin."""
    return 0 if cursor is None else int(cursor)


def bounds(read: SnapshotRead, rows: Mapping[str, int]) -> tuple[int, int]:
    """`after <= row index < end` of a closed read. rows: of each split."""
    return index_of(read.after), rows[read.split] if read.up_to is None else index_of(read.up_to)


def by_row_group(groups: Sequence[int], after: int, up_to: int) -> bool:
    """Whether a slice is read by row group: the groups touched hold at most a quarter of the file's rows."""
    hit = touched(groups, after, up_to)
    return sum(groups[hit.first_group : hit.last_group + 1]) <= SHARE * sum(groups)
