"""How many rows the next epoch takes, of the snapshot and of the log, learnt from how long the last ones took."""

from dataclasses import dataclass, field

from backfill_cli.model.job import Phase
from backfill_cli.model.pace import Sizer
from backfill_cli.model.plan import Staged

LEAST_CHANGES = 10_000  # less than a second: fewer would be no quicker where the machine is slow, and never done
FIRST_CHANGES = 100_000  # JSON of a machine that is busy: within the target; four times as many at the next


@dataclass(slots=True)
class Sizes:
    """target_ms: how long an epoch should take to stage, and to commit."""

    target_ms: int
    snapshot: Sizer = field(default_factory=Sizer)
    log: Sizer = field(default_factory=lambda: Sizer(FIRST_CHANGES))

    def of(self, phase: Phase) -> Sizer:
        return self.snapshot if phase == Phase.SNAPSHOT else self.log

    def learn(self, phase: Phase, limited: bool, staged: Staged, took_ms: int) -> None:
        """What was staged took so long. limited: whether a rate limits the snapshot."""
        if phase != Phase.SNAPSHOT:
            learnt = self.log.after(staged.changes_read + staged.images, took_ms, self.target_ms)
            self.log = Sizer(max(learnt.rows, LEAST_CHANGES))
        elif not limited or staged.changes_read:
            # A limit is for history alone: live rows beside it say how much an epoch can take.
            read = sum(rows for _, rows in staged.reads) + staged.changes_read
            self.snapshot = self.snapshot.after(read, took_ms, self.target_ms)

    def full(self, changes: int) -> bool:
        """Whether so many live rows beside a limited snapshot fill an epoch: the next need not wait."""
        return changes >= self.snapshot.rows // 2
