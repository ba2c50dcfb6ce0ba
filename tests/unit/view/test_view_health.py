"""The health check: who is not well, and why, in one line."""

from dataclasses import replace

import pytest
from view_builders import progress, row

from backfill_cli.catalog import Lease
from backfill_cli.errors import HistoryGone, StateConflict, Transient, UsageError
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.job import Control, JobState
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import START
from backfill_cli.model.upstream import HeldLog, SpoolView
from backfill_cli.view.model import job_view
from backfill_cli.view.status import SILENT_S, Told, health, unattended

NOW_MS = 10_000_000
FRESH = {"looked_ms": NOW_MS - 1_000, "oldest_ms": NOW_MS - 30_000}


PAUSED = {"control": Control("cli", 5), "state": JobState.PAUSED}
STARTED = Lease(3, "cli", "box", 4711, NOW_MS - 599_000, NOW_MS)
STARTED_LONG_AGO = Lease(3, "cli", "box", 4711, NOW_MS - 601_000, NOW_MS)


def judged(
    max_lag_s: float | None = None, told: dict[str, object] | None = None, **changes: object
) -> tuple[bool, str]:
    seen = row(progress=progress(**(told or FRESH)), **changes)
    found = health(job_view(seen, now_ms=NOW_MS), max_lag_s, NOW_MS)
    assert "\n" not in found.reason
    return found.healthy, found.reason


@pytest.mark.parametrize(
    ("changes", "healthy", "why"),
    [
        ({}, True, "running, snapshot (copying), lag 30 s"),
        ({"state": JobState.DONE, "live": False}, True, "done"),
        (PAUSED, True, "paused, snapshot (copying), lag 30 s"),
        (
            {"control": Control("cli", 5), "state": JobState.PAUSED, "live": False, "lease": Lease(3)},
            True,
            "paused",
        ),
        ({"control": Control("cli", 5), "state": JobState.PAUSED, "live": False}, False, "dead: no runner"),
        (
            {"state": JobState.FAILED, "why": Limit("part-7:\nchanged"), "live": False},
            False,
            "failed: part-7: changed",
        ),
        ({"state": JobState.STARTING, "lease": STARTED}, True, "starting for 9 m 59 s"),
        ({"state": JobState.STARTING, "lease": STARTED_LONG_AGO}, False, "starting for 10 m 01 s"),
        ({"state": JobState.STOPPED, "why": Limit("asked"), "live": False}, False, "stopped: asked"),
        ({"live": False}, False, "dead: no runner: the last one, pid 4711 on box, is gone"),
        ({"live": False, "lease": Lease(3)}, False, "running: no runner"),
    ],
)
def test_who_is_healthy(changes: dict[str, object], healthy: bool, why: str) -> None:
    found = judged(**changes)
    assert found[0] == healthy
    assert found[1].startswith(why)


@pytest.mark.parametrize(("limit_s", "healthy"), [(29.9, False), (30.0, True), (None, True)])
def test_a_job_further_behind_than_the_limit_is_not(limit_s: float | None, healthy: bool) -> None:
    found, why = judged(limit_s)
    assert found == healthy
    assert healthy or why.endswith("lag 30 s, more than 30 s; limited by rate 20000 rows/s")


def test_a_paused_job_that_is_behind_is_not_said_to_be_limited_by_its_pause() -> None:
    found, why = judged(29.9, **PAUSED)
    assert not found
    assert "; paused by cli" in why
    assert "limited by" not in why


def test_a_lag_that_nobody_knows_yet_is_within_no_limit() -> None:
    assert judged(told={"lag_ms": None})[0]
    assert judged(60.0, told={"lag_ms": None})[0] is False


@pytest.mark.parametrize("wrong", [{"full": True}, {"waits": "the disk"}])
def test_a_job_whose_log_is_not_being_taken_is_not(wrong: dict[str, object]) -> None:
    spool = SpoolView("0/2", "0/1", 3, 40, 5_000)
    assert judged(told=FRESH | {"spool": spool})[0]
    assert judged(told=FRESH | {"spool": replace(spool, **wrong)})[0] is False


@pytest.mark.parametrize("interval_s", [0, 300])
def test_a_job_that_looks_at_its_upstream_no_more_is_not_though_its_heart_beats(interval_s: int) -> None:
    most_ms = int((SILENT_S + interval_s) * 1000)
    told = {"interval_ms": interval_s * 1000}
    found, why = judged(told=told | {"looked_ms": NOW_MS - most_ms - 1})
    assert not found
    assert "upstream not observed for" in why
    assert judged(told=told | {"looked_ms": NOW_MS - most_ms})[0]


def test_a_job_that_is_done_is_healthy_within_the_limit_of_its_last_look() -> None:
    done = {"state": JobState.DONE, "live": False, "told": {"looked_ms": NOW_MS - 90_000}}
    assert judged(**done) == (True, "done")
    assert judged(90.0, **done) == (True, "done")
    assert judged(89.0, **done) == (False, "done, but its upstream was last observed 1 m 30 s ago")


UNREAD = Unread(START, False, NOW_MS)
OF_AN_HOUR = Headroom.of_age(UNREAD, None, 3_600_000, "retention.ms (1 h)", "topic 't'", "raise retention.ms")


@pytest.mark.parametrize(
    ("told", "least_s", "why"),
    [
        (None, 60.0, ""),
        (OF_AN_HOUR, 3600.0, "; headroom 1 h, by retention.ms (1 h): topic 't'"),
        (OF_AN_HOUR, 3601.0, "; headroom 1 h, by retention.ms (1 h): topic 't'; less than 1 h"),
        (OF_AN_HOUR, None, ""),
        (Headroom.unbounded("it has no retention"), 3600.0, ""),
        (Headroom.unknown("it is not told", hint="ask for it"), 60.0, "; headroom N/A: it is not told"),
    ],
)
def test_a_job_whose_upstream_keeps_what_is_not_read_for_less_than_the_limit_is_not(
    told: Headroom | None, least_s: float | None, why: str
) -> None:
    view = job_view(row(progress=progress(**FRESH, headroom=told)), now_ms=NOW_MS)
    found = health(view, None, NOW_MS, min_headroom_s=least_s)
    assert found.reason == f"running, snapshot (copying), lag 30 s{why}"
    assert found.healthy is ("less than" not in why and "N/A" not in why)
    assert found.healthy or found.hint == told.hint  # type: ignore[union-attr]


def test_what_is_left_shrinks_while_no_runner_has_the_job() -> None:
    later = job_view(row(progress=progress(**FRESH, headroom=OF_AN_HOUR), live=False), now_ms=NOW_MS + 1_800_000)
    assert later.headroom is not None
    assert later.headroom.left_s == 1800
    assert later.headroom.small  # the lag has grown to as much
    gone = job_view(row(progress=progress(**FRESH, headroom=OF_AN_HOUR), live=False), now_ms=NOW_MS + 9_000_000)
    assert gone.headroom is not None
    assert gone.headroom.left_s == 0


DONE = row(progress=progress(**FRESH, held_bytes=5 << 20), state=JobState.DONE, live=False)


@pytest.mark.parametrize(
    ("told", "healthy", "why"),
    [
        (None, True, "done"),
        (HeldLog(40 << 20), True, "done"),
        (HeldLog(40 << 20, 40 << 20), True, "done"),
        (
            HeldLog(41 << 20, 40 << 20),
            False,
            "keeps 41 MB of its log for this job, more than upstream.max_retained",
        ),
        (HistoryGone("the slot is gone"), False, "done; it cannot continue: the slot is gone"),
        (StateConflict("another database"), False, "done; it cannot continue: another database"),
        (Transient("no route"), True, "done; its upstream could not be asked how much log it keeps: no route"),
        (
            UsageError("no password", "set it"),
            False,
            "done; its upstream could not be asked how much log it keeps: no password; set it",
        ),
    ],
)
def test_a_job_without_a_runner_is_as_well_as_its_upstream_says(
    told: Told | None, healthy: bool, why: str
) -> None:
    found = health(job_view(DONE, now_ms=NOW_MS), None, NOW_MS, told=told)
    assert found.healthy is healthy
    assert why in str(found)


def test_a_job_with_a_limit_whose_upstream_does_not_answer_is_not() -> None:
    silent = Transient("no answer within 5 s", "check the network")
    found = health(job_view(DONE, now_ms=NOW_MS), None, NOW_MS, told=silent, limited=True)
    assert not found.healthy
    assert found.reason.endswith("how much log it keeps: no answer within 5 s")
    assert str(found.hint) == "check the network"


def test_what_to_do_is_apart_from_why() -> None:
    gone = row(progress=progress(**FRESH), live=False)
    found = health(job_view(gone, now_ms=NOW_MS), None, NOW_MS)
    assert "backfill" not in found.reason
    assert [str(one) for one in found.hint.commands] == ["backfill resume orders"]
    assert str(found).endswith("; to continue: backfill resume orders")


def test_upstreams_are_asked_of_jobs_alone_whose_log_they_keep_while_nobody_runs_them() -> None:
    views = [job_view(replace(DONE, name=name), now_ms=NOW_MS) for name in ("held", "live", "none")]
    views[1] = replace(views[1], runner=replace(views[1].runner, alive=True))
    views[2] = replace(views[2], held_bytes=None)
    assert unattended(views) == ["held"]
