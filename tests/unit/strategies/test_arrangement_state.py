"""Current state beside its log: the state that is kept, and the numbers that are shown."""

from dataclasses import replace

from arrangement_run import ANN, Run, a_range, driven
from hypothesis import given
from snapshot_run import Beat

from backfill_cli.model.job import Mutations, Phase
from backfill_cli.model.position import Position


@given(driven)
def test_a_state_that_is_frozen_and_thawed_is_the_same_and_owes_what_it_owed(run: Run) -> None:
    kept = run.state
    thawed = run.strategy.thaw(run.strategy.freeze(kept), kept.splits, kept.control)
    assert replace(thawed, allowance=kept.allowance) == kept
    assert thawed.allowance.tokens == min(0.0, kept.allowance.tokens)
    assert thawed.allowance.at_ms is None


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
