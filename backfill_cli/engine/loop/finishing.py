"""What a deadline of the snapshot asks for at each barrier: see model/deadline.py, which decides."""

from backfill_cli.model.deadline import Deadline, Outlook
from backfill_cli.model.job import Phase
from backfill_cli.strategies import S, Strategy


class Finishing:
    """outlook: as of the last barrier; None without a deadline, or once the job's first snapshot is read: tables
    that join later have none.

    Uses the time of day, as the deadline is one.
    """

    def __init__(self, deadline: Deadline | None) -> None:
        self._deadline = deadline
        self.outlook: Outlook | None = None

    def enough(self, strategy: Strategy[S], state: S, measured: float | None, now_ms: int) -> float | None:
        """Snapshot rows per second that suffice now; None: no limit. measured: that were read lately."""
        first = state.phase == Phase.SNAPSHOT and state.snapshot_finished_ms is None and not state.beside
        if self._deadline is None or not first:
            self.outlook = None
            return None
        left = strategy.read_so_far(state).left_rows
        tables = strategy.own_paces(state)
        self.outlook = self._deadline.judged(self.outlook, left, measured, state.control, now_ms, tables)
        return self.outlook.rate
