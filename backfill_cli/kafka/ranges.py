"""Ranges of offsets as tasks of about equal size, so that all cores work whatever the partitions hold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 25_000
"""The fewest offsets worth a task: starting a consumer costs as much as reading 10,000 (measured)."""


@dataclass(frozen=True, slots=True)
class Range:
    """`after <= offset < up_to` of a partition. read: which of the plan's reads it belongs to."""

    read: int
    partition: int
    after: int
    up_to: int


def cut(ranges: Sequence[Range], cores: int) -> tuple[Range, ...]:
    """The same offsets in the same order, in tasks of at most a core's share each; empty ranges are left out."""
    total = sum(r.up_to - r.after for r in ranges)
    share = max(LEAST, math.ceil(total / max(1, cores)))
    tasks = []
    for one in ranges:
        size = one.up_to - one.after
        parts = math.ceil(size / share)
        for part in range(parts):
            begin, end = one.after + size * part // parts, one.after + size * (part + 1) // parts
            tasks.append(Range(one.read, one.partition, begin, end))
    return tuple(tasks)
