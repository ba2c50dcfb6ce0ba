"""Whether a job is well, in one line: for cron, probes and load balancers."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from backfill_cli.model.units import spell_duration
from backfill_cli.view.console import answer, answer_json
from backfill_cli.view.model import DEAD, SCHEMA, JobView, spell_moment

SILENT_S = 60.0
"""A runner says its numbers every 10 s, and every process of the machine may be held up for some of it."""


@dataclass(frozen=True, slots=True)
class Health:
    """One job's. reason: why it is not healthy, else what it does."""

    job: str
    healthy: bool
    reason: str


def health(view: JobView, max_lag_s: float | None, now_ms: int) -> Health:
    """Not healthy: failed, stopped, dead, silent for a minute, or further behind than `max_lag_s`.

    A job that is done is healthy; a paused one, too, as long as its lag is within the limit.
    """
    lag = "" if view.lag_s is None else f", lag {spell_duration(view.lag_s)}"
    silent_s = 0.0 if view.as_of_ms is None else (now_ms - view.as_of_ms) / 1000
    if view.state in ("failed", "stopped"):
        return Health(view.name, False, f"{view.state}: {view.reason}")
    if view.state == "done":
        return Health(view.name, True, "done")
    if view.state == DEAD or not view.runner.alive:
        return Health(view.name, False, f"{view.state}: {view.limited_by}")
    if silent_s > SILENT_S:
        said = spell_moment(view.as_of_ms)
        return Health(view.name, False, f"{view.state}: its runner has said nothing since {said}")
    if max_lag_s is not None and view.lag_s is not None and view.lag_s > max_lag_s:
        more = f"more than {spell_duration(max_lag_s)}; limited by {view.limited_by}"
        return Health(view.name, False, f"{view.state}, {view.phase}{lag}, {more}")
    return Health(view.name, True, f"{view.state}, {view.phase}{lag}")


def show_health(views: Sequence[JobView], max_lag_s: float | None, as_json: bool) -> bool:
    """Print a line per job. Returns whether all are healthy."""
    now_ms = time.time_ns() // 1_000_000
    found = [health(view, max_lag_s, now_ms) for view in views]
    all_well = all(one.healthy for one in found)
    if as_json:
        answer_json({"schema": SCHEMA, "healthy": all_well, "jobs": [asdict(one) for one in found]})
    else:
        answer(
            "\n".join(f"{one.job}: {'healthy' if one.healthy else 'NOT healthy'}: {one.reason}" for one in found)
        )
    return all_well
