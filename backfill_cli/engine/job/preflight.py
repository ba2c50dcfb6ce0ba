"""`backfill plan`: what a job would do, from metadata and a sample; nothing is written."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig
from backfill_cli.contracts import Lease, SinkTable
from backfill_cli.engine.job.checks import Answer, require_again, require_all
from backfill_cli.engine.job.held import held_without_runner, spell_begun
from backfill_cli.engine.job.ownership import start_over_named
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import constraints, nothing_follows
from backfill_cli.errors import BackfillError, NoSuchJob, SinkInUse, Transient
from backfill_cli.model.job import JobState
from backfill_cli.model.reports import PlannedTable, PlanReport, Refusal
from backfill_cli.model.schema import fields_of, shown_column
from backfill_cli.model.units import spell_epoch
from backfill_cli.model.upstream import Pin

ROWS_PER_S = (1_500_000.0, 100_000.0)  # five narrow columns on two cores; wide rows, a slow disk
LEAST_S = 5.0  # until Spark has started


@dataclass
class _Noting:
    """See checks.Asking: what a report can hold is noted, and the next check asked; nothing is waited for.

    readable: whether the upstream's rows and log may be looked at.
    """

    config: JobConfig
    catalog: Catalog
    refused: list[Refusal] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    readable: bool = True

    def ask(self, check: Callable[[], Answer]) -> Answer | None:
        try:
            return check()
        except SinkInUse as error:
            self.refused.append(Refusal(error.message, error.hint))
        except Transient as error:
            self.warnings.append(f"{error.message}; start would wait: {error.hint}")
        return None

    def clear(self) -> None:
        """What is left there is noted once the upstream is pinned."""

    def may_create(self, lease: Lease) -> bool:
        begun = self.catalog.starts.of(self.config.job.name)
        refused = lease.obstacles(None if begun is None else begun.mark)
        self.refused += refused
        self.readable = not refused
        if begun is not None and (left := lease.leftovers(begun.mark)):
            self.notes.append(f"{spell_begun(begun)}; start will remove what it left: {', '.join(left)}")
        self.notes += lease.preview() if self.readable else ()
        return self.readable

    def cost(self, lease: Lease) -> None:
        """What the job, which exists, holds in its upstream while no runner has it."""
        held = held_without_runner(self.config.job.name, self.catalog, lease)
        if held is not None and held.is_over:
            self.warnings.append(f"{held}: start would give it up and exit with code 7; raise the limit first")
        elif held is not None:
            self.notes.append(str(held))


def plan(config: JobConfig, catalog: Catalog, into_existing: bool = False) -> PlanReport:
    """Pin, observe and check what `start` checks, and report the result.

    Raises what `start` would raise for a config that cannot run.
    """
    noting = _Noting(config, catalog)
    noting.notes += _known_job(config, catalog)
    known = bool(noting.notes)
    with start_over_named(config.job.name, catalog), Resources(config) as resources:
        upstream, sink = resources.upstream, resources.sink
        noting.notes += nothing_follows(config.job.name, upstream.capabilities)
        if known:
            checked = require_again(config, catalog, resources, noting)
        else:
            try:
                checked = require_all(config, catalog, resources, into_existing, noting)
            except BackfillError as error:
                raise error.without_job() from error.__cause__
        noting.warnings += upstream.extras.warnings()
        if known and upstream.lease is not None:
            noting.cost(upstream.lease)
        pin, tables = checked.pin, checked.tables
        # once refused, the upstream is not read further: the object with its name may belong to somebody else
        view = upstream.observe(pin.position, snapshot_open=True) if noting.readable else None
        hold, why = constraints(checked.choice.strategy, upstream.capabilities, sink.capabilities.transactional)
    kept = sink.capabilities.logical_types
    estimated = upstream.capabilities.log is not None
    planned = [_planned(table, pin, estimated, kept) for table in tables if not table.side]
    exact = pin.complete_at is None
    return PlanReport(
        job=config.job.name,
        strategy=checked.choice.strategy,
        why=checked.choice.why,
        tables=tuple(planned),
        position=_shown(pin),
        pending_epochs=len(view.pending) if view else None,
        pending_bytes=sum(e.size_bytes for e in view.pending) if view else 0,
        converging_until=None if exact else ", ".join(str(c) for _, c in pin.complete_at or ()),
        retention=checked.choice.retention,
        constraints_hold=hold,
        constraints_why=why,
        estimate_s=_estimate_s(planned, config.throttle.rate),
        refused=tuple(noting.refused),
        warnings=tuple(noting.warnings),
        notes=tuple(noting.notes),
        follows=upstream.capabilities.follows,
    )


def _planned(table: SinkTable, pin: Pin, estimated: bool, kept: Collection[str]) -> PlannedTable:
    splits = [s for s in pin.splits if s.table == table.name]
    counted = all(s.rows is not None for s in splits)
    return PlannedTable(
        name=table.name,
        target=table.target,
        key=table.key,
        splits=len(splits),
        rows=sum(s.rows or 0 for s in splits) if counted else None,
        size_bytes=sum(s.size_bytes for s in splits),
        columns=tuple((f["name"], shown_column(f, kept)) for f in fields_of(table.schema)),
        estimated=estimated,
    )


def _shown(pin: Pin) -> str:
    cursors = ", ".join(f"{log}: {cursor}" for log, cursor in pin.position)
    return pin.shown or cursors or "the start of the change log"


def _known_job(config: JobConfig, catalog: Catalog) -> Iterator[str]:
    """What a start would find of the job."""
    try:
        row = catalog.job(config.job.name)
    except NoSuchJob:
        return
    then = "start exits with code 5 while its runner is alive" if row.live else "start continues it"
    yield f"job {row.name!r} already exists ({row.state}, epoch {spell_epoch(row.epoch)}): {then}"
    if row.state == JobState.FAILED:
        yield f"its last run failed: {row.reason}"


def _estimate_s(tables: Sequence[PlannedTable], rate: float | None) -> tuple[float, float] | None:
    """A guess at the snapshot's time; None if the row count is unknown, or no rows may be read."""
    if rate == 0 or any(table.rows is None for table in tables):
        return None
    rows = sum(table.rows or 0 for table in tables)
    quick, slow = (min(rows_per_s, rate or rows_per_s) for rows_per_s in ROWS_PER_S)
    return LEAST_S + rows / quick, 2 * LEAST_S + rows / slow
