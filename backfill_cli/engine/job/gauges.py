"""What guards ask: the job's systems by their connectors, this machine and the catalog here."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Thread

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.config import JobConfig
from backfill_cli.config.sections import GuardSection
from backfill_cli.contracts import Gauge, Unanswered
from backfill_cli.errors import BackfillError
from backfill_cli.model.guard import Level, Reading
from backfill_cli.model.job import JobState
from backfill_cli.model.reports import GuardTold
from backfill_cli.model.units import spell_duration


@dataclass(frozen=True)
class Here:
    """A gauge that opens nothing. See contracts.Gauge."""

    ask_it: Callable[[], float]

    def ask(self) -> float:
        return self.ask_it()

    def close(self) -> None: ...


def spell_unanswered(error: BackfillError | Unanswered) -> str:
    return error.message if isinstance(error, BackfillError) else str(error)


def gauge_of(section: GuardSection, config: JobConfig, catalog: Catalog) -> Gauge:
    """What the guard asks; opened by its first question."""
    match section.kind:
        case "load":
            return Here(load)
        case "free-disk":
            path = Path(section.path or config.job.staging)
            return Here(lambda: free_disk(path))
        case "window":
            return Here(minutes_of_day)
        case "lag":
            job = section.job or ""
            return Here(lambda: lag_s(job, catalog))
        case _:
            gauge = config.open_gauge(section)
            assert gauge is not None, section.kind  # a fault of the config
            return gauge


def load() -> float:
    """This machine's load of the last minute, per core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def free_disk(path: Path) -> float:
    """Bytes that are free on the disk of this path, or of its nearest existing parent."""
    there = next(one for one in (path, *path.parents) if os.path.lexists(one))
    try:
        return float(shutil.disk_usage(there).free)
    except OSError as error:
        raise Unanswered(f"{there}: {error.strerror}") from None


def minutes_of_day() -> float:
    now = datetime.now()
    return now.hour * 60 + now.minute


def lag_s(job: str, catalog: Catalog) -> float:
    """Seconds that the other job's sink is behind; without a runner, since it last looked. Raises Transient.

    A commit that the upstream has not finished is no work that a hold would leave to the other job.
    """
    row = catalog.job(job)
    told = row.progress
    if row.state is JobState.DONE:
        return 0.0
    if told is None or told.looked_ms is None:
        raise Unanswered(f"job {job!r} has not looked at its upstream yet")
    has_all = told.incomplete is not None and told.pending_epochs == 1
    oldest_ms = None if has_all else told.oldest_ms
    since_ms = told.looked_ms if oldest_ms is None else oldest_ms
    return 0.0 if oldest_ms is None and row.live else max(0, wall_clock_ms() - since_ms) / 1000


def asked_once(config: JobConfig, catalog: Catalog) -> list[tuple[GuardSection, Reading | str]]:
    """Each guard with what it says now, or why it cannot be asked; all at once, each within its timeout."""
    answers: list[Reading | str] = [f"no answer within {spell_duration(one.timeout_s)}" for one in config.guards]

    def ask(index: int, section: GuardSection) -> None:
        try:
            with closing(gauge_of(section, config, catalog)) as gauge:
                answers[index] = section.guard.rule.judged(gauge.ask())
        except (BackfillError, Unanswered) as error:
            answers[index] = spell_unanswered(error)

    threads = [Thread(target=ask, args=one, daemon=True) for one in enumerate(config.guards)]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + max((one.timeout_s for one in config.guards), default=0.0)
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return list(zip(config.guards, answers, strict=True))


def told_once(config: JobConfig, catalog: Catalog) -> tuple[GuardTold, ...]:
    """Each guard with what it says now, or why it cannot be asked, and what follows."""
    return tuple(_told(section, told) for section, told in asked_once(config, catalog))


def _told(section: GuardSection, told: Reading | str) -> GuardTold:
    does = "pause the job" if section.rate is None else f"read at most {section.rate:g} rows/s"
    if isinstance(told, str):
        return GuardTold(section.name, f"cannot be asked: {told}; if that stays so, it will {does}", False)
    over = told.level is Level.OVER
    return GuardTold(section.name, f"{told.said}: it would {does} now" if over else told.said, not over)
