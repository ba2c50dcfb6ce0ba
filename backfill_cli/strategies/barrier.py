"""What every strategy does at a barrier: refill what snapshot or history may read, report what is left pending."""

from collections.abc import Sequence
from dataclasses import replace

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import UpstreamEpoch


def refilled(allowance: Allowance, control: Control, phase: Phase, budget: Budget) -> Allowance:
    """The token bucket at this barrier: it earns tokens during the snapshot phase, unless the job is paused."""
    if control.paused or phase != Phase.SNAPSHOT:
        return allowance.hold(budget.steady_ms)
    return allowance.fill(control.rate, budget.interval_ms, budget.steady_ms)


def allowed(allowance: Allowance, control: Control, phase: Phase, budget: Budget) -> Allowance | None:
    """What the commanded rate allows to be read at this barrier; None without a rate."""
    return None if control.rate is None else refilled(allowance, control, phase, budget)


def observed(plan: EpochPlan, left: Sequence[UpstreamEpoch], begun_ms: int | None, latest: Position) -> EpochPlan:
    """The plan with what it leaves pending, in epochs and upstream time.

    begun_ms: upstream time that is reached once the plan is applied, None when unknown.
    """
    if not left:
        return replace(plan, pending_after=0, lag_after_ms=0, oldest_pending_ms=None, latest=latest)
    lag_ms = max(0, left[-1].ms - (begun_ms if begun_ms is not None else left[0].ms))
    return replace(plan, pending_after=len(left), lag_after_ms=lag_ms, oldest_pending_ms=left[0].ms, latest=latest)
