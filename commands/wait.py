"""`backfill wait`: return once a job has reached a state; for scripts and CI."""

from typing import Annotated

import typer

from backfill_cli.api import waiting
from backfill_cli.api.waiting import Goal
from backfill_cli.view.console import answer_json, say
from backfill_cli.view.lines import spell_at

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

EXAMPLES = (
    "backfill wait orders --for caught-up --timeout 30m",
    "backfill wait orders --for snapshot --timeout 2h",
)

GoalOption = Annotated[
    Goal,
    typer.Option(
        "--for", metavar="STATE", help="What to wait for: caught-up, snapshot, refilled, paused, stopped or done."
    ),
]


def wait(
    goal: GoalOption,
    job: JobArgument = None,
    timeout: TimeoutOption = "30m",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Wait until a job is past its snapshot, caught up, refilled, paused, stopped or done.

    Caught up: all that the upstream had when this command began is in the sink, and the job runs and follows it,
    or is done; the newest commit of files, if not all tables have it yet (changes.epoch), is named instead. A job
    that is paused, or waits for something else, is not caught up. Past its snapshot: the
    sink has all of it, or the job has none. Refilled: the refills that were pending are done.

    Exit code 1: the job failed. 8: timed out. 9: the job stopped first.
    """
    limit_s = seconds(timeout, "--timeout")
    store = open_catalog(catalog)
    tell_if_above(store)
    reached = waiting.wait(store, listed_job(store, job), goal, limit_s)
    if as_json:
        answer_json(reached)
    else:
        newest = "" if reached.incomplete is None else f"; {reached.incomplete.text}"
        say(f"job {reached.job}: {waiting.spell_goal(goal)}, {spell_at(reached.epoch)}{newest}")
