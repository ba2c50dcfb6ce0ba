"""The arrangement strategy driven barrier by barrier over splits of unknown sizes and a list of epochs."""

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from snapshot_run import INTERVAL_MS, Beat, beats, index_of

from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitKey, SplitProgress
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.arrangement import ArrangementState, ArrangementStrategy

BEAT = Beat()


@dataclass(frozen=True)
class Range:
    """A split with its upstream's estimate of its row count, and the true count."""

    split: Split
    rows: int


def a_range(id: str, rows: int, estimate: int | None = None, table: str = "t") -> Range:
    return Range(Split(table, id, estimate, 100 * rows), rows)


@dataclass
class Run:
    """One job's strategy. during: epochs that arrive during reads. ends_early: windows hold one epoch each."""

    ranges: tuple[Range, ...]
    position_ms: int | None = None
    log: list[UpstreamEpoch] = field(default_factory=list)
    now_ms: int = 10_000
    during: int = 0
    ends_early: bool = False
    log_first: bool = False
    states: list[ArrangementState] = field(default_factory=list)
    plans: list[EpochPlan] = field(default_factory=list)
    delivered: dict[SplitKey, int] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        splits = tuple(one.split for one in self.ranges)
        self.strategy = ArrangementStrategy(splits)
        pin = Pin(Position.of({"log": 0}), self.position_ms, None, splits)
        self.states.append(self.strategy.start(pin, Control()))

    @property
    def state(self) -> ArrangementState:
        return self.states[-1]

    @property
    def rows_read(self) -> int:
        return sum(self.delivered.values())

    def view(self) -> UpstreamView:
        left = self.log[int(self.state.position.get("log") or 0) :]
        return UpstreamView("{}", Position.of({"log": len(self.log)}), tuple(left), log_first=self.log_first)

    def barrier(self, beat: Beat = BEAT) -> EpochPlan:
        self.now_ms += beat.passes_ms
        self._arrive(beat.arriving)
        budget = Budget(self.now_ms, beat.rows, INTERVAL_MS, self.now_ms)
        state = self.strategy.apply(self.state, Mutations(beat.control))
        plan = self.strategy.plan(state, self.view(), budget)
        after = self.strategy.advance(state, plan, self._staged(plan), budget)
        self.closed += self.strategy.closes(state, after)
        self.plans.append(plan)
        self.states.append(after)
        return plan

    def _arrive(self, epochs: tuple[UpstreamEpoch, ...]) -> None:
        self.log += [replace(e, cursors=(("log", len(self.log) + i),)) for i, e in enumerate(epochs, 1)]

    def _staged(self, plan: EpochPlan) -> Staged | None:
        if not plan:
            return None
        reads = tuple(self._read(read) for read in plan.reads)
        assert plan.window is not None
        return Staged("a", {}, reads, window=self._taken(plan.window))

    def _read(self, read: SnapshotRead) -> tuple[SnapshotRead, int]:
        key = (read.table, read.split)
        assert read.limit_rows is not None, "how many rows there are nobody knows"
        (held,) = (one.rows for one in self.ranges if (one.split.table, one.split.id) == key)
        begun = index_of(read.after)
        assert begun == self.delivered.get(key, 0)
        rows = min(read.limit_rows, held - begun)
        self.delivered[key] = begun + rows
        up_to = f"row {begun + rows}" if rows == read.limit_rows else None
        return replace(read, up_to=up_to, limit_rows=None), rows

    def _taken(self, window: ChangeWindow) -> ChangeWindow:
        begun = int(window.after.get("log") or 0)
        if window.open:
            last_ms = self.log[-1].ms if self.log else window.up_to_ms
            self._arrive(tuple(UpstreamEpoch((), last_ms, 1, 9) for _ in range(self.during)))
            end = len(self.log)
        else:
            end = begun + 1 if self.ends_early else int(window.up_to.get("log") or 0)
        ms = max([window.up_to_ms, *(e.ms for e in self.log[begun:end])]) if window.open else window.up_to_ms
        return replace(window, up_to=Position.of({"log": end}), up_to_ms=ms)

    def resume(self) -> None:
        """A new runner: the state as loaded from the catalog, with a line for each split of the pin."""
        state = self.state
        every = {(r.split.table, r.split.id): SplitProgress() for r in self.ranges}
        self.states[-1] = self.strategy.thaw(
            self.strategy.freeze(state), every | dict(state.splits), state.control
        )

    def until(self, phase: Phase, beat: Beat = BEAT, at_most: int = 3_000) -> None:
        for _ in range(at_most):
            if self.state.phase == phase:
                return
            self.barrier(beat)
        assert self.state.phase == phase, f"not reached after {at_most} barriers"


@st.composite
def all_ranges(draw: st.DrawFn, least: int = 0) -> tuple[Range, ...]:
    """Estimates can be far off."""
    estimates = st.sampled_from((None, 0, 1, 7, 30, 10_000))
    shapes = st.tuples(st.integers(0, 60), estimates, st.sampled_from("ab"))
    return tuple(
        a_range(str(i), rows, estimate, table)
        for i, (rows, estimate, table) in enumerate(draw(st.lists(shapes, min_size=least, max_size=6)))
    )


ANN = Control(paused_by="ann", paused_since_ms=1)
at_barriers = st.lists(st.sampled_from((False, False, True)), min_size=30, max_size=30)


def runs(ranges: tuple[Range, ...], steps: list[Beat], early: list[bool], first: list[bool]) -> Run:
    """The barriers one after the other: at some the log comes first, at some its window ends early."""
    run = Run(ranges)
    for beat, run.ends_early, run.log_first in zip(steps, early, first, strict=False):
        run.during = run.now_ms % 3
        run.barrier(beat)
    run.ends_early = run.log_first = False
    return run


driven = st.builds(runs, all_ranges(), beats(max_size=12), at_barriers, at_barriers)
