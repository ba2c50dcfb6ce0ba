"""The log store and what follows: whole upstream epochs in order, until nothing is left."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot_run import INTERVAL_MS, Beat, Part, Run, all_parts, beats, epoch, part

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import ChangeWindow, EpochPlan, Staged
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.strategies.reading import unpaid
from backfill_cli.strategies.snapshot import SnapshotStrategy

SMALL = (part("0", 20, table="a"),)


def weight(of: UpstreamEpoch) -> int:
    """Rows if known, otherwise estimated from bytes, 100 per row."""
    return of.rows if of.rows is not None else max(1, of.size_bytes // 100)


def fitting(pending: Sequence[UpstreamEpoch], rows: int) -> int:
    return max(1, sum(sum(map(weight, pending[: n + 1])) <= rows for n in range(len(pending))))


def logged(parts: tuple[Part, ...], steps: list[Beat], **more: int) -> Run:
    run = Run(parts, **more)  # type: ignore[arg-type]
    for beat in steps:
        run.barrier(beat)
    return run


@given(all_parts(), beats())
def test_upstream_epochs_are_applied_whole_once_and_in_order(parts: tuple[Part, ...], steps: list[Beat]) -> None:
    run = logged(parts, [*steps, *[Beat(rows=10**6)] * 9])
    at = 0
    for window in (plan.window for plan in run.plans if plan.window):
        taken = run.log[at : at + window.epochs]
        assert window.after == (Position.of({"log": at}) if at else START)
        assert window.up_to == Position.of({"log": at + len(taken)})
        assert (window.from_ms, window.up_to_ms) == (taken[0].ms, taken[-1].ms)
        assert window.schema == taken[0].schema
        assert not any(later.schema for later in taken[1:]), "other columns begin an epoch of ours"
        at += len(taken)
    assert run.state.position == (Position.of({"log": at}) if at else START)


@given(all_parts(), beats())
def test_no_change_is_read_before_the_whole_snapshot_is(parts: tuple[Part, ...], steps: list[Beat]) -> None:
    run = logged(parts, steps)
    for before, plan in zip(run.states, run.plans, strict=False):
        assert not (plan.reads and plan.window)
        if plan.window:
            assert before.phase != Phase.SNAPSHOT
        if plan.reads:
            assert before.phase == Phase.SNAPSHOT


@given(all_parts(), beats())
def test_a_barrier_takes_what_fits_and_at_least_one(parts: tuple[Part, ...], steps: list[Beat]) -> None:
    run = Run(parts)
    for beat in steps:
        before = run.state
        plan = run.barrier(beat)
        done = int(before.position.get("log") or 0)
        pending = run.log[done:]
        if before.phase == Phase.SNAPSHOT or beat.control.paused or not pending:
            assert plan.window is None
            continue
        assert plan.window is not None
        cut = next((i for i, e in enumerate(pending) if i and e.schema), len(pending))
        assert plan.window.epochs == min(cut, max(1, fitting(pending, beat.rows)))


@given(st.integers(1, 200), st.integers(0, 5), st.integers(1, 50), st.sampled_from((1, 250, 1_000)))
def test_the_phase_ends_while_the_apply_rate_is_at_least_twice_the_growth(
    queued: int, growth: int, rows: int, step_ms: int
) -> None:
    run = Run(SMALL)
    clock = iter(range(0, 10**9, step_ms))
    run.barrier(Beat(rows=20, arriving=tuple(epoch(next(clock), rows) for _ in range(queued))))
    assert run.state.phase == Phase.LOG_STORE
    budget = rows * max(1, 2 * growth)
    for _ in range(queued // max(1, growth) + 2):
        run.barrier(Beat(rows=budget, arriving=tuple(epoch(next(clock), rows) for _ in range(growth))))
        if run.state.phase == Phase.UPSTREAM:
            break
    assert run.state.phase == Phase.UPSTREAM
    assert run.state.log_store_finished_ms == run.now_ms


@given(all_parts(), st.booleans())
def test_the_log_store_is_skipped_when_nothing_is_pending(parts: tuple[Part, ...], pending: bool) -> None:
    run = Run((*parts, part("last", 5)))
    run.until(Phase.LOG_STORE if pending else Phase.UPSTREAM, Beat(rows=10**6, arriving=(epoch(0),) * pending))
    assert Phase.LOG_STORE not in {s.phase for s in run.states} or pending
    assert run.state.snapshot_finished_ms == run.now_ms
    assert run.state.log_store_finished_ms == (None if pending else run.now_ms)


def test_a_job_without_a_snapshot_begins_with_its_log() -> None:
    run = Run(())
    assert run.state.phase == Phase.LOG_STORE
    run.barrier(Beat())
    assert run.state.phase == Phase.UPSTREAM


@given(all_parts(), beats(), st.sampled_from((0.0, 1.0, 10**6)))
def test_the_rate_limit_does_not_apply_to_the_log(parts: tuple[Part, ...], steps: list[Beat], rate: float) -> None:
    free, limited = Run(parts), Run(parts)
    for run in (free, limited):
        run.until(Phase.UPSTREAM if not parts else Phase.LOG_STORE, Beat(rows=10**6, arriving=(epoch(0),) * 9))
    for beat in steps:
        plan = free.barrier(Beat(beat.passes_ms, beat.rows, beat.arriving))
        assert limited.barrier(Beat(beat.passes_ms, beat.rows, beat.arriving, Control(rate=rate))) == plan


@given(beats())
def test_a_resume_past_the_snapshot_goes_straight_to_the_log(steps: list[Beat]) -> None:
    run = Run(SMALL)
    run.until(Phase.LOG_STORE, Beat(rows=20, arriving=(epoch(0, 5),) * 9))
    for beat in steps:
        run.resume()
        assert not run.barrier(beat).reads
    assert run.rows_read() == 20


@pytest.mark.parametrize("phase", [Phase.LOG_STORE, Phase.UPSTREAM])
def test_case_45_a_pause_holds_in_every_phase(phase: Phase) -> None:
    run = Run(SMALL)
    run.until(Phase.LOG_STORE, Beat(rows=20, arriving=(epoch(0),) * 9))
    run.until(phase)
    before = run.state
    for _ in range(3):
        assert not run.barrier(Beat(rows=10**6, arriving=(epoch(9),), control=Control("ann", 1)))
    assert (run.state.phase, run.state.position) == (before.phase, before.position)
    assert run.barrier(Beat(rows=10**6)).window


def test_a_paused_job_does_not_leave_the_log_store_by_itself() -> None:
    run = Run(())
    run.barrier(Beat(control=Control("ann", 1)))
    assert run.state.phase == Phase.LOG_STORE


@given(st.integers(0, 6), st.integers(1, 3))
def test_a_fuzzy_load_converges_exactly_when_its_end_is_passed(end: int, rows: int) -> None:
    run = Run(SMALL, complete_at=Position.of({"log": end}) if end else START)
    run.until(Phase.LOG_STORE, Beat(rows=20, arriving=tuple(epoch(n) for n in range(6))))
    for _ in range(8):
        assert run.state.converging == (int(run.state.position.get("log") or 0) < end)
        run.barrier(Beat(rows=rows))
    assert not run.state.converging


@given(
    st.lists(st.lists(st.integers(0, 9_000), min_size=1, max_size=4), min_size=2, max_size=12),
    st.sampled_from((None, 5_000)),
)
def test_case_24_upstream_times_that_go_back_move_no_clock_back(
    observations: list[list[int]], position_ms: int | None
) -> None:
    """Times are ordered within one observation of an upstream; a commit observed later can be older."""
    run = Run(SMALL, position_ms=position_ms)
    for times in observations:
        before = run.state
        plan = run.barrier(Beat(rows=20, arriving=tuple(epoch(ms, 9) for ms in sorted(times))))
        assert plan.lag_after_ms >= 0
        assert (run.state.position_ms or 0) >= (before.position_ms or 0)


def test_a_plan_that_would_go_back_is_refused() -> None:
    run = Run((), position_ms=0)
    run.barrier(Beat(rows=10**6, arriving=(epoch(0), epoch(1))))
    back = EpochPlan(window=ChangeWindow(START, Position.of({"log": 1}), 0, 0, 1))
    with pytest.raises(AssertionError, match="back"):
        run.strategy.advance(
            run.state, back, Staged("a", window=back.window), Budget(99_999, 1, INTERVAL_MS, 99_999)
        )


@given(beats(max_size=8))
def test_the_same_state_and_view_always_give_the_same_plan(steps: list[Beat]) -> None:
    assert logged(SMALL, steps).plans == logged(SMALL, steps).plans
    run = logged(SMALL, steps)
    budget = Budget(run.now_ms + 1, 10, INTERVAL_MS, run.now_ms + 1)
    again = SnapshotStrategy(run.strategy.splits)
    assert again.plan(run.state, run.view(), budget) == run.strategy.plan(run.state, run.view(), budget)


def test_10_000_pending_epochs_plan_in_under_a_second() -> None:
    import time

    run = Run(SMALL)
    run.until(Phase.LOG_STORE, Beat(rows=20, arriving=tuple(epoch(n) for n in range(10_000))))
    began = time.thread_time()  # others belong to what tests before this one started
    run.barrier(Beat(rows=100))
    assert time.thread_time() - began < 1.0


def test_a_state_that_an_older_version_stored_is_read() -> None:
    run = Run(SMALL)
    run.until(Phase.LOG_STORE, Beat(rows=20, arriving=(epoch(0),) * 9))
    older = json.dumps({**json.loads(run.strategy.freeze(run.state)), "allowed": 4_000, "over": 2})
    assert run.strategy.thaw(older, run.state.splits, run.state.control) == replace(
        run.state, **unpaid(json.loads(older))
    )
