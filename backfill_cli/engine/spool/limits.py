"""How often a log is taken into a spool, how much the spool may hold, and how long failures may last."""

from dataclasses import dataclass

from backfill_cli.errors import SpoolFull
from backfill_cli.model.units import spell_size


@dataclass(frozen=True, slots=True)
class TakerSettings:
    """interval_ms: minimum time between two takes. max_bytes: of the spool, None for no limit. stops_when_full: a
    full spool stops the job; otherwise the log waits upstream. retry_limit_ms: for consecutive transient failures.
    """

    interval_ms: int
    max_bytes: int | None
    stops_when_full: bool
    retry_limit_ms: int

    def is_full(self, size_bytes: int, snapshot_open: bool) -> bool:
        """Whether a spool of this size accepts no more. Raises SpoolFull if that ends the job."""
        most = self.max_bytes
        if most is None or size_bytes < most:
            return False
        if self.stops_when_full and snapshot_open:  # later, draining makes room
            raise SpoolFull(
                f"the spool holds {spell_size(size_bytes)}, but spool.max_size is {spell_size(most)}: the log is "
                "no longer taken",
                'raise spool.max_size, or let the log wait upstream: spool.on_full = "wait"',
            )
        return True
