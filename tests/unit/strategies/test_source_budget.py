"""The source strategy's budget: how much is read, who goes first, and what is left pending."""

from hypothesis import given
from hypothesis import strategies as st
from source_steps import RATE_5, budget, done, grown, live, reads, source, started, view

from backfill_cli.model.job import Control, Mutations
from backfill_cli.model.plan import Staged
from backfill_cli.model.position import Position

# -- how much, and who goes first ---------------------------------------------------------------------------------


def test_the_budget_prefers_live() -> None:
    strategy = source((0, 0), (0, 1000))
    plan = strategy.plan(started(strategy), view(30, 1000), budget(50))
    assert (live(plan), reads(plan)) == ({"0": (0, 30)}, [("1", 0, 20)])
    plan = strategy.plan(started(strategy), view(80, 1000), budget(50))
    assert (live(plan), reads(plan)) == ({"0": (0, 45)}, [("1", 0, 5)])


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_backlog_of_live_rows_leaves_history_its_share_and_without_one_nothing_is_lost(
    backlog: int, history: int, rows: int
) -> None:
    strategy = source((0, 0), (0, history))
    plan = strategy.plan(started(strategy), view(backlog, history), budget(rows))
    of_history = sum(int(up_to or 0) - int(after or 0) for _, after, up_to in reads(plan))
    of_live = sum(int(str(end)) for _, end in live(plan).values())
    share = min(history, max(1, rows // 10))
    assert of_history >= share
    assert of_history + of_live == min(rows, history + backlog)
    assert of_live >= min(backlog, rows - share)


def test_a_backlog_that_grows_for_ever_does_not_stop_history() -> None:
    strategy = source((0, 0), (0, 1000))
    state = started(strategy)
    for n in range(100):
        assert strategy.read_so_far(state).done == 10 * n
        state = done(strategy, state, strategy.plan(state, view(10**6 * (n + 1), 1000), budget(100)))
    assert strategy.read_so_far(state).done == 1000


def test_a_rate_below_its_share_leaves_the_rest_to_live_rows() -> None:
    strategy = source((0, 0), (0, 1000))
    plan = strategy.plan(started(strategy, RATE_5), view(1000, 1000), budget(100))
    assert (live(plan), reads(plan)) == ({"0": (0, 95)}, [("1", 0, 5)])


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
