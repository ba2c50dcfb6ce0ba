"""A job's numbers for Prometheus: as a file for node exporter's textfile collector, or served over HTTP."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.errors import BackfillError, UsageError
from backfill_cli.model.checkpoint import Totals
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.refill import PENDING
from backfill_cli.view.model import DEAD, JobView, control_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

Look = Callable[[], tuple[JobView, Totals]]

WRITTEN_EVERY_S = 10.0
LABEL = "backfill_job"  # not "job": Prometheus gives that to what it scrapes


def _observed(view: JobView, value: float | None) -> float | None:
    """A number that grows without the job: absent without a runner, as the last one would stay as it is."""
    return value if view.runner.alive else None


def _seconds(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1000


def _refills_pending(view: JobView) -> float:
    return float(sum(one.state in PENDING for one in view.refills))


def _tables(view: JobView, *, lacks: bool) -> float | None:
    at = view.committing
    return None if at is None else float(len(at.has) + (len(at.lacks) if lacks else 0))


def _one_of(all_values: Iterable[str], now: str) -> dict[str, float]:
    return {one: float(one == now) for one in all_values}


GAUGES: tuple[tuple[str, str, Callable[[JobView], float | None]], ...] = (
    ("up", "1 while a live runner has the job.", lambda v: float(v.runner.alive)),
    (
        "lag_seconds",
        "Age of the oldest change that the sink lacks; absent without a runner.",
        lambda v: _observed(v, v.lag_s),
    ),
    (
        "pending_upstream_epochs",
        "Upstream commits that the sink lacks; absent without a runner.",
        lambda v: _observed(v, v.pending_epochs),
    ),
    ("snapshot_ratio", "Share of the snapshot that has been read, 0 to 1.", lambda v: v.share),
    ("snapshot_rows_expected", "Rows in the snapshot, if metadata gives them.", lambda v: v.rows_total),
    ("snapshot_rows_per_second", "Rate of snapshot reads.", lambda v: v.rows_per_s),
    ("throttle_rows_per_second", "The limit in force; absent without one.", lambda v: control_of(v).pace),
    ("refills_pending", "Refills that have not ended.", _refills_pending),
    (
        "tables_set_aside",
        "Tables without which the job goes on, and those that are being put back.",
        lambda v: float(len(v.aside)),
    ),
    ("paused", "1 while the job is paused by a command.", lambda v: float(v.paused_by is not None)),
    ("held", "1 while a guard pauses or slows the job.", lambda v: float(bool(v.holds))),
    ("converging", "1 while the sink matches no state of the upstream yet.", lambda v: float(v.converging)),
    (
        "not_converging",
        "1 while a job that catches up falls behind.",
        lambda v: float(v.not_converging is not None),
    ),
    (
        "snapshot_finished_timestamp_seconds",
        "When the snapshot was read, as a Unix time.",
        lambda v: _seconds(v.snapshot_finished_ms),
    ),
    (
        "log_finished_timestamp_seconds",
        "When the log had been applied that the snapshot left, as a Unix time.",
        lambda v: _seconds(v.log_store_finished_ms),
    ),
    (
        "commit_tables",
        "Tables of the commit that the sink is writing, where they have it one after the other; else absent.",
        lambda v: _observed(v, _tables(v, lacks=True)),
    ),
    ("commit_tables_written", "How many of these have it.", lambda v: _observed(v, _tables(v, lacks=False))),
    ("epoch_timestamp_seconds", "The last commit, as a Unix time.", lambda v: v.epoch / 1000),
    (
        "upstream_log_held_bytes",
        "Log that the upstream keeps for the job; absent without a runner.",
        lambda v: _observed(v, v.held_bytes),
    ),
    (
        "headroom_seconds",
        "Time until the upstream may remove what is not read; absent where it is unbounded, or not known.",
        lambda v: None if v.headroom is None else v.headroom.left_s,
    ),
    (
        "deadline_seconds",
        "Time until throttle.finish_by; absent without it, or once the snapshot is read.",
        lambda v: None if v.deadline is None else v.deadline.left_s,
    ),
    (
        "deadline_at_risk",
        "1 while throttle.finish_by cannot be met; absent as above.",
        lambda v: None if v.deadline is None else float(v.deadline.late),
    ),
    ("quarantined_rows", "Rows that could not be read, kept in the sink.", lambda v: sum(v.quarantined.values())),
    ("spool_bytes", "Size of the spool on disk.", lambda v: None if v.spool is None else v.spool.size_bytes),
    ("spool_changes", "Changes in the spool.", lambda v: None if v.spool is None else v.spool.changes),
)
"""Name after `backfill_`, help, and the value; None: the metric is absent."""

COUNTERS: tuple[tuple[str, str, Callable[[Totals], int | None]], ...] = (
    ("epochs", "Commits, with those that only took a command.", lambda t: t.epochs),
    ("snapshot_rows_read", "Snapshot rows read.", lambda t: t.snapshot_rows),
    ("changes_read", "Changes read from the change log.", lambda t: t.changes_read),
    ("rows_written", "Rows written to the sink: the sum of the next three.", lambda t: t.rows_written),
    ("rows_inserted", "Rows of a snapshot, or events, inserted.", lambda t: t.rows_inserted),
    ("rows_upserted", "Rows inserted or replaced by key.", lambda t: t.rows_upserted),
    ("rows_deleted", "Rows deleted by key.", lambda t: t.rows_deleted),
)
"""As GAUGES; `_total` is added. They survive restarts, because the ledger keeps them."""

STATES = (*(state.value for state in JobState), DEAD)

LABELLED: tuple[tuple[str, str, str, Callable[[JobView], dict[str, float]]], ...] = (
    (
        "state",
        "1 for the current state of the job, 0 for the others.",
        "state",
        lambda v: _one_of(STATES, v.state),
    ),
    ("phase", "1 for the current phase of the job, 0 for the others.", "phase", lambda v: _one_of(Phase, v.phase)),
    (
        "splits",
        "Parts of the snapshot, or partitions, by how far they are.",
        "state",
        lambda v: {str(one): n for one, n in v.splits.items()},
    ),
    (
        "table_throttle_rows_per_second",
        "The limit of a table that has one of its own.",
        "table",
        lambda v: dict(v.table_rates),
    ),
)
"""As GAUGES, with a label of that name: its values, and that of each."""

COUNTED: tuple[tuple[str, str, str, Callable[[JobView], Mapping[str, int]]], ...] = (
    (
        "records_skipped",
        "Records of change logs that change no row of the job, by kind.",
        "kind",
        lambda v: v.skipped,
    ),
    (
        "transient_failures",
        "Failures of the last run after which it tried again, by cause.",
        "cause",
        lambda v: v.transient_failures,
    ),
)
"""The same of what only increases; absent where nothing was counted."""


class JobMetrics:
    """A collector: each scrape reads the catalog once; no samples while it cannot be read."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        try:
            view, totals = self._look()
        except BackfillError:
            return
        for name, told, of in GAUGES:
            value = of(view)
            if value is not None:
                gauge = GaugeMetricFamily(f"backfill_{name}", told, labels=[LABEL])
                gauge.add_metric([view.name], value)
                yield gauge
        for name, told, label, by in LABELLED:
            gauge = GaugeMetricFamily(f"backfill_{name}", told, labels=[LABEL, label])
            for one, value in by(view).items():
                gauge.add_metric([view.name, one], value)
            yield gauge
        for name, told, label, counts in COUNTED:
            if by_label := counts(view):
                counter = CounterMetricFamily(f"backfill_{name}", told, labels=[LABEL, label])
                for one, number in sorted(by_label.items()):
                    counter.add_metric([view.name, one], number)
                yield counter
        if view.partitions_added is not None:
            told = "Partitions of the topics that the job did not have as it began."
            added = CounterMetricFamily("backfill_partitions_added", told, labels=[LABEL])
            added.add_metric([view.name], view.partitions_added)
            yield added
        if view.written:
            rows_by = CounterMetricFamily(
                "backfill_table_rows_written",
                "Rows written to the sink, by the job's table and the phase in which they were.",
                labels=[LABEL, "table", "phase"],
            )
            for table, phases in view.written.items():
                for phase, written in phases.items():
                    rows_by.add_metric([view.name, table, phase], written)
            yield rows_by
        for name, told, count in COUNTERS:
            rows = count(totals)
            if rows is not None:
                counter = CounterMetricFamily(f"backfill_{name}", told, labels=[LABEL])
                counter.add_metric([view.name], rows)
                yield counter


@contextmanager
def measured(look: Look, file: str | None, port: str | None) -> Iterator[None]:
    """Inside the block the job's metrics are in the file and at the port. Raises UsageError if they cannot be."""
    with ExitStack() as stack:
        if file is not None:
            stack.enter_context(_written(look, Path(file)))
        if port is not None:
            stack.enter_context(_served(look, port))
        yield


def _registry(look: Look) -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobMetrics(look))
    return registry


@contextmanager
def _written(look: Look, file: Path) -> Iterator[None]:
    """The file is written whole under another name and renamed, every 10 s and once more at the end."""
    from prometheus_client import write_to_textfile

    if file.is_dir() or not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise UsageError(
            f"--metrics-file {file}: it is a folder, or its folder does not exist or is not writable",
            "name a file in an existing, writable folder",
        )
    over = threading.Event()

    def write() -> None:
        # A failure here must not end the job or change how it ended; the age of the file shows it.
        with suppress(Exception):
            now = look()
            write_to_textfile(str(file), _registry(lambda: now))

    def go_on() -> None:
        write()
        while not over.wait(WRITTEN_EVERY_S):
            write()

    thread = threading.Thread(target=go_on, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)
        write()


@contextmanager
def _served(look: Look, port: str) -> Iterator[None]:
    """Served at `/metrics`, on loopback unless an address is named: `9100`, `0.0.0.0:9100`."""
    from prometheus_client import start_http_server

    host, _, number = port.rpartition(":")
    if not number.isdecimal() or not 0 < int(number) < 65_536:
        raise UsageError(f"--metrics-port {port}: neither a port nor HOST:PORT", "--metrics-port 9100")
    try:
        server, thread = start_http_server(int(number), host or "127.0.0.1", _registry(look))
    except OSError as exc:
        raise UsageError(f"--metrics-port {port}: {exc.strerror}", "name a free port") from exc
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
