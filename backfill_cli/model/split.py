"""Splits: the unit of parallel snapshot reading, and how far each of them has been consumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backfill_cli.model.position import Cursor


class SplitStatus(StrEnum):
    """Snapshot: not started, consuming, consumed. Source: not started, backfilling, awaiting live, finished."""

    NOT_STARTED = "not started"
    CONSUMING = "consuming"
    CONSUMED = "consumed"
    BACKFILLING = "backfilling"
    AWAITING_LIVE = "awaiting live"
    FINISHED = "finished"


UNREAD = frozenset({SplitStatus.NOT_STARTED, SplitStatus.CONSUMING})
"""Of a split of a snapshot: rows of it are still to be read."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a pinned snapshot: a file, a key range. Never changes once pinned.

    rows: from metadata, None when only reading can tell (JSON, CSV). For a partition: offsets in its history,
    which holds at most one row per offset.
    first: where its cursors are numbers that count from there: for a partition, the offset at which its history
    begins; 0 for a file of text of which slices can be read, whose cursors are bytes of it. None for others.
    cuttable: whether a slice of it can be read; if not, it is read whole.
    detail: what its upstream needs to read and recognise it, as JSON (files: path, size, mtime).
    """

    table: str
    id: str
    rows: int | None
    size_bytes: int
    cuttable: bool = True
    detail: str = "{}"
    first: int | None = None

    def bytes_read(self, cursor: Cursor | None) -> int | None:
        """How many of its bytes precede a cursor; None where cursors are not bytes."""
        if self.first is None or self.rows is not None:
            return None
        return int(cursor or 0) - self.first


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How much of a split the sink holds.

    cursor: where reading continues, understood only by the side that reads it; None before the first read and once
    consumed. For a partition, its next offset.
    rows: rows read so far, before the transform's `where`.
    epoch: the checkpoint that last moved it, 0 for none.
    target: next offset after the last one that history delivers, where the live log takes over; for a partition
    added later, its first offset. None for files.
    """

    status: SplitStatus = SplitStatus.NOT_STARTED
    cursor: Cursor | None = None
    rows: int = 0
    epoch: int = 0
    target: int | None = None


@dataclass(frozen=True, slots=True)
class ReadSoFar:
    """How much of the snapshot, or of the history, has been read.

    splits: how many are in each status, by its name. rows_total: None if metadata does not tell; estimated:
    whether it can still prove wrong. done, total: in the best available measure: rows if metadata tells, otherwise
    offsets or bytes. share: 0 to 1 by offsets; None for files.
    """

    splits: Mapping[str, int]
    rows: int
    rows_total: int | None
    size_bytes: int
    bytes_total: int
    done: float
    total: int
    share: float | None = None
    estimated: bool = False

    @property
    def left_rows(self) -> float | None:
        """About how many rows, or offsets, are not read yet; None before anything tells how many there are."""
        if self.done:
            return self.rows / self.done * (self.total - self.done)  # assumes the same row density
        return float(self.total) if self.rows_total is not None or self.share is not None else None


SplitKey = tuple[str, str]
"""(table, split id)"""


# A partition of a log is a split, and a log of the position, under one name: its number, or, in a job of several
# tables, the table and its number: `orders/3`.


def partition_id(table: str | None, number: int) -> str:
    """The name of a partition. table: whose partition it is; None in a job whose one table has them all."""
    return str(number) if table is None else f"{table}/{number}"


def partition_number(partition: str) -> int:
    return int(partition.rpartition("/")[2])


def partition_table(partition: str) -> str | None:
    """The table that the name of a partition says."""
    return partition.rpartition("/")[0] or None
