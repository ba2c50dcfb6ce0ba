"""How a command gets into the inbox: post it, wait for its barrier if asked to, report the outcome."""

import time

import typer

from backfill_cli.catalog import Catalog, JobRow, wall_clock_ms
from backfill_cli.catalog.lease import actor
from backfill_cli.errors import Hint, WaitTimedOut, command
from backfill_cli.model.job import JobState, Phase, Verb
from backfill_cli.model.units import spell_epoch
from backfill_cli.view.answers import Posted
from backfill_cli.view.console import answer_json, as_typed, say
from backfill_cli.view.lines import spell_held

from ._options import is_limited, named_job, open_catalog, seconds

POLL_S = 0.1

DONE = {
    Verb.PAUSE: "paused",
    Verb.PAUSE_ALL: "paused, its change log too",
    Verb.RESUME: "resumed",
    Verb.THROTTLE: "throttled",
    Verb.STOP: "stopped",
}


RATE_0 = {
    "snapshot": "no row of the snapshot is read any more, and changes wait until it is read",
    "source": "no row of the history is read any more; partitions that are live are still followed",
    "arrangement": "no row of the snapshot is read any more; changes of the rows read so far are still followed",
    "chain": "no row of the snapshot is read any more, and changes wait in the spool until it is read",
}
"""What a rate of 0 does, by strategy."""


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
) -> None:
    """The command is in the job's inbox; without a live runner it has been applied at once.

    ctx: that of the verb. Raises NoSuchJob; with `wait` WaitTimedOut.
    """
    limit_s = seconds(timeout, "--timeout")
    store = open_catalog(catalog, above=job is not None)
    before = named_job(store, job)
    name = before.name
    posted = store.post(name, verb, rate, actor(), wall_clock_ms(), before.lease)
    if wait:
        epoch: int | None = _waited(store, name, posted, verb, limit_s)
    else:  # a live runner takes it at its next barrier
        epoch = None if before.live else store.taken(name, posted)
    note = as_typed(Hint.of(_note(before, verb, rate)), ctx)
    if as_json:
        answer_json(Posted(name, verb, rate, posted, epoch, note))
        return
    if epoch is None:
        say(f"job {name}: {verb.value} requested; it takes effect at the next barrier")
    else:
        say(f"job {name}: {DONE[verb]}{_rate(verb, rate)}, at epoch {spell_epoch(epoch)}")
    if note:
        say(str(note))
    held = None if verb in (Verb.RESUME, Verb.THROTTLE) else _held_back(store.job(name) if wait else before, verb)
    if held is not None:
        go_on, check = as_typed(command(f"resume {name}"), ctx), as_typed(command(f"status {name} --check"), ctx)
        say(f"{held}, and keeps more until the job continues: {go_on}")
        if (verb is Verb.STOP or not before.live) and is_limited(store, name):
            say(f"only a live runner enforces upstream.max_retained; to check: {check}")


def _note(before: JobRow, verb: Verb, rate: float | None) -> Hint | str:
    """Why a command has no effect, or what a rate of 0 does; else empty. before: the job as it was."""
    asked = before.asked
    if before.state == JobState.DONE and not before.live and verb is not Verb.THROTTLE:
        follow = command(f"resume {before.name} --until forever")
        then = "" if verb is Verb.STOP else ": it takes effect in the next run"
        done = f"the job is done ({before.reason}), and nothing of it runs{then}; to follow its upstream: "
        return done + follow
    if (verb is Verb.PAUSE and asked.paused) or (verb is Verb.PAUSE_ALL and asked.pause_all):
        if not before.control.paused:
            return f"{asked.paused_by} already requested that; it takes effect at the next barrier"
        return f"it was already paused, by {asked.paused_by} since epoch {spell_epoch(asked.paused_since_ms or 0)}"
    if verb is Verb.STOP and before.state == JobState.STOPPED and not before.live:
        return "it was already stopped"
    phase = before.phase if before.progress is None else before.progress.phase
    if verb is Verb.THROTTLE and phase != Phase.SNAPSHOT:
        return "it has no effect now: the snapshot has been read, and changes are not limited"
    if verb is Verb.THROTTLE and rate == 0:
        return f"{RATE_0[before.strategy]}; to read on: " + command(f"throttle {before.name} --rate none")
    return ""


def _held_back(row: JobRow, verb: Verb) -> str | None:
    """What the upstream keeps for the job, as last observed; None if it keeps nothing.

    With strategy chain the log is still taken while the job is paused.
    """
    keeps = row.progress is not None and row.progress.held_bytes is not None
    if not keeps or (row.strategy == "chain" and verb is Verb.PAUSE):
        return None
    assert row.progress is not None
    return spell_held(row.progress.held_bytes or 0)


def _rate(verb: Verb, rate: float | None) -> str:
    if verb is not Verb.THROTTLE:
        return ""
    return ": no limit" if rate is None else f" to {rate:g} rows/s"


def _goes_on(row: JobRow, verb: Verb) -> bool:
    """Whether a command was taken but its state is not reached yet."""
    return row.live and (
        verb is Verb.STOP or (verb in (Verb.PAUSE, Verb.PAUSE_ALL) and row.state == JobState.PAUSING)
    )


def _waited(catalog: Catalog, job: str, posted: int, verb: Verb, limit_s: float) -> int:
    """The epoch of the barrier that took the command. A stop is complete once the runner has gone, a pause once it
    is reached: the sink then has everything that was being committed.

    If the runner dies before it takes the command, the command is applied here, as without a runner.
    """
    deadline = time.monotonic() + limit_s
    while (epoch := catalog.taken(job, posted)) is None or _goes_on(catalog.job(job), verb):
        if epoch is None and not catalog.job(job).live:
            catalog.settle(job, wall_clock_ms(), deadline - time.monotonic())
        if time.monotonic() > deadline:
            raise WaitTimedOut(
                f"job {job!r}: the {verb.value} did not complete within {limit_s:g} s; the request stays in place",
                command(f"status {job}"),
            )
        time.sleep(POLL_S)
    return epoch
