"""The chain compared with a model of two queues: what is applied, in what order, and when the log is direct."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.job import Barrier, Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import START, Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, SpoolView, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.chain import TAKEN_ROWS, ChainStrategy, window_to_take
from backfill_cli.strategies.snapshot import SnapshotState


def at(place: int) -> Position:
    return Position.of({"log": place}) if place else START


def epochs(after: int, up_to: int, rows: int = 1) -> tuple[UpstreamEpoch, ...]:
    return tuple(UpstreamEpoch((("log", n),), n * 10, rows, 100) for n in range(after + 1, up_to + 1))


@dataclass
class Two:
    """The log and what was taken of it, as counts: the simplest form of the rule."""

    current: bool
    log: int = 0
    taken: int = 0
    applied: int = 0
    now_ms: int = 0
    paused: bool = False
    plans: list[EpochPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        splits = (Split("t", "0", 40, 4_000), Split("t", "1", 40, 4_000))
        self.strategy = ChainStrategy(splits, current=self.current)
        self.state: SnapshotState = self.strategy.start(Pin(START, None, None, splits), Control())

    def barrier(self, more: int, budget: int, paused: bool = False) -> EpochPlan:
        """The log grows, the barrier takes it, then the strategy plans and everything planned is read."""
        self.log += more
        self.now_ms += 1_000
        control = Control("me", 1) if paused else Control()
        self.state = self.strategy.apply(self.state, Barrier.next(0, self.now_ms, Mutations(control)).mutations)
        spools = self.state.phase != Phase.UPSTREAM
        self.taken = self.log if spools or self.taken > self.applied else self.taken
        spool = SpoolView("", "", 1, 1, 1) if spools else None
        pending = epochs(self.applied, self.log)
        view = UpstreamView("{}", at(self.log), pending, spool=spool)
        rows = Budget(self.now_ms, budget, 1_000, self.now_ms)
        plan = self.strategy.plan(self.state, view, rows)
        reads = tuple((r, r.limit_rows or 40) for r in plan.reads)
        staged = Staged("a", {}, reads, 0, plan.window) if plan else None
        self.state = self.strategy.advance(self.state, plan, staged, rows)
        if plan.window is not None:
            assert plan.window.after == at(self.applied), "a gap, or a repeat"
            assert plan.spooled == spools
            self.applied = int(plan.window.up_to.get("log") or 0)
        frozen = self.strategy.freeze(self.state)
        thawed = self.strategy.thaw(frozen, self.state.splits, self.state.control)
        assert (thawed.phase, thawed.position, thawed.uncovered) == (
            self.state.phase,
            self.state.position,
            self.state.uncovered,
        )
        self.plans.append(plan)
        return plan


steps = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60), st.booleans()), max_size=30)


@given(steps, st.booleans())
def test_every_change_is_applied_once_in_order_and_the_end_is_reached(
    steps: list[tuple[int, int, bool]], current: bool
) -> None:
    two = Two(current)
    for more, budget, paused in steps:
        before = two.applied
        plan = two.barrier(more, budget, paused)
        assert not (paused and plan), "a pause stops what ends in the sink"
        if two.state.phase == Phase.SNAPSHOT:
            assert two.applied == before, "the log waits until the snapshot is read"
    for _ in range(60):
        two.barrier(0, 100)
    assert (two.state.phase, two.applied, two.state.converging) == (Phase.UPSTREAM, two.log, False)


def test_a_snapshot_read_as_it_is_now_converges_at_what_was_taken_after_its_last_read() -> None:
    two = Two(current=True)
    while two.state.phase == Phase.SNAPSHOT:
        two.barrier(1, 1_000)
        assert two.state.converging
    two.barrier(2, 2)
    assert two.state.complete_at == at(two.log)
    covered = two.log
    while two.applied < covered:
        assert two.state.converging
        two.barrier(1, 2)
    assert not two.state.converging


def test_a_pause_in_the_last_phase_goes_back_to_the_spool() -> None:
    two = Two(current=False)
    while two.state.phase != Phase.UPSTREAM:
        two.barrier(0, 1_000)
    assert not two.barrier(3, 100, paused=True)
    assert two.state.phase == Phase.LOG_STORE
    plan = two.barrier(1, 100)
    assert (plan.spooled, two.state.phase, two.applied) == (True, Phase.UPSTREAM, 4)


@pytest.mark.parametrize(("full", "phase"), [(True, Phase.LOG_STORE), (False, Phase.UPSTREAM)])
def test_while_the_log_has_more_than_the_spool_the_job_is_not_caught_up(full: bool, phase: Phase) -> None:
    two = Two(current=False)
    while two.state.phase != phase:
        two.barrier(1 if phase == Phase.LOG_STORE else 0, 1_000)
    view = UpstreamView("{}", at(9), epochs(two.applied, 9), spool=SpoolView("", "", 1, 1, 1, behind=full))
    plan = two.strategy.plan(two.state, view, Budget(5_000, 1_000, 1_000, 5_000))
    assert plan.pending_after == 1


def test_an_entry_is_what_is_pending_up_to_a_change_of_columns_and_some_rows() -> None:
    assert window_to_take(at(3), None, UpstreamView("{}", at(3))) is None
    changed = UpstreamEpoch((("log", 6),), 60, 1, 100, (("t", "{}"),))
    window = window_to_take(at(3), None, UpstreamView("{}", at(6), (*epochs(3, 5), changed)))
    assert window is not None
    assert (window.after, window.up_to, window.epochs, window.schema) == (at(3), at(5), 2, ())
    window = window_to_take(at(5), 50, UpstreamView("{}", at(7), (changed, *epochs(6, 7))))
    assert window is not None
    assert (window.up_to, window.schema) == (at(7), (("t", "{}"),))
    many = epochs(0, 5, rows=TAKEN_ROWS // 2)
    window = window_to_take(START, None, UpstreamView("{}", at(5), many))
    assert window is not None
    assert (window.up_to, window.limit) == (at(2), TAKEN_ROWS)
