"""`backfill wait`: return once a job has reached a state; for scripts and CI."""

import time
from contextlib import suppress
from typing import Annotated, Literal

import typer

from backfill_cli.catalog import JobRow, wall_clock_ms
from backfill_cli.catalog.lease import this_host
from backfill_cli.errors import Fatal, StoppedEarly, WaitTimedOut, command
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.units import spell_epoch
from backfill_cli.view.answers import Reached
from backfill_cli.view.console import answer_json, say
from backfill_cli.view.model import committed_epoch, limited_by, reason_of, shown_state

from ._options import (
    CatalogOption,
    JobArgument,
    JsonOption,
    TimeoutOption,
    listed_job,
    open_catalog,
    seconds,
    tell_if_above,
)

POLL_S = 0.5
GONE_AFTER_S = 10.0  # a job without a runner this long is not about to be taken over

SIGN_MS = 10_000  # a runner renews its lease that often

Goal = Literal["caught-up", "paused", "stopped", "done"]
GoalOption = Annotated[Goal, typer.Option("--for", help="What to wait for.")]


def wait(
    goal: GoalOption,
    job: JobArgument = None,
    timeout: TimeoutOption = "30m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Wait until a job is caught up, paused, stopped or done.

    Caught up: all that the upstream had when this command began is in the sink, and a live runner
    follows it; or the job is done. A job that is paused, or waits for something, is not caught up.
    Exit code 1: the job failed; 8: timed out; 9: the job stopped first.
    """
    limit_s = seconds(timeout, "--timeout")
    store = open_catalog(catalog)
    tell_if_above(store)
    known = listed_job(store, job)
    name = known.name
    began = live = time.monotonic()
    since_ms = _now_of(known)
    if goal == "caught-up":
        with suppress(OSError):  # else a runner reports every 10 s
            store.ask()
    while not reached(row := store.listed_job(name), goal, since_ms):
        now = time.monotonic()
        live = now if row.live else live
        if row.state is JobState.FAILED and not row.live:
            why = reason_of(row)
            go_on = why.hint or command(f"resume {name}")
            raise Fatal(f"job {name!r} failed before it was {goal}: {why.said}", go_on)
        if (row.ended and not row.live) or now - live > GONE_AFTER_S:
            limit = limited_by(row)
            state = f"is {row.state} ({row.reason})" if row.ended else f"has {limit.said}"
            raise StoppedEarly(f"job {name!r} {state} before it was {goal}", limit.hint)
        if now - began > limit_s:
            state = "being created" if row.live and not row.created else f"{shown_state(row)}, phase {row.phase}"
            raise WaitTimedOut(
                f"job {name!r}: not {goal} after {limit_s:g} s; it is {state}", command(f"status {name}")
            )
        time.sleep(POLL_S)
    since = row.control.paused_since_ms if goal == "paused" else None
    epoch = since or committed_epoch(row)
    if as_json:
        answer_json(Reached(name, goal, row.state, epoch))
    else:
        say(f"job {name}: {goal}, at epoch {spell_epoch(epoch)}")


def _now_of(row: JobRow) -> int:
    """The latest time that the runner's own clock can show; on another machine, from its last lease renewal."""
    if row.lease.host in (None, this_host()):
        return wall_clock_ms()
    return (row.lease.renewed_ms or 0) + SIGN_MS


def reached(row: JobRow, goal: Goal, since_ms: int) -> bool:
    """Whether the job has reached the goal; caught up: with all that the upstream had at `since_ms`.

    A job that is done counts as caught up and as stopped. Stopped and done are reached once the runner has gone,
    so that whoever waits can start the job again. A job that was stopped while paused counts as paused.
    """
    done = row.state is JobState.DONE and not row.live
    if goal == "caught-up":
        return done or _follows(row, since_ms)
    if goal == "stopped":
        return done or (row.state is JobState.STOPPED and not row.live)
    if goal == "done":
        return done
    stays = not row.live and row.control.paused and row.state is not JobState.FAILED  # a stop does not end a pause
    return stays or row.state is JobState.PAUSED


def _follows(row: JobRow, since_ms: int) -> bool:
    """Whether the live runner follows the upstream and has reported that all up to `since_ms` is in the sink."""
    told = row.reported
    if told is None or not row.live or row.state is not JobState.RUNNING or not row.lease.is_there:
        return False
    settled = told.settled_ms is not None and told.settled_ms >= since_ms
    caught_up = told.caught_up_ms is not None and told.phase == Phase.UPSTREAM
    return caught_up and settled and told.waiting_for is None
