"""How a command is typed: posted to the job's inbox, and its outcome reported."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from backfill_cli.api import posting
from backfill_cli.catalog import Catalog, JobRow
from backfill_cli.errors import command
from backfill_cli.model.job import REDEFINES, Verb
from backfill_cli.view.answers import Posted
from backfill_cli.view.console import answer_json, as_typed, say
from backfill_cli.view.lines import spell_at, spell_held

from ._options import is_limited, named_job, open_catalog, seconds

if TYPE_CHECKING:
    from backfill_cli.api.changing import Asked

DONE = {
    Verb.PAUSE: "paused",
    Verb.PAUSE_ALL: "paused, its change log too",
    Verb.RESUME: "resumed",
    Verb.THROTTLE: "throttled",
    Verb.STOP: "stopped",
    Verb.SET: "set",
    Verb.ADD: "added",
    Verb.REMOVE: "removed",
}


def post(
    ctx: typer.Context,
    catalog: str,
    job: str | None,
    verb: Verb,
    *,
    rate: float | None,
    wait: bool,
    timeout: str,
    as_json: bool,
    table: str | None = None,
) -> None:
    """The command is in the job's inbox; without a live runner it has been applied at once.

    ctx: that of the verb. table: of a throttle of one table. Raises NoSuchJob; with `wait` WaitTimedOut.
    """
    limit_s = seconds(timeout, "--timeout")
    store = open_catalog(catalog, above=job is not None)
    before = named_job(store, job)
    name = before.name
    wait_s = limit_s if wait else None
    if verb is Verb.THROTTLE:
        posted = posting.throttle(store, before, rate, table, wait_s)
    else:
        posted = posting.post(store, before, verb, rate, wait_s)
    if _told(ctx, before, posted, _rate(verb, rate, posted.table), as_json):
        return
    held = None if verb in (Verb.RESUME, Verb.THROTTLE) else _held_back(store.job(name) if wait else before, verb)
    if held is not None:
        go_on, check = as_typed(command(f"resume {name}"), ctx), as_typed(command(f"status {name} --check"), ctx)
        say(f"{held}, and keeps more until the job continues: {go_on}")
        if (verb is Verb.STOP or not before.live) and is_limited(store, name):
            say(f"only a live runner enforces upstream.max_retained; to check: {check}")


def post_change(
    ctx: typer.Context,
    store: Catalog,
    before: JobRow,
    asked: "Asked",
    said: str,
    wait: bool,
    timeout: str,
    as_json: bool,
    beside: str = "",
) -> None:
    """As `post`, for a command that redefines the job. said: what changes. beside: and what does not, if told.

    Raises UsageError where its barrier refuses it, with `wait`.
    """
    limit_s = seconds(timeout, "--timeout")
    _told(ctx, before, asked.post(store, before, limit_s if wait else None), said, as_json, beside)


def _told(ctx: typer.Context, before: JobRow, posted: Posted, said: str, as_json: bool, beside: str = "") -> bool:
    """The outcome is printed. Returns whether it was as JSON."""
    verb, posted = posted.command, replace(posted, note=as_typed(posted.note, ctx))
    if as_json:
        answer_json(posted)
        return True
    if posted.epoch is None:
        when = "it takes effect at the next commit" if before.live else "it takes effect in the next run"
        what = f"{verb.value}{said if verb in REDEFINES else ''}"
        say(f"job {before.name}: {what} requested{beside}; {when}")
    else:
        at = posted.epoch if verb is not Verb.STOP else posted.committed
        say(f"job {before.name}: {DONE[verb]}{said}{beside}{_at(before, at)}")
    if posted.note:
        say(str(posted.note))
    return False


def _held_back(row: JobRow, verb: Verb) -> str | None:
    """What the upstream keeps for the job, as last observed; None if it keeps nothing.

    With strategy chain the log is still read while the job is paused.
    """
    keeps = row.progress is not None and row.progress.held_bytes is not None
    if not keeps or (row.strategy == "chain" and verb is Verb.PAUSE):
        return None
    assert row.progress is not None
    return spell_held(row.progress.held_bytes or 0)


def _at(before: JobRow, epoch: int) -> str:
    """The commit at which a runner took it; without a runner it was taken at once, and nothing was committed.

    Of a stop the last commit that the sink has: the runner takes it at a barrier, which need not have rows.
    """
    return f", {spell_at(epoch)}" if before.live else ""


def _rate(verb: Verb, rate: float | None, table: str) -> str:
    if verb is not Verb.THROTTLE:
        return ""
    of = f" {table}" if table else ""
    return f"{of}: no limit{' of its own' if table else ''}" if rate is None else f"{of} to {rate:g} rows/s"
