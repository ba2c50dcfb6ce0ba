"""When barriers passed, and when the next one is due.

Uses the steady clock, as every wait does: the time of day can be set forward or back by hours or days.
"""

SELF_PAUSED_AFTER = 6  # times the longer of interval and target, without a barrier


class Rhythm:
    """interval_ms: between two barriers, unless the loop is behind. target_ms: what an epoch should take.

    looked_ms: when a barrier was last attempted. passed_ms: when one last passed, with rows, or idle with no epoch
    in flight. behind: the next barrier need not wait for the interval.
    """

    def __init__(self, interval_ms: int, target_ms: int) -> None:
        self._interval_ms, self._target_ms = interval_ms, target_ms
        self.looked_ms: int | None = None
        self.passed_ms: int | None = None
        self.behind = True

    def is_early(self, steady_ms: int) -> bool:
        """Whether the next barrier is not due yet."""
        since_ms = self._since_ms(steady_ms)
        return since_ms is not None and since_ms < self._interval_ms and not self.behind

    def wait_ms(self, steady_ms: int, tries_at_ms: int) -> int:
        """How long nothing can happen, at most: until the next barrier, or the next retry after a failure."""
        if tries_at_ms > steady_ms:
            return min(tries_at_ms - steady_ms, self._interval_ms)
        since_ms = self._since_ms(steady_ms)
        return 0 if since_ms is None else max(0, self._interval_ms - since_ms)

    def passed(self) -> None:
        """The barrier that was attempted has passed."""
        self.passed_ms = self.looked_ms

    def landed(self) -> None:
        """The sink has committed: the next barrier does not wait for looks that came to nothing meanwhile."""
        self.looked_ms = self.passed_ms

    def silent_ms(self, steady_ms: int, since_ms: int) -> int | None:
        """How long no barrier has passed since `since_ms`, if that is longer than it should be; otherwise None."""
        if self.passed_ms is None:
            return None
        silent_ms = steady_ms - max(self.passed_ms, since_ms)
        return silent_ms if silent_ms > SELF_PAUSED_AFTER * max(self._interval_ms, self._target_ms) else None

    def _since_ms(self, steady_ms: int) -> int | None:
        return None if self.looked_ms is None else steady_ms - self.looked_ms
