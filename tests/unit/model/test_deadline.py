"""A deadline of a snapshot, simulated: what is read, how fast, and when it is said that it cannot be met."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.deadline import AIM, Deadline, Outlook, finish_ms
from backfill_cli.model.job import Control, Hold
from backfill_cli.model.reports import PlannedDeadline

STEP_S = 5
WINDOW = 8


def run(
    rows: float, capacities: Iterator[float], end_s: int, control: Control, floor: float = 1e-6
) -> Iterator[tuple[int, float, float, Outlook]]:
    """(second, rows left, rows/s that were read, outlook) at each barrier, until all is read, or a while after."""
    deadline, outlook, left, lately = Deadline(end_s * 1000, 0, floor), None, rows, list[float]()
    for at_s, capacity in zip(range(0, end_s * 3, STEP_S), capacities, strict=False):
        measured = sum(lately[-WINDOW:]) / len(lately[-WINDOW:]) if lately else None
        outlook = deadline.judged(outlook, left, measured, control, at_s * 1000)
        allowed = [capacity, *(rate for rate in (outlook.rate, control.pace) if rate is not None)]
        rate = min(allowed)
        yield at_s, left, rate, outlook
        lately.append(rate)
        left = max(0.0, left - rate * STEP_S)
        if left == 0:
            return


def steady(capacity: float) -> Iterator[float]:
    while True:
        yield capacity


SIZES, TIMES = st.integers(10_000, 10_000_000), st.integers(600, 36_000)


@given(SIZES, TIMES, st.floats(1.3, 50))
def test_what_can_be_met_is_met_without_haste_and_never_said_to_be_late(
    rows: int, end_s: int, spare: float
) -> None:
    barriers = list(run(rows, steady(rows / end_s * spare), end_s, Control()))
    assert barriers[-1][0] + STEP_S <= end_s
    assert not any(outlook.late for *_, outlook in barriers)
    assert barriers[-1][0] + STEP_S >= end_s * AIM * 0.99, "read over the whole time"
    assert max(rate for _, _, rate, _ in barriers[:-3]) <= rows / end_s / AIM * 1.1


@given(SIZES, TIMES, st.floats(0.05, 0.8))
def test_what_cannot_be_met_is_said_soon_and_read_as_fast_as_it_goes(rows: int, end_s: int, share: float) -> None:
    capacity = rows / end_s * share
    barriers = list(run(rows, steady(capacity), end_s, Control()))
    _, left, _, outlook = barriers[2]
    assert outlook.late
    assert outlook.late_s == pytest.approx(left / capacity - (end_s - 2 * STEP_S))
    assert all(outlook.late and outlook.rate is None for *_, outlook in barriers[2:])
    assert all(rate == capacity for _, _, rate, _ in barriers)


@given(SIZES, TIMES, st.floats(0.1, 0.5), st.floats(4, 20))
def test_what_was_held_up_for_a_while_catches_up(rows: int, end_s: int, slow: float, spare: float) -> None:
    usual = rows / end_s

    def capacities() -> Iterator[float]:
        for at_s in range(0, end_s * 3, STEP_S):
            yield usual * (slow if end_s * 0.2 < at_s < end_s * 0.5 else spare)

    barriers = list(run(rows, capacities(), end_s, Control()))
    assert barriers[-1][0] + STEP_S <= end_s
    assert not barriers[-1][3].late


@given(SIZES, TIMES, st.floats(0.1, 0.9))
def test_a_persons_rate_and_a_guards_prevail(rows: int, end_s: int, share: float) -> None:
    usual = rows / end_s
    held = Hold("load", "guard 'load'", 0, usual * share)
    for control in (Control(rate=usual * share), Control(holds=(held,))):
        barriers = list(run(rows, steady(usual * 10), end_s, control))
        assert max(rate for _, _, rate, _ in barriers) <= usual * share
        assert barriers[0][3].late, "known at once"


def test_a_rate_of_nothing_is_late_for_an_unknown_time() -> None:
    outlook = Deadline(60_000, 0).judged(None, 10.0, None, Control(rate=0), 0)
    assert (outlook.late, outlook.late_s) == (True, None)


def test_the_floor_is_not_gone_below() -> None:
    assert Deadline(3_600_000, 0, 500).judged(None, 10.0, None, Control(), 0).rate == 500


def test_before_anything_tells_how_much_is_left_nothing_is_said() -> None:
    assert Deadline(60_000, 0).judged(None, None, 5.0, Control(), 0) == Outlook(60_000)


def test_a_moment_that_has_passed_is_missed_and_nothing_slows_the_reading() -> None:
    outlook = Deadline(60_000, 0).judged(None, 100.0, 10.0, Control(), 90_000)
    assert (outlook.rate, outlook.late, outlook.late_s) == (None, True, 40.0)


def test_late_is_not_said_and_taken_back_at_each_barrier() -> None:
    late = Outlook(100_000, late=True)
    assert Deadline(100_000, 0).judged(late, 970.0, 10.0, Control(), 0).late
    assert not Deadline(100_000, 0).judged(None, 970.0, 10.0, Control(), 0).late
    assert not Deadline(100_000, 0).judged(late, 940.0, 10.0, Control(), 0).late


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    assert os.environ.get("TZ") == before
    time.tzset()


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "since", "utc"),
    [
        ("06:00", "2026-11-27 04:59", "2026-11-27 05:00"),
        ("06:00", "2026-11-27 05:00", "2026-11-28 05:00"),
        ("06:00", "2026-10-24 12:00", "2026-10-25 05:00"),  # clocks were set back that night
        ("2026-12-01 06:00", "2026-11-27 05:00", "2026-12-01 05:00"),
        ("2026-12-01T06:00:30+00:00", "2026-11-27 05:00", "2026-12-01 06:00:30"),
    ],
)
def test_a_time_of_day_is_the_first_one_of_this_machine(berlin: None, text: str, since: str, utc: str) -> None:
    assert finish_ms(text, at(since)) == at(utc)


@pytest.mark.parametrize("text", ["6:00", "24:00", "06:00:00", "tomorrow", "2026-13-01 06:00", "2026-12-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        finish_ms(text, 0)


@pytest.mark.parametrize(
    ("at_ms", "estimate_s", "planned"),
    [
        (60_000, (10.0, 60.0), (60.0, True)),
        (60_000, (10.0, 61.0), (60.0, False)),
        (60_000, None, (60.0, None)),
        (0, (0.0, 0.0), (0.0, False)),
    ],
)
def test_a_plan_says_what_its_estimate_means(
    at_ms: int, estimate_s: tuple[float, float] | None, planned: tuple[float, bool | None]
) -> None:
    found = PlannedDeadline.of(at_ms, estimate_s, 0)
    assert (found.left_s, found.met) == planned
