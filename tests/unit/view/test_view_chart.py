"""Charts: labels that never overlap, axes in round numbers, for any events and values."""

import time
from datetime import datetime, timedelta
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.view.chart import (
    LANES,
    LINE,
    Frame,
    Label,
    count_ticks,
    duration_ticks,
    labels,
    time_ticks,
    wide,
)

PLACES = st.floats(40, 340, allow_nan=False)
NAMES = st.sampled_from(["pause", "resume", "caught up", "throttle to 12,000,000 rows/s", "runner died", "x" * 90])
EVENTS = st.lists(st.tuples(PLACES, NAMES), max_size=60)


def meet(one: Label, other: Label) -> bool:
    """Whether the boxes of two labels have a point in common."""
    across = one.left <= other.right and other.left <= one.right
    return across and abs(one.lane - other.lane) * LINE < LINE


@given(EVENTS | st.tuples(PLACES, NAMES).map(lambda one: [one] * 500))
def test_no_two_labels_overlap_and_every_event_has_one(events: list[tuple[float, str]]) -> None:
    placed = labels(events, 40, 340)
    assert not [(one, other) for one, other in combinations(placed, 2) if meet(one, other)]
    assert sum(one.count for one in placed) == len(events)
    assert all(one.left >= 40 and one.right <= 340 and 0 <= one.lane < LANES for one in placed)
    places = {x for x, _ in events}
    assert all(one.x in places for one in placed)


def test_events_at_one_time_share_a_label_that_counts_them() -> None:
    def told(*names: str) -> list[str]:
        return [one.text for one in labels([(100.0, name) for name in names], 0, 900)]

    assert told("pause") == ["pause"]
    assert told("pause", "resume") == ["pause, resume"]
    assert told(*["throttle"] * 3) == ["throttle ×3"]
    assert told(*(f"throttle to {n} rows/s" for n in range(1_200))) == ["1,200 events"]


@given(st.just(0.0) | st.floats(1e-3, 1e12))
def test_an_axis_of_numbers_is_from_zero_in_equal_round_steps(top: float) -> None:
    ticks = count_ticks(top)
    assert ticks[0].label == "0"
    assert ticks[-1].at >= top * (1 - 1e-6)
    assert len(ticks) <= 6
    steps = [after.at - before.at for before, after in pairwise(ticks)]
    assert all(step == pytest.approx(steps[0]) for step in steps)
    assert not steps or f"{steps[0]:e}"[0] in "1259"  # 9.999…: a power of ten
    assert all(float(one.label.replace(",", "")) == pytest.approx(one.at) for one in ticks)


@given(st.just(0.0) | st.floats(1e-3, 1e9))
def test_an_axis_of_durations_is_from_zero_in_steps_that_people_count_in(top_s: float) -> None:
    ticks = duration_ticks(top_s)
    assert ticks[-1].at >= top_s * (1 - 1e-6)
    assert len(ticks) <= 6
    assert len({one.label for one in ticks}) == len(ticks)


def test_what_axes_say() -> None:
    def told(top_s: float) -> list[str]:
        return [one.label for one in duration_ticks(top_s)]

    assert told(0) == ["0 s"]
    assert told(3.7) == ["0 s", "1 s", "2 s", "3 s", "4 s"]
    assert told(104) == ["0 s", "30 s", "1 m", "1 m 30 s", "2 m"]
    assert told(4_000) == ["0 s", "30 m", "1 h", "1 h 30 m"]
    assert told(200_000) == ["0 s", "1 d", "2 d", "3 d"]
    assert [one.label for one in count_ticks(72_000)] == ["0", "20,000", "40,000", "60,000", "80,000"]


@given(st.integers(0, 2**41), st.integers(0, 2**37), st.sampled_from([280.0, 880.0]))
def test_times_below_an_axis_do_not_overlap_and_are_within_it(begin_ms: int, long_ms: int, width: float) -> None:
    frame = Frame(begin_ms, begin_ms + long_ms, 50, 50 + width)
    ticks = time_ticks(frame)
    assert all(begin_ms <= one.at <= begin_ms + long_ms for one in ticks)
    places = [(frame.x(round(one.at)), wide(one.label)) for one in ticks]
    assert all(x + (one + other) / 2 < after for (x, one), (after, other) in pairwise(places))


@pytest.mark.parametrize(("month", "day"), [(10, 20), (3, 22)])
def test_a_day_begins_at_midnight_after_the_clocks_were_changed_too(
    month: int, day: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        begin = datetime(2026, month, day, 12)
        begin_ms = round(begin.timestamp() * 1000)
        ticks = time_ticks(Frame(begin_ms, begin_ms + 12 * 86_400_000, 0, 880))
        days = [datetime(2026, month, day) + timedelta(days=n + 1) for n in range(12)]
        assert [one.at for one in ticks] == [round(one.timestamp() * 1000) for one in days]
        assert [one.label for one in ticks] == [f"{one:%d %b}" for one in days]
    finally:
        monkeypatch.undo()
        time.tzset()
