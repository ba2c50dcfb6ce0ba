"""Ranges of keys cover every key once, whatever statistics say; slices of a range move on and end."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.lake.key_ranges import (
    MOST_READS,
    FileKeys,
    KeyRange,
    Point,
    planned,
    point_of,
    predicate,
    slice_end,
)

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-50, 50)
TEXTS = st.text(max_size=4)


def files_of(points: st.SearchStrategy[Any]) -> st.SearchStrategy[list[FileKeys]]:
    def file(ends: tuple[Any, Any], rows: int, known: bool) -> FileKeys:
        low, high = sorted(ends) if known else (None, None)
        return FileKeys(low, high, rows, rows * 7)

    known = st.integers(0, 9).map(lambda n: n > 0)
    return st.lists(st.builds(file, st.tuples(points, points), st.integers(0, 300), known), max_size=12)


def holds(of: KeyRange, key: Any) -> bool:
    if key is None:
        return of.low is None
    return (of.low is None or key >= of.low) and (of.high is None or key < of.high)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[FileKeys], list[Any]]:
    points: st.SearchStrategy[Any] = draw(st.sampled_from([NUMBERS, TEXTS]))
    files = draw(files_of(points))
    said = [p for file in files for p in (file.low, file.high) if p is not None]
    outside = [p + step for p in said if isinstance(p, int) for step in (-1, 1)]
    return files, [None, *said, *outside, *draw(st.lists(points))]


@given(cases(), st.integers(1, 400))
def test_each_key_is_in_one_range_whether_statistics_have_it_or_not(
    case: tuple[list[FileKeys], list[Any]], range_rows: int
) -> None:
    files, keys = case
    ranges = planned(files, range_rows)
    for key in keys:
        assert sum(holds(one, key) for one in ranges) == 1, (key, ranges)
    assert sum(one.rows for one in ranges) == sum(file.rows for file in files)
    assert sum(one.size_bytes for one in ranges) == sum(file.size_bytes for file in files)
    assert all(KeyRange.of_json(one.to_json()) == one for one in ranges)


@given(files_of(NUMBERS), st.integers(1, 400), st.integers(1, 500))
def test_case_60_slices_of_a_range_move_on_stay_in_it_and_end(
    files: list[FileKeys], range_rows: int, limit: int
) -> None:
    for one in planned(files, range_rows):
        after: Point | None = None
        slices = 1
        while (end := slice_end(one, after, limit)) is not None:
            assert isinstance(end, int)
            assert holds(one, end)
            assert -(2**63) <= end < 2**63  # a literal of its type
            assert after is None or end > after  # type: ignore[operator]
            after, slices = end, slices + 1
        assert slices <= one.rows // limit + 1


def test_files_that_do_not_overlap_are_cut_between_them_and_each_is_read_once() -> None:
    files = [FileKeys(n * 100, n * 100 + 99, 100, 10) for n in (2, 0, 3, 1)]
    ranges = planned(files, range_rows=200)
    assert [(r.low, r.high, r.rows, r.least, r.most) for r in ranges] == [
        (None, 200, 200, 0, 199),
        (200, None, 200, 200, 399),
    ]
    assert all(r.sliced for r in ranges)


def test_files_that_reach_over_a_little_are_cut_and_sliced() -> None:
    files = [FileKeys(n * 100, n * 100 + 120, 100, 10) for n in range(50)]
    ranges = planned(files, range_rows=500)
    assert 9 <= len(ranges) <= 12
    assert all(r.sliced for r in ranges)
    assert all(400 <= r.rows <= 600 for r in ranges)


def test_files_that_all_hold_all_keys_make_few_large_ranges_which_are_read_whole() -> None:
    files = [FileKeys(n, 1_000_000 - n, 1_000, 10) for n in range(100)]
    ranges = planned(files, range_rows=1_000)
    assert 1 < len(ranges) <= MOST_READS
    assert not any(r.sliced for r in ranges)
    assert max(r.rows for r in ranges) - min(r.rows for r in ranges) < 1_000


def test_a_small_table_is_sliced_however_its_files_lie() -> None:
    (one,) = planned([FileKeys(0, 99, 50, 10), FileKeys(0, 99, 50, 10)], range_rows=1_000)
    assert (slice_end(one, None, 25), slice_end(one, 25, 25), slice_end(one, 75, 25)) == (25, 50, None)


def test_a_file_with_rows_of_unknown_keys_leaves_one_range_and_an_empty_one_does_not() -> None:
    known = [FileKeys(n * 100, n * 100 + 99, 100, 10) for n in range(4)]
    assert planned([*known, FileKeys(None, None, 5, 10)], 100) == [KeyRange(rows=405, size_bytes=50)]
    assert len(planned([*known, FileKeys(None, None, 0, 0)], 100)) == 4
    assert planned([], 100) == [KeyRange()]


def test_texts_are_cut_in_the_order_of_code_points_and_not_sliced() -> None:
    files = [FileKeys("a", "m", 10, 1), FileKeys("n", "z", 10, 1), FileKeys("é", "\U0001f600", 10, 1)]
    ranges = planned(files, range_rows=10)
    assert [(r.low, r.high) for r in ranges] == [(None, "n"), ("n", "é"), ("é", None)]
    assert slice_end(ranges[0], None, 1) is None


@pytest.mark.parametrize(
    ("value", "spark_type", "point", "literal"),
    [
        (5, "long", 5, "CAST('5' AS BIGINT)"),
        (-128, "byte", -128, "CAST('-128' AS TINYINT)"),
        (Decimal("-12.50"), "decimal(10,2)", -1250, "CAST('-12.50' AS decimal(10,2))"),
        (date(1969, 12, 31), "date", -1, "DATE_FROM_UNIX_DATE(-1)"),
        (datetime(1970, 1, 1, 0, 0, 1), "timestamp_ntz", 10**6, "TIMESTAMP_NTZ'1970-01-01 00:00:01'"),
        (
            datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            "timestamp",
            0,
            "TIMESTAMP_MICROS(0L)",
        ),
        (datetime(1969, 12, 31, 23, tzinfo=UTC), "timestamp", -3_600_000_000, "TIMESTAMP_MICROS(-3600000000L)"),
        ("it's \\", "string", "it's \\", "CAST(X'69742773205c' AS STRING)"),
    ],
)
def test_a_statistic_is_a_point_and_its_literal(value: Any, spark_type: str, point: Any, literal: str) -> None:
    assert point_of(value, spark_type) == point
    assert predicate("`k`", spark_type, point, None) == f"`k` >= {literal}"
    assert predicate("`k`", spark_type, None, point) == f"(`k` IS NULL OR `k` < {literal})"


@pytest.mark.parametrize(
    ("value", "spark_type"),
    [(None, "long"), (True, "boolean"), (1.5, "double"), (b"a", "binary"), ("a", "string collate UTF8_LCASE")],
)
def test_keys_of_other_types_are_not_cut(value: Any, spark_type: str) -> None:
    assert point_of(value, spark_type) is None
    assert predicate("`k`", spark_type, None, None) is None


@pytest.mark.parametrize("value", [2**60, -(2**62)])
def test_a_time_beyond_the_calendar_is_no_place_to_cut_at(value: int) -> None:
    assert point_of(value, "timestamp_ntz") is None
    assert point_of(value, "timestamp") == value


@pytest.mark.parametrize("at", [datetime.min, datetime.max])
def test_the_ends_of_the_calendar_are_places_to_cut_at(at: datetime) -> None:
    point = point_of(at, "timestamp_ntz")
    assert predicate("c", "timestamp_ntz", point, None) == f"c >= TIMESTAMP_NTZ'{at}'"
