"""Splits read in order: with estimates a read is always bounded, with exact counts a whole split has no limit."""

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.split import Split, SplitProgress, SplitStatus
from backfill_cli.strategies.reading import Reading

BUDGETS = st.integers(1, 2_000).map(lambda rows: Budget(0, rows, 1_000, 0))
progress = st.sampled_from((0, 3, 700, 40_000)).map(
    lambda rows: SplitProgress(SplitStatus.CONSUMING, f"row {rows}", rows) if rows else SplitProgress()
)
sizes = st.sampled_from((None, 0, 1, 30, 900, 10**6))
held = st.lists(st.tuples(sizes, progress), max_size=12)


def of(held: list[tuple[int | None, SplitProgress]]) -> tuple[Reading, dict[tuple[str, str], SplitProgress]]:
    splits = tuple(Split("t", str(i), rows, 100) for i, (rows, _) in enumerate(held))
    done = {("t", str(i)): one for i, (_, one) in enumerate(held) if one.rows}
    return Reading(splits, estimated=True), done


@given(held, BUDGETS)
def test_reads_of_estimates_have_limits_that_sum_to_a_few_budgets(
    held: list[tuple[int | None, SplitProgress]], budget: Budget
) -> None:
    reading, done = of(held)
    limits = [read.limit_rows for read in reading.reads(done, None, budget)]
    assert all(limit is not None and limit > 0 for limit in limits)
    assert sum(limit or 0 for limit in limits) <= 2.5 * budget.rows + 1
    assert bool(limits) == bool(held)


@given(held, BUDGETS, st.floats(-50, 5_000))
def test_at_a_rate_reads_of_estimates_ask_for_no_more_than_it_allows(
    held: list[tuple[int | None, SplitProgress]], budget: Budget, tokens: float
) -> None:
    reading, done = of(held)
    limits = [read.limit_rows or 0 for read in reading.reads(done, Allowance(tokens, 0), budget)]
    assert all(limit > 0 for limit in limits)
    assert sum(limits) <= max(0, tokens)
    assert bool(limits) == (bool(held) and tokens >= 1)


@given(held, BUDGETS)
def test_reads_begin_where_their_splits_were_read_to(
    held: list[tuple[int | None, SplitProgress]], budget: Budget
) -> None:
    reading, done = of(held)
    for i, read in enumerate(reading.reads(done, None, budget)):
        assert read == SnapshotRead("t", str(i), held[i][1].cursor, limit_rows=read.limit_rows)


def test_a_table_is_complete_once_its_last_split_is_consumed() -> None:
    reading = Reading((Split("a", "0", 1, 1), Split("b", "0", 1, 1), Split("a", "1", 1, 1)), estimated=True)
    over = SplitProgress(SplitStatus.CONSUMED, None, 1)
    one, two = {("a", "0"): over}, {("a", "0"): over, ("a", "1"): over}
    assert reading.completed({}, one) == ()
    assert reading.completed(one, two) == ("a",)
    assert reading.completed(two, two) == ()
