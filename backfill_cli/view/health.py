"""Whether a job is well, in one line: for cron, probes and load balancers."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from backfill_cli.errors import BackfillError, Fatal, HistoryGone, Transient, UsageError
from backfill_cli.model.units import spell_duration
from backfill_cli.model.upstream import HeldLog
from backfill_cli.view.console import answer, answer_json
from backfill_cli.view.model import DEAD, SCHEMA, JobView, spell_phase
from backfill_cli.view.quarantine import look_at, spell_quarantined

SILENT_S = 60.0
"""Without a look at the upstream, beyond the interval; the longest that is ordinary is the staging of an epoch."""

STARTING_S = 600.0
"""Java, Spark, a recovery and a sink that somebody holds (retry.limit) may take so long."""


@dataclass(frozen=True, slots=True)
class Health:
    """One job's. reason: why it is not healthy, else what it does; one line."""

    job: str
    healthy: bool
    reason: str


Told = HeldLog | BackfillError
"""What an upstream says of a job without a runner: the log that it keeps for it, or why it cannot go on."""


def health(
    view: JobView,
    max_lag_s: float | None,
    now_ms: int,
    fail_on_quarantine: bool = False,
    told: Told | None = None,
) -> Health:
    """Not healthy: failed, stopped, dead, no look at the upstream for a minute, further behind than `max_lag_s`.

    A job that is done is healthy, within `max_lag_s` of its last look; a paused one while its lag is within it.
    fail_on_quarantine: nor is one that has quarantined rows. told: nor one whose upstream keeps more log for it
    than the options allow, or no longer has what it needs.
    """
    healthy, reason = _of_upstream(view, *_judged(view, max_lag_s, now_ms), told)
    if healthy and fail_on_quarantine and view.quarantined:
        kept = f"quarantined {spell_quarantined(view.quarantined)}; look at them: {look_at(view.quarantined)}"
        healthy, reason = False, f"{reason}, {kept}"
    return Health(view.name, healthy, " ".join(reason.split()))


def _of_upstream(view: JobView, healthy: bool, reason: str, told: Told | None) -> tuple[bool, str]:
    if isinstance(told, HeldLog) and told.is_over:
        way_on = f"raise the limit, or let a runner give it up: backfill resume {view.name}"
        return False, f"{reason}; {told}, and no runner lives: {way_on}"
    if isinstance(told, HistoryGone | Fatal) and healthy:
        return False, f"{reason}; it cannot go on: {told.message}"
    if isinstance(told, Transient | UsageError):
        return healthy, f"{reason}; its upstream was not asked how much log it keeps: {told.message}"
    return healthy, reason


def _judged(view: JobView, max_lag_s: float | None, now_ms: int) -> tuple[bool, str]:
    paused = view.paused_by is not None and view.state != DEAD
    if view.state in ("failed", "stopped"):
        return False, f"{view.state}: {view.reason}"
    if view.state == "done":
        if max_lag_s is not None and view.age_s is not None and view.age_s > max_lag_s:
            return False, f"done, and its upstream was looked at last {spell_duration(view.age_s)} ago"
        return True, "done"
    if not view.runner.alive and not paused:
        return False, f"{view.state}: {view.limited_by}"
    if max_lag_s is not None and (view.lag_s is None or view.lag_s > max_lag_s):
        far = (
            "N/A" if view.lag_s is None else f"{spell_duration(view.lag_s)}, more than {spell_duration(max_lag_s)}"
        )
        return False, f"{view.state}, {spell_phase(view.phase)}, lag {far}; limited by {view.limited_by}"
    if view.state == "starting":
        since_s = (now_ms - (view.runner.claimed_ms or view.created_ms)) / 1000
        return since_s <= STARTING_S, f"starting since {spell_duration(max(0.0, since_s))}: {view.limited_by}"
    lag = "" if view.lag_s is None else f", lag {spell_duration(view.lag_s)}"
    doing = f"{view.state}, {spell_phase(view.phase)}{lag}"
    if view.runner.alive and view.age_s is not None and view.age_s > SILENT_S + view.interval_s:
        return False, f"{doing}: no look at the upstream for {spell_duration(view.age_s)}; {view.limited_by}"
    if view.spool is not None and (view.spool.full or view.spool.waits is not None):
        return False, f"{doing}: {view.limited_by}"
    return True, doing


def unattended(views: Sequence[JobView]) -> list[str]:
    """The jobs for which an upstream keeps log while no runner sees to it."""
    return [view.name for view in views if view.held_bytes is not None and not view.runner.alive]


def show_health(
    views: Sequence[JobView],
    max_lag_s: float | None,
    as_json: bool,
    fail_on_quarantine: bool = False,
    told: Mapping[str, Told] | None = None,
) -> bool:
    """Print a line per job. told: by upstreams, of the `unattended`. Returns whether all are healthy."""
    now_ms = time.time_ns() // 1_000_000
    said = told or {}
    found = [health(view, max_lag_s, now_ms, fail_on_quarantine, said.get(view.name)) for view in views]
    all_well = all(one.healthy for one in found)
    if as_json:
        answer_json({"schema": SCHEMA, "healthy": all_well, "jobs": [asdict(one) for one in found]})
    else:
        answer(
            "\n".join(f"{one.job}: {'healthy' if one.healthy else 'NOT healthy'}: {one.reason}" for one in found)
        )
    return all_well
