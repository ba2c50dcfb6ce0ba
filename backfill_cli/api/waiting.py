"""Waiting until a job has reached a state."""

import time
from contextlib import suppress
from typing import Literal

from backfill_cli.api import refilling
from backfill_cli.catalog import Catalog, JobRow, wall_clock_ms
from backfill_cli.catalog.lease import this_host
from backfill_cli.errors import Fatal, StoppedEarly, WaitTimedOut, command
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.units import spell_duration
from backfill_cli.view.answers import Reached
from backfill_cli.view.model import committed_epoch, limited_by, reason_of, shown_state

POLL_S = 0.5
GONE_AFTER_S = 10.0  # a job without a runner this long is not about to be taken over

SIGN_MS = 10_000  # a runner renews its lease that often

Goal = Literal["caught-up", "snapshot", "refilled", "paused", "stopped", "done"]


def spell_goal(goal: Goal) -> str:
    """What a job is once it has reached the goal."""
    return "past its snapshot" if goal == "snapshot" else goal


def wait(store: Catalog, known: JobRow, goal: Goal, limit_s: float) -> Reached:
    """The job has reached the goal, see `Wait`. Raises WaitTimedOut after `limit_s`."""
    waiting = Wait(store, known, goal)
    while (found := waiting.look()) is None:
        waiting.within(limit_s)
        time.sleep(POLL_S)
    return found


class Wait:
    """One wait for a goal, see `reached`. known: the job as it is when the wait begins."""

    def __init__(self, store: Catalog, known: JobRow, goal: Goal) -> None:
        self._store, self._name, self._goal = store, known.name, goal
        self._began = self._live = time.monotonic()
        self._since_ms = _now_of(known)
        self._row = known
        self._refills = [one for one in known.refills if one.pending]
        if goal == "caught-up":
            with suppress(OSError):  # else a runner reports every 10 s
                store.ask()

    def look(self) -> Reached | None:
        """None while it is not reached. Raises Fatal if the job failed, StoppedEarly if it stopped first.

        Of refills, those that were pending when the wait began: raises what `refilling.done` does.
        """
        name, goal = self._name, self._goal
        row = self._row = self._store.listed_job(name)
        if goal == "refilled":
            self._refills = [one for one in self._refills if refilling.done(self._store, name, one) is None]
        if reached(row, goal, self._since_ms) or (goal == "refilled" and not self._refills):
            since = row.control.since_ms if goal == "paused" else None
            newest = row.progress.incomplete if row.progress is not None and goal == "caught-up" else None
            return Reached(name, goal, row.state, since or committed_epoch(row), newest)
        now = time.monotonic()
        self._live = now if row.live else self._live
        if row.state is JobState.FAILED and not row.live:
            why = reason_of(row)
            go_on = why.hint or command(f"resume {name}")
            raise Fatal(f"job {name!r} failed before it was {spell_goal(goal)}: {why.said}", go_on)
        if (row.ended and not row.live) or now - self._live > GONE_AFTER_S:
            limit = limited_by(row)
            state = f"is {row.state} ({row.reason})" if row.ended else f"has {limit.said}"
            raise StoppedEarly(f"job {name!r} {state} before it was {spell_goal(goal)}", limit.hint)
        return None

    def within(self, limit_s: float) -> None:
        """Raises WaitTimedOut if the wait is longer than this."""
        if time.monotonic() - self._began > limit_s:
            row, name = self._row, self._name
            state = "being created" if row.live and not row.created else f"{shown_state(row)}, phase {row.phase}"
            said = f"job {name!r}: not {spell_goal(self._goal)} after {spell_duration(limit_s)}; it is {state}"
            raise WaitTimedOut(said, command(f"status {name}"))


def _now_of(row: JobRow) -> int:
    """The latest time that the runner's own clock can show; on another machine, from its last lease renewal."""
    if row.lease.host in (None, this_host()):
        return wall_clock_ms()
    return (row.lease.renewed_ms or 0) + SIGN_MS


def reached(row: JobRow, goal: Goal, since_ms: int) -> bool:
    """Whether the job has reached the goal; caught up: with all that the upstream had at `since_ms`.

    A job that is done counts as caught up and as stopped. Stopped and done are reached once the runner has gone,
    so that whoever waits can start the job again. A job that was stopped while paused counts as paused. Past its
    snapshot: the sink has it, or the job has none; that stays so whatever becomes of the job.
    """
    done = row.state is JobState.DONE and not row.live
    if goal == "snapshot":
        return done or _is_past_snapshot(row)
    if goal == "caught-up":
        return done or _follows(row, since_ms)
    if goal == "refilled":
        return not any(one.pending for one in row.refills)
    if goal == "stopped":
        return done or (row.state is JobState.STOPPED and not row.live)
    if goal == "done":
        return done
    stays = not row.live and row.control.paused and row.state is not JobState.FAILED  # a stop does not end a pause
    return stays or row.state is JobState.PAUSED


def _is_past_snapshot(row: JobRow) -> bool:
    told = row.progress
    return told is not None and (told.phase != Phase.SNAPSHOT or told.snapshot_finished_ms is not None)


def _follows(row: JobRow, since_ms: int) -> bool:
    """Whether the live runner follows the upstream and has reported that all up to `since_ms` is in the sink."""
    told = row.reported
    if told is None or not row.live or row.state is not JobState.RUNNING or not row.lease.is_there:
        return False
    settled = told.settled_ms is not None and told.settled_ms >= since_ms
    caught_up = told.caught_up_ms is not None and told.phase == Phase.UPSTREAM
    return caught_up and settled and told.waiting_for is None
