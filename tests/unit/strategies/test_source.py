"""The rules of the source strategy, one by one. Their combined effect: test_source_table.py."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from backfill_cli.errors import Fatal, HistoryGone, Transient
from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies import Strategy
from backfill_cli.strategies.source import SourceState, SourceStrategy

RATE_5 = Control(rate=5.0)


def source(*histories: tuple[int, int], accept_gap: bool = False) -> SourceStrategy:
    """Over partitions 0, 1, … with these histories [first, target)."""
    splits = (Split("t", str(i), target - first, 0, first=first) for i, (first, target) in enumerate(histories))
    return SourceStrategy(tuple(splits), "t", accept_gap)


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


def test_it_is_a_strategy() -> None:
    strategy: Strategy = source((0, 5))
    assert strategy.name == "source"


# -- from history to live -----------------------------------------------------------------------------------------


def test_a_partition_goes_through_its_states() -> None:
    strategy = source((10, 14))
    state = started(strategy)
    assert (state.phase, statuses(state)) == (Phase.SNAPSHOT, [SplitStatus.NOT_STARTED])
    plan = strategy.plan(state, view(20), budget(3))
    assert (reads(plan), live(plan)) == ([("0", 10, 13)], {})
    state = done(strategy, state, plan)
    assert state.splits["t", "0"] == SplitProgress(SplitStatus.BACKFILLING, 13, 3, 1000, 14)
    state = after(strategy, state, view(20))
    assert state.splits["t", "0"] == SplitProgress(SplitStatus.AWAITING_LIVE, 14, 4, 1000, 14)
    assert state.phase == Phase.SNAPSHOT
    plan = strategy.plan(state, view(20), budget())
    assert (reads(plan), live(plan), plan.hands_over) == ([], {"0": (14, 20)}, ("0",))
    state = done(strategy, state, plan)
    assert state.splits["t", "0"] == SplitProgress(SplitStatus.FINISHED, 20, 4, 1000, 14)
    assert (state.phase, state.position) == (Phase.UPSTREAM, Position.of({"0": 20}))


def test_case_28_a_range_without_rows_ends_all_the_same() -> None:
    strategy = source((0, 10))
    plan = strategy.plan(started(strategy), view(10), budget())
    state = strategy.advance(started(strategy), plan, Staged("a", {}, ((plan.reads[0], 0),)), budget())
    assert state.splits["t", "0"] == SplitProgress(SplitStatus.AWAITING_LIVE, 10, 0, 1000, 10)


def test_case_29_a_partition_without_history_is_finished_at_once() -> None:
    strategy = source((7, 7), (0, 2))
    state = started(strategy)
    assert statuses(state) == [SplitStatus.FINISHED, SplitStatus.NOT_STARTED]
    assert live(strategy.plan(state, view(9, 2), budget())) == {"0": (7, 9)}


def test_case_29_a_job_without_any_history_is_in_the_upstream_phase() -> None:
    strategy = source((7, 7), (3, 3))
    state = started(strategy)
    assert state.phase == Phase.UPSTREAM
    plan = strategy.plan(state, view(7, 3), budget())
    assert (bool(plan), plan.pending_after) == (False, 0)


def test_reported_comes_before_left() -> None:
    strategy = source((0, 5), (0, 5))
    state = after(strategy, started(strategy), view(3, 5, archived=[5, 5]))
    assert statuses(state) == [SplitStatus.AWAITING_LIVE] * 2
    assert (state.snapshot_finished_ms, state.phase) == (1000, Phase.SNAPSHOT)
    state = done(strategy, state, strategy.plan(state, view(3, 5, archived=[5, 5]), budget()), ms=2000)
    assert statuses(state) == [SplitStatus.AWAITING_LIVE, SplitStatus.FINISHED]
    assert (state.snapshot_finished_ms, state.phase) == (1000, Phase.SNAPSHOT)
    state = done(strategy, state, strategy.plan(state, view(5, 5, archived=[5, 5]), budget()), ms=3000)
    assert (state.snapshot_finished_ms, state.phase) == (1000, Phase.UPSTREAM)


def test_awaiting_live_waits_for_the_log_to_reach_it_and_reads_nothing_meanwhile() -> None:
    strategy = source((0, 5))
    state = after(strategy, started(strategy), view(3, archived=[5]))
    plan = strategy.plan(state, view(4, archived=[5]), budget())
    assert (bool(plan), plan.pending_after) == (False, 0)
    assert strategy.plan(state, view(5, archived=[5]), budget()).hands_over == ("0",)


def test_a_hand_over_without_rows_is_a_checkpoint() -> None:
    strategy = source((0, 5))
    plan = strategy.plan(after(strategy, started(strategy), view(5)), view(5), budget())
    assert plan
    assert (plan.reads, plan.window, plan.hands_over) == ((), None, ("0",))


# -- holes, retention, partitions that come and go ----------------------------------------------------------------


def test_a_hole_between_archive_and_log_is_an_error_naming_partition_and_offsets() -> None:
    strategy = source((0, 2), (0, 100))
    state = after(strategy, started(strategy), view(2, 200, archived=[2, 100]), 3)
    seen = view(2, 200, oldest=[0, 150], archived=[2, 100])
    state = replace(
        state, splits=state.splits | {("t", "1"): SplitProgress(SplitStatus.AWAITING_LIVE, 100, 100, 1, 100)}
    )
    with pytest.raises(HistoryGone, match=r"partition 1 .* offsets 100 to 149 are gone") as hole:
        strategy.plan(state, seen, budget())
    assert "accept_gap" in hole.value.hint
    assert hole.value.exit_code == 7


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
    with pytest.raises(HistoryGone, match=r"partition 0 is needed from offset 4, its log begins at 5"):
        strategy.plan(state, view(10, oldest=[5]), budget())


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
    with pytest.raises(Transient, match="lacks partition 1 of 2 known"):
        strategy.plan(started(strategy), view(5), budget())


def test_case_32_an_end_that_went_back_is_transient() -> None:
    strategy = source((7, 7), (0, 9))
    with pytest.raises(Transient, match="partition 0 ends at offset 6, but had reached 7 before"):
        strategy.plan(started(strategy), view(6, 9), budget())
    with pytest.raises(Transient, match="partition 1 ends at offset 8, but had reached 9 before"):
        strategy.plan(started(strategy), view(7, 8), budget())


# -- how much, and who goes first ---------------------------------------------------------------------------------


def test_the_budget_prefers_live() -> None:
    strategy = source((0, 0), (0, 1000))
    plan = strategy.plan(started(strategy), view(30, 1000), budget(50))
    assert (live(plan), reads(plan)) == ({"0": (0, 30)}, [("1", 0, 20)])
    plan = strategy.plan(started(strategy), view(80, 1000), budget(50))
    assert (live(plan), reads(plan)) == ({"0": (0, 50)}, [])


def test_history_is_spread_evenly() -> None:
    strategy = source((0, 10), (0, 1000), (0, 1000))
    assert reads(strategy.plan(started(strategy), view(10, 1000, 1000), budget(50))) == [
        ("0", 0, 10),
        ("1", 0, 20),
        ("2", 0, 20),
    ]


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    strategy = source(*[(0, 1)] * 12)
    plan = strategy.plan(started(strategy), view(*[1] * 12), budget())
    assert [read.split for read in plan.reads] == [str(i) for i in range(12)]


def test_the_rate_limits_history_alone() -> None:
    strategy = source((0, 0), (0, 1000))
    plan = strategy.plan(started(strategy, RATE_5), view(30, 1000), budget(100))
    assert (live(plan), reads(plan)) == ({"0": (0, 30)}, [("1", 0, 5)])
    state = done(strategy, started(strategy, RATE_5), plan)
    plan = strategy.plan(state, view(40, 1000), budget(100, ms=1400))
    assert (live(plan), reads(plan)) == ({"0": (30, 40)}, [("1", 5, 7)])


def test_a_rate_of_0_follows_live_without_reading_history() -> None:
    strategy = source((0, 0), (0, 1000))
    plan = strategy.plan(started(strategy, Control(rate=0.0)), view(30, 1000), budget(100))
    assert (live(plan), reads(plan)) == ({"0": (0, 30)}, [])


def test_a_gap_costs_nothing_of_the_rate() -> None:
    strategy = source((0, 1000))
    state = started(strategy, RATE_5)
    plan = strategy.plan(state, view(1000), budget())
    state = strategy.advance(state, plan, Staged("a", {}, ((plan.reads[0], 1),)), budget())
    assert reads(strategy.plan(state, view(1000), budget(ms=1000))) == [("0", 5, 9)]


def test_a_pause_stops_history_live_and_hand_over() -> None:
    strategy = source((0, 0), (0, 10))
    paused = started(strategy, Control(paused_by="me"))
    plan = strategy.plan(paused, view(5, 10, 5), budget())
    assert (bool(plan), plan.pending_after) == (False, 1)
    assert strategy.advance(paused, plan, None, budget()).splits == paused.splits
    resumed = strategy.apply(paused, Mutations(Control()))
    assert strategy.plan(resumed, view(5, 10, 5), budget()).hands_over == ("2",)


# -- what is pending ----------------------------------------------------------------------------------------------


def test_pending_is_what_was_seen_to_grow_past_what_is_read() -> None:
    strategy = source((0, 0), (0, 0))
    pending = (grown(100, p0=4), grown(200, p0=8, p1=3), grown(300, p1=6))
    plan = strategy.plan(started(strategy), view(8, 6, pending=pending), budget(10))
    assert live(plan) == {"0": (0, 5), "1": (0, 5)}
    window = plan.window
    assert window is not None
    assert (window.epochs, window.from_ms, window.up_to_ms) == (1, 100, 100)
    assert (plan.pending_after, plan.oldest_pending_ms, plan.lag_after_ms) == (2, 200, 200)
    assert plan.latest == Position.of({"0": 8, "1": 6})
    state = done(strategy, started(strategy), plan)
    assert state.position_ms == 100
    plan = strategy.plan(state, view(8, 6, pending=pending[1:]), budget(10))
    assert (plan.pending_after, plan.oldest_pending_ms, plan.lag_after_ms) == (0, None, 0)
    assert plan.window is not None
    assert (plan.window.epochs, plan.window.from_ms, plan.window.up_to_ms) == (2, 200, 300)


def test_a_log_that_goes_on_is_pending_also_when_nobody_saw_when() -> None:
    strategy = source((0, 0))
    plan = strategy.plan(started(strategy), view(20), budget(10))
    assert (plan.pending_after, plan.oldest_pending_ms) == (1, None)


# -- what the catalog keeps ---------------------------------------------------------------------------------------


def test_a_state_survives_the_catalog() -> None:
    strategy = source((0, 9), (4, 4))
    pending = (grown(500, p1=6),)
    state = after(strategy, started(strategy), view(9, 6, 3, pending=pending), 2)
    assert state.position_ms == 500
    kept = {key: p for key, p in state.splits.items() if p is not started(strategy).splits.get(key)}
    again = strategy.thaw(strategy.freeze(state), kept, RATE_5)
    assert replace(again, control=Control(), allowance=state.allowance) == state


def test_a_partition_that_the_catalog_says_nothing_of_begins_at_its_pin() -> None:
    """The catalog loads splits not started as such, after 0: their history begins where the pin says."""
    strategy = source((40, 90), (7, 7))
    loaded = {("t", "0"): SplitProgress(), ("t", "1"): SplitProgress()}
    state = strategy.thaw(strategy.freeze(started(strategy)), loaded, Control())
    assert state == started(strategy)
    assert reads(strategy.plan(state, view(90, 7), budget(10))) == [("0", 40, 50)]


def test_a_debt_outlives_the_runner_and_time_without_one_earns_nothing() -> None:
    strategy = source((0, 1000))
    state = started(strategy, RATE_5)
    plan = strategy.plan(state, view(1000), budget())
    state = strategy.advance(state, plan, Staged("a", {}, ((plan.reads[0], 12),)), budget())
    again = strategy.thaw(strategy.freeze(state), state.splits, RATE_5)
    assert json.loads(strategy.freeze(again))["allowance"] == [-7.0, None]
    assert reads(strategy.plan(again, view(1000), budget(ms=10**9))) == []


def test_a_plan_that_is_not_of_this_state_is_refused() -> None:
    strategy = source((0, 10))
    plan = strategy.plan(started(strategy), view(10), budget(4))
    state = done(strategy, started(strategy), plan)
    with pytest.raises(Fatal, match="is at offset 4, but the plan read from 0 to 4"):
        done(strategy, state, plan)
