"""What the strategy's plans read is what the state table lets through: each offset once, in order."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from source_table import (
    AwaitingLive,
    Backfilling,
    Finished,
    Row,
    history_position,
    history_row,
    live_position,
    live_row,
    read_row_by_row,
)

from backfill_cli.errors import HistoryGone, Transient
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitKey, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.source import SourceState, SourceStrategy

TABLE = "events"
SHAPE = st.lists(st.booleans(), max_size=12)
"""Offsets in their order: whether a row is there, or a gap, a marker, an aborted record."""


@dataclass
class Partition:
    """A partition of the world. rows: every offset that ever held one. pinned: its history, None for a new one."""

    rows: list[int] = field(default_factory=list)
    oldest: int = 0
    end: int = 0
    archived: int = 0
    pinned: tuple[int, int] | None = None
    begun: int | None = None  # where delivery starts: the pin's first offset, or the first that was retained

    def grow(self, shape: list[bool]) -> None:
        self.rows += [self.end + i for i, there in enumerate(shape) if there]
        self.end += len(shape)


@given(SHAPE.filter(bool), st.data(), st.randoms(use_true_random=False))
def test_the_table_lets_each_offset_through_once_whatever_the_order(
    shape: list[bool], data: st.DataObject, random: Random
) -> None:
    """Of the table itself: a live reader may begin anywhere, also where history has been."""
    partition = Partition()
    partition.grow(shape)
    first = data.draw(st.integers(0, partition.end))
    live_from = data.draw(st.integers(first, partition.end))
    through = read_row_by_row(partition.rows, first, partition.end, live_from, random)
    assert through == [offset for offset in partition.rows if offset >= first]


class SourceRun(RuleBasedStateMachine):
    """One job over a partitioned log, barrier by barrier; the log, its archive and its owners do as they like."""

    @initialize(
        shapes=st.lists(st.tuples(st.integers(0, 5), SHAPE), min_size=1, max_size=4),
        archive=st.booleans(),
        accept_gap=st.booleans(),
    )
    def begin(self, shapes: list[tuple[int, list[bool]]], archive: bool, accept_gap: bool) -> None:
        self.archive = archive
        self.world: dict[str, Partition] = {}
        for number, (start, shape) in enumerate(shapes):
            partition = Partition(oldest=start, end=start)
            partition.grow(shape)
            if archive:
                partition.archived = partition.end - len(shape) // 3
            target = partition.archived if archive else partition.end
            first = min(start + len(shape) // 4, target)
            partition.pinned, partition.begun = (first, target), first
            self.world[str(number)] = partition
        splits = tuple(
            Split(TABLE, name, p.pinned[1] - p.pinned[0], 0, first=p.pinned[0])
            for name, p in self.world.items()
            if p.pinned
        )
        self.strategy = SourceStrategy(splits, TABLE, accept_gap)
        self.state: SourceState = self.strategy.start(Pin(Position(), None, None, splits), Control())
        self.oracle: dict[str, Row] = {
            name: Backfilling(None, p.pinned[1] - 1) if p.pinned and p.pinned[0] < p.pinned[1] else Finished()
            for name, p in self.world.items()
        }
        self.delivered: dict[str, list[int]] = {name: [] for name in self.world}
        self.accepted: dict[str, set[int]] = {name: set() for name in self.world}
        self.catalog: dict[SplitKey, SplitProgress] = {}
        self.frozen = self.strategy.freeze(self.state)
        self.pending: list[UpstreamEpoch] = []
        self.now = 1000

    # -- the world ------------------------------------------------------------------------------------------------

    @rule(data=st.data(), shape=SHAPE)
    def the_log_grows(self, data: st.DataObject, shape: list[bool]) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.world)), unique=True, min_size=1))
        for name in names:
            self.world[name].grow(shape)
        self.now += 1
        ends = tuple((name, self.world[name].end) for name in names)
        self.pending.append(UpstreamEpoch(ends, self.now, None, 0))

    @precondition(lambda self: len(self.world) < 12)
    @rule(start=st.integers(0, 3), shape=SHAPE)
    def a_partition_is_added(self, start: int, shape: list[bool]) -> None:
        partition = Partition(oldest=start, end=start)
        partition.grow(shape)
        name = str(len(self.world))
        self.world[name] = partition
        self.delivered[name], self.accepted[name] = [], set()

    @precondition(lambda self: self.archive)
    @rule(data=st.data())
    def the_archive_grows(self, data: st.DataObject) -> None:
        for name in data.draw(st.lists(st.sampled_from(sorted(self.world)), unique=True, min_size=1)):
            partition = self.world[name]
            if partition.pinned and partition.archived < partition.end:
                behind = data.draw(st.integers(0, partition.end - partition.archived))
                partition.archived = partition.end - behind

    @rule(data=st.data())
    def retention_takes_what_was_read_or_is_archived(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world)))
        partition, progress = self.world[name], self._progress(name)
        if progress is None:
            keep = partition.end  # nobody has seen it
        elif progress.status == SplitStatus.FINISHED:
            keep = progress.cursor
        else:
            keep = max(progress.cursor, partition.archived)
        if keep > partition.oldest:
            partition.oldest = keep - data.draw(st.integers(0, keep - partition.oldest))

    def _progress(self, name: str) -> SplitProgress | None:
        return self.state.splits.get((TABLE, name))

    # -- the job --------------------------------------------------------------------------------------------------

    @rule(rate=st.sampled_from((None, 0.0, 3.0, 500.0)), paused=st.booleans())
    def somebody_commands(self, rate: float | None, paused: bool) -> None:
        control = Control(paused_by="me" if paused else None, rate=rate)
        self.state = self.strategy.apply(self.state, Mutations(control))

    @rule()
    def the_process_dies(self) -> None:
        """The catalog lists every split of the pin, those not started too."""
        loaded = {(split.table, split.id): SplitProgress() for split in self.strategy.splits} | self.catalog
        self.state = self.strategy.thaw(self.frozen, loaded, self.state.control)

    @rule(rows=st.integers(1, 15))
    def barrier(self, rows: int) -> None:
        self._barrier(rows)

    @rule(data=st.data())
    def a_leader_lags(self, data: st.DataObject) -> None:
        """The end of one partition is seen where it was some time ago: nothing is taken for more than it says."""
        name = data.draw(st.sampled_from(sorted(self.world)))
        seen = data.draw(st.integers(self.world[name].oldest, self.world[name].end))
        try:
            self._barrier(5, {name: seen})
            return
        except Transient as lagging:
            said = lagging.message
        assert f"partition {name} ends at offset {seen}" in said
        progress = self._progress(name)
        assert progress is not None
        assert progress.status != SplitStatus.AWAITING_LIVE
        assert seen < (progress.cursor if progress.status == SplitStatus.FINISHED else progress.target or 0)

    @rule(data=st.data())
    def a_known_partition_is_not_listed(self, data: st.DataObject) -> None:
        known = sorted(name for _, name in self.state.splits)
        hidden = data.draw(st.sampled_from(known))
        view = self._view()
        latest = Position(tuple(c for c in view.latest if c[0] != hidden))
        assume(not self.state.control.paused)
        with pytest.raises(Transient, match=rf"lacks partition {hidden} of"):
            self.strategy.plan(self.state, replace(view, latest=latest), Budget(self.now, 5, 1, self.now))

    @rule(data=st.data())
    def retention_takes_what_is_needed(self, data: st.DataObject) -> None:
        """An error that names partition and offsets, and nothing lost: they come back, and the job goes on."""
        known = sorted(name for _, name in self.state.splits)
        name = data.draw(st.sampled_from(known))
        partition, progress = self.world[name], self._progress(name)
        assert progress is not None
        finished = progress.status == SplitStatus.FINISHED
        needed = progress.cursor if finished else max(progress.cursor, partition.archived)
        accepted = self.strategy.accept_gap and not finished and progress.status == SplitStatus.AWAITING_LIVE
        unread = not finished and progress.cursor < partition.archived
        assume(partition.end > needed and not accepted and not unread and not self.state.control.paused)
        before, partition.oldest = partition.oldest, data.draw(st.integers(needed + 1, partition.end))
        with pytest.raises(
            HistoryGone, match=f"partition {name} .*offsets {needed} to {partition.oldest - 1} are"
        ):
            self.strategy.plan(self.state, self._view(), Budget(self.now, 5, 1, self.now))
        partition.oldest = before

    @precondition(lambda self: self.strategy.accept_gap)
    @rule(data=st.data())
    def a_hole_is_accepted(self, data: st.DataObject) -> None:
        """Only where history has ended and live has not begun."""
        awaiting = sorted(n for (_, n), p in self.state.splits.items() if p.status == SplitStatus.AWAITING_LIVE)
        assume(awaiting and not self.state.control.paused)
        name = data.draw(st.sampled_from(awaiting))
        partition, progress = self.world[name], self._progress(name)
        assert progress is not None
        assume(partition.archived <= progress.cursor < partition.end)
        partition.oldest = data.draw(st.integers(progress.cursor, partition.end))
        self.accepted[name] |= set(range(progress.cursor, partition.oldest))
        self._barrier(5)

    def _view(self, lagging: Mapping[str, int] = MappingProxyType({})) -> UpstreamView:
        reached = dict(self.state.position)
        pending = [e for e in self.pending if any(reached.get(p, -1) < end for p, end in e.cursors)]
        return UpstreamView(
            "{}",
            Position.of({name: p.end for name, p in self.world.items()} | lagging),
            tuple(pending),
            Position.of({name: p.oldest for name, p in self.world.items()}),
            Position.of({n: p.archived for n, p in self.world.items() if p.pinned}) if self.archive else None,
        )

    def _barrier(self, rows: int, lagging: Mapping[str, int] = MappingProxyType({})) -> EpochPlan:
        self.now += 400
        view = self._view(lagging)
        budget = Budget(self.now, rows, 1000, self.now)
        plan = self.strategy.plan(self.state, view, budget)
        assert decode(EpochPlan, encode(plan)) == plan
        staged = self._read(plan, view) if plan else None
        before = self.state
        unread = any(int(end) > self._reached(plan, name) for name, end in view.latest)
        assert plan.pending_after > 0 if unread else plan.pending_after == 0 or lagging
        self.state = self.strategy.advance(before, plan, staged, budget)
        if staged is None:
            assert self.state.splits == before.splits
            return plan
        self._within_limits(plan, staged, before, rows)
        changed = {key: p for key, p in self.state.splits.items() if before.splits.get(key) is not p}
        self.catalog |= changed
        self.frozen = self.strategy.freeze(self.state)
        self._agree()
        return plan

    def _reached(self, plan: EpochPlan, name: str) -> int:
        """A partition's next offset once the plan is read; before its first for one that is still unknown."""
        ends = {read.split: read.up_to or 0 for read in plan.reads}
        ends |= {p: int(end) for p, end in plan.window.up_to} if plan.window else {}
        progress = plan.splits.get((TABLE, name)) or self._progress(name)
        return ends.get(name, progress.cursor if progress else 0)

    def _read(self, plan: EpochPlan, view: UpstreamView) -> Staged:
        """Both readers bring their rows to the oracle, one by one: it must let every one of them through."""
        for (_, name), progress in plan.splits.items():
            self._observed(name, progress, int(dict(view.latest)[name]))
        counts = []
        for read in plan.reads:
            partition = self.world[read.split]
            assert read.up_to is not None
            there = [offset for offset in partition.rows if read.after <= offset < read.up_to]
            for offset in there:
                assert offset < partition.archived or offset >= partition.oldest, "read from where nothing is left"
                self.oracle[read.split], visible = history_row(self.oracle[read.split], offset)
                assert visible, f"history row {offset} of {read.split} is hidden"
            self.delivered[read.split] += there
            self.oracle[read.split] = history_position(self.oracle[read.split], read.up_to)
            counts.append((read, len(there)))
        if plan.window is not None:
            begun = dict(plan.window.after)
            assert begun.keys() == dict(plan.window.up_to).keys()
            assert not begun.keys() & {read.split for read in plan.reads}
            for name, up_to in plan.window.up_to:
                assert begun[name] >= self.world[name].oldest, "read from where nothing is left"
                assert begun[name] < up_to <= self.world[name].end
                there = [offset for offset in self.world[name].rows if begun[name] <= offset < up_to]
                for offset in there:
                    self.oracle[name], visible = live_row(self.oracle[name], offset)
                    assert visible, f"live row {offset} of {name} is hidden"
                self.delivered[name] += there
        return Staged("a", {}, tuple(counts), window=plan.window)

    def _observed(self, name: str, progress: SplitProgress, latest: int) -> None:
        """What an observation may change of a partition, in the table's words."""
        partition = self.world[name]
        state = self.oracle.get(name)
        if state is None:
            partition.begun = partition.oldest
            self.oracle[name] = Finished()
        elif progress.status == SplitStatus.FINISHED:
            self.oracle[name] = live_position(state, latest)
        else:  # the archive goes on where the log begins too late: history's target moves, nothing else
            assert isinstance(state, Backfilling | AwaitingLive)
            before = self._progress(name)
            assert before is not None
            assert before.target is not None
            assert partition.oldest > before.target
            assert progress.target == partition.archived
            self.oracle[name] = Backfilling(state.offset, partition.archived - 1)

    def _within_limits(self, plan: EpochPlan, staged: Staged, before: SourceState, rows: int) -> None:
        history = sum((read.up_to or 0) - read.after for read in plan.reads)
        window = plan.window
        live = 0 if window is None else sum(int(e) - int(dict(window.after)[p]) for p, e in window.up_to)
        assert history + live <= rows
        assert not before.control.paused
        assert before.control.rate != 0 or not plan.reads
        reached = dict(self.state.position)
        unread = any(int(end) > int(reached[n]) for n, end in plan.latest if self._is_live(n))
        assert not plan.reads or not unread, "history took the budget that live needed"

    def _is_live(self, name: str) -> bool:
        progress = self._progress(name)
        return progress is not None and progress.status == SplitStatus.FINISHED

    def _agree(self) -> None:
        """The strategy's progress and the oracle's state say the same of each partition."""
        for (_, name), progress in self.state.splits.items():
            state = self.oracle[name]
            if isinstance(state, Finished):
                assert progress.status == SplitStatus.FINISHED
            elif isinstance(state, AwaitingLive):
                assert (progress.status, progress.cursor) == (SplitStatus.AWAITING_LIVE, state.offset + 1)
            else:
                assert progress.status in (SplitStatus.NOT_STARTED, SplitStatus.BACKFILLING)
                assert state.target is not None
                assert progress.cursor <= state.target + 1 == progress.target
        reported = all(
            p.status in (SplitStatus.AWAITING_LIVE, SplitStatus.FINISHED) for p in self.state.splits.values()
        )
        assert (self.state.snapshot_finished_ms is not None) == reported

    # -- the laws -------------------------------------------------------------------------------------------------

    @invariant()
    def each_offset_reached_the_sink_once_in_order(self) -> None:
        if not hasattr(self, "state"):
            return
        for name, partition in self.world.items():
            kept = self.catalog.get((TABLE, name))
            if partition.begun is None:
                assert kept is None
                assert self.delivered[name] == []
                continue
            expected = [
                offset
                for offset in partition.rows
                if partition.begun <= offset < (kept.cursor if kept else partition.begun)
                and offset not in self.accepted[name]
            ]
            assert self.delivered[name] == expected

    def teardown(self) -> None:
        """Left alone, the job reads everything there is and then nothing more."""
        if not hasattr(self, "state"):
            return
        self.state = self.strategy.apply(self.state, Mutations(Control()))
        for _ in range(200):
            plan = self._barrier(7)
            if not plan:
                break
        assert plan.pending_after == 0
        assert self.state.phase == Phase.UPSTREAM
        self.each_offset_reached_the_sink_once_in_order()
        for name, partition in self.world.items():
            assert partition.begun is not None
            assert dict(self.state.position)[name] == partition.end
            if partition.pinned and not self.accepted[name]:
                first, target = partition.pinned
                by_row = read_row_by_row(partition.rows, first, partition.end, target, Random(len(partition.rows)))
                assert self.delivered[name] == by_row


SourceRun.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestSourceRun = SourceRun.TestCase
