"""Arrangement strategy: read current state in key order, and of the log only the changes to keys already read.

For an upstream that shows only its current state, plus changes. Each split of the keys has a cursor; an epoch
reads the next rows after it, in their current state, and then the log up to a position that includes everything
those reads saw. Of the log, only changes to keys that some split has reached count; the others are dropped, as a
later read will see them. So at every checkpoint the sink equals the upstream at the log's position, limited to
the keys reached. Rules: docs/design.md.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import SplitKey, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.reading import (
    Reading,
    SplitStrategy,
    allowed,
    filled,
    frozen,
    observed,
    thawed,
)

LEAST_LOG_ROWS = 250_000
"""Changes that every window may hold, however small the epochs of a slow snapshot became."""


@dataclass(frozen=True, slots=True)
class ArrangementState:
    """position: how far the log is consumed. position_ms: its upstream time, None before the first change."""

    control: Control
    phase: Phase
    position: Position
    position_ms: int | None
    splits: Mapping[SplitKey, SplitProgress]
    allowance: Allowance = field(default_factory=Allowance)
    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    snapshot_finished_ms: int | None = None
    beside: bool = False

    converging: bool = False

    @property
    def log_store_finished_ms(self) -> int | None:
        """The log is consumed along with the snapshot: nothing is left to drain after it."""
        return self.snapshot_finished_ms


@dataclass(frozen=True)
class ArrangementStrategy(SplitStrategy[ArrangementState]):
    """The row counts of its splits are estimates."""

    name: str = "arrangement"

    @cached_property
    def _reading(self) -> Reading:
        return Reading(self.splits, estimated=True)

    def start(self, pin: Pin, control: Control) -> ArrangementState:
        phase = Phase.SNAPSHOT if self.splits else Phase.UPSTREAM
        return ArrangementState(control, phase, pin.position, pin.position_ms, {})

    def plan(self, state: ArrangementState, view: UpstreamView, budget: Budget) -> EpochPlan:
        """The next rows and the log past them; only the log where no rows may be read."""
        reads: tuple[SnapshotRead, ...] = ()
        if state.phase == Phase.SNAPSHOT and not state.control.paused and not view.log_first:
            reads = tuple(self._reading.reads(state.splits, allowed(state, budget), budget))
        if state.control.paused or not (reads or view.pending):
            return observed(EpochPlan(), view.pending, state.position_ms, view.latest)
        window = self._window(state, view, bool(reads), budget)
        left = () if reads else view.pending[window.epochs :]
        within = self._within(state) if state.phase == Phase.SNAPSHOT else None
        plan = EpochPlan(reads=reads, window=window, within=within)
        return observed(plan, left, window.up_to_ms, view.latest)

    def _window(self, state: ArrangementState, view: UpstreamView, reads: bool, budget: Budget) -> ChangeWindow:
        """With reads, all of the log up to what they saw; otherwise what was observed, as far as it fits."""
        pending: tuple[UpstreamEpoch, ...] = view.pending
        cut = next((i for i, epoch in enumerate(pending) if i > 0 and epoch.schema), len(pending))
        taken = pending if reads else pending[:cut]
        up_to = state.position
        for epoch in taken:
            up_to = up_to.join(Position(epoch.cursors))
        begun_ms = (state.position_ms or 0) if taken else max(state.position_ms or 0, budget.now_ms)
        return ChangeWindow(
            after=state.position,
            up_to=up_to,
            from_ms=taken[0].ms if taken else begun_ms,
            up_to_ms=max(taken[-1].ms, begun_ms) if taken else begun_ms,
            epochs=len(taken),
            schema=taken[0].schema if taken else (),
            open=reads,
            limit=None if reads else max(budget.rows, LEAST_LOG_ROWS),
        )

    def _within(self, state: ArrangementState) -> Mapping[SplitKey, Cursor | None]:
        begun = {key: one for key, one in state.splits.items() if one.status != SplitStatus.NOT_STARTED}
        return {key: None if one.status == SplitStatus.CONSUMED else one.cursor for key, one in begun.items()}

    def advance(
        self, state: ArrangementState, plan: EpochPlan, staged: Staged | None, budget: Budget
    ) -> ArrangementState:
        state = filled(state, budget)
        if staged is None:
            return state
        window = staged.window
        assert window is not None, "an epoch of this strategy takes the log"
        assert state.position <= window.up_to, f"the log would move back from {state.position} to {window.up_to}"
        state = replace(state, position=window.up_to, position_ms=max(window.up_to_ms, state.position_ms or 0))
        if not plan.reads:
            return state
        state = self._consumed(state, staged, budget)
        if self._is_read(state):
            return replace(state, phase=Phase.UPSTREAM, snapshot_finished_ms=budget.now_ms, beside=False)
        return state

    def joined(self, state: ArrangementState, more: Pin) -> ArrangementState:
        """Their rows are read as those of a new job are, while every change of a table that was read counts."""
        beside = state.beside or state.phase == Phase.UPSTREAM
        return replace(state, phase=Phase.SNAPSHOT, snapshot_finished_ms=None, beside=beside)

    def _read_whole(self, state: ArrangementState) -> ArrangementState:
        return replace(state, phase=Phase.UPSTREAM, snapshot_finished_ms=state.position_ms, beside=False)

    def freeze(self, state: ArrangementState) -> str:
        return json.dumps(frozen(state), sort_keys=True)

    def thaw(self, state: str, splits: Mapping[SplitKey, SplitProgress], control: Control) -> ArrangementState:
        return ArrangementState(**thawed(json.loads(state), splits, control))
