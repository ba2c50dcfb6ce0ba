"""How much an epoch may read: the commanded rate as a token bucket, and the size that takes about the target."""

from dataclasses import dataclass, replace

FIRST_ROWS = 500_000  # small enough for a first checkpoint within seconds, large enough to measure a rate
LEAST_ROWS = 1_000
STALL_MS = 5_000  # an epoch at the default target: what takes longer is not the limit's doing
GROW_AT_MOST = 4.0
SHRINK_AT_MOST = 0.25


@dataclass(frozen=True, slots=True)
class Allowance:
    """A token bucket of snapshot rows. tokens below zero: a debt that later barriers pay.

    at_ms: when it was filled last, by the steady clock; None before the first time.
    """

    tokens: float = 0.0
    at_ms: int | None = None

    def fill(self, rate: float | None, interval_ms: int, steady_ms: int) -> "Allowance":
        """The bucket at `steady_ms`: what was left, at most one burst of `rate × interval`, and the time since.

        A rate of less than a row an interval saves up to a whole row, else it would never read one. The time since
        the last fill counts: a barrier that took longer than the interval must not lower the rate that was asked
        for; but no more than STALL_MS of it: a job that was held up must not flood its upstream afterwards.
        """
        if rate is None:
            return Allowance(0.0, steady_ms)
        burst = rate * interval_ms / 1000
        if self.at_ms is None:
            return Allowance(min(self.tokens, 0.0) + burst, steady_ms)
        earned = rate * min(max(0, steady_ms - self.at_ms), max(STALL_MS, interval_ms)) / 1000
        return Allowance(min(self.tokens, max(burst, 1.0) if rate else 0.0) + earned, steady_ms)

    def hold(self, steady_ms: int) -> "Allowance":
        """Time passes without earning: paused, or nothing left to read."""
        return replace(self, at_ms=steady_ms)

    def spend(self, rows: int) -> "Allowance":
        return replace(self, tokens=self.tokens - rows)


@dataclass(frozen=True, slots=True)
class Sizer:
    """How many rows an epoch should have so that it takes about `barrier.target`."""

    rows: int = FIRST_ROWS

    def after(self, read: int, took_ms: int, target_ms: int) -> "Sizer":
        """The next size once `read` rows took `took_ms`: grow under half the target, shrink over it.

        An epoch that was small because there was no more to read says little about the size: only one that read
        at least 9/10 of it may grow it, at least half of it shrink it. What a smaller one took is a busy machine,
        or what every epoch takes: with fewer rows each it would be more of it.
        """
        took_ms = max(took_ms, 1)
        if took_ms > target_ms:
            if read < self.rows / 2:
                return self
            factor = max(SHRINK_AT_MOST, target_ms / took_ms)
            least = max(LEAST_ROWS, int(self.rows * SHRINK_AT_MOST))
            return Sizer(max(least, int(min(self.rows, read) * factor)))
        if took_ms < target_ms / 2 and read >= self.rows * 0.9:
            factor = min(GROW_AT_MOST, target_ms / took_ms)
            return Sizer(int(max(self.rows, read) * factor) if factor < GROW_AT_MOST else int(self.rows * factor))
        return self


@dataclass(frozen=True, slots=True)
class Budget:
    """What a plan may take at one barrier.

    now_ms: the barrier's number, to be kept and shown. rows: about what fits the target. interval_ms: between two
    barriers at least. steady_ms: of a clock that nobody sets, for what time earns; no meaning in another process.
    """

    now_ms: int
    rows: int
    interval_ms: int
    steady_ms: int


FIRST_WAIT_MS, LONGEST_WAIT_MS = 200, 15_000
"""After a transient failure, twice as long each time: a lock is mostly free at once, a broker back in seconds."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """When to try again after transient failures in a row, and when to give up; by the steady clock."""

    since_ms: int | None = None
    tries: int = 0
    until_ms: int = 0
    reason: str | None = None

    def failed(self, steady_ms: int, reason: str) -> "Backoff":
        """One more failure: wait longer than after the one before."""
        delay_ms = min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(self.tries, 10))
        since_ms = self.since_ms if self.since_ms is not None else steady_ms
        return Backoff(since_ms, self.tries + 1, steady_ms + delay_ms, reason)

    def spent(self, steady_ms: int, limit_ms: int) -> bool:
        return self.since_ms is not None and steady_ms - self.since_ms >= limit_ms
