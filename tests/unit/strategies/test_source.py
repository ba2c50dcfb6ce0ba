"""The rules of the source strategy, one by one: from history to live, and what the catalog keeps. Their combined
effect: test_source_table.py."""

import json
from dataclasses import replace

import pytest
from source_steps import RATE_5, after, budget, done, grown, live, reads, source, started, statuses, view

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitProgress, SplitStatus
from backfill_cli.strategies import Strategy


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
    with pytest.raises(AssertionError, match="is at offset 4, but the plan read from 0 to 4"):
        done(strategy, state, plan)
