"""What every strategy does at a barrier: refill what snapshot or history may read, say what is left pending."""

from collections.abc import Sequence
from dataclasses import replace

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import UpstreamEpoch


def refilled(allowance: Allowance, control: Control, phase: Phase, budget: Budget) -> Allowance:
    """The bucket at this barrier: it earns while the snapshot phase is open and nobody paused it."""
    if control.paused or phase != Phase.SNAPSHOT:
        return allowance.hold(budget.steady_ms)
    return allowance.fill(control.rate, budget.interval_ms, budget.steady_ms)


def allowed(allowance: Allowance, control: Control, phase: Phase, budget: Budget) -> Allowance | None:
    """What the commanded rate allows to read at this barrier; None without one."""
    return None if control.rate is None else refilled(allowance, control, phase, budget)


def observed(plan: EpochPlan, left: Sequence[UpstreamEpoch], begun_ms: int | None, latest: Position) -> EpochPlan:
    """The plan with what it leaves pending, in epochs and in upstream time.

    begun_ms: upstream time of what is applied once the plan is, None when unknown.
    """
    if not left:
        return replace(plan, pending_after=0, lag_after_ms=0, oldest_pending_ms=None, latest=latest)
    lag_ms = max(0, left[-1].ms - (begun_ms if begun_ms is not None else left[0].ms))
    return replace(plan, pending_after=len(left), lag_after_ms=lag_ms, oldest_pending_ms=left[0].ms, latest=latest)
