"""What a log has grown by, and when it was seen: lag in time and in offsets without reading a record.

Each observation at which an end moved is an upstream epoch. They are kept in memory alone: a new process sees all
that is pending as one epoch of its own start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backfill_cli.model.position import Position
from backfill_cli.model.upstream import UpstreamEpoch

KEPT = 1_000
"""So many observations are remembered; beyond that neighbours are folded, and their lag is the older one's."""

Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Grown:
    """One observation. ends: next offset of each partition that moved."""

    ms: int
    ends: Offsets

    def folded(self, later: "Grown") -> "Grown":
        return Grown(self.ms, {**self.ends, **later.ends})


@dataclass(frozen=True, slots=True)
class Growth:
    """All observations, oldest first. begin: where each partition's log began when it was first seen."""

    seen: tuple[Grown, ...] = ()
    ends: Offsets = field(default_factory=dict)
    begin: Offsets = field(default_factory=dict)


def observed(growth: Growth, oldest: Offsets, ends: Offsets, now_ms: int) -> Growth:
    """With one more look at the log. Time never goes back along it."""
    known = growth.ends
    begin = {p: growth.begin.get(p, first) for p, first in oldest.items()}
    moved = {p: end for p, end in ends.items() if end > known.get(p, begin.get(p, 0))}
    if not moved:
        return replace(growth, ends={**known, **ends}, begin=begin)
    ms = max(now_ms, growth.seen[-1].ms) if growth.seen else now_ms
    seen = (*growth.seen, Grown(ms, moved))
    if len(seen) > KEPT:
        seen = tuple(a.folded(b) for a, b in zip(seen[::2], seen[1::2], strict=False)) + seen[len(seen) // 2 * 2 :]
    return Growth(seen, {**known, **ends}, begin)


def pending(growth: Growth, position: Position) -> tuple[UpstreamEpoch, ...]:
    """The epochs that `position` does not cover, in order; rows: the offsets of each that are after it."""
    reached = {p: _at(position, p, first) for p, first in growth.begin.items()}
    found = []
    for grown in growth.seen:
        rows = sum(max(0, end - reached[p]) for p, end in grown.ends.items())
        if rows:
            cursors = tuple(sorted((str(p), end) for p, end in grown.ends.items()))
            found.append(UpstreamEpoch(cursors, grown.ms, rows, 0))
        reached |= {p: max(end, reached[p]) for p, end in grown.ends.items()}
    return tuple(found)


def _at(position: Position, partition: int, first: int) -> int:
    cursor = position.get(str(partition))
    return max(int(cursor), first) if cursor is not None else first
