"""What a window that ended before its planned end leaves pending, and what an epoch quarantines."""

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts import SinkTable
from backfill_cli.engine.loop.epoch import left_of, quarantined
from backfill_cli.model.plan import ChangeWindow, EpochPlan, Staged, StagedTable
from backfill_cli.model.position import Position

AT = st.integers(0, 50)


def window(up_to: int, ms: int, open: bool = False) -> ChangeWindow:
    return ChangeWindow(Position.of({"log": 0}), Position.of({"log": up_to}), 0, ms, 1, open=open)


@given(AT, AT, st.integers(0, 9_000), st.integers(0, 9_000), st.integers(0, 3), st.integers(0, 500))
def test_a_window_that_ended_early_leaves_one_more_epoch_and_its_time_pending(
    planned: int, ended: int, planned_ms: int, ended_ms: int, pending: int, lag_ms: int
) -> None:
    plan = EpochPlan(window=window(planned, planned_ms), pending_after=pending, lag_after_ms=lag_ms)
    left = left_of(plan, Staged("a", window=window(ended, ended_ms)))
    if ended >= planned:
        assert left == plan
        return
    assert left.pending_after == pending + 1
    assert left.lag_after_ms == lag_ms + max(0, planned_ms - ended_ms)
    assert left.oldest_pending_ms == ended_ms
    assert left.window == plan.window


def test_an_open_window_that_went_further_than_was_planned_leaves_what_the_plan_did() -> None:
    plan = EpochPlan(window=window(5, 100, open=True))
    assert left_of(plan, Staged("a", window=window(9, 300, open=True))) is plan


def test_a_plan_without_a_window_leaves_what_it_did() -> None:
    plan = EpochPlan(pending_after=2)
    assert left_of(plan, Staged("a")) is plan


TABLES = (
    SinkTable("orders", "main.orders", ("id",), "{}"),
    SinkTable("orders.quarantine", "main._backfill_quarantine_orders", ("p", "o"), "{}", side=True),
)


def test_rows_that_are_kept_aside_are_counted_by_their_table_and_no_others() -> None:
    epoch = Staged("a", {"orders": StagedTable(rows=9), "orders.quarantine": StagedTable(rows=2)})
    once = quarantined({}, TABLES, epoch)
    assert once == {"main._backfill_quarantine_orders": 2}
    assert quarantined(once, TABLES, epoch) == {"main._backfill_quarantine_orders": 4}
    assert quarantined(once, TABLES, Staged("b", {"orders": StagedTable(rows=9)})) is once
