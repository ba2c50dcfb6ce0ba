"""How long a server keeps the log for a slot, by what it says of the slot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.headroom import Headroom, Kept, Unread
from backfill_cli.model.position import START
from backfill_cli.upstreams.postgres.headroom import LATELY_S, LogGrowth, SlotLimits, headroom

NOW_MS = 1_800_000_000_000
MB = 1 << 20


def told(seen: SlotLimits, per_s: float | None = MB, max_retained: int | None = None) -> Headroom:
    return headroom(seen, per_s, "s", max_retained, Unread(START, False, NOW_MS))


def slot(**changes: object) -> SlotLimits:
    given = {"log_end": 0, "at_s": 0.0, "keep_bytes": 100 * MB, "held_bytes": 40 * MB, "safe_bytes": 60 * MB}
    return SlotLimits(**{**given, **changes})  # type: ignore[arg-type]


def test_the_room_that_is_left_at_the_rate_at_which_the_log_grows() -> None:
    found = told(slot())
    assert (found.left_s(NOW_MS), found.by) == (60.0, "max_slot_wal_keep_size (100 MB)")
    assert str(found.hint) == ("ALTER SYSTEM SET max_slot_wal_keep_size = '200MB'; SELECT pg_reload_conf()")


@pytest.mark.parametrize("seen", [slot(safe_bytes=-5), slot(safe_bytes=None, lost=True), slot(keep_bytes=0)])
def test_a_slot_without_room_has_no_time_left(seen: SlotLimits) -> None:
    assert told(seen if seen.keep_bytes else slot(keep_bytes=0, safe_bytes=0), None).left_s(NOW_MS) == 0


def test_nothing_bounds_the_log_of_a_server_without_a_limit() -> None:
    found = told(slot(keep_bytes=-1, safe_bytes=None))
    assert (found.kept, found.left_s(NOW_MS)) == (Kept.UNBOUNDED, None)
    assert "until its disk is full" in found.by


def test_a_slot_that_a_server_without_a_limit_has_invalidated_is_lost_and_no_limit_is_named() -> None:
    found = told(slot(keep_bytes=-1, safe_bytes=None, lost=True))
    assert found.left_s(NOW_MS) == 0
    assert "max_slot_wal_keep_size" not in f"{found.by} {found.hint}"


def test_the_options_own_limit_acts_too_and_the_first_one_counts() -> None:
    assert told(slot(), max_retained=50 * MB).left_s(NOW_MS) == 10.0
    assert told(slot(), max_retained=50 * MB).by == "upstream.max_retained (50 MB)"
    assert told(slot(), max_retained=500 * MB).left_s(NOW_MS) == 60.0
    assert told(slot(), max_retained=30 * MB).left_s(NOW_MS) == 0


def test_a_slot_that_nobody_reads_is_kept_for_the_servers_time() -> None:
    found = told(slot(keep_bytes=-1, idle_s=600.0, unread_s=100.0))
    assert (found.left_s(NOW_MS), found.by) == (500.0, "idle_replication_slot_timeout (10 m)")
    assert str(found.hint) == "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()"


def test_before_there_is_a_slot_all_of_the_servers_limit_is_left() -> None:
    assert told(SlotLimits(0, 0.0, 100 * MB)).left_s(NOW_MS) == 100.0


@given(st.lists(st.tuples(st.floats(0.1, 400), st.integers(0, 10**9)), min_size=2), st.floats(0, 1e6))
def test_the_rate_is_never_less_than_lately_or_on_average(steps: list[tuple[float, int]], average: float) -> None:
    growth, at_s, end, seen = LogGrowth(), 0.0, 0, [(0.0, 0)]
    assert growth.per_s(0.0, 0, None) is None
    for more_s, more in steps:
        at_s, end = at_s + more_s, end + more
        seen.append((at_s, end))
        found = growth.per_s(at_s, end, average)
        begun_s, begin = next(one for one in seen if at_s - one[0] <= LATELY_S)
        assert found is not None
        assert found >= average
        if at_s - begun_s >= 60:
            assert found >= (end - begin) / (at_s - begun_s) - 1e-6
