"""How long something that is not read is kept: never longer than its limit allows, less where more is written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import sql
from backfill_cli.model.codec import encode
from backfill_cli.model.headroom import Headroom, Kept, Unread
from backfill_cli.model.position import START

NOW_MS = 1_800_000_000_000
UNREAD = Unread(START, False, NOW_MS)

ages = st.integers(-10_000, 10**12)
limits_ms = st.integers(0, 10**12)
rooms = st.floats(-1e15, 1e15)
rates = st.floats(0, 1e12)


@given(ages, limits_ms)
def test_it_is_never_more_than_the_limit_less_the_age_and_never_negative(age_ms: int, keep_ms: int) -> None:
    left_s = Headroom.of_age(UNREAD, NOW_MS - age_ms, keep_ms, "a limit").left_s(NOW_MS)
    assert left_s == max(0, keep_ms - max(0, age_ms)) / 1000


@given(rooms, rates, rates)
def test_what_grows_faster_is_kept_no_longer(room: float, slow: float, fast: float) -> None:
    slow, fast = sorted((slow, fast))

    def left_s(per_s: float) -> float:
        told = Headroom.of_room(UNREAD, room, per_s, "a limit")
        return float("inf") if told.kept is Kept.UNBOUNDED else told.left_s(NOW_MS) or 0.0

    assert 0 <= left_s(fast) <= left_s(slow)
    assert left_s(slow) <= max(0.0, room / slow) + 1 if slow else True


@given(st.lists(st.tuples(limits_ms, ages), min_size=1), st.integers(0, 10**9))
def test_of_several_limits_the_first_that_acts_counts_and_time_only_takes_from_it(
    limits: list[tuple[int, int]], later_ms: int
) -> None:
    found = [Headroom.of_age(UNREAD, NOW_MS - age_ms, keep_ms, str(keep_ms)) for keep_ms, age_ms in limits]
    least = Headroom.least(found)
    assert least is not None
    assert all((least.left_s(NOW_MS) or 0) <= (one.left_s(NOW_MS) or 0) for one in found)
    later_s = max(0, (least.left_s(NOW_MS) or 0) - later_ms / 1000)
    assert (least.left_s(NOW_MS + later_ms) or 0) == pytest.approx(later_s, abs=1e-6)


def test_a_limit_that_is_not_known_stands_beside_the_one_that_is() -> None:
    known, unknown = Headroom.of_age(UNREAD, None, 60_000, "by age"), Headroom.unknown("its size is not told")
    found = Headroom.least([known, unknown, Headroom.unbounded("no other")])
    assert found is not None
    assert (found.kept, found.left_s(NOW_MS), found.beside) == (Kept.UNTIL, 60.0, "its size is not told")
    assert Headroom.least([unknown, Headroom.unbounded("no other")]) == unknown
    assert Headroom.least([]) is None


def test_a_rate_that_is_not_known_is_no_number() -> None:
    assert Headroom.of_room(UNREAD, 1, None, "a size").kept is Kept.UNKNOWN
    assert Headroom.of_room(UNREAD, 0, None, "a size").left_s(NOW_MS) == 0
    assert Headroom.of_room(UNREAD, 1, 0.0, "a size").kept is Kept.UNBOUNDED


@pytest.mark.parametrize(
    "told",
    [
        Headroom.of_age(UNREAD, None, 5, "an age", "a topic", sql("SELECT 1")),
        Headroom.unknown("why", "of", "do it"),
        Headroom.unbounded("why"),
    ],
)
def test_it_is_read_as_it_was_stored(told: Headroom) -> None:
    assert Headroom.read(json.loads(encode(told))) == told
