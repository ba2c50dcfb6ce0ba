"""How much a log has grown, and when that was seen: lag in time and in offsets without reading a record.

Each observation in which an end moved is an upstream epoch, or several if it is cut. They are kept in memory only:
a new process sees all that is pending at its own first look. What a position covers is dropped: a barrier walks
only what is new, and one at which nothing moved walks nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backfill_cli.model.position import Position
from backfill_cli.model.upstream import UpstreamEpoch

PART_ROWS = 50_000
"""About how many offsets an upstream epoch has: what a log grew by while no runner lived is cut into several."""

KEPT = 1_000
"""The most observations remembered; beyond that neighbours are merged, and their lag is the older one's."""

KEPT_ENDS = 8_000
"""The most ends of partitions remembered in them: walking these takes about 5 ms (measured)."""

APART_MS = 5_000
"""After a longer time without a look, as while a large epoch is staged, records count from the look before."""

Offsets = Mapping[str, int]
"""partition → offset. Its name is that in positions."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """One observation. ends: next offset of each partition that moved and is not covered yet.

    since_ms: of a first look, about when its first record was written; of one long after the look before, when
    that was; else None.
    """

    ms: int
    ends: Offsets
    since_ms: int | None = None

    def folded(self, later: "_Grown") -> "_Grown":
        return _Grown(self.ms, {**self.ends, **later.ends}, self.since_ms)


class Growth:
    """All observations that are pending, oldest first. A position never goes back.

    part_rows: about how many offsets an upstream epoch has at most: a larger observation is cut into several (not
    too many), with times between the last look and this one. None: each is one.
    """

    def __init__(self, part_rows: int | None = None) -> None:
        self._part_rows = part_rows
        self._seen: list[_Grown] = []
        self._ends: dict[str, int] = {}
        self._begin: dict[str, int] = {}  # where each partition's log began when it was first seen
        self._last_ms = 0
        self._looked_ms: int | None = None
        self._asked: Position | None = None  # the position that `_pending` is for; None if an end has moved since
        self._pending: tuple[UpstreamEpoch, ...] = ()
        self.walked = 0  # ends of partitions walked so far, without those of each look itself

    def observe(
        self,
        oldest: Offsets,
        ends: Offsets,
        now_ms: int,
        reached: Offsets | None = None,
        begun_ms: int | None = None,
    ) -> None:
        """One more look at the log is recorded. Times never decrease along it.

        reached, begun_ms: of a first look, the job's position and the time of the log there.
        """
        for p in oldest.keys() - self._begin.keys():
            self._begin[p] = oldest[p]
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        if ends == self._ends:
            return
        before = {p: self._ends.get(p, max(self._begin.get(p, 0), (reached or {}).get(p, 0))) for p in ends}
        moved = {p: end for p, end in ends.items() if end > before[p]}
        self._ends = {**self._ends, **ends}
        if moved:
            since_ms, tells = self._last_ms or begun_ms, not self._last_ms and begun_ms is not None
            if looked_ms is not None and now_ms - looked_ms > APART_MS:
                since_ms, tells = max(looked_ms, self._last_ms), True
            self._last_ms = max(now_ms, self._last_ms)
            begun = self._last_ms if since_ms is None else min(since_ms, self._last_ms)
            self._seen += self._cut(before, moved, begun, tells)
            self._fold()
            self._asked = None

    def _cut(self, before: Offsets, ends: Offsets, since_ms: int, tells: bool) -> list[_Grown]:
        """One look, cut into observations with the same share of every partition each.

        tells: whether the lag is counted from `since_ms`, not from when the growth was seen.
        """
        rows = sum(end - before[p] for p, end in ends.items())
        most = max(1, min(KEPT, KEPT_ENDS // len(ends)) // 2)
        parts = min(-(-rows // self._part_rows), most) if self._part_rows else 1
        found, at = [], before
        for part in range(1, parts + 1):
            now = {p: before[p] + (end - before[p]) * part // parts for p, end in ends.items()}
            first_ms, ms = (since_ms + (self._last_ms - since_ms) * n // parts for n in (part - 1, part))
            new = {p: offset for p, offset in now.items() if offset > at[p]}
            found.append(_Grown(ms, new, first_ms if tells else None))
            at = now
        return found

    def pending(self, position: Position) -> tuple[UpstreamEpoch, ...]:
        """The epochs that `position` does not cover, in order; rows: the offsets of each that are after it."""
        if position != self._asked:
            self._asked, self._pending = position, self._not_covered(position)
        return self._pending

    @property
    def oldest_ms(self) -> int | None:
        """About when the oldest record pending at the last call was written; None: take when it was seen."""
        return self._seen[0].since_ms if self._seen else None

    def _not_covered(self, position: Position) -> tuple[UpstreamEpoch, ...]:
        at = {p: int(offset) for p, offset in position}
        reached = {p: max(at.get(p, first), first) for p, first in self._begin.items()}
        kept, found = [], []
        for grown in self._seen:
            self.walked += len(grown.ends)
            ends = {p: end for p, end in grown.ends.items() if end > reached[p]}
            if ends:
                rows = sum(end - reached[p] for p, end in ends.items())
                cursors = tuple(sorted(ends.items()))
                found.append(UpstreamEpoch(cursors, grown.ms, rows, 0))
                kept.append(grown if len(ends) == len(grown.ends) else _Grown(grown.ms, ends, grown.since_ms))
                reached |= ends
        self._seen = kept
        return tuple(found)

    def _fold(self) -> None:
        """Half as many observations, if there were too many."""
        seen = self._seen
        if len(seen) > KEPT or (len(seen) > 2 and sum(len(grown.ends) for grown in seen) > KEPT_ENDS):
            halved = [a.folded(b) for a, b in zip(seen[::2], seen[1::2], strict=False)]
            self._seen = halved + seen[len(seen) // 2 * 2 :]
