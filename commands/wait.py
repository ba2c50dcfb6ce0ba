"""`backfill wait`: return once a job is where it should be; for scripts and CI."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from backfill_cli.errors import StoppedEarly, WaitTimedOut
from backfill_cli.model.job import JobState
from backfill_cli.view.console import answer_json, say

from .options import CatalogOption, JobArgument, JsonOption, TimeoutOption, named_job, open_catalog, seconds

if TYPE_CHECKING:
    from backfill_cli.catalog import JobRow

POLL_S = 0.5
GONE_AFTER_S = 10.0  # a job without a runner this long is not about to be taken over

Goal = Literal["caught-up", "paused", "stopped", "done"]
GoalOption = Annotated[Goal, typer.Option("--for", help="What to wait for.")]


def wait(
    goal: GoalOption,
    job: JobArgument = None,
    timeout: TimeoutOption = "30m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Wait until a job is caught up, paused, stopped or done. Exit 8: timed out, 9: the job stopped first."""
    limit_s = seconds(timeout, "--timeout")
    store = open_catalog(catalog)
    name = named_job(store, job).name
    began = live = time.monotonic()
    while not reached(row := store.job(name), goal):
        now = time.monotonic()
        live = now if row.live else live
        if (row.ended and not row.live) or now - live > GONE_AFTER_S:
            state = f"is {row.state}" if row.ended else "has no runner"
            raise StoppedEarly(f"job {name!r} {state} ({row.reason}), before {goal}", f"backfill resume {name}")
        if now - began > limit_s:
            raise WaitTimedOut(
                f"job {name!r}: not {goal} after {limit_s:g} s; it is {row.shown_state}, phase {row.phase}",
                f"backfill status {name}",
            )
        time.sleep(POLL_S)
    if as_json:
        answer_json({"schema": 1, "job": name, "for": goal, "state": row.state.value, "epoch": row.epoch})
    else:
        say(f"job {name}: {goal}, at epoch {row.epoch}")


def reached(row: "JobRow", goal: Goal) -> bool:
    """Whether the job is there. A job that is done has been caught up and has stopped.

    Stopped and done are reached once the runner has gone: whoever waits may start the job again.
    """
    if goal == "caught-up":
        return row.caught_up_ms is not None or row.state is JobState.DONE
    if goal == "stopped":
        return row.state in (JobState.STOPPED, JobState.DONE) and not row.live
    if goal == "done":
        return row.state is JobState.DONE and not row.live
    return row.state == goal
