"""Whether a run has caught up with its upstream, and whether that ends it."""

from collections.abc import Callable

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import EpochPlan
from backfill_cli.strategies import StrategyState


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
