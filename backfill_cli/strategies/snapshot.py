"""Snapshot strategy: read a pinned snapshot split by split, then its pending log, then follow.

For an upstream that can be read at a pinned position S and keeps its changes. Phases: `snapshot` (rows at S),
`log-store` (the upstream epochs that queued up meanwhile), `upstream` (whatever arrived since the last barrier).
Rules and laws: docs/design.md.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Position, table_of
from backfill_cli.model.split import SplitKey, SplitProgress
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.reading import (
    BYTES_A_ROW,
    SplitStrategy,
    allowed,
    filled,
    frozen,
    observed,
    thawed,
)


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """position: applied so far. position_ms: its upstream time, None before the first change.

    snapshot_finished_ms, log_store_finished_ms: the barriers that ended the phases. uncovered: the snapshot is
    read in its current state, and the position that covers its end is not known yet.
    """

    control: Control
    phase: Phase
    position: Position
    position_ms: int | None
    complete_at: Position | None
    splits: Mapping[SplitKey, SplitProgress]
    allowance: Allowance = field(default_factory=Allowance)
    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    snapshot_finished_ms: int | None = None
    log_store_finished_ms: int | None = None
    uncovered: bool = False
    beside: bool = False

    @property
    def converging(self) -> bool:
        """Whether the changes during a fuzzy snapshot still have to be replayed up to its end."""
        return self.uncovered or (self.complete_at is not None and not self.complete_at <= self.position)


@dataclass(frozen=True)
class SnapshotStrategy(SplitStrategy[SnapshotState]):
    name: str = "snapshot"

    def start(self, pin: Pin, control: Control) -> SnapshotState:
        phase = Phase.SNAPSHOT if self.splits else Phase.LOG_STORE
        return SnapshotState(control, phase, pin.position, pin.position_ms, pin.complete_at, {})

    def plan(self, state: SnapshotState, view: UpstreamView, budget: Budget) -> EpochPlan:
        if state.control.paused:
            return observed(EpochPlan(), view.pending, state.position_ms, view.latest)
        reads: tuple[SnapshotRead, ...] = ()
        if state.phase == Phase.SNAPSHOT:
            reads = tuple(self._reading.reads(state.splits, allowed(state, budget), budget))
            if not state.beside:
                return observed(EpochPlan(reads), view.pending, state.position_ms, view.latest)
        follows = [epoch for epoch in view.pending if not state.beside or self._is_free(state, epoch)]
        taken = self._take(state, follows, budget)
        if not taken:
            return observed(EpochPlan(reads), view.pending, state.position_ms, view.latest)
        window = _window(state, follows[:taken])
        now = set(map(id, follows[:taken]))
        left = [epoch for epoch in view.pending if id(epoch) not in now]
        plan = EpochPlan(reads, window, left=sum(map(_weight, left)))
        return observed(plan, left, window.up_to_ms, view.latest)

    def _is_free(self, state: SnapshotState, epoch: UpstreamEpoch) -> bool:
        """Whether none of its changes is of a table that is still read: these apply to all of its rows."""
        unread = self.unread(state)
        return not any(table_of(log, self._tables) in unread for log, _ in epoch.cursors)

    @cached_property
    def _tables(self) -> frozenset[str]:
        return frozenset(split.table for split in self.splits)

    def advance(
        self, state: SnapshotState, plan: EpochPlan, staged: Staged | None, budget: Budget
    ) -> SnapshotState:
        state = filled(state, budget)
        if staged is None:
            return self._advance_idle(state, plan, budget)
        if plan.reads or (state.beside and state.phase == Phase.SNAPSHOT):
            state = self._consumed(state, staged, budget)
            if staged.window is not None:
                state = self._moved(state, staged.window)
            return self._leave_snapshot(state, plan, budget) if self._is_read(state) else state
        assert staged.window is not None
        return self._advance_log(state, plan, staged.window, budget)

    def _leave_snapshot(self, state: SnapshotState, plan: EpochPlan, budget: Budget) -> SnapshotState:
        state = replace(state, snapshot_finished_ms=budget.now_ms, beside=False)
        if plan.pending_after == 0:  # nothing queued up: there is no log store to drain
            return replace(state, phase=Phase.UPSTREAM, log_store_finished_ms=budget.now_ms)
        return replace(state, phase=Phase.LOG_STORE)

    def joined(self, state: SnapshotState, more: Pin) -> SnapshotState:
        """Their rows are read, and their logs stand meanwhile; the others' logs are followed if they were."""
        ends = {**dict(more.complete_at or ()), **dict(state.complete_at or ())}
        return replace(
            state,
            phase=Phase.SNAPSHOT,
            position=Position.of({**dict(more.position), **dict(state.position)}),
            complete_at=Position.of(ends) if ends else None,
            snapshot_finished_ms=None,
            log_store_finished_ms=None,
            beside=state.beside or state.phase != Phase.SNAPSHOT,
        )

    def left(self, state: SnapshotState, table: str, tables: Sequence[str]) -> SnapshotState:
        ends = None if state.complete_at is None else state.complete_at.without(table, tables)
        return replace(super().left(state, table, tables), complete_at=ends)

    def _reached(self, state: SnapshotState) -> dict[str, Any]:
        return {"log_store_finished_ms": state.log_store_finished_ms}

    def _read_whole(self, state: SnapshotState) -> SnapshotState:
        return replace(state, phase=Phase.LOG_STORE, snapshot_finished_ms=state.position_ms, beside=False)

    # -- log store and upstream phase ----------------------------------------------------------------------------

    def _take(self, state: SnapshotState, pending: Sequence[UpstreamEpoch], budget: Budget) -> int:
        """How many pending epochs to apply in one of our epochs: an upstream epoch is never split."""
        if not pending:
            return 0
        cut = next((i for i, epoch in enumerate(pending) if i > 0 and epoch.schema), len(pending))
        return min(cut, max(1, fitting(pending, budget.rows)))

    def _advance_log(
        self, state: SnapshotState, plan: EpochPlan, window: ChangeWindow, budget: Budget
    ) -> SnapshotState:
        moved = self._moved(state, window)
        if state.phase == Phase.UPSTREAM:
            return moved
        if plan.pending_after == 0:
            return _caught(moved, budget)
        return moved

    def _moved(self, state: SnapshotState, window: ChangeWindow) -> SnapshotState:
        assert state.position <= window.up_to, f"the log would move back from {state.position} to {window.up_to}"
        return replace(state, position=window.up_to, position_ms=window.up_to_ms)

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
            log_store_finished_ms=kept["log_store_finished_ms"],
        )


def _caught(state: SnapshotState, budget: Budget) -> SnapshotState:
    return replace(state, phase=Phase.UPSTREAM, log_store_finished_ms=budget.now_ms)


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
