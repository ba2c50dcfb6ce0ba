"""The health check: who is not well, and why, in one line."""

import pytest
from view_builders import progress, row

from backfill_cli.catalog import Lease
from backfill_cli.model.job import Control, JobState
from backfill_cli.view.health import SILENT_S, health
from backfill_cli.view.model import job_view

NOW_MS = 10_000_000
FRESH = {"at_ms": NOW_MS - 1_000, "oldest_ms": NOW_MS - 30_000}


def judged(
    max_lag_s: float | None = None, told: dict[str, int] | None = None, **changes: object
) -> tuple[bool, str]:
    seen = row(progress=progress(**(told or FRESH)), **changes)
    found = health(job_view(seen, now_ms=NOW_MS), max_lag_s, NOW_MS)
    assert "\n" not in found.reason
    return found.healthy, found.reason


@pytest.mark.parametrize(
    ("changes", "healthy", "why"),
    [
        ({}, True, "running, snapshot, lag 30s"),
        ({"state": JobState.DONE, "live": False}, True, "done"),
        ({"control": Control("cli", 5), "state": JobState.PAUSED}, True, "paused, snapshot, lag 30s"),
        ({"state": JobState.FAILED, "reason": "part-7: changed", "live": False}, False, "failed: part-7: changed"),
        ({"state": JobState.STOPPED, "reason": "asked", "live": False}, False, "stopped: asked"),
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
    assert healthy or "lag 30s, more than 30s; limited by rate 20000 rows/s" in why


def test_a_runner_that_says_nothing_any_more_is_not() -> None:
    silent = {"at_ms": NOW_MS - int(SILENT_S * 1000) - 1, "oldest_ms": NOW_MS}
    assert judged(told=silent)[0] is False
    assert judged(told=silent | {"at_ms": NOW_MS - int(SILENT_S * 1000)})[0] is True
