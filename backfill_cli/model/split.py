"""Splits: the unit of parallel snapshot reading, and how far each of them has been consumed."""

from dataclasses import dataclass
from enum import StrEnum


class SplitStatus(StrEnum):
    NOT_STARTED = "not started"
    CONSUMING = "consuming"
    CONSUMED = "consumed"


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a pinned snapshot: a file, a key range. Never changes once pinned.

    rows: from metadata, None when only reading tells (JSON, CSV).
    cuttable: whether a slice of it can be read; if not it is read whole.
    detail: what its upstream needs to read it and to know it again, as JSON (files: path, size, mtime).
    """

    table: str
    id: str
    rows: int | None
    size_bytes: int
    cuttable: bool = True
    detail: str = "{}"


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How much of a split the sink holds.

    after: how many leading rows have been consumed, so also the index of the next row (0 at the start).
    rows: rows read so far, before the transform's `where`.
    epoch: the checkpoint that moved it last, 0 for none.
    """

    status: SplitStatus = SplitStatus.NOT_STARTED
    after: int = 0
    rows: int = 0
    epoch: int = 0


SplitKey = tuple[str, str]
"""(table, split id)"""
