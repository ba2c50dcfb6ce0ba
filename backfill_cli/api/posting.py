"""How a command gets into the inbox: post it, wait for its barrier if asked to."""

import time
from shlex import quote

from backfill_cli.catalog import Catalog, JobRow, wall_clock_ms
from backfill_cli.catalog.lease import actor
from backfill_cli.errors import Hint, UsageError, WaitTimedOut, command
from backfill_cli.model.job import OF_RUNS, REDEFINES, Command, Control, JobState, Phase, Verb, of_table
from backfill_cli.model.units import nearest_first, spell_duration, spell_epoch, spell_known
from backfill_cli.view.answers import Posted
from backfill_cli.view.model import committed_epoch

POLL_S = 0.1

RATE_0 = {
    "snapshot": ("snapshot", ", and changes wait until it is read"),
    "source": ("history", "; partitions that are live are still followed"),
    "arrangement": ("snapshot", "; changes of the rows read so far are still followed"),
    "chain": ("snapshot", ", and changes wait in the spool until it is read"),
}
"""By strategy: of what a rate of 0 reads no row, and what happens to changes then."""


def throttle(
    store: Catalog, before: JobRow, rate: float | None, table: str | None, wait_s: float | None
) -> Posted:
    """As `post`, for what limits all tables together, or one table. Raises UsageError for one not there."""
    if table is None:
        return post(store, before, Verb.THROTTLE, rate, wait_s)
    known = store.definition(before.name).commanded
    if table not in known:
        raise UsageError(
            f"job {before.name!r}: table {table!r} does not exist{spell_known(table, known)}",
            command(
                f"throttle {before.name} --table {quote(nearest_first(table, known)[0])} --rate {spell_rate(rate)}"
            ),
        )
    return post(store, before, Verb.THROTTLE, rate, wait_s, of_table(table))


def spell_rate(rate: float | None) -> str:
    """As `throttle` takes it."""
    return "none" if rate is None else f"{rate:g}"


def post(
    store: Catalog, before: JobRow, verb: Verb, rate: float | None, wait_s: float | None, payload: str = ""
) -> Posted:
    """The command is in the job's inbox; without a live runner it has been applied at once.

    before: the job as it is. rate: rows/s of a throttle, None for no limit. wait_s: how long to wait until it has
    taken effect; None: not at all. payload: see Command.
    Raises WaitTimedOut, and UsageError for a change that its barrier refused.
    """
    name = before.name
    posted = store.post(name, verb, rate, actor(), wall_clock_ms(), before.lease, payload=payload)
    if wait_s is not None and (before.live or verb not in OF_RUNS):  # only a run takes these
        epoch: int | None = _waited(store, name, posted, verb, wait_s)
    else:  # a live runner takes it at its next barrier
        epoch = None if before.live else store.taken(name, posted)
    if epoch is not None and verb in REDEFINES and (why := store.refusal(name, posted)) is not None:
        raise UsageError(f"job {name!r} is as it was, the {verb.value} was refused: {why.said}", why.hint)
    committed = committed_epoch(store.job(name))
    table = Command(posted, verb, "", 0, payload=payload).table
    note = Hint.of(_note(before, verb, rate, table))
    return Posted(name, verb, rate, posted, epoch, committed, note, table)


def _note(before: JobRow, verb: Verb, rate: float | None, table: str) -> Hint | str:
    """Why a command has no effect, or what a rate of 0 does; else empty. before: the job as it was."""
    asked = before.asked
    if verb in REDEFINES:
        return ""
    if before.state == JobState.DONE and not before.live and verb is not Verb.THROTTLE:
        follow = command(f"resume {before.name} --until forever")
        then = "" if verb is Verb.STOP else ": it takes effect in the next run"
        done = f"the job is done ({before.reason}), and nothing of it runs{then}; to follow its upstream: "
        return done + follow
    held = "" if table else _ended(asked, verb)
    if held:
        return held
    if (verb is Verb.PAUSE and asked.paused_by is not None) or (verb is Verb.PAUSE_ALL and asked.pause_all):
        if before.control.paused_by is None:
            return f"{asked.paused_by} already requested that; it takes effect at the next commit"
        return (
            f"it was already paused, by {asked.paused_by} since commit {spell_epoch(asked.paused_since_ms or 0)}"
        )
    if verb is Verb.STOP and before.state == JobState.STOPPED and not before.live:
        return "it was already stopped"
    phase = before.phase if before.progress is None else before.progress.phase
    if verb is Verb.THROTTLE and phase != Phase.SNAPSHOT:
        only = "it limits refills and fills of derived tables alone now"
        return f"{only}: the snapshot has been read, and changes are not limited"
    if verb is Verb.THROTTLE and rate == 0:
        what, meanwhile = RATE_0[before.strategy]
        of, option = (f" of {table}", f" --table {quote(table)}") if table else ("", "")
        lift = command(f"throttle {before.name}{option} --rate none")
        return f"no row of the {what}{of} is read any more{meanwhile}; to read on: " + lift
    return ""


def _ended(asked: Control, verb: Verb) -> str:
    """What a person's command does to the holds of guards; empty if nothing. asked: before it."""
    if verb not in (Verb.RESUME, Verb.THROTTLE):
        return ""
    ended = [hold for hold in asked.holds if verb is Verb.RESUME or not hold.pauses]
    left = [hold for hold in asked.holds if hold not in ended and hold.pauses]
    said = [f"it overrides {hold.by}; it holds again once it was within its limit" for hold in ended]
    said += [f"the job stays paused by {hold.by}; {hold.lifts}" for hold in left]
    return "\n".join(said)


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
                f"job {job!r}: the {verb.value} did not complete within {spell_duration(limit_s)}; "
                "the request stays in place",
                command(f"status {job}"),
            )
        time.sleep(POLL_S)
    return epoch
