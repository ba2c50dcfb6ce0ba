"""What a log has grown by, and when it was seen: lag in time and in offsets without reading a record.

Each observation at which an end moved is an upstream epoch. They are kept in memory alone: a new process sees all
that is pending as one epoch of its own start. What a position covers is dropped: a barrier walks what is new, and
one at which nothing moved walks nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backfill_cli.model.position import Position
from backfill_cli.model.upstream import UpstreamEpoch

KEPT = 1_000
"""So many observations are remembered; beyond that neighbours are folded, and their lag is the older one's."""

KEPT_ENDS = 8_000
"""So many ends of partitions are remembered in them: walking them takes about 5 ms (measured)."""

Offsets = Mapping[int, int]
"""partition → offset"""


@dataclass(frozen=True, slots=True)
class _Grown:
    """One observation. ends: next offset of each partition that moved and is not covered yet."""

    ms: int
    ends: Offsets

    def folded(self, later: "_Grown") -> "_Grown":
        return _Grown(self.ms, {**self.ends, **later.ends})


class Growth:
    """All observations that are pending, oldest first. A position never goes back."""

    def __init__(self) -> None:
        self._seen: list[_Grown] = []
        self._ends: dict[int, int] = {}
        self._begin: dict[int, int] = {}  # where each partition's log began when it was first seen
        self._last_ms = 0
        self._asked: Position | None = None  # what `_pending` is for; None when an end has moved since
        self._pending: tuple[UpstreamEpoch, ...] = ()
        self.walked = 0  # ends of partitions looked at so far, those of each look itself left out

    def observe(self, oldest: Offsets, ends: Offsets, now_ms: int) -> None:
        """One more look at the log. Time never goes back along it."""
        for p in oldest.keys() - self._begin.keys():
            self._begin[p] = oldest[p]
        if ends == self._ends:
            return
        moved = {p: end for p, end in ends.items() if end > self._ends.get(p, self._begin.get(p, 0))}
        self._ends = {**self._ends, **ends}
        if moved:
            self._last_ms = max(now_ms, self._last_ms)
            self._seen.append(_Grown(self._last_ms, moved))
            self._fold()
            self._asked = None

    def pending(self, position: Position) -> tuple[UpstreamEpoch, ...]:
        """The epochs that `position` does not cover, in order; rows: the offsets of each that are after it."""
        if position != self._asked:
            self._asked, self._pending = position, self._not_covered(position)
        return self._pending

    def _not_covered(self, position: Position) -> tuple[UpstreamEpoch, ...]:
        at = {int(p): int(offset) for p, offset in position}
        reached = {p: max(at.get(p, first), first) for p, first in self._begin.items()}
        kept, found = [], []
        for grown in self._seen:
            self.walked += len(grown.ends)
            ends = {p: end for p, end in grown.ends.items() if end > reached[p]}
            if ends:
                rows = sum(end - reached[p] for p, end in ends.items())
                cursors = tuple(sorted((str(p), end) for p, end in ends.items()))
                found.append(UpstreamEpoch(cursors, grown.ms, rows, 0))
                kept.append(grown if len(ends) == len(grown.ends) else _Grown(grown.ms, ends))
                reached |= ends
        self._seen = kept
        return tuple(found)

    def _fold(self) -> None:
        """Half as many observations, where there are too many."""
        seen = self._seen
        if len(seen) > KEPT or (len(seen) > 2 and sum(len(grown.ends) for grown in seen) > KEPT_ENDS):
            halved = [a.folded(b) for a, b in zip(seen[::2], seen[1::2], strict=False)]
            self._seen = halved + seen[len(seen) // 2 * 2 :]
