"""Snapshot strategy: read a pinned snapshot split by split, then its pending log, then follow.

For an upstream that can be read at a pinned position S and keeps its changes. Phases: `snapshot` (rows at S),
`log-store` (the upstream epochs that queued up meanwhile, with an allowed lag that shrinks at every barrier),
`upstream` (whatever arrived since the last barrier). Rules and laws: docs/design.md.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import ChangeWindow, EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitKey, SplitProgress
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.reading import BYTES_A_ROW, SplitStrategy, frozen, observed, refilled, thawed

Measure = Literal["time", "barriers"]

OVER_BEFORE_SAID = 3  # barriers in a row above the allowed lag before `status` says "not converging"


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """position: applied so far. position_ms: its upstream time, None before the first change.

    allowed: the lag that may remain (milliseconds or upstream epochs), None outside the log store. over: barriers
    in a row that stayed above it. closed: tables whose snapshot is complete. snapshot_finished_ms,
    log_store_finished_ms: the barriers that ended the phases. uncovered: the snapshot is read in its current
    state, and the position that covers its end is not known yet.
    """

    control: Control
    phase: Phase
    position: Position
    position_ms: int | None
    complete_at: Position | None
    splits: Mapping[SplitKey, SplitProgress]
    allowance: Allowance = field(default_factory=Allowance)
    allowed: int | None = None
    over: int = 0
    snapshot_finished_ms: int | None = None
    log_store_finished_ms: int | None = None
    uncovered: bool = False

    @property
    def converging(self) -> bool:
        """Whether the changes during a fuzzy snapshot still have to be replayed up to its end."""
        return self.uncovered or (self.complete_at is not None and not self.complete_at <= self.position)

    @property
    def not_converging(self) -> bool:
        return self.over >= OVER_BEFORE_SAID


@dataclass(frozen=True)
class SnapshotStrategy(SplitStrategy[SnapshotState]):
    """measure: how lag is counted in the log store."""

    measure: Measure = "time"
    name: str = "snapshot"

    def start(self, pin: Pin, control: Control) -> SnapshotState:
        phase = Phase.SNAPSHOT if self.splits else Phase.LOG_STORE
        return SnapshotState(control, phase, pin.position, pin.position_ms, pin.complete_at, {})

    def plan(self, state: SnapshotState, view: UpstreamView, budget: Budget) -> EpochPlan:
        if state.control.paused:
            return observed(EpochPlan(), view.pending, state.position_ms, view.latest)
        if state.phase == Phase.SNAPSHOT:
            plan = EpochPlan(tuple(self._reading.reads(state.splits, self._allowed(state, budget), budget)))
            return observed(plan, view.pending, state.position_ms, view.latest)
        taken = self._take(state, view.pending, budget)
        if not taken:
            return observed(EpochPlan(), view.pending, state.position_ms, view.latest)
        window = _window(state, view.pending[:taken])
        return observed(EpochPlan(window=window), view.pending[taken:], window.up_to_ms, view.latest)

    def advance(
        self, state: SnapshotState, plan: EpochPlan, staged: Staged | None, budget: Budget
    ) -> SnapshotState:
        state = replace(state, allowance=refilled(state, budget))
        if staged is None:
            return self._advance_idle(state, plan, budget)
        if plan.reads:
            state = self._consumed(state, staged, budget)
            return self._leave_snapshot(state, plan, budget) if self._is_read(state) else state
        assert staged.window is not None
        return self._advance_log(state, plan, staged.window, budget)

    def _leave_snapshot(self, state: SnapshotState, plan: EpochPlan, budget: Budget) -> SnapshotState:
        state = replace(state, snapshot_finished_ms=budget.now_ms)
        if plan.pending_after == 0:  # nothing queued up: there is no log store to drain
            return replace(state, phase=Phase.UPSTREAM, log_store_finished_ms=budget.now_ms)
        return replace(state, phase=Phase.LOG_STORE, allowed=self._lag(plan))

    # -- log store and upstream phase ----------------------------------------------------------------------------

    def _lag(self, plan: EpochPlan) -> int:
        return plan.lag_after_ms if self.measure == "time" else plan.pending_after

    def _next_allowed(
        self, state: SnapshotState, elapsed_ms: int, consumed: int, remaining: int
    ) -> tuple[int, bool]:
        """The lag allowed after this barrier, and whether the remaining lag is above it.

        By time, it shrinks by half the upstream time applied; by barriers, by one per upstream epoch consumed.
        """
        if state.allowed is None:  # a job without a snapshot: it begins with the lag that it finds
            return remaining, False
        shrinks_by = elapsed_ms / 2 if self.measure == "time" else consumed
        goal = max(0, int(state.allowed - shrinks_by))
        return min(remaining, goal), remaining > goal

    def _take(self, state: SnapshotState, pending: Sequence[UpstreamEpoch], budget: Budget) -> int:
        """How many pending epochs to apply in one of our epochs: an upstream epoch is never split."""
        if not pending:
            return 0
        cut = next((i for i, epoch in enumerate(pending) if i > 0 and epoch.schema), len(pending))
        return min(cut, max(1, fitting(pending, budget.rows)))

    def _advance_log(
        self, state: SnapshotState, plan: EpochPlan, window: ChangeWindow, budget: Budget
    ) -> SnapshotState:
        assert state.position <= window.up_to, f"the log would move back from {state.position} to {window.up_to}"
        moved = replace(state, position=window.up_to, position_ms=window.up_to_ms)
        if state.phase == Phase.UPSTREAM:
            return moved
        if plan.pending_after == 0:
            return _caught(moved, budget)
        elapsed_ms = window.up_to_ms - (state.position_ms if state.position_ms is not None else window.from_ms)
        allowed, above = self._next_allowed(state, elapsed_ms, window.epochs, self._lag(plan))
        return replace(moved, allowed=allowed, over=state.over + 1 if above else 0)

    def _advance_idle(self, state: SnapshotState, plan: EpochPlan, budget: Budget) -> SnapshotState:
        """A barrier without rows: the log store ends if this barrier observed nothing pending."""
        if state.control.paused:
            return state
        if state.phase == Phase.LOG_STORE and plan.pending_after == 0:
            return _caught(state, budget)
        return state

    # -- for the catalog -----------------------------------------------------------------------------------------

    def freeze(self, state: SnapshotState) -> str:
        return json.dumps(
            {
                **frozen(state),
                "complete_at": None if state.complete_at is None else dict(state.complete_at.cursors),
                "allowed": state.allowed,
                "over": state.over,
                "log_store_finished_ms": state.log_store_finished_ms,
            },
            sort_keys=True,
        )

    def thaw(self, state: str, splits: Mapping[SplitKey, SplitProgress], control: Control) -> SnapshotState:
        kept = json.loads(state)
        complete_at = kept["complete_at"]
        return SnapshotState(
            **thawed(kept, splits, control),
            complete_at=None if complete_at is None else Position.of(complete_at),
            allowed=kept["allowed"],
            over=kept["over"],
            log_store_finished_ms=kept["log_store_finished_ms"],
        )


def _caught(state: SnapshotState, budget: Budget) -> SnapshotState:
    return replace(state, phase=Phase.UPSTREAM, allowed=None, over=0, log_store_finished_ms=budget.now_ms)


def _weight(epoch: UpstreamEpoch) -> int:
    return epoch.rows if epoch.rows is not None else max(1, epoch.size_bytes // BYTES_A_ROW)


def fitting(pending: Sequence[UpstreamEpoch], rows: int) -> int:
    """How many of these epochs fit together into `rows` rows."""
    total = 0
    for n, epoch in enumerate(pending):
        total += _weight(epoch)
        if total > rows:
            return n
    return len(pending)


def _window(state: SnapshotState, taken: Sequence[UpstreamEpoch]) -> ChangeWindow:
    up_to = state.position
    for epoch in taken:
        up_to = up_to.join(Position(epoch.cursors))
    up_to_ms = max(taken[-1].ms, state.position_ms or 0)  # a later epoch may carry an older time
    expected = sum(map(_weight, taken))
    return ChangeWindow(
        state.position, up_to, taken[0].ms, up_to_ms, len(taken), taken[0].schema, expected=expected
    )
