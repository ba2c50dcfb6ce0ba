"""The rate as it was asked for, epochs of about the target, and retries that end."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backfill_cli.model.limit import Limit
from backfill_cli.model.pace import (
    GROW_AT_MOST,
    LEAST_ROWS,
    SHRINK_AT_MOST,
    STALL_MS,
    TRUSTED,
    WIDEST,
    Allowance,
    Backoff,
    Commits,
    Sizer,
)

rates = st.floats(0.01, 5) | st.floats(0.01, 1e6)
intervals_ms = st.integers(50, 10_000)
# Barriers at any times, or at a steady interval.
spans_ms = st.lists(st.integers(0, STALL_MS), min_size=1, max_size=40) | st.integers(50, 5_000).map(
    lambda s: [s] * 40
)


def drained(bucket: Allowance, rate: float | None, interval_ms: int, now_ms: int) -> tuple[Allowance, int]:
    """One barrier of a reader that takes whole rows as soon as it may."""
    bucket = bucket.fill(rate, interval_ms, now_ms)
    rows = max(0, int(bucket.tokens))
    return bucket.spend(rows), rows


# -- token bucket ------------------------------------------------------------------------------------------------


@given(rates, intervals_ms, spans_ms)
@example(0.6, 1_000, [1_000] * 40)
@example(0.1, 1_000, [1_000] * 40)
def test_a_hungry_reader_gets_the_rate_exactly_whatever_the_rhythm_of_barriers(
    rate: float, interval_ms: int, spans: list[int]
) -> None:
    bucket, now_ms, read = Allowance(), 1_000, 0
    burst = rate * interval_ms / 1000
    bucket, rows = drained(bucket, rate, interval_ms, now_ms)
    read += rows
    for span in spans:
        now_ms += span
        bucket, rows = drained(bucket, rate, interval_ms, now_ms)
        read += rows
        fair = burst + rate * (now_ms - 1_000) / 1000
        assert fair - 1 - 1e-6 * fair <= read <= fair + 1e-6 * fair


@given(rates, intervals_ms, spans_ms, st.lists(st.booleans(), min_size=40, max_size=40))
def test_a_reader_that_skips_barriers_saves_one_burst_at_most(
    rate: float, interval_ms: int, spans: list[int], reads: list[bool]
) -> None:
    bucket, now_ms = Allowance(), 0
    burst = max(1.0, rate * interval_ms / 1000)
    for span, takes in zip(spans, reads, strict=False):
        now_ms += span
        bucket = bucket.fill(rate, interval_ms, now_ms)
        assert bucket.tokens <= burst + rate * span / 1000 + burst * 1e-9
        if takes:
            bucket = bucket.spend(max(0, int(bucket.tokens)))


@given(rates, intervals_ms, st.integers(1, 10**6), spans_ms)
def test_a_debt_is_paid_in_full_before_anything_is_granted(
    rate: float, interval_ms: int, debt: int, spans: list[int]
) -> None:
    bucket = Allowance(0.0, 0).spend(debt)
    now_ms = 0
    for span in spans:
        now_ms += span
        bucket = bucket.fill(rate, interval_ms, now_ms)
        earned = rate * now_ms / 1000
        if bucket.tokens >= 1:
            assert earned >= debt * (1 - 1e-9)
            break
        assert bucket.tokens == pytest.approx(earned - debt, rel=1e-6, abs=1e-3)


def test_a_job_that_was_held_up_for_long_does_not_flood_its_upstream() -> None:
    begun = Allowance().fill(500.0, 1_000, 0).spend(500)
    assert begun.fill(500.0, 1_000, 600_000).tokens == 500 * STALL_MS / 1000


@given(intervals_ms, spans_ms, st.floats(-1000, 1000))
def test_rate_zero_grants_nothing_nor_what_another_rate_left(
    interval_ms: int, spans: list[int], tokens: float
) -> None:
    bucket, now_ms = Allowance(tokens, 0), 0
    for span in spans:
        now_ms += span
        bucket = bucket.fill(0.0, interval_ms, now_ms)
        assert bucket.tokens <= 0


@given(rates, intervals_ms, st.integers(0, 10**6))
def test_no_time_passes_backward(rate: float, interval_ms: int, back_ms: int) -> None:
    bucket = Allowance(5.0, 10**6)
    assert bucket.fill(rate, interval_ms, 10**6 - back_ms).tokens <= 5.0


@given(rates, intervals_ms, st.integers(0, 10**7))
def test_held_time_earns_nothing(rate: float, interval_ms: int, held_ms: int) -> None:
    bucket = Allowance(0.0, 0).hold(held_ms)
    assert bucket.fill(rate, interval_ms, held_ms) == Allowance(0.0, held_ms)


def test_a_limit_that_is_lifted_forgives_the_debt_and_leaves_no_savings() -> None:
    assert Allowance(-500.0, 0).fill(None, 1000, 50) == Allowance(0.0, 50)
    assert Allowance(500.0, 0).fill(None, 1000, 50) == Allowance(0.0, 50)


# -- sizer -------------------------------------------------------------------------------------------------------

TARGET_MS = 5_000
sizes = st.integers(LEAST_ROWS, 10**9)


@given(sizes, st.integers(0, 10**9), st.integers(TARGET_MS // 2, TARGET_MS))
def test_within_the_dead_band_the_size_stays(rows: int, read: int, took_ms: int) -> None:
    assert Sizer(rows).after(read, took_ms, TARGET_MS) == Sizer(rows)


@given(sizes, st.integers(0, TARGET_MS // 2 - 1))
def test_a_full_epoch_under_half_the_target_grows_the_size_at_most_fourfold(rows: int, took_ms: int) -> None:
    after = Sizer(rows).after(rows, took_ms, TARGET_MS).rows
    assert rows < after <= rows * GROW_AT_MOST


@given(sizes, st.floats(0, 0.89), st.integers(0, TARGET_MS // 2 - 1))
def test_an_epoch_that_was_small_for_want_of_rows_does_not_grow_it(rows: int, share: float, took_ms: int) -> None:
    assert Sizer(rows).after(int(rows * share), took_ms, TARGET_MS) == Sizer(rows)


@given(sizes, st.floats(0, 0.49), st.integers(TARGET_MS + 1, 10**7))
def test_a_small_epoch_that_was_slow_does_not_shrink_it(rows: int, share: float, took_ms: int) -> None:
    assert Sizer(rows).after(int(rows * share), took_ms, TARGET_MS) == Sizer(rows)


@given(sizes, st.floats(0.51, 10), st.integers(TARGET_MS + 1, 10**7))
def test_an_epoch_over_the_target_shrinks_it_to_a_quarter_at_most(rows: int, share: float, took_ms: int) -> None:
    after = Sizer(rows).after(int(rows * share), took_ms, TARGET_MS).rows
    assert after <= rows
    assert after >= max(LEAST_ROWS, int(rows * SHRINK_AT_MOST))
    assert after < rows or rows == LEAST_ROWS


@given(st.floats(10, 10**5), st.integers(LEAST_ROWS, 10**8))
def test_at_a_steady_speed_the_size_settles_between_half_the_target_and_the_target(
    rows_per_ms: float, rows: int
) -> None:
    sizer = Sizer(rows)
    for _ in range(40):
        sizer = sizer.after(sizer.rows, int(sizer.rows / rows_per_ms), TARGET_MS)
    settled_ms = int(sizer.rows / rows_per_ms)
    assert TARGET_MS / 2 <= settled_ms <= TARGET_MS or sizer.rows == LEAST_ROWS
    assert sizer.after(sizer.rows, settled_ms, TARGET_MS) == sizer


# -- commits -----------------------------------------------------------------------------------------------------


LEAST = 1_000


def settled(fixed_ms: float, per_row_ms: float, rows: int = 100_000) -> tuple[int, int]:
    """After 30 full epochs that cost this: their rows, and how long one takes; not those that measure again."""
    commits, sizes = Commits(), []
    for _ in range(33):
        commits = commits.after(rows, int(fixed_ms + per_row_ms * rows))
        rows = commits.rows(TARGET_MS, LEAST) or rows
        sizes.append(rows)
    usual = min(sizes[-3:])
    return usual, int(fixed_ms + per_row_ms * usual)


def test_before_a_first_commit_nothing_is_known() -> None:
    assert Commits().rows(TARGET_MS, LEAST) is None
    assert Commits().after(0, 60_000) == Commits()


@given(st.floats(0.0001, 1))
def test_where_a_commit_costs_per_row_alone_it_takes_the_target(per_row_ms: float) -> None:
    _, took_ms = settled(0, per_row_ms)
    assert took_ms == pytest.approx(TARGET_MS, rel=0.1)


@given(st.floats(TARGET_MS, 4 * TARGET_MS), st.floats(0.001, 0.1))
def test_where_a_commit_has_a_fixed_cost_its_rows_may_take_as_long_again(
    fixed_ms: float, per_row_ms: float
) -> None:
    _, took_ms = settled(fixed_ms, per_row_ms)
    assert took_ms == pytest.approx(min(2 * fixed_ms, WIDEST * TARGET_MS), rel=0.1)


@given(st.floats(6 * TARGET_MS, 100 * TARGET_MS), st.floats(0.001, 0.1))
def test_no_size_is_so_small_that_the_fixed_cost_is_all_there_is(fixed_ms: float, per_row_ms: float) -> None:
    _, took_ms = settled(fixed_ms, per_row_ms)
    assert 1.2 * fixed_ms <= took_ms <= 1.3 * fixed_ms


def test_a_commit_that_costs_the_same_for_any_size_grows_the_epoch_fourfold() -> None:
    commits = Commits().after(100_000, 8_000).after(150_000, 8_000)
    assert commits.rows(TARGET_MS, LEAST) == 600_000
    assert commits.after(600_000, 7_000).rows(TARGET_MS, LEAST) == 2_400_000


def test_one_slow_commit_of_unknown_shape_is_followed_by_a_wider_one() -> None:
    assert Commits().after(100_000, 12_000).rows(TARGET_MS, LEAST) == 208_334
    assert Commits().after(18_000, 3_000).rows(TARGET_MS, LEAST) == 45_000, "two upstream epochs of the same size"
    assert Commits().after(100_000, 26_000).rows(TARGET_MS, LEAST) == 19_230  # a wider one could take over 25 s


@given(st.floats(0, 4 * TARGET_MS), st.floats(0.001, 0.05), st.integers(TARGET_MS, 100 * TARGET_MS))
@example(1_000, 0.001, 60_000)
@example(8_000, 0.0001, 80_000)
def test_one_commit_that_was_slow_for_another_reason_is_not_believed_for_ever(
    fixed_ms: float, per_row_ms: float, odd_ms: int
) -> None:
    usual, _ = settled(fixed_ms, per_row_ms)
    commits, rows = Commits(), 100_000
    for turn in range(60):
        took_ms = fixed_ms + per_row_ms * rows + (odd_ms if turn == 3 else 0)
        commits = commits.after(rows, int(took_ms))
        rows = commits.rows(TARGET_MS, LEAST) or rows
    reached = [rows]
    for _ in range(TRUSTED + 2):  # a size is measured again now and then
        commits = commits.after(rows, int(fixed_ms + per_row_ms * rows))
        rows = commits.rows(TARGET_MS, LEAST) or rows
        reached.append(rows)
    assert max(reached) >= 0.7 * usual


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**6)), min_size=1, max_size=20))
def test_whatever_commits_took_the_next_epoch_has_the_least_rows_and_not_many_times_the_most(
    taken: list[tuple[int, int]],
) -> None:
    commits = Commits()
    for rows, took_ms in taken:
        commits = commits.after(rows, took_ms)
    fits = commits.rows(TARGET_MS, LEAST)
    most = max(rows for rows, _ in taken)
    assert (fits is None) == (most == 0)
    assert fits is None or LEAST <= fits <= max(LEAST, most * TARGET_MS)


# -- backoff -----------------------------------------------------------------------------------------------------


def failures(spans: list[int]) -> list[Backoff]:
    backoff, now_ms, found = Backoff(), 1_000, []
    for span in spans:
        backoff = backoff.failed(now_ms, Limit(f"at {now_ms}"))
        found.append(backoff)
        now_ms = backoff.until_ms + span
    return found


def test_the_first_wait_is_a_fifth_of_a_second_and_each_is_twice_the_one_before() -> None:
    waits = [b.until_ms - a.until_ms for a, b in pairwise(failures([0] * 9))]
    assert waits == [400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000]
    assert failures([0])[0].until_ms == 1_200


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=30), st.integers(0, 10**6), st.integers(0, 10**7))
def test_it_gives_up_once_failures_in_a_row_last_the_limit(spans: list[int], limit_ms: int, now_ms: int) -> None:
    backoff = failures(spans)[-1]
    assert backoff.since_ms == 1_000
    assert backoff.spent(now_ms, limit_ms) == (now_ms - 1_000 >= limit_ms)


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=2_000))
def test_no_wait_is_longer_than_15_seconds(spans: list[int]) -> None:
    last = failures(spans)[-1]
    again = last.failed(last.until_ms, Limit("again"))
    assert 0 < again.until_ms - last.until_ms <= 15_000


def test_nothing_failed_so_nothing_is_spent_and_the_reason_is_the_last_ones() -> None:
    assert not Backoff().spent(10**12, 0)
    assert Backoff().failed(1, Limit("first")).failed(2, Limit("second")).reason == Limit("second")
