"""When the derived tables that are filled range by range get their next one, under the control in force. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill_cli.model.derived import Filling
from backfill_cli.model.job import Control


@dataclass(slots=True)
class Fills:
    """rows: see `EpochCommit.fill_rows`. filling: how far each is, by the sink. landed_ms: when the sink had the
    last range, by the steady clock; landed_rows: about how many rows that was of.
    """

    rows: int | None = None
    filling: Mapping[str, Filling] = field(default_factory=dict)
    landed_ms: int | None = None
    landed_rows: int = 0

    def landed(self, filling: Mapping[str, Filling], steady_ms: int) -> None:
        """The sink has a commit, after which they are so far; one that is no more among them is filled."""
        moved = {name for name in {*filling, *self.filling} if filling.get(name) != self.filling.get(name)}
        if moved:
            told = [filling.get(name) or self.filling[name] for name in moved]
            self.landed_ms, self.landed_rows = steady_ms, max(one.rows // one.ranges for one in told)
        self.filling = filling

    def allowed(self, control: Control, steady_ms: int) -> int | None:
        """How many rows a commit may fill one from: 0: none now."""
        pace = control.pace
        if control.paused or pace == 0:
            return 0
        if pace is not None and self.landed_ms is not None:
            due_ms = self.landed_ms + 1000 * self.landed_rows / pace
            return self.rows if steady_ms >= due_ms else 0
        return self.rows
