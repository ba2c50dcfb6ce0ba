"""The source strategy step by step: a job's states, views of its topic, and what a plan reads."""

from collections.abc import Mapping, Sequence

from backfill_cli.model.job import Control
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitStatus
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.source import SourceState, SourceStrategy

RATE_5 = Control(rate=5.0)


def source(*histories: tuple[int, int], accept_gap: bool = False) -> SourceStrategy:
    """Over partitions 0, 1, … with these histories [first, target)."""
    splits = (Split("t", str(i), target - first, 0, first=first) for i, (first, target) in enumerate(histories))
    return SourceStrategy(tuple(splits), accept_gap)


def started(strategy: SourceStrategy, control: Control | None = None) -> SourceState:
    return strategy.start(Pin(Position(), None, None, strategy.splits), control or Control())


def view(
    *latest: int,
    oldest: Sequence[int] = (),
    archived: Sequence[int] | None = None,
    pending: Sequence[UpstreamEpoch] = (),
) -> UpstreamView:
    return UpstreamView(
        "{}", _all(latest), tuple(pending), _all(oldest), None if archived is None else _all(archived)
    )


def _all(offsets: Sequence[int]) -> Position:
    return Position.of({str(i): offset for i, offset in enumerate(offsets)})


def grown(ms: int, **ends: int) -> UpstreamEpoch:
    """An observation at which partitions p0, p1, … had grown to these ends."""
    return UpstreamEpoch(tuple((name[1:], end) for name, end in ends.items()), ms, None, 0)


def budget(rows: int = 100, ms: int = 1000) -> Budget:
    return Budget(ms, rows, 1000, ms)


def done(strategy: SourceStrategy, state: SourceState, plan: EpochPlan, ms: int = 1000) -> SourceState:
    """The state after the plan, every offset read having been a row."""
    staged = Staged("a", {}, tuple((r, int(r.up_to or 0) - int(r.after or 0)) for r in plan.reads), 0, plan.window)
    return strategy.advance(state, plan, staged, budget(ms=ms))


def after(strategy: SourceStrategy, state: SourceState, seen: UpstreamView, barriers: int = 1) -> SourceState:
    for _ in range(barriers):
        state = done(strategy, state, strategy.plan(state, seen, budget()))
    return state


def reads(plan: EpochPlan) -> list[tuple[str, int, int | None]]:
    return [(read.split, read.after, read.up_to) for read in plan.reads]


def live(plan: EpochPlan) -> Mapping[str, tuple[object, object]]:
    if plan.window is None:
        return {}
    begun = dict(plan.window.after)
    return {partition: (begun[partition], end) for partition, end in plan.window.up_to}


def statuses(state: SourceState) -> list[SplitStatus]:
    return [progress.status for progress in state.splits.values()]
