"""Whether a job that catches up does: what its log has left after each commit, and which way that moves."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import sqrt

SPANS = (12, 24, 48, 96, 192, 384)
"""Commits that are looked at, the last ones first: a small change shows only over many, if they vary."""

SURE = 3.0
"""Standard errors: seen by chance in under 1 % of looks at 12 commits, even where nothing changes in the mean."""


class Trend(StrEnum):
    UNKNOWN = "unknown"
    SHRINKS = "shrinks"
    STAYS = "stays"
    """As much or more arrives than is applied."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """left: changes that the log has left after each of the last commits, oldest first."""

    left: tuple[int, ...] = ()

    def after(self, left: int) -> "Backlog":
        """One more commit leaves this many."""
        return Backlog((*self.left, left)[-SPANS[-1] - 1 :])

    @property
    def trend(self) -> Trend:
        """What the fewest last commits that tell it show.

        One burst, however large, is no trend: it raises the error as much as the mean. Nothing left is no backlog.
        """
        if self.left and not self.left[-1]:
            return Trend.SHRINKS
        more = [now - before for before, now in pairwise(self.left)]
        for span in SPANS:
            if len(more) < span:
                break
            last = more[-span:]
            mean = sum(last) / span
            error = sqrt(sum((one - mean) ** 2 for one in last) / (span - 1) / span)
            if mean < 0 and mean <= -SURE * error:
                return Trend.SHRINKS
            if mean >= 0 and mean >= SURE * error:
                return Trend.STAYS
        return Trend.UNKNOWN
