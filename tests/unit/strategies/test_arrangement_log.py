"""Current state beside its log: the windows of the log, and which changes in it count."""

from dataclasses import replace
from itertools import pairwise

import pytest
from arrangement_run import Run, a_range, driven
from hypothesis import given
from hypothesis import strategies as st
from snapshot_run import Beat, epoch

from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitStatus
from backfill_cli.strategies.arrangement import LEAST_LOG_ROWS


@given(driven)
def test_a_window_is_open_exactly_where_rows_are_read_and_only_without_them_has_a_limit(run: Run) -> None:
    for plan in run.plans:
        if plan:
            assert plan.window is not None
            assert plan.window.open == bool(plan.reads)
            assert plan.window.limit is None if plan.reads else (plan.window.limit or 0) >= LEAST_LOG_ROWS
            assert plan.window.epochs >= 0 if plan.reads else plan.window.epochs > 0


@given(driven)
def test_windows_follow_one_another_without_a_hole(run: Run) -> None:
    for (before, after), plan in zip(pairwise(run.states), run.plans, strict=True):
        assert before.position <= after.position
        assert (before.position_ms or 0) <= (after.position_ms or 0)
        if plan.window is None:
            assert after.position == before.position
        else:
            assert plan.window.after == before.position
            assert plan.window.after <= plan.window.up_to


@given(driven)
def test_within_says_how_far_each_split_was_read_before_and_nothing_once_all_are(run: Run) -> None:
    for before, plan in zip(run.states, run.plans, strict=False):
        if not plan:
            continue
        if before.phase == Phase.UPSTREAM:
            assert plan.within is None, "every change counts"
            continue
        assert plan.within is not None
        begun = {k: p for k, p in before.splits.items() if p.status != SplitStatus.NOT_STARTED}
        assert plan.within.keys() == begun.keys()
        for key, cursor in plan.within.items():
            assert cursor == begun[key].cursor
            assert (cursor is None) == (begun[key].status == SplitStatus.CONSUMED)


@given(driven)
def test_what_a_resume_knows_of_splits_that_were_not_begun_changes_no_plan(run: Run) -> None:
    """The catalog lists every split of the pin, including those not started."""
    resumed = Run(run.ranges, log=list(run.log), now_ms=run.now_ms, states=[run.state])
    resumed.states = [run.state]
    resumed.resume()
    resumed.states = [replace(resumed.state, allowance=run.state.allowance)]
    resumed.delivered = dict(run.delivered)
    assert resumed.barrier(Beat(rows=20)) == run.barrier(Beat(rows=20))


@given(driven)
def test_plans_survive_the_catalog(run: Run) -> None:
    assert all(decode(EpochPlan, encode(plan)) == plan for plan in run.plans)


@given(driven)
def test_phases_never_go_back_and_the_snapshot_ends_once(run: Run) -> None:
    for before, after in pairwise(run.states):
        assert (before.phase, after.phase) != (Phase.UPSTREAM, Phase.SNAPSHOT)
        if before.phase == after.phase:
            assert before.snapshot_finished_ms == after.snapshot_finished_ms
    finished = run.state.snapshot_finished_ms
    assert (finished is None) == (run.state.phase == Phase.SNAPSHOT or not run.ranges)
    assert run.state.log_store_finished_ms == finished


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.booleans())
def test_other_columns_begin_a_window_of_their_own(differs: list[bool], begun: bool) -> None:
    """Only if no rows are read, as rows that are read have the columns of the window's end."""
    run = Run(())
    run.barrier(Beat(arriving=(epoch(),) if begun else ()))
    schema = (("t", "{}"),)
    new = tuple(epoch(i, schema=schema if other else ()) for i, other in enumerate(differs))
    plans = [run.barrier(Beat(arriving=new)), *(run.barrier() for _ in range(len(new)))]
    windows = [plan.window for plan in plans if plan.window]
    assert sum(window.epochs for window in windows) == len(new)
    assert [window.schema for window in windows[1:]] == [schema] * (len(windows) - 1)
    assert len(windows) == 1 + sum(differs[1:])


def test_what_a_window_leaves_is_pending_with_its_age() -> None:
    run = Run((), position_ms=500)
    other = epoch(9_000, schema=(("t", "{}"),))
    plan = run.barrier(Beat(arriving=(epoch(1_000), other, epoch(9_500))))
    assert (plan.pending_after, plan.lag_after_ms, plan.oldest_pending_ms) == (2, 8_500, 9_000)
    assert (plan.window and plan.window.from_ms, plan.window and plan.window.up_to_ms) == (1_000, 1_000)


def test_rows_that_are_read_leave_nothing_pending() -> None:
    run = Run((a_range("0", 100),))
    other = epoch(9_000, schema=(("t", "{}"),))
    plan = run.barrier(Beat(arriving=(epoch(1_000), other)))
    assert (plan.pending_after, plan.oldest_pending_ms) == (0, None)


@given(st.none() | st.integers(0, 9_000))
def test_where_no_change_is_pending_the_sink_is_not_behind(position_ms: int | None) -> None:
    """Otherwise a quiet upstream would show a growing lag while its rows are read."""
    run = Run((a_range("0", 100),), position_ms=position_ms)
    plan = run.barrier(Beat(60_000))
    assert plan.window is not None
    assert plan.window.from_ms == run.now_ms


def test_a_log_that_would_go_back_ends_the_run() -> None:
    run = Run((), log=[epoch()])
    plan = run.barrier(Beat(arriving=(epoch(),)))
    assert plan.window is not None
    budget = Budget(run.now_ms, 1, 1_000, run.now_ms)
    back = replace(plan.window, up_to=Position.of({"log": 0}))
    for window, said in ((back, "would move back"), (None, "takes the log")):
        with pytest.raises(AssertionError, match=said):
            run.strategy.advance(run.state, plan, Staged("a", {}, window=window), budget)
