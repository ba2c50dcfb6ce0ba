"""Current state beside its log: what a barrier reads, and how much of it."""

from itertools import pairwise

import pytest
from arrangement_run import ANN, Range, Run, a_range, all_ranges, driven
from hypothesis import given
from hypothesis import strategies as st
from snapshot_run import Beat, epoch

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitStatus

FREE = Control()


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
