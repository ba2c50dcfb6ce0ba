"""`status`: drawn on a terminal, in plain lines elsewhere; once, or live with --watch.

With --check, whether each job is healthy, in one line: for cron, probes and load balancers.
"""

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.store import told_of
from backfill_cli.errors import BackfillError, Fatal, Hint, HistoryGone, Transient, UsageError, command
from backfill_cli.model.headroom import Kept
from backfill_cli.model.units import spell_count, spell_duration
from backfill_cli.model.upstream import HeldLog
from backfill_cli.view.console import LINE_S, answer, answer_json, coloured, interactive, say
from backfill_cli.view.lines import below_table, job_details, jobs_table, spell_held_up, spell_progress
from backfill_cli.view.model import (
    DEAD,
    ENDED,
    AsideView,
    Jobs,
    JobView,
    look_at,
    spell_headroom,
    spell_phase,
    spell_quarantined,
)

if TYPE_CHECKING:
    from rich.console import Console


def show_status(views: Sequence[JobView], in_full: bool, catalog: Catalog, typed: Callable[[Hint], Hint]) -> None:
    """Print the jobs to stdout: one in full, or one per line.

    in_full: a job was named. catalog: their file. typed: a hint, its commands as the user would type them.
    """
    if not views:
        said, hint = nothing_in(catalog)
        say(f"{said}\nTry: {typed(hint)}")
        return
    if sys.stdout.isatty():
        from backfill_cli.view.picture import Jobs, Picture

        console_of(stderr=False).print(Picture(views[0]) if in_full else Jobs(views))
        return
    answer(job_details(views[0]) if in_full else jobs_table(views))
    if not in_full and (more := below_table(views)):
        say(more)


def nothing_in(catalog: Catalog) -> tuple[str, Hint]:
    """What is known where there are no jobs, and what to type: the catalog's file may have been moved away."""
    left = catalog.left_behind()
    first = Hint() if os.path.exists("job.toml") else command("init") + ", then: "
    start, said = first + command("start --config job.toml"), f"no jobs yet in {catalog.path}"
    return (said, start) if os.path.lexists(catalog.path) else told_of(catalog.path, left, start, said)


Look = Callable[[], Sequence[JobView]]

REFRESH_S = 1.0
WATCHING = "Ctrl-C leaves this view, and changes nothing."


def watch_jobs(look: Look, as_json: bool, nothing: Callable[[], str]) -> None:
    """Show jobs until all have ended, or Ctrl-C: drawn on a terminal, else as a line every 10 s, or as JSON.

    nothing: what is drawn while there are no jobs.
    """
    if as_json:
        _follow(look, lambda views: answer_json(Jobs(views)))
    elif interactive(sys.stdout):
        _watch_drawn(look, nothing)
    else:
        _follow(look, Lines(time.monotonic).tell)


def _follow(look: Look, tell: Callable[[Sequence[JobView]], None]) -> None:
    while True:
        views = look()
        tell(views)
        if views and all(view.state in ENDED for view in views):
            return
        time.sleep(REFRESH_S)


def _watch_drawn(look: Look, nothing: Callable[[], str]) -> None:
    from rich.live import Live

    from backfill_cli.view.picture import live_picture

    console = console_of(stderr=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            views = look()
            live.update(live_picture(views, WATCHING, "" if views else nothing()), refresh=True)
            if views and all(view.state in ENDED for view in views):
                break
            time.sleep(REFRESH_S)
    console.print(live_picture(views, ""))


def console_of(stderr: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, no_color=not coloured(stream), highlight=False)


class Lines:
    """One plain line to stderr every 10 s, and at each change of state or phase. now_s: a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told: dict[str, tuple[str, str, float]] = {}

    def tell(self, views: Sequence[JobView]) -> None:
        for view in views:
            now = self._now_s()
            state, phase, at = self._told.get(view.name, ("", "", -LINE_S))
            if (state, phase) != (view.state, view.phase) or now - at >= LINE_S:
                self._told[view.name] = (view.state, view.phase, now)
                say(f"{view.name}: {spell_progress(view)}")


SILENT_S = 60.0
"""Time without an observation of the upstream, beyond the interval; normally staging an epoch takes longest."""

STARTING_S = 600.0
"""How long Java, Spark, a recovery and a sink held by another program (retry.limit) may take."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one job. reason: why it is not healthy, else what it is doing; one line."""

    job: str
    healthy: bool
    reason: str
    hint: Hint

    def __str__(self) -> str:
        line = f"{self.job}: {'healthy' if self.healthy else 'NOT healthy'}: {self.reason}"
        return f"{line}; {self.hint}" if self.hint else line


@dataclass(frozen=True, slots=True)
class HealthReport:
    """healthy: whether all jobs are."""

    healthy: bool
    jobs: Sequence[Health]


Told = HeldLog | BackfillError
"""What an upstream answers about a job without a runner: the log that it keeps, or why the job cannot continue."""


def health(
    view: JobView,
    max_lag_s: float | None,
    now_ms: int,
    fail_on_quarantine: bool = False,
    told: Told | None = None,
    limited: bool = False,
    typed: Callable[[Hint], Hint] = lambda hint: hint,
    min_headroom_s: float | None = None,
) -> Health:
    """Not healthy: failed, stopped, dead, upstream not observed for a minute, further behind than `max_lag_s`, and
    a job of which a table is set aside.

    A job that is done is healthy within `max_lag_s` of its last observation; a paused one while its lag is within
    it. fail_on_quarantine: a job with quarantined rows is not healthy. told: nor is one whose upstream keeps more
    log for it than the options allow, or no longer has what it needs; nor one whose stored config cannot be used
    to ask it, or, if `limited` (the options limit that log), whose upstream does not answer. min_headroom_s: nor
    one whose upstream keeps what is not read for less, or does not tell for how long.
    """
    healthy, reason, hint = _of_upstream(view, *_judged(view, max_lag_s, now_ms), told, limited)
    if healthy and view.aside:
        first = view.aside[0]
        healthy, reason, hint = False, f"{reason}; set aside: {_aside_told(view.aside)}", first.error.hint
    if healthy and fail_on_quarantine and view.quarantined:
        healthy, reason = False, f"{reason}, quarantined {spell_quarantined(view.quarantined)}"
        hint = "look at them: " + look_at(view.quarantined)
    if healthy and min_headroom_s is not None:
        healthy, reason, hint = _of_headroom(view, min_headroom_s, reason, hint)
    return Health(view.name, healthy, " ".join(reason.split()), typed(hint))


def _aside_told(tables: Sequence[AsideView]) -> str:
    """`public.orders: table 'public.orders' …, and 2 others`."""
    first, others = tables[0], len(tables) - 1
    what = first.error.text if first.refill is None else "being put back"
    return f"{first.table}: {what}" + (f", and {spell_count(others, 'other')}" if others else "")


def _of_headroom(view: JobView, least_s: float, reason: str, hint: Hint) -> tuple[bool, str, Hint]:
    """One that has not been asked yet is well; one that nobody has to ask, too."""
    told = view.headroom
    if told is None or told.kept is Kept.UNBOUNDED or view.state == "done":
        return True, reason, hint
    said = f"{reason}; headroom {spell_headroom(told)}"
    if told.left_s is None:
        return False, said, told.hint
    if told.left_s < least_s:
        return False, f"{said}; less than {spell_duration(least_s)}", told.hint
    return True, said, hint


def _of_upstream(
    view: JobView, healthy: bool, reason: str, hint: Hint, told: Told | None, limited: bool
) -> tuple[bool, str, Hint]:
    """hint: what to do about the last part of the reason."""
    if isinstance(told, HeldLog) and told.is_over:
        way_on = "raise the limit, or let a runner give the log up: " + command(f"resume {view.name}")
        return False, f"{reason}; {told}, and no runner is live", way_on
    if isinstance(told, HistoryGone | Fatal) and healthy:
        return False, f"{reason}; it cannot continue: {told.message}", told.hint
    if isinstance(told, Transient | UsageError):
        why = " ".join(told.message.split())
        said = f"{reason}; its upstream could not be asked how much log it keeps: {why}"
        if isinstance(told, Transient) and not limited:
            return healthy, said, hint
        return False, said, told.hint or Hint.of("set here, too, what the config refers to")
    return healthy, reason, hint


def _judged(view: JobView, max_lag_s: float | None, now_ms: int) -> tuple[bool, str, Hint]:
    """Whether it is healthy, why, and what to do about that."""
    limit = view.limited_by
    hint = f"to {limit.to}: " + limit.hint if limit.hint else Hint()
    bare = replace(view, limited_by=replace(limit, hint=Hint()))
    paused = view.paused_by is not None and view.state != DEAD
    if view.state in ("failed", "stopped"):
        return False, f"{view.state}: {view.reason}", hint
    if view.state == "done":
        if max_lag_s is not None and view.age_s is not None and view.age_s > max_lag_s:
            return False, f"done, but its upstream was last observed {spell_duration(view.age_s)} ago", hint
        return True, "done", Hint()
    if not view.runner.alive and not paused:
        return False, f"{view.state}: {bare.limited_by}", hint
    if max_lag_s is not None and (view.lag_s is None or view.lag_s > max_lag_s):
        far = (
            "N/A" if view.lag_s is None else f"{spell_duration(view.lag_s)}, more than {spell_duration(max_lag_s)}"
        )
        return False, f"{view.state}, {spell_phase(view.phase)}, lag {far}; {spell_held_up(bare)}", hint
    if view.state == "starting":
        since_s = (now_ms - (view.runner.claimed_ms or view.created_ms)) / 1000
        said = f"starting for {spell_duration(max(0.0, since_s))}: {bare.limited_by}"
        return since_s <= STARTING_S, said, hint
    lag = "" if view.lag_s is None else f", lag {spell_duration(view.lag_s)}"
    doing = f"{view.state}, {spell_phase(view.phase)}{lag}"
    if view.runner.alive and view.age_s is not None and view.age_s > SILENT_S + view.interval_s:
        silent = f"upstream not observed for {spell_duration(view.age_s)}"
        return False, f"{doing}: {silent}; {bare.limited_by}", hint
    if view.spool is not None and (view.spool.full or view.spool.waits is not None):
        return False, f"{doing}: {bare.limited_by}", hint
    return True, doing, Hint()


def unattended(views: Sequence[JobView]) -> list[str]:
    """The jobs for which an upstream keeps log while no runner is live to bound it."""
    return [view.name for view in views if view.held_bytes is not None and not view.runner.alive]


def show_health(
    views: Sequence[JobView],
    max_lag_s: float | None,
    as_json: bool,
    fail_on_quarantine: bool = False,
    told: Mapping[str, Told] | None = None,
    limited: Collection[str] = (),
    *,
    typed: Callable[[Hint], Hint],
    min_headroom_s: float | None = None,
) -> bool:
    """Print a line per job. Returns whether all are healthy.

    told: upstreams' answers about the `unattended`. limited: the jobs whose options limit that log. typed: a hint,
    its commands as the user would type them.
    """
    now_ms = wall_clock_ms()
    said = told or {}
    found = [
        health(
            view,
            max_lag_s,
            now_ms,
            fail_on_quarantine,
            said.get(view.name),
            view.name in limited,
            typed,
            min_headroom_s,
        )
        for view in views
    ]
    all_well = all(one.healthy for one in found)
    if as_json:
        answer_json(HealthReport(all_well, found))
    else:
        answer("\n".join(map(str, found)))
    return all_well
