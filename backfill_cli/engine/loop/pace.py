"""When the next barrier is due, how many rows its epoch takes, and whether the run has caught up.

Uses the steady clock, as every wait does: the time of day can be set forward or back by hours or days.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from backfill_cli.model.backlog import Backlog, Trend
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import LEAST_ROWS, Commits, Sizer
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.strategies import StrategyState

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


LEAST_CHANGES = 10_000  # under a second: on a slow machine smaller epochs would be no faster, and never finish
BESIDE_COMMITS = 2  # times the target that staging may take
WIDER = (1.0, 2.0, 5.0)  # times the target, while the log of a job that catches up does not become shorter
INTERRUPTIONS = 3  # of an epoch that is small already, and is slow all the same: a file that is read whole
FIRST_CHANGES = 100_000  # within the target even for JSON on a busy machine; four times as many in the next epoch
FIRST_IN_A_LAKE = 500_000
"""Where a commit rewrites files, whatever it changes in them: a small first one costs as much as a large one."""


@dataclass(slots=True)
class Sizes:
    """target_ms: how long an epoch should take to stage and to commit.

    Sizes are rows as a plan counts them. snapshot, log: by what staging takes; loads, commits: by what commits do,
    of the snapshot's rows and of changes. over: how many it counts for each change that there is (`ChangeWindow`).
    backlog: since the last time that epochs became wider; wider: how often they did.
    interrupted: how often in a row staging was; each time halves the next epoch.
    """

    target_ms: int
    snapshot: Sizer = field(default_factory=Sizer)
    log: Sizer = field(default_factory=lambda: Sizer(FIRST_CHANGES))
    commits: Commits = field(default_factory=Commits)
    loads: Commits = field(default_factory=Commits)
    over: float = 1.0
    backlog: Backlog = field(default_factory=Backlog)
    wider: int = 0
    interrupted: int = 0

    def rows(self, phase: Phase) -> int:
        """How many rows the next epoch of this phase may read."""
        full = self._full(phase)
        return max(min(full, LEAST_ROWS), full >> self.interrupted)

    def may_interrupt(self, phase: Phase) -> bool:
        """Whether an epoch of this size is given up for a command.

        One that cannot be smaller only a few times in a row: commands that come faster than it starve no job.
        """
        return self.interrupted < INTERRUPTIONS or self.rows(phase) > LEAST_ROWS

    def _full(self, phase: Phase) -> int:
        if phase == Phase.SNAPSHOT:
            fits = self.loads.rows(self.target_ms, LEAST_CHANGES)
            return self.snapshot.rows if fits is None else min(self.snapshot.rows, fits)
        fits = self.commits.rows(self.target_ms, LEAST_CHANGES, WIDER[self.wider])
        return self.log.rows if fits is None else min(self.log.rows, int(fits * self.over))

    def staged(
        self, phase: Phase, limited: bool, staged: Staged, expected: int, stage_ms: int, commit_ms: int
    ) -> None:
        """Adjusts the size after `staged` took `stage_ms`. limited: whether a rate limits the snapshot.

        expected: how many changes the plan counted. commit_ms: how long a commit takes.
        """
        if phase != Phase.SNAPSHOT:
            # staged beside a commit that takes longer, an epoch costs no time of its own
            wide_ms = int(self.target_ms * WIDER[self.wider])
            target_ms = max(wide_ms, min(commit_ms, BESIDE_COMMITS * self.target_ms))
            # what a slow commit keeps small is made smaller still where staging is slow, too
            at = Sizer(self._full(phase)) if stage_ms > target_ms else self.log
            counted = max(_changes(staged), expected)
            self.over = counted / max(_changes(staged), 1)
            learnt = at.after(counted, stage_ms, target_ms)
            self.log = Sizer(max(learnt.rows, LEAST_CHANGES)) if learnt != at else self.log
        elif not limited or staged.changes_read:
            # The limit applies to history only: live rows beside it show how much an epoch can take.
            at = Sizer(self._full(phase)) if stage_ms > self.target_ms else self.snapshot
            learnt = at.after(_rows(staged), stage_ms, self.target_ms)
            self.snapshot = learnt if learnt != at else self.snapshot

    def committed(self, phase: Phase, staged: Staged | None, commit_ms: int) -> None:
        """Adjusts the size after the sink took `commit_ms` for an epoch that was staged in this phase."""
        rows = 0 if staged is None else _rows(staged) if phase == Phase.SNAPSHOT else _changes(staged)
        if rows < LEAST_CHANGES:  # a live job's few changes would replace what larger commits have shown
            return
        if phase == Phase.SNAPSHOT:
            self.loads = self.loads.after(rows, commit_ms)
        else:
            self.commits = self.commits.after(rows, commit_ms)

    def left(self, phase: Phase, changes: int) -> None:
        """Epochs become wider where the log does not become shorter. changes: what a commit of this phase left.

        Wider ones share the fixed cost of an epoch among more rows. They stay so until the job has caught up.
        """
        if phase != Phase.LOG_STORE:
            self.backlog, self.wider = Backlog(), 0
            return
        self.backlog = self.backlog.after(changes)
        if self.wider + 1 < len(WIDER) and self.backlog.trend is Trend.STAYS:
            self.backlog, self.wider = Backlog(), self.wider + 1

    @classmethod
    def of(cls, target_ms: int, transactional: bool) -> "Sizes":
        """Before a first epoch. transactional: see `SinkCapabilities`; other sinks than lakes are."""
        return cls(target_ms, log=Sizer(FIRST_CHANGES if transactional else FIRST_IN_A_LAKE))

    @property
    def not_converging(self) -> bool:
        """Whether the log does not become shorter although epochs are as wide as they may be."""
        return self.backlog.trend is Trend.STAYS

    def full(self, changes: int) -> bool:
        """Whether this many live rows beside a limited snapshot fill an epoch, so that the next need not wait."""
        return changes >= self.snapshot.rows // 2


def _changes(staged: Staged) -> int:
    return staged.changes_read + staged.images


def _rows(staged: Staged) -> int:
    """Of the snapshot, and of the log beside it."""
    return sum(rows for _, rows in staged.reads) + staged.changes_read


class CaughtUp:
    """until: what ends the run. at_ms: when the run first caught up, None before."""

    def __init__(self, until: str, now_ms: Callable[[], int]) -> None:
        self._until, self._now_ms = until, now_ms
        self.at_ms: int | None = None

    def note(self, state: StrategyState, plan: EpochPlan) -> None:
        """Caught up from the first barrier of the upstream phase that leaves nothing pending or converging."""
        live = state.phase == Phase.UPSTREAM and not state.control.paused
        if live and plan.pending_after == 0 and not state.converging and self.at_ms is None:
            self.at_ms = self._now_ms()

    def ends(self, control: Control) -> bool:
        """Whether the run is done under this control."""
        return self._until == "caught-up" and self.at_ms is not None and not control.paused
