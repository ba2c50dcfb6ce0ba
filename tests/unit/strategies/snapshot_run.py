"""The snapshot strategy driven barrier by barrier over a list of splits and a list of upstream epochs."""

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import Split, SplitKey
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.snapshot import SnapshotState, SnapshotStrategy

INTERVAL_MS = 1_000
FREE = Control()


@dataclass(frozen=True)
class Part:
    """A split and its true row count, whether or not its metadata contains it."""

    split: Split
    rows: int


@dataclass(frozen=True)
class Beat:
    """What happens before one barrier: time passes, commits arrive upstream, control changes."""

    passes_ms: int = 1_000
    rows: int = 10
    arriving: tuple[UpstreamEpoch, ...] = ()
    control: Control = FREE


@dataclass
class Run:
    """One job's strategy, and what a sink would hold so far. `barrier` returns its plan, empty or not."""

    parts: tuple[Part, ...]
    log: list[UpstreamEpoch] = field(default_factory=list)
    now_ms: int = 10_000
    position_ms: int | None = None
    complete_at: Position | None = None
    delivered: dict[SplitKey, list[tuple[int, int]]] = field(default_factory=dict)
    states: list[SnapshotState] = field(default_factory=list)
    plans: list[EpochPlan] = field(default_factory=list)
    rows_per_epoch: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        splits = tuple(part.split for part in self.parts)
        self.strategy = SnapshotStrategy(splits)
        self.states.append(
            self.strategy.start(Pin(Position(), self.position_ms, self.complete_at, splits), Control())
        )

    @property
    def state(self) -> SnapshotState:
        return self.states[-1]

    def view(self) -> UpstreamView:
        """What is pending; within one observation an upstream's times never decrease."""
        left = self.log[int(self.state.position.get("log") or 0) :]
        times = accumulate((e.ms for e in left), max)
        pending = tuple(replace(e, ms=ms) for e, ms in zip(left, times, strict=True))
        return UpstreamView("{}", Position.of({"log": len(self.log)}), pending)

    def barrier(self, beat: Beat = Beat()) -> EpochPlan:
        self.now_ms += beat.passes_ms
        self.log += [replace(e, cursors=(("log", len(self.log) + i),)) for i, e in enumerate(beat.arriving, 1)]
        budget = Budget(self.now_ms, beat.rows, INTERVAL_MS, self.now_ms)
        state = self.strategy.apply(self.state, Mutations(beat.control))
        plan = self.strategy.plan(state, self.view(), budget)
        after = self.strategy.advance(state, plan, self._staged(plan), budget)
        self.plans.append(replace(plan, closes_snapshot=self.strategy.closes(state, after)))
        self.states.append(after)
        return plan

    def _staged(self, plan: EpochPlan) -> Staged | None:
        if not plan:
            return None
        held = {(p.split.table, p.split.id): p.rows for p in self.parts}
        reads = []
        for read in plan.reads:
            key = (read.table, read.split)
            after = index_of(read.after)
            end = held[key] if read.limit_rows is None else after + read.limit_rows
            self.delivered.setdefault(key, []).append((after, end))
            up_to = None if read.limit_rows is None else f"row {end}"
            reads.append((replace(read, up_to=up_to, limit_rows=None), end - after))
        self.rows_per_epoch.append(sum(rows for _, rows in reads))
        return Staged("a", {}, tuple(reads), window=plan.window)

    def rows_read(self) -> int:
        return sum(up_to - after for spans in self.delivered.values() for after, up_to in spans)

    def resume(self) -> None:
        """A new runner: the state as loaded from the catalog."""
        state = self.state
        self.states[-1] = self.strategy.thaw(self.strategy.freeze(state), state.splits, state.control)

    def until(self, phase: Phase, beat: Beat = Beat(rows=10**6), at_most: int = 10_000) -> None:
        for _ in range(at_most):
            if self.state.phase == phase:
                return
            self.barrier(beat)
        raise AssertionError(f"still in {self.state.phase} after {at_most} barriers")


def index_of(cursor: Cursor | None) -> int:
    """Cursors are texts that only the stager understands: a strategy that calculated with one would fail."""
    return 0 if cursor is None else int(str(cursor).removeprefix("row "))


def part(id: str, rows: int, cuttable: bool = True, known: bool = True, table: str = "t") -> Part:
    return Part(Split(table, id, rows if known else None, rows * 100, cuttable), rows)


def epoch(ms: int = 0, rows: int | None = 1, **more: Any) -> UpstreamEpoch:
    return UpstreamEpoch((), ms, rows, 100 * (rows or 3), **more)


@st.composite
def all_parts(draw: st.DrawFn) -> tuple[Part, ...]:
    shapes = st.tuples(st.integers(0, 30), st.sampled_from(("cut", "whole", "unknown")), st.sampled_from("ab"))
    drawn = draw(st.lists(shapes, max_size=6))
    return tuple(
        part(_id(drawn[:i], table), rows, cuttable=kind == "cut", known=kind != "unknown", table=table)
        for i, (rows, kind, table) in enumerate(drawn)
    )


def _id(before: list[tuple[int, str, str]], table: str) -> str:
    """Ids begin anew with each table: splits of two tables have the same ones."""
    return str(sum(one[2] == table for one in before))


controls = st.builds(
    Control,
    paused_by=st.sampled_from((None, None, None, "ann")),
    rate=st.sampled_from((None, None, 0.0, 0.5, 3.0, 40.0)),
)


@st.composite
def beats(draw: st.DrawFn, start_ms: int = 0, max_size: int = 25) -> list[Beat]:
    """Barriers in a row; the times of what arrives upstream never decrease."""
    ms, found = start_ms, []
    for _ in range(draw(st.integers(0, max_size))):
        arriving = []
        for _ in range(draw(st.integers(0, 3))):
            ms += draw(st.sampled_from((0, 1, 700, 5_000)))
            schema = (("a", "{}"),) if draw(st.integers(0, 9)) == 0 else ()
            arriving.append(epoch(ms, draw(st.sampled_from((None, 0, 1, 8, 400))), schema=schema))
        found.append(
            Beat(
                draw(st.sampled_from((0, 1, 1_000, 4_000))),
                draw(st.integers(1, 40)),
                tuple(arriving),
                draw(controls),
            )
        )
    return found
