"""The snapshot phase: every row of every split once, in order, at the requested rate."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot_run import Beat, Part, Run, all_parts, beats, epoch, index_of, part

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.split import SplitStatus

ANN = Control(paused_by="ann", paused_since_ms=1)


def runs(parts: tuple[Part, ...], steps: list[Beat], resume_after: int = 99) -> Run:
    run = Run(parts)
    for i, beat in enumerate(steps):
        run.barrier(beat)
        if i == resume_after:
            run.resume()
    return run


@given(all_parts(), beats(), st.integers(0, 30))
def test_what_was_delivered_of_a_split_is_always_its_prefix(
    parts: tuple[Part, ...], steps: list[Beat], resume_after: int
) -> None:
    run = runs(parts, steps, resume_after)
    for p in parts:
        key = (p.split.table, p.split.id)
        spans = run.delivered.get(key, [])
        assert [after for after, _ in spans] == [0, *(up_to for _, up_to in spans)][: len(spans)]
        progress = run.state.splits.get(key)
        at = index_of(progress.cursor) if progress and progress.status == SplitStatus.CONSUMING else None
        assert at is None or at == spans[-1][1]
        assert (progress.rows if progress else 0) == (spans[-1][1] if spans else 0)


@given(all_parts(), beats())
def test_every_read_lies_inside_its_split_and_reads_something(parts: tuple[Part, ...], steps: list[Beat]) -> None:
    run = runs(parts, steps)
    splits = {(p.split.table, p.split.id): p.split for p in parts}
    for read in (r for plan in run.plans for r in plan.reads):
        split = splits[read.table, read.split]
        assert read.up_to is None, "only whoever reads knows where so many rows end"
        if read.limit_rows is not None:
            assert split.cuttable
            assert split.rows is not None
            assert 0 < read.limit_rows < split.rows - index_of(read.after)
        if not split.cuttable:
            assert read.after is None


@given(all_parts(), beats())
def test_a_split_goes_one_way_and_carries_the_epoch_that_moved_it_last(
    parts: tuple[Part, ...], steps: list[Beat]
) -> None:
    run = Run(parts)
    order = (SplitStatus.NOT_STARTED, SplitStatus.CONSUMING, SplitStatus.CONSUMED)
    for beat in steps:
        before = run.state.splits
        plan = run.barrier(beat)
        moved = {(r.table, r.split) for r in plan.reads}
        for key, progress in run.state.splits.items():
            was = before.get(key)
            if key not in moved:
                assert progress is was
                continue
            assert progress.epoch == run.now_ms
            assert was is None or order.index(was.status) < 2
            done = next(p.rows for p in parts if (p.split.table, p.split.id) == key)
            assert (progress.status == SplitStatus.CONSUMED) == (progress.rows == done)
            assert (progress.status == SplitStatus.CONSUMED) == (progress.cursor is None)


@given(all_parts(), beats(), st.integers(1, 40))
def test_case_61_the_whole_snapshot_is_read_and_each_table_closed_where_splits_have_the_same_ids(
    parts: tuple[Part, ...], steps: list[Beat], rows: int
) -> None:
    run = runs(parts, steps)
    for _ in range(600):
        if run.state.phase != Phase.SNAPSHOT:
            break
        run.barrier(Beat(rows=rows))
    assert run.state.phase != Phase.SNAPSHOT
    assert run.rows_read() == sum(p.rows for p in parts)
    closed = [(table, i) for i, plan in enumerate(run.plans) for table in plan.closes_snapshot]
    assert sorted(table for table, _ in closed) == sorted({p.split.table for p in parts})
    for table, i in closed:
        assert not any(r.table == table for plan in run.plans[i + 1 :] for r in plan.reads)
        assert any(r.table == table for r in run.plans[i].reads)


@given(all_parts(), beats(), st.data())
def test_paused_nothing_is_read_and_nothing_moves(
    parts: tuple[Part, ...], steps: list[Beat], data: st.DataObject
) -> None:
    run = runs(parts, steps)
    before = run.state
    plan = run.barrier(Beat(rows=10**6, arriving=(epoch(10**6),), control=ANN))
    after = run.state
    assert not plan
    assert (after.phase, after.position, after.splits) == (before.phase, before.position, before.splits)


@given(all_parts(), beats())
def test_a_rate_of_zero_reads_no_row_of_the_snapshot(parts: tuple[Part, ...], steps: list[Beat]) -> None:
    run = runs(parts, steps)
    before = run.rows_read()
    for _ in range(5):
        run.barrier(Beat(5_000, 10**6, control=Control(rate=0.0)))
    assert run.rows_read() == before


def test_case_45_a_rate_of_zero_ends_when_it_is_lifted() -> None:
    run = Run((part("0", 50),))
    for _ in range(3):
        assert not run.barrier(Beat(60_000, control=Control(rate=0.0)))
    assert run.barrier(Beat(rows=100)).reads[0].limit_rows is None
    assert run.rows_read() == 50


@given(st.lists(st.integers(0, 100), min_size=1, max_size=5), st.sampled_from((0.3, 7.0, 500.0)), st.data())
def test_case_45_the_limit_holds_over_barriers_pauses_and_resumes(
    sizes: list[int], rate: float, data: st.DataObject
) -> None:
    run = Run(tuple(part(str(i), n * 50) for i, n in enumerate(sizes)))
    limited, began_ms = Control(rate=rate), run.now_ms
    resumes = 0
    for _ in range(data.draw(st.integers(1, 30))):
        control = data.draw(st.sampled_from((limited, limited, Control("ann", 1, rate))))
        run.barrier(Beat(data.draw(st.sampled_from((0, 300, 1_000, 9_000))), 10**9, control=control))
        if data.draw(st.integers(0, 5)) == 0:
            run.resume()
            resumes += 1
        burst = rate * (1 + resumes)  # an interval is one second; a new runner starts with one burst
        assert run.rows_read() <= burst + rate * (run.now_ms - began_ms) / 1000 + 1e-6


def test_a_pause_earns_no_rows() -> None:
    run = Run((part("0", 10_000),))
    limited = Control(rate=10.0)
    run.barrier(Beat(rows=10**6, control=limited))
    for _ in range(10):
        run.barrier(Beat(60_000, 10**6, control=Control("ann", 1, 10.0)))
    run.barrier(Beat(1_000, 10**6, control=limited))
    assert run.rows_read() == 20


@given(st.integers(11, 600), st.sampled_from((4.0, 10.0)), st.booleans(), st.booleans())
def test_an_uncuttable_split_is_read_whole_and_leaves_a_debt_that_later_barriers_pay(
    rows: int, rate: float, known: bool, resumed: bool
) -> None:
    run = Run((part("0", rows, cuttable=False, known=known), part("1", 0), part("2", 10**6)))
    limited = Control(rate=rate)
    plan = run.barrier(Beat(rows=10**6, control=limited))
    assert run.rows_read() == rows
    if resumed:
        run.resume()
    waited_s = 0
    while run.rows_read() == rows:
        run.barrier(Beat(rows=10**6, control=limited))
        waited_s += 1
    grants = 2 if resumed else 1  # of one interval, at the start of a runner
    assert rate * (waited_s + grants) >= rows
    assert rate * (waited_s + grants - 2) <= rows + 1
    assert plan.reads[0].limit_rows is None


@given(st.integers(0, 50), st.integers(1, 2_000))
def test_an_empty_split_met_in_debt_is_consumed_or_left_alone(rows: int, budget: int) -> None:
    run = Run((part("0", 500, cuttable=False), part("1", 0), part("2", 0, cuttable=False), part("3", rows)))
    for _ in range(3):
        for read in run.barrier(Beat(rows=budget, control=Control(rate=1.0))).reads:
            assert read.limit_rows is None or read.limit_rows > 0


@given(st.lists(st.integers(0, 200), min_size=1, max_size=8), st.integers(1, 100))
def test_without_a_limit_an_epoch_is_about_the_budget_and_never_more_than_half_over(
    sizes: list[int], budget: int
) -> None:
    run = Run(tuple(part(str(i), rows) for i, rows in enumerate(sizes)))
    run.until(Phase.UPSTREAM, Beat(rows=budget))
    per_epoch = run.rows_per_epoch
    assert all(rows <= 1.5 * budget for rows in per_epoch)
    assert all(rows >= budget / 2 for rows in per_epoch[:-1])


@given(all_parts(), beats())
def test_a_snapshot_that_is_frozen_and_thawed_goes_on_where_it_was(
    parts: tuple[Part, ...], steps: list[Beat]
) -> None:
    run = runs(parts, steps)
    kept = run.state
    run.resume()
    thawed = run.state
    assert replace(thawed, allowance=kept.allowance) == kept
    assert thawed.allowance.tokens == min(0.0, kept.allowance.tokens)
    assert thawed.allowance.at_ms is None


@given(all_parts(), beats())
def test_phases_follow_one_another_and_never_go_back(parts: tuple[Part, ...], steps: list[Beat]) -> None:
    run = runs(parts, steps)
    order = list(Phase)
    for before, after in pairwise(run.states):
        assert order.index(before.phase) <= order.index(after.phase)
        assert before.position <= after.position
        for key, progress in before.splits.items():
            assert after.splits[key].rows >= progress.rows


def test_changes_queue_up_as_pending_while_the_snapshot_is_read() -> None:
    run = Run((part("0", 30),), position_ms=1_000)
    for n in (1, 2):
        plan = run.barrier(Beat(rows=10, arriving=(epoch(1_000 + 500 * n),)))
        assert (plan.window, plan.pending_after, plan.lag_after_ms) == (None, n, 500 * n)
        assert plan.oldest_pending_ms == 1_500


@pytest.mark.seconds
def test_100_000_splits_plan_in_under_a_second() -> None:
    import time

    run = Run(tuple(part(str(i), 10) for i in range(100_000)))
    took_s = []
    for _ in range(3):  # one may include a garbage collection of what other tests left
        began = time.thread_time()
        run.barrier(Beat(rows=500_000))
        took_s.append(time.thread_time() - began)
    assert min(took_s) < 1.0
