"""Chain strategy: take the log into a spool from the start, read the snapshot meanwhile, then apply the spool.

For a change log that is volatile, or that costs its owner while it waits. At every barrier, whatever is new in
the log goes durably into a spool and is acknowledged, however far the snapshot is: barriers run ahead of the
data, and each leaves a phantom barrier in the spool. The snapshot is pinned, or is read in its current state: the
spool replays every change from before its first read. Then the spool is drained in order, up to some phantom at
each barrier; once it is empty, the log is read directly. Rules and laws: docs/design.md.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import ChangeWindow, EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitKey, SplitProgress
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.strategies.reading import Reading
from backfill_cli.strategies.snapshot import SnapshotState, SnapshotStrategy, fitting

TAKEN_ROWS = 500_000
"""Changes per spool entry, about: a log that grew while it was not taken becomes several entries."""


@dataclass(frozen=True)
class ChainStrategy(SnapshotStrategy):
    """current: the snapshot is read in its current state, in key order; row counts of its splits are estimates."""

    name: str = "chain"
    current: bool = False

    @cached_property
    def _reading(self) -> Reading:
        return Reading(self.splits, estimated=self.current)

    def start(self, pin: Pin, control: Control) -> SnapshotState:
        state = super().start(pin, control)
        return replace(state, uncovered=self.current and bool(self.splits))

    def apply(self, state: SnapshotState, mutations: Mutations) -> SnapshotState:
        return _taking_while_paused(super().apply(state, mutations))

    def plan(self, state: SnapshotState, view: UpstreamView, budget: Budget) -> EpochPlan:
        """Plans as strategy snapshot does, with the spool as the log until it is drained."""
        plan = super().plan(state, view, budget)
        if state.uncovered and state.phase == Phase.LOG_STORE and view.spool is not None and view.spool.covers:
            plan = replace(plan, covers=view.latest)
        if view.spool is not None and (view.spool.behind or state.phase == Phase.UPSTREAM):
            # what the log holds beyond the spool is pending, too
            plan = replace(plan, pending_after=plan.pending_after + 1)
        window, spooled = plan.window, plan.window is not None and view.spool is not None
        if window is not None and not spooled:  # a log that grew while it was not taken becomes several epochs
            window = replace(window, limit=max(budget.rows, TAKEN_ROWS))
        return replace(plan, window=window, spooled=spooled, converging=state.converging)

    def advance(
        self, state: SnapshotState, plan: EpochPlan, staged: Staged | None, budget: Budget
    ) -> SnapshotState:
        """A snapshot of current state is covered by the first take that follows its last read."""
        if state.uncovered and plan.covers is not None:
            state = replace(state, uncovered=False, complete_at=plan.covers)
        return super().advance(state, plan, staged, budget)

    def _leave_snapshot(self, state: SnapshotState, plan: EpochPlan, budget: Budget) -> SnapshotState:
        """Leaves for the log store even when nothing is pending: a barrier has to drain the spool first."""
        state = replace(state, snapshot_finished_ms=budget.now_ms)
        return replace(state, phase=Phase.LOG_STORE)

    def freeze(self, state: SnapshotState) -> str:
        return json.dumps({**json.loads(super().freeze(state)), "uncovered": state.uncovered}, sort_keys=True)

    def thaw(self, state: str, splits: Mapping[SplitKey, SplitProgress], control: Control) -> SnapshotState:
        thawed = replace(super().thaw(state, splits, control), uncovered=json.loads(state)["uncovered"])
        return _taking_while_paused(thawed)


def _taking_while_paused(state: SnapshotState) -> SnapshotState:
    """A pause stops what ends in the sink, never the taking: changes that arrive meanwhile go into the spool."""
    if state.phase == Phase.UPSTREAM and state.control.paused and not state.control.pause_all:
        return replace(state, phase=Phase.LOG_STORE)
    return state


def window_to_take(position: Position, position_ms: int | None, view: UpstreamView) -> ChangeWindow | None:
    """The next spool entry: what is pending, up to the next change of columns; None when nothing is pending.

    position, position_ms: up to where the log has been taken, and the upstream time of that.
    """
    pending = view.pending
    if not pending:
        return None
    cut = next((i for i, epoch in enumerate(pending) if i > 0 and epoch.schema), len(pending))
    taken = pending[: min(cut, max(1, fitting(pending, TAKEN_ROWS)))]
    up_to = position
    for epoch in taken:
        up_to = up_to.join(Position(epoch.cursors))
    return ChangeWindow(
        after=position,
        up_to=up_to,
        from_ms=taken[0].ms,
        up_to_ms=max(taken[-1].ms, position_ms or 0),
        epochs=len(taken),
        schema=taken[0].schema,
        limit=TAKEN_ROWS,
    )
