"""Cuts slices of a Parquet file at its row groups. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

TASK_ROWS = 500_000
"""Most rows per task of the row group reader, unless a single row group holds more."""


@dataclass(frozen=True, slots=True)
class GroupSlice:
    """Rows `after <= row index < up_to` of a file.

    first_group, last_group: the row groups that hold them, inclusive. start: row index where first_group begins.
    """

    first_group: int
    last_group: int
    start: int
    after: int
    up_to: int


def touched(groups: Sequence[int], after: int, up_to: int) -> GroupSlice:
    """The row groups that hold a slice. groups: rows of each; 0 <= after < up_to <= their sum."""
    if not 0 <= after < up_to <= sum(groups):
        raise ValueError(f"slice {after}..{up_to} of {sum(groups)} rows")
    begin = first = start = 0
    found = False
    for index, rows in enumerate(groups):
        end = begin + rows
        if not found and end > after:
            found, first, start = True, index, begin
        if end >= up_to:
            return GroupSlice(first, index, start, after, up_to)
        begin = end
    raise AssertionError("unreachable: up_to is within the file")


def tasks(groups: Sequence[int], after: int, up_to: int) -> list[GroupSlice]:
    """The slice cut at row group borders into parts of at most TASK_ROWS rows, unless a single group has more."""
    hit = touched(groups, after, up_to)
    parts: list[GroupSlice] = []
    first, start, begin = hit.first_group, hit.start, hit.start
    for index in range(hit.first_group, hit.last_group + 1):
        end = begin + groups[index]
        more = groups[index + 1] if index < hit.last_group else 0
        if index == hit.last_group or end + more - start > TASK_ROWS:
            low, high = max(after, start), min(up_to, end)
            if low < high:
                parts.append(GroupSlice(first, index, start, low, high))
            first, start = index + 1, end
        begin = end
    return parts
