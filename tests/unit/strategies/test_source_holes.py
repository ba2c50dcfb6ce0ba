"""The source strategy where offsets are missing: holes, retention, partitions that come and go."""

from dataclasses import replace

import pytest
from hint_typed import typed
from source_steps import after, budget, done, live, reads, source, started, view

from backfill_cli.errors import HistoryGone, Transient
from backfill_cli.model.job import Control
from backfill_cli.model.split import SplitProgress, SplitStatus


def test_a_hole_between_archive_and_log_is_an_error_naming_partition_and_offsets() -> None:
    strategy = source((0, 2), (0, 100))
    state = after(strategy, started(strategy), view(2, 200, archived=[2, 100]), 3)
    seen = view(2, 200, oldest=[0, 150], archived=[2, 100])
    state = replace(
        state, splits=state.splits | {("t", "1"): SplitProgress(SplitStatus.AWAITING_LIVE, 100, 100, 1, 100)}
    )
    with pytest.raises(HistoryGone, match=r"partition 1 .* offsets 100 to 149 are gone") as hole:
        strategy.plan(state, seen, budget())
    assert hole.value.exit_code == 7
    with typed(hole.value) as hint:
        accept = hint.settings()["upstream.accept_gap"]
        skipping = source((0, 2), (0, 100), accept_gap=bool(accept))
        assert live(skipping.plan(state, seen, budget()))["1"] == (150, 200)


def test_a_hole_that_is_accepted_is_left_out() -> None:
    strategy = source((0, 100), accept_gap=True)
    state = after(strategy, started(strategy), view(200, oldest=[150], archived=[100]))
    plan = strategy.plan(state, view(200, oldest=[150], archived=[100]), budget())
    assert (live(plan), plan.hands_over) == ({"0": (150, 200)}, ("0",))
    assert done(strategy, state, plan).splits["t", "0"] == SplitProgress(SplitStatus.FINISHED, 200, 100, 1000, 100)


def test_a_hole_is_accepted_without_a_row_behind_it_too() -> None:
    strategy = source((0, 100), accept_gap=True)
    state = after(strategy, started(strategy), view(150, oldest=[150], archived=[100]))
    state = after(strategy, state, view(150, oldest=[150], archived=[100]))
    assert state.splits["t", "0"].cursor == 150
    assert live(strategy.plan(state, view(151, oldest=[150], archived=[100]), budget())) == {"0": (150, 151)}


def test_accepting_a_gap_does_not_excuse_what_retention_took_of_the_log() -> None:
    strategy = source((5, 5), (0, 9), accept_gap=True)
    with pytest.raises(HistoryGone, match=r"partition 0 .* offsets 5 to 7 are gone"):
        strategy.plan(started(strategy), view(9, 9, oldest=[8, 0]), budget())
    with pytest.raises(HistoryGone, match=r"partition 1 .* offsets 0 to 3 are gone"):
        strategy.plan(started(strategy), view(9, 9, oldest=[0, 4]), budget())


def test_case_31_retention_that_passes_a_history_in_the_log_is_an_error() -> None:
    strategy = source((0, 10))
    state = done(strategy, started(strategy), strategy.plan(started(strategy), view(10), budget(4)))
    assert strategy.plan(state, view(10, oldest=[4]), budget())
    with pytest.raises(HistoryGone, match=r"partition 0 is needed from offset 4, its log begins at 5") as hole:
        strategy.plan(state, view(10, oldest=[5]), budget())
    with typed(hole.value) as hint:
        hint.says("drop the job and start over")
        over = source((5, 10))
        assert reads(over.plan(started(over), view(10, oldest=[5]), budget())) == [("0", 5, 10)]


def test_retention_may_pass_what_the_archive_holds() -> None:
    strategy = source((0, 100))
    seen = view(200, oldest=[100], archived=[100])
    assert reads(strategy.plan(started(strategy), seen, budget())) == [("0", 0, 100)]


def test_retention_past_the_target_raises_it_to_what_the_archive_holds_by_now() -> None:
    strategy = source((0, 100))
    seen = view(200, oldest=[120], archived=[150])
    plan = strategy.plan(started(strategy), seen, budget(140))
    assert reads(plan) == [("0", 0, 140)]
    state = done(strategy, started(strategy), plan)
    assert state.splits["t", "0"] == SplitProgress(SplitStatus.BACKFILLING, 140, 140, 1000, 150)
    assert live(strategy.plan(after(strategy, state, seen), seen, budget())) == {"0": (150, 200)}


def test_history_that_had_ended_goes_on_in_the_archive_when_the_log_no_longer_has_the_next_offset() -> None:
    strategy = source((0, 100))
    state = after(strategy, started(strategy), view(90, archived=[100]))
    assert state.snapshot_finished_ms is not None
    plan = strategy.plan(state, view(200, oldest=[120], archived=[150]), budget())
    assert (reads(plan), plan.hands_over) == ([("0", 100, 150)], ())
    partly = strategy.plan(state, view(200, oldest=[120], archived=[150]), budget(20))
    assert done(strategy, state, partly).snapshot_finished_ms is None


def test_an_archive_that_grows_does_not_move_a_target_that_the_log_still_meets() -> None:
    strategy = source((0, 100))
    assert reads(strategy.plan(started(strategy), view(200, archived=[150]), budget(1000))) == [("0", 0, 100)]


def test_case_30_a_new_partition_is_live_from_its_first_retained_offset() -> None:
    strategy = source((5, 5))
    plan = strategy.plan(started(strategy), view(5, 9, oldest=[0, 3]), budget())
    assert (live(plan), plan.hands_over) == ({"1": (3, 9)}, ("1",))
    taken = done(strategy, started(strategy), plan).splits["t", "1"]
    assert taken == SplitProgress(SplitStatus.FINISHED, 9, 0, 1000, target=3)


def test_case_30_an_empty_new_partition_is_remembered_with_a_checkpoint() -> None:
    strategy = source((5, 5))
    plan = strategy.plan(started(strategy), view(5, 0), budget())
    assert plan.hands_over == ("1",)
    state = done(strategy, started(strategy), plan)
    kept = {key: p for key, p in state.splits.items() if p is not started(strategy).splits.get(key)}
    again = strategy.thaw(strategy.freeze(state), kept, Control())
    assert live(strategy.plan(again, view(5, 4), budget())) == {"1": (0, 4)}


def test_a_new_partition_during_the_backfill_does_not_wait_for_it() -> None:
    strategy = source((0, 1000))
    plan = strategy.plan(started(strategy), view(1000, 8), budget(20))
    assert (live(plan), reads(plan)) == ({"1": (0, 8)}, [("0", 0, 12)])


def test_a_known_partition_that_is_not_listed_is_transient_and_its_state_kept() -> None:
    strategy = source((0, 5), (0, 5))
    with pytest.raises(Transient, match="lacks partition 1 of 2 known") as lacking:
        strategy.plan(started(strategy), view(5), budget())
    with typed(lacking.value) as hint:
        hint.says("check its brokers")
        assert reads(strategy.plan(started(strategy), view(5, 5), budget())) == [("0", 0, 5), ("1", 0, 5)]


def test_case_32_an_end_that_went_back_is_transient() -> None:
    strategy = source((7, 7), (0, 9))
    with pytest.raises(Transient, match="partition 0 ends at offset 6, but had reached 7 before") as lagging:
        strategy.plan(started(strategy), view(6, 9), budget())
    with typed(lagging.value) as hint:
        hint.says("check the topic's brokers")
        assert reads(strategy.plan(started(strategy), view(7, 9), budget())) == [("1", 0, 9)]
    with pytest.raises(Transient, match="partition 1 ends at offset 8, but had reached 9 before"):
        strategy.plan(started(strategy), view(7, 8), budget())
