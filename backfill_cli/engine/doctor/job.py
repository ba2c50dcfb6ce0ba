"""What a job needs beyond the machine: its plan, as `plan` makes it, space for staging, other systems' clocks."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig
from backfill_cli.engine.doctor.place import room
from backfill_cli.engine.job.preflight import plan
from backfill_cli.errors import BackfillError, HistoryGone
from backfill_cli.model.job import JobState
from backfill_cli.model.reports import Check, PlanReport, failed, ok, refused, warning
from backfill_cli.model.units import spell_duration, spell_size

APART_MS = 1_000
"""A lag is shown in tenths of a second, and a barrier's interval is a second: a smaller offset misleads nobody."""


def described(config: JobConfig) -> Check:
    """The config in one line; names a cluster's own Python, which cannot be checked from here."""
    said = f"job {config.job.name!r}, no errors"
    if not config.spark.is_local:
        theirs = config.spark.conf.get("spark.pyspark.python", "the cluster's")
        said += f"; executors use their own Python ({theirs}), which must have the same minor version as this one"
    return ok("config", said)


def checks(config: JobConfig, catalog: Catalog) -> Iterator[Check]:
    """Connects to upstream, sink and Spark."""
    try:
        report = plan(config, catalog)
    except HistoryGone as error:
        yield refused("retention", error)
        return
    except BackfillError as error:
        yield refused("plan", error)
        return
    yield from _planned(report, _has_failed(config.job.name, catalog))
    size = sum(table.size_bytes for table in report.tables)
    yield room(
        "staging", Path(config.job.staging), size, "the whole snapshot, of which it holds two epochs at a time"
    )
    if config.job.strategy == "chain":
        most = config.spool.max_size
        of = "spool.max_size" if most else "waiting in the log"
        yield room("spool", Path(config.spool.path), most or report.pending_bytes, of)
    yield from _clocks(config)


def _has_failed(job: str, catalog: Catalog) -> bool:
    return any(row.name == job and row.state is JobState.FAILED for row in catalog.jobs())


def _planned(report: PlanReport, has_failed: bool) -> Iterator[Check]:
    """has_failed: the job's last run failed, for a reason that a plan may not detect."""
    rows = [table.rows for table in report.tables]
    count = "rows unknown until read" if None in rows else f"{sum(row or 0 for row in rows):,} rows"
    size = spell_size(sum(table.size_bytes for table in report.tables))
    if not report.refused:
        start = "start would continue where it failed" if has_failed else "nothing that start would refuse"
        yield ok("plan", f"strategy {report.strategy}, {count}, {size}; {start}")
    for refusal in report.refused:
        yield failed("plan", refusal.message, refusal.hint)
    for one in report.warnings:
        yield warning("plan", one)
    if report.retention:
        yield ok("retention", f"the upstream must keep {report.retention}")


def _clocks(config: JobConfig) -> Iterator[Check]:
    """The clocks of those systems that tell the time."""
    with ExitStack() as stack:
        upstream, sink = stack.enter_context(closing(config.open_upstream())), config.open_sink()
        for side, clock_ms in (("upstream", upstream.extras.clock_ms), ("sink", sink.extras.clock_ms)):
            if clock_ms is not None:
                try:
                    yield clock(side, clock_ms, _now_ms)
                except BackfillError as error:
                    yield refused(f"{side} clock", error)


def clock(side: str, clock_ms: Callable[[], int], now_ms: Callable[[], int]) -> Check:
    """A system's time compared with this machine's, allowing for the time that the answer took."""
    before_ms = now_ms()
    theirs_ms = clock_ms()
    after_ms = now_ms()
    ahead_ms = theirs_ms - (before_ms + after_ms) / 2
    apart = spell_duration(abs(ahead_ms) / 1000)
    if abs(ahead_ms) > APART_MS + (after_ms - before_ms) / 2:
        said = f"{apart} {'ahead of' if ahead_ms > 0 else 'behind'} this machine's"
        return warning(f"{side} clock", said, "set the clocks (ntp); lag and --max-lag are wrong by that much")
    return ok(f"{side} clock", f"within {apart} of this machine's")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
