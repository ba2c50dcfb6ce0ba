"""Splits: the unit of parallel snapshot reading, and how far each of them has been consumed."""

from dataclasses import dataclass
from enum import StrEnum


class SplitStatus(StrEnum):
    """Snapshot: not started, consuming, consumed. Source: not started, backfilling, awaiting live, finished."""

    NOT_STARTED = "not started"
    CONSUMING = "consuming"
    CONSUMED = "consumed"
    BACKFILLING = "backfilling"
    AWAITING_LIVE = "awaiting live"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a pinned snapshot: a file, a key range. Never changes once pinned.

    rows: from metadata, None when only reading tells (JSON, CSV). Of a partition: offsets in its history, which
    holds at most one row each.
    first: index of its first row: 0, or the offset that a partition's history begins at.
    cuttable: whether a slice of it can be read; if not it is read whole.
    detail: what its upstream needs to read it and to know it again, as JSON (files: path, size, mtime).
    """

    table: str
    id: str
    rows: int | None
    size_bytes: int
    cuttable: bool = True
    detail: str = "{}"
    first: int = 0


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How much of a split the sink holds.

    after: index of the next row (files: how many leading rows have been consumed; a partition: its next offset).
    rows: rows read so far, before the transform's `where`.
    epoch: the checkpoint that moved it last, 0 for none.
    target: next offset after the last one that history delivers; the live log goes on from there: of a partition
    that came later, its first one. None for files.
    """

    status: SplitStatus = SplitStatus.NOT_STARTED
    after: int = 0
    rows: int = 0
    epoch: int = 0
    target: int | None = None


SplitKey = tuple[str, str]
"""(table, split id)"""
