"""Splits read in order: with estimates a read is always bounded, with exact counts a whole split has no limit."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.pace import Allowed, Budget
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
    limits = [read.limit_rows for read in reading.reads(done, Allowed(), budget)]
    assert all(limit is not None and limit > 0 for limit in limits)
    assert sum(limit or 0 for limit in limits) <= 2.5 * budget.rows + 1
    assert bool(limits) == bool(held)


@given(held, BUDGETS, st.floats(-50, 5_000))
def test_at_a_rate_reads_of_estimates_ask_for_no_more_than_it_allows(
    held: list[tuple[int | None, SplitProgress]], budget: Budget, tokens: float
) -> None:
    reading, done = of(held)
    limits = [read.limit_rows or 0 for read in reading.reads(done, Allowed(tokens), budget)]
    assert all(limit > 0 for limit in limits)
    assert sum(limits) <= max(0, tokens)
    assert bool(limits) == (bool(held) and tokens >= 1)


@given(held, BUDGETS)
def test_reads_begin_where_their_splits_were_read_to(
    held: list[tuple[int | None, SplitProgress]], budget: Budget
) -> None:
    reading, done = of(held)
    for i, read in enumerate(reading.reads(done, Allowed(), budget)):
        assert read == SnapshotRead("t", str(i), held[i][1].cursor, limit_rows=read.limit_rows)


def test_a_table_is_complete_once_its_last_split_is_consumed() -> None:
    reading = Reading((Split("a", "0", 1, 1), Split("b", "0", 1, 1), Split("a", "1", 1, 1)), estimated=True)
    over = SplitProgress(SplitStatus.CONSUMED, None, 1)
    one, two = {("a", "0"): over}, {("a", "0"): over, ("a", "1"): over}
    assert reading.completed({}, one) == ()
    assert reading.completed(one, two) == ("a",)
    assert reading.completed(two, two) == ()


def read_on(read: SnapshotRead, ends: list[int], block: int) -> tuple[SnapshotRead, int]:
    """What an upstream makes of a read of lines that end at these bytes: it guesses from those of a block."""
    after, size = int(read.after or 0), ends[-1]
    up_to = size
    if read.limit_rows is not None:
        near = [end for end in ends if after < end <= after + block] or [after + block]
        up_to = after + max(4, -(-read.limit_rows * (near[-1] - after) // len(near)))
    begins = [0, *ends[:-1]]
    rows = sum(after <= begin < up_to for begin in begins)
    return SnapshotRead(read.table, read.split, read.after, None if up_to >= size else up_to), rows


lengths = st.lists(st.sampled_from((2, 20, 90, 400, 5_000)), min_size=1, max_size=60)


@given(st.lists(lengths, min_size=1, max_size=3), st.integers(1, 40), st.sampled_from((None, 1.0, 7.0)))
def test_files_of_which_bytes_are_read_end_with_every_row_and_never_go_back(
    files: list[list[int]], rows: int, tokens: float | None
) -> None:
    ends = [list(accumulate(one)) for one in files]
    splits = tuple(Split("t", str(i), None, sum(one), True, first=0) for i, one in enumerate(files))
    reading, done = Reading(splits), dict[tuple[str, str], SplitProgress]()
    shares = [0.0]
    for epoch in range(100 * sum(map(len, files)) + 100):
        plan = list(reading.reads(done, Allowed(tokens), Budget(0, rows, 1_000, 0)))
        if not plan:
            break
        assert all(read.limit_rows is None or read.limit_rows >= 1 for read in plan)
        if tokens is not None:
            assert all((read.limit_rows or 0) <= tokens for read in plan)
        done = dict(reading.consumed(done, [read_on(one, ends[int(one.split)], 1_000) for one in plan], epoch))
        so_far = reading.so_far(done)
        assert so_far.total == sum(map(sum, files))
        assert shares[-1] <= so_far.done <= so_far.total
        shares.append(so_far.done)
    assert {one.status for one in done.values()} == {SplitStatus.CONSUMED}
    assert [done["t", str(i)].rows for i in range(len(files))] == [len(one) for one in files]
    assert shares[-1] == sum(map(sum, files))


@given(st.integers(4, 400), st.integers(50, 4_000))
def test_a_large_file_is_read_in_slices_of_about_the_budget_whatever_its_lines_are_long(
    length: int, rows: int
) -> None:
    """Before anything is read of it, a line is taken for 100 bytes; afterwards for what it was."""
    ends = [length * (index + 1) for index in range(20_000)]
    reading, done = Reading((Split("t", "0", None, ends[-1], True, first=0),)), {}
    counts = []
    while plan := list(reading.reads(done, Allowed(), Budget(0, rows, 1_000, 0))):
        closed = [read_on(one, ends, 1_000) for one in plan]
        counts += [count for _, count in closed]
        done = dict(reading.consumed(done, closed, 1))
    assert sum(counts) == 20_000
    assert max(counts) <= 1.5 * rows + 2
    assert all(count >= rows - 2 for count in counts[:-1])
