"""How many rows the next epoch takes from the snapshot and from the log, based on how long recent ones took."""

from dataclasses import dataclass, field

from backfill_cli.model.job import Phase
from backfill_cli.model.pace import Commits, Sizer
from backfill_cli.model.plan import Staged

LEAST_CHANGES = 10_000  # under a second: on a slow machine smaller epochs would be no faster, and never finish
BESIDE_COMMITS = 2  # times the target that staging may take: a command waits until it ends
FIRST_CHANGES = 100_000  # within the target even for JSON on a busy machine; four times as many in the next epoch


@dataclass(slots=True)
class Sizes:
    """target_ms: how long an epoch should take to stage and to commit.

    Sizes are rows as a plan counts them. over: how many it counts for each change that there is (`ChangeWindow`).
    """

    target_ms: int
    snapshot: Sizer = field(default_factory=Sizer)
    log: Sizer = field(default_factory=lambda: Sizer(FIRST_CHANGES))
    commits: Commits = field(default_factory=Commits)
    over: float = 1.0

    def rows(self, phase: Phase) -> int:
        """How many rows the next epoch of this phase may read."""
        if phase == Phase.SNAPSHOT:
            return self.snapshot.rows
        fits = self.commits.rows(self.target_ms, LEAST_CHANGES)
        return self.log.rows if fits is None else min(self.log.rows, int(fits * self.over))

    def staged(
        self, phase: Phase, limited: bool, staged: Staged, expected: int, stage_ms: int, commit_ms: int
    ) -> None:
        """Adjusts the size after `staged` took `stage_ms`. limited: whether a rate limits the snapshot.

        expected: how many changes the plan counted. commit_ms: how long a commit takes.
        """
        if phase != Phase.SNAPSHOT:
            # staged beside a commit that takes longer, an epoch costs no time of its own
            target_ms = max(self.target_ms, min(commit_ms, BESIDE_COMMITS * self.target_ms))
            # what a slow commit keeps small is made smaller still where staging is slow, too
            at = Sizer(self.rows(phase)) if stage_ms > target_ms else self.log
            counted = max(_changes(staged), expected)
            self.over = counted / max(_changes(staged), 1)
            learnt = at.after(counted, stage_ms, target_ms)
            self.log = Sizer(max(learnt.rows, LEAST_CHANGES)) if learnt != at else self.log
        elif not limited or staged.changes_read:
            # The limit applies to history only: live rows beside it show how much an epoch can take.
            read = sum(rows for _, rows in staged.reads) + staged.changes_read
            self.snapshot = self.snapshot.after(read, max(stage_ms, commit_ms), self.target_ms)

    def committed(self, phase: Phase, staged: Staged | None, commit_ms: int) -> None:
        """Adjusts the size after the sink took `commit_ms` for an epoch that was staged in this phase."""
        changes = 0 if staged is None or phase == Phase.SNAPSHOT else _changes(staged)
        if changes >= LEAST_CHANGES:  # a live job's few changes would replace what larger commits have shown
            self.commits = self.commits.after(changes, commit_ms)

    def full(self, changes: int) -> bool:
        """Whether this many live rows beside a limited snapshot fill an epoch, so that the next need not wait."""
        return changes >= self.snapshot.rows // 2


def _changes(staged: Staged) -> int:
    return staged.changes_read + staged.images
