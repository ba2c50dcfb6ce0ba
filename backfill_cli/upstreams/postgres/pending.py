"""What the slot holds after a position: one upstream epoch, or none."""

import time
from collections.abc import Mapping
from typing import Any

from backfill_cli.model.position import Position
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.upstreams.postgres import slot
from backfill_cli.upstreams.postgres.options import PostgresOptions

LOG = "wal"
"""The name of the only log in a position."""

MARK_EVERY_S = 30.0
"""How often a position that moved without changes of our tables is committed: it must not hold back the log."""


def position_of(lsn: int) -> Position:
    return Position.of({LOG: lsn})


def lsn_of(position: Position) -> int:
    return int(position.get(LOG) or 0)


class Pending:
    """What earlier barriers saw of the log, so that the next one asks only for what is new."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._ends: tuple[int, ...] = ()  # the log's end, as seen before
        self._empty_to = 0  # up to here the log is known to hold no changes of our tables
        self._marked_s = time.monotonic()

    def end(self, connection: Any, seen: slot.Now, at: int) -> int:
        """The position up to which the log can be taken now."""
        end = max(at, slot.settled(connection, seen, self._ends))
        self._ends = (*self._ends, seen.insert)[-2:]
        return end

    def nothing_to(self, up_to: int) -> bool:
        """Whether the log is known to hold no changes of our tables up to there."""
        return up_to <= self._empty_to

    def marked(self) -> None:
        """A position was committed and acknowledged."""
        self._marked_s = time.monotonic()

    def epochs(
        self, connection: Any, read: str, at: int, end: int, added: Mapping[str, str]
    ) -> tuple[UpstreamEpoch, ...]:
        """What the slot `read` holds after `at`, as one epoch; without our tables' changes, once in MARK_EVERY_S.

        Added columns come with the next change of their table in the log, or with a window that has no changes.
        """
        options, now_ms = self._options, time.time_ns() // 1_000_000
        first_ms = None
        if end > max(at, self._empty_to):
            first_ms = slot.first_after(connection, read, options.publication, end)
        if first_ms is not None:
            return (UpstreamEpoch(((LOG, end),), first_ms, None, end - at, tuple(added.items())),)
        self._empty_to = max(self._empty_to, end)
        if added:
            return (UpstreamEpoch(((LOG, end),), now_ms, 0, 0, tuple(added.items())),)
        if end > at and time.monotonic() - self._marked_s > MARK_EVERY_S:
            return (UpstreamEpoch(((LOG, end),), now_ms, 0, 0),)
        return ()
