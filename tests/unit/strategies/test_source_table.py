"""What the strategy's plans read is what the state table lets through: each offset once, in order."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from source_table import Backfilling, Finished, read_row_by_row
from source_world import SHAPE, TABLE, Partition, SourceWorld, key_of

from backfill_cli.errors import HistoryGone, Transient
from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitProgress, SplitStatus, partition_number
from backfill_cli.model.upstream import Pin, UpstreamEpoch


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


class SourceRun(SourceWorld):
    """The log, its archive and the job's owners do as they like; the job goes on barrier by barrier."""

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
        name = str(sum("/" not in one for one in self.world))
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

    # -- the job --------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.archive and len(self.world) < 12)
    @rule(start=st.integers(0, 3), shape=SHAPE)
    def a_table_joins(self, start: int, shape: list[bool]) -> None:
        """One of one partition, with the history that is in its log. The checkpoint is written with it."""
        self.joined += 1
        name, partition = f"more{self.joined}/0", Partition(oldest=start, end=start)
        partition.grow(shape)
        partition.pinned, partition.begun = (start, partition.end), start
        self.world[name], self.delivered[name], self.accepted[name] = partition, [], set()
        self.oracle[name] = Backfilling(None, partition.end - 1) if shape else Finished()
        split = Split(key_of(name)[0], name, len(shape), 0, first=start)
        live = self.state.snapshot_finished_ms is not None
        self.strategy = replace(self.strategy, splits=(*self.strategy.splits, split))
        self.state = self.strategy.joined(self.state, Pin(Position.of({name: start}), None, None, (split,)))
        assert self.state.beside == live or self.state.beside, "the others are followed meanwhile"
        self._redefined()

    @precondition(lambda self: any("/" in name for name in self.world))
    @rule(data=st.data())
    def a_table_leaves(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name in self.world if "/" in name)))
        table, tables = key_of(name)[0], [TABLE, *(key_of(one)[0] for one in self.world if "/" in one)]
        kept = tuple(split for split in self.strategy.splits if split.table != table)
        self.strategy = replace(self.strategy, splits=kept)
        self.state = self.strategy.left(self.state, table, tables)
        for of in (self.world, self.delivered, self.accepted, self.oracle):
            del of[name]
        self.catalog.pop(key_of(name), None)
        self._redefined()

    def _redefined(self) -> None:
        self.catalog |= self.state.splits
        self.frozen = self.strategy.freeze(self.state)
        self.pending = [
            replace(one, cursors=left)
            for one in self.pending
            if (left := tuple(cursor for cursor in one.cursors if cursor[0] in self.world))
        ]

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
        assert f"partition {partition_number(name)} ends at offset {seen}" in said
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
        with pytest.raises(Transient, match=rf"lacks partition {partition_number(hidden)} of"):
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
            HistoryGone,
            match=f"partition {partition_number(name)} .*offsets {needed} to {partition.oldest - 1} are",
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

    # -- the laws -------------------------------------------------------------------------------------------------

    @invariant()
    def each_offset_reached_the_sink_once_in_order(self) -> None:
        if not hasattr(self, "state"):
            return
        for name, partition in self.world.items():
            kept = self.catalog.get(key_of(name))
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
