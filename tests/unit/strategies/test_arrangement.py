"""Current state beside its log: what a barrier reads, and which changes in the log count."""

from dataclasses import replace
from itertools import pairwise

import pytest
from arrangement_run import Range, Run, a_range, all_ranges
from hypothesis import given
from hypothesis import strategies as st
from snapshot_run import Beat, beats, epoch

from backfill_cli.errors import Fatal
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitStatus
from backfill_cli.strategies.arrangement import LEAST_LOG_ROWS

ANN = Control(paused_by="ann", paused_since_ms=1)
FREE = Control()
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


# -- what is read -------------------------------------------------------------------------------------------------


@given(driven, st.integers(1, 50))
def test_without_a_limit_each_barrier_of_the_snapshot_asks_for_a_row_at_least(run: Run, rows: int) -> None:
    if run.state.phase == Phase.SNAPSHOT:
        plan = run.barrier(Beat(rows=rows))
        assert plan.reads
        assert all(read.limit_rows for read in plan.reads)


@given(driven, st.sampled_from((0.2, 1.0, 30.0)))
def test_a_limit_of_any_rate_lets_a_row_through_in_time(run: Run, rate: float) -> None:
    before = run.rows_read
    for _ in range(20):
        run.barrier(Beat(1_000, 10, control=Control(rate=rate)))
    assert run.rows_read > before or run.state.phase == Phase.UPSTREAM or not any(r.rows for r in run.ranges)


@given(driven, st.integers(1, 500), st.sampled_from((None, 3.0, 400.0)))
def test_what_an_epoch_may_read_is_bounded_by_its_budget_whatever_was_estimated(
    run: Run, rows: int, rate: float | None
) -> None:
    plan = run.barrier(Beat(rows=rows, control=Control(rate=rate)))
    assert sum(read.limit_rows or 0 for read in plan.reads) <= 3 * rows


@given(st.integers(1, 400), st.integers(1, 50))
def test_many_tables_that_were_never_analysed_do_not_come_in_one_epoch(tables: int, rows: int) -> None:
    run = Run(tuple(a_range("0", 10**6, 1, table=str(n)) for n in range(tables)))
    for _ in range(5):
        plan = run.barrier(Beat(rows=1_000 * rows))
        assert sum(read.limit_rows or 0 for read in plan.reads) <= 3 * 1_000 * rows


@pytest.mark.parametrize("estimate", [None, 1, 10**9])
def test_a_table_of_which_nothing_is_known_is_read_in_few_epochs(estimate: int | None) -> None:
    run = Run((a_range("0", 3_000_000, estimate),))
    run.until(Phase.UPSTREAM, Beat(rows=500_000), at_most=12)


def test_a_table_that_grew_since_it_was_analysed_costs_one_epoch_a_table_no_more() -> None:
    run = Run(tuple(a_range("0", 900, 1, table=str(n)) for n in range(40)))
    run.until(Phase.UPSTREAM, Beat(rows=500_000), at_most=1)


@given(all_ranges(), st.sampled_from((0.3, 7.0, 500.0)), st.data())
def test_the_limit_holds_over_barriers_pauses_and_resumes(
    ranges: tuple[Range, ...], rate: float, data: st.DataObject
) -> None:
    run = Run(ranges)
    limited, began_ms, resumes = Control(rate=rate), run.now_ms, 0
    for _ in range(data.draw(st.integers(1, 30))):
        control = data.draw(st.sampled_from((limited, limited, Control("ann", 1, rate))))
        run.barrier(Beat(data.draw(st.sampled_from((0, 300, 1_000, 9_000))), 10**9, control=control))
        if data.draw(st.integers(0, 5)) == 0:
            run.resume()
            resumes += 1
        burst = rate * (1 + resumes)
        assert run.rows_read <= burst + rate * (run.now_ms - began_ms) / 1000 + 1e-6


def test_what_was_read_is_paid_for() -> None:
    run = Run((a_range("0", 1_000, 1_000),))
    for passes_ms in (1_000, 0, 0, 2_000):
        run.barrier(Beat(passes_ms, 10**6, control=Control(rate=10.0)))
    assert run.rows_read == 30


def test_a_limit_is_reached_over_time_where_each_split_is_small() -> None:
    run = Run(tuple(a_range(str(i), 10, 10) for i in range(400)))
    for _ in range(20):
        run.barrier(Beat(1_000, 10**6, control=Control(rate=100.0)))
    assert run.rows_read >= 1_700


@given(driven, st.sampled_from((ANN, Control("ann", 1, 5.0), Control(rate=0.0))))
def test_paused_or_at_rate_0_no_row_is_read(run: Run, control: Control) -> None:
    before = run.state
    plan = run.barrier(Beat(60_000, 10**6, (epoch(10**6),), control))
    assert not plan.reads
    assert run.state.splits == before.splits
    if control.paused:
        assert not plan
        assert run.state.position == before.position
    else:
        assert plan.window is not None


@given(driven)
def test_while_the_log_comes_first_no_row_is_read_and_the_log_is(run: Run) -> None:
    before, run.log_first = run.state, True
    assert not run.barrier(Beat(60_000, 10**6)).reads
    plan = run.barrier(Beat(0, 10, (epoch(10**6),)))
    assert not plan.reads
    assert plan.window is not None
    while plan.pending_after:  # a change of columns begins a new window
        plan = run.barrier(Beat(0, 10))
        assert not plan.reads
    assert run.state.splits == before.splits
    assert run.state.position == Position.of({"log": len(run.log)})


@given(all_ranges(), st.integers(1, 40), st.booleans())
def test_every_row_is_read_once_and_each_table_is_closed_once(
    ranges: tuple[Range, ...], rows: int, resumes: bool
) -> None:
    run = Run(ranges)
    for _ in range(1_000):
        if run.state.phase == Phase.UPSTREAM:
            break
        run.barrier(Beat(rows=rows))
        if resumes:
            run.resume()
    assert run.rows_read == sum(one.rows for one in ranges)
    assert sorted(run.closed) == sorted({one.split.table for one in ranges})
    assert not any(read for plan in (run.barrier(), run.barrier()) for read in plan.reads)


@given(driven)
def test_a_split_goes_one_way_and_is_consumed_at_its_end_alone(run: Run) -> None:
    order = (SplitStatus.NOT_STARTED, SplitStatus.CONSUMING, SplitStatus.CONSUMED)
    for before, after in pairwise(run.states):
        for key, progress in before.splits.items():
            now = after.splits[key]
            assert order.index(progress.status) <= order.index(now.status)
            assert progress.rows <= now.rows
    for key, progress in run.state.splits.items():
        (held,) = (one.rows for one in run.ranges if (one.split.table, one.split.id) == key)
        assert progress.status != SplitStatus.CONSUMED or progress.rows == held
        assert (progress.cursor is None) == (progress.status == SplitStatus.CONSUMED)


# -- the log ------------------------------------------------------------------------------------------------------


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
    for window in (back, None):
        with pytest.raises(Fatal, match="would move back"):
            run.strategy.advance(run.state, plan, Staged("a", {}, window=window), budget)


# -- state and numbers --------------------------------------------------------------------------------------------


@given(driven)
def test_a_state_that_is_frozen_and_thawed_is_the_same_and_owes_what_it_owed(run: Run) -> None:
    kept = run.state
    thawed = run.strategy.thaw(run.strategy.freeze(kept), kept.splits, kept.control)
    assert replace(thawed, allowance=kept.allowance) == kept
    assert thawed.allowance.tokens == min(0.0, kept.allowance.tokens)
    assert thawed.allowance.at_ms is None


@given(driven)
def test_what_is_durable_is_the_position(run: Run) -> None:
    assert all(run.strategy.durable(state) == state.position for state in run.states)


@given(driven)
def test_control_moves_nothing_but_itself(run: Run) -> None:
    after = run.strategy.apply(run.state, Mutations(ANN))
    assert replace(after, control=run.state.control) == run.state


@given(driven)
def test_progress_is_never_over_the_total_nor_is_that_below_what_was_read(run: Run) -> None:
    for state in run.states:
        read = run.strategy.read_so_far(state)
        assert read.rows == sum(progress.rows for progress in state.splits.values())
        assert 0 <= read.rows <= (read.rows_total or 0) or read.rows == 0
        assert 0 <= read.done <= read.total
        assert 0 <= read.size_bytes <= read.bytes_total
    if run.state.phase == Phase.UPSTREAM:
        assert read.rows == read.rows_total == read.done == read.total


def test_a_table_that_holds_more_than_was_estimated_is_not_shown_as_read() -> None:
    run = Run((a_range("0", 1_000_000, 10),))
    run.barrier(Beat(rows=50_000))
    read = run.strategy.read_so_far(run.state)
    assert read.rows >= 10
    assert read.done < read.total


def test_a_job_without_tables_to_read_follows_from_its_start() -> None:
    run = Run(())
    assert run.state.phase == Phase.UPSTREAM
    assert not run.barrier()
    assert run.strategy.partitions(run.state, Position()) == ()
