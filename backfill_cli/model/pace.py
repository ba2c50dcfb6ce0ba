"""How much an epoch may read: the commanded rate as a token bucket, and a size that takes about the target."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backfill_cli.model.limit import Limit

FIRST_ROWS = 500_000  # small enough for a first checkpoint within seconds, large enough to measure a rate
LEAST_ROWS = 1_000
STALL_MS = 5_000  # an epoch at the default target: anything longer is not caused by the rate limit
GROW_AT_MOST = 4.0
SHRINK_AT_MOST = 0.25


@dataclass(frozen=True, slots=True)
class Allowance:
    """A token bucket of snapshot rows. Negative tokens are a debt that later barriers pay.

    at_ms: when it was last filled, by the steady clock; None before the first time.
    """

    tokens: float = 0.0
    at_ms: int | None = None

    def fill(self, rate: float | None, interval_ms: int, steady_ms: int) -> "Allowance":
        """The bucket at `steady_ms`: what was left, at most one burst of `rate × interval`, plus what it earned.

        A rate below one row per interval saves up to a whole row, or it would never read one. The actual time
        since the last fill counts, so that a barrier longer than the interval does not lower the requested rate;
        but at most STALL_MS of it, so that a job that was held up does not flood its upstream afterwards.
        """
        if rate is None:
            return Allowance(0.0, steady_ms)
        burst = rate * interval_ms / 1000
        if self.at_ms is None:
            return Allowance(min(self.tokens, 0.0) + burst, steady_ms)
        earned = rate * min(max(0, steady_ms - self.at_ms), max(STALL_MS, interval_ms)) / 1000
        return Allowance(min(self.tokens, max(burst, 1.0) if rate else 0.0) + earned, steady_ms)

    def hold(self, steady_ms: int) -> "Allowance":
        """Time passes without earning: the job is paused, or nothing is left to read."""
        return replace(self, at_ms=steady_ms)

    def spend(self, rows: int) -> "Allowance":
        return replace(self, tokens=self.tokens - rows)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What rates leave to be read at one barrier.

    rows: of all tables together, None for no limit. tables: of each table that has a rate of its own.
    """

    rows: float | None = None
    tables: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TablePace:
    """A table that is still read, and has a rate of its own. left: its rows that are not; None: unknown."""

    table: str
    rate: float
    left: float | None

    @property
    def left_s(self) -> float:
        """How long its rate alone makes that take, at least: infinite at rate 0."""
        if not self.rate:
            return math.inf
        return (self.left or 0) / self.rate


@dataclass(frozen=True, slots=True)
class Sizer:
    """The number of rows for an epoch that takes about `barrier.target`."""

    rows: int = FIRST_ROWS

    def after(self, read: int, took_ms: int, target_ms: int) -> "Sizer":
        """The next size, after `read` rows took `took_ms`: larger if under half the target, smaller if over it.

        An epoch that was small because there was no more to read says little about the size: to grow it, an epoch
        must have read at least 9/10 of it; to shrink it, at least half. If a smaller epoch was slow, the machine
        was busy or the time is a fixed cost per epoch, which smaller epochs would only multiply.
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


WIDEST = 5  # times the target, for an epoch whose commit has a fixed cost: less than what `status` calls held up
APART = 1.5  # two sizes closer than this do not show what a row costs: the times differ by more without a reason
WIDER = 2.5  # of another size at once, even where one upstream epoch, which is never split, is a whole commit
TRUSTED = 8  # commits after which a larger one is measured again: what it took may have had another reason


@dataclass(frozen=True, slots=True)
class Commits:
    """What a commit of changes costs: a fixed time, and a time per row; known from two commits of different sizes.

    A MERGE that rewrites files takes nearly the same time for ten times as many changes, and smaller epochs would
    only multiply it. So an epoch's rows may take as long as the fixed cost, up to WIDEST times the target in all;
    and where the fixed cost is all of that, a quarter of it.
    last, other: (rows, ms) of commits; other is APART from last, and was the last one `age` commits ago.
    """

    last: tuple[int, int] | None = None
    other: tuple[int, int] | None = None
    age: int = 0

    def after(self, rows: int, took_ms: int) -> "Commits":
        """What is known after `rows` took `took_ms`."""
        if rows <= 0:
            return self
        now = (rows, max(took_ms, 1))
        if self.last is not None and _apart(self.last[0], rows):
            return Commits(now, self.last)
        doubted = self.other is not None and self.other[0] > rows and self.age >= TRUSTED
        if self.other is None or doubted or not _apart(self.other[0], rows):
            return Commits(now)
        return Commits(now, self.other, self.age + 1)

    def rows(self, target_ms: int, least: int, wider: float = 1.0) -> int | None:
        """How many changes the next epoch may have, at least `least`; None before a first commit.

        wider: times the target that it may take in all, its fixed cost included, up to WIDEST.
        """
        if self.last is None:
            return None
        rows, took_ms = self.last
        if self.other is None:  # the next one must be of another size: a wider one, unless it could take too long
            fits = max(least, int(rows * target_ms / took_ms))
            more_rows = min(WIDER, WIDEST * target_ms / took_ms)
            too_long = more_rows < APART and _apart(fits, rows)
            return fits if too_long else max(fits, math.ceil(max(more_rows, APART) * rows))
        (fewer, less_ms), (more, more_ms) = sorted((self.last, self.other))
        per_row_ms = max(0.0, (more_ms - less_ms) / (more - fewer))
        fixed_ms = max(0.0, took_ms - per_row_ms * rows)
        shared_ms = min(fixed_ms, max(WIDEST * target_ms - fixed_ms, fixed_ms / 4))
        for_rows_ms = max(wider * target_ms - fixed_ms, shared_ms)
        widest = int(more * GROW_AT_MOST)
        return max(least, widest if per_row_ms * widest <= for_rows_ms else int(for_rows_ms / per_row_ms))


def _apart(some: int, others: int) -> bool:
    return max(some, others) >= APART * min(some, others)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a plan may use at one barrier.

    now_ms: the barrier's number, for storing and display. rows: about what fits the target. interval_ms: minimum
    time between two barriers. steady_ms: time of a clock that is never set, for what is earned over time;
    meaningless in another process. enough: snapshot rows per second that suffice for a deadline; None for none.
    """

    now_ms: int
    rows: int
    interval_ms: int
    steady_ms: int
    enough: float | None = None

    def pace(self, commanded: float | None) -> float | None:
        """Snapshot rows per second that may be read, given what is commanded; None: no limit."""
        return min((rate for rate in (commanded, self.enough) if rate is not None), default=None)


FIRST_WAIT_MS, LONGEST_WAIT_MS = 200, 15_000
"""After a transient failure, doubled each time: a lock is mostly free at once, a broker back within seconds."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """When to retry after consecutive transient failures, and when to give up; by the steady clock."""

    since_ms: int | None = None
    tries: int = 0
    until_ms: int = 0
    reason: Limit | None = None

    def failed(self, steady_ms: int, reason: Limit) -> "Backoff":
        """Records one more failure: the next wait is longer."""
        delay_ms = min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(self.tries, 10))
        since_ms = self.since_ms if self.since_ms is not None else steady_ms
        return Backoff(since_ms, self.tries + 1, steady_ms + delay_ms, reason)

    def spent(self, steady_ms: int, limit_ms: int) -> bool:
        return self.since_ms is not None and steady_ms - self.since_ms >= limit_ms
