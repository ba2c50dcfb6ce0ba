"""A partitioned log with its archive, one job over it, and the oracle that is told what each barrier reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize
from source_table import (
    AwaitingLive,
    Backfilling,
    Finished,
    Row,
    history_position,
    history_row,
    live_position,
    live_row,
)

from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Control
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


def key_of(partition: str) -> SplitKey:
    """Of tables that join, the partition's name has the table's in it."""
    return partition.rpartition("/")[0] or TABLE, partition


class SourceWorld(RuleBasedStateMachine):
    """The log, the job at its last checkpoint, and the oracle, which agree after every barrier."""

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
        self.joined = 0
        self.strategy = SourceStrategy(splits, accept_gap)
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

    def _progress(self, name: str) -> SplitProgress | None:
        return self.state.splits.get(key_of(name))

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
        progress = plan.splits.get(key_of(name)) or self._progress(name)
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
        share = max(1, rows // 10)
        assert history <= share or not unread, "history took the budget that live needed"

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
