"""`backfill plan`: what a job would do, from metadata and a sample; nothing is written."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from backfill_cli.catalog.moments import spell_epoch
from backfill_cli.contracts import AdvisingUpstream, CheckedSink, HeldUpstream, LogicalSink, SinkTable
from backfill_cli.engine.job.create import (
    require_same,
    require_same_strategy,
    require_spool_free,
    require_staging_place,
    sink_tables,
)
from backfill_cli.engine.job.held import held_without_runner
from backfill_cli.engine.job.ownership import owners_sought, require_kept, require_new
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import (
    choose,
    constraints,
    nothing_follows,
    require_apart,
    require_keys,
    require_whole,
)
from backfill_cli.engine.job.start_over import start_over_named
from backfill_cli.engine.job.starting import spell_begun
from backfill_cli.engine.staging.files import require_shared
from backfill_cli.engine.staging.sample import require_readable
from backfill_cli.errors import BackfillError, NoSuchJob, SinkInUse, Transient
from backfill_cli.model.job import JobState
from backfill_cli.model.plan_report import PlannedTable, PlanReport
from backfill_cli.model.schema import fields_of, shown_column
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import JobConfig

ROWS_PER_S = (1_500_000.0, 100_000.0)  # five narrow columns on two cores; wide rows, a slow disk
LEAST_S = 5.0  # until Spark has started


def plan(config: "JobConfig", catalog: "Catalog", into_existing: bool = False) -> PlanReport:
    """Pin, observe and check the transform as `start` would, and report the result.

    Raises what `start` would raise for a config that cannot run.
    """
    notes = list(_known_job(config, catalog))
    known = bool(notes)
    warnings: list[str] = []
    refused: list[str] = []
    with start_over_named(config.job.name, catalog), Resources(config) as resources:
        upstream, sink = resources.upstream, resources.sink
        choice = choose(config.job.strategy, upstream.capabilities)
        if known:
            require_same_strategy(catalog.definition(config.job.name), config, upstream)
        else:
            require_spool_free(config)
        require_keys(config.table_specs(), upstream.capabilities)
        pin = upstream.pin()
        require_whole(config, upstream, sink)
        notes += nothing_follows(config.job.name, upstream.capabilities)
        warnings += upstream.advice() if isinstance(upstream, AdvisingUpstream) else ()
        if isinstance(upstream, HeldUpstream) and not known:
            begun = catalog.starts.of(config.job.name)
            refused += upstream.would_refuse(None if begun is None else begun.mark)
            if begun is not None and (left := upstream.left(begun.mark)):
                notes.append(f"{spell_begun(begun)}; start will remove what it left: {', '.join(left)}")
            notes += () if refused else upstream.would_hold()
        elif isinstance(upstream, HeldUpstream):
            held = held_without_runner(config.job.name, catalog, upstream)
            if held is not None and held.is_over:
                warnings.append(f"{held}: start would give it up and exit with code 7; raise the limit first")
            elif held is not None:
                notes.append(str(held))
        # once refused, the upstream is not read further: the object with its name may belong to somebody else
        view = None if refused else upstream.observe(pin.position, snapshot_open=True)
        tables = sink_tables(config, resources.spark, upstream, pin, plain=True)
        require_apart(upstream, sink, tables)
        require_staging_place(config.job.staging)
        require_shared(config, resources.spark)
        if view is not None and not known:
            try:
                require_readable(lambda: resources.spark, upstream, config, pin)
            except Transient as error:
                warnings.append(f"{error.message}; start would wait: {error.hint}")
            except BackfillError as error:
                raise error.without_job() from error.__cause__
        hold, why = constraints(choice.strategy, upstream.capabilities, sink.transactional)
        try:
            (require_kept if known else require_new)(config.job.name, catalog, sink)
            if isinstance(sink, CheckedSink):
                with owners_sought(catalog):
                    sink.check(config.job.name, tables, into_existing=known or into_existing)
        except SinkInUse as error:
            refused.append(f"{error.message}. Try: {error.hint}")
        except Transient as error:
            warnings.append(f"{error.message}; start would wait: {error.hint}")
    kept = sink.logical_types if isinstance(sink, LogicalSink) else frozenset[str]()
    planned = [_planned(table, pin, upstream.capabilities.current, kept) for table in tables if not table.side]
    exact = pin.complete_at is None
    return PlanReport(
        job=config.job.name,
        strategy=choice.strategy,
        why=choice.why,
        tables=tuple(planned),
        position=_shown(pin),
        pending_epochs=len(view.pending) if view else None,
        pending_bytes=sum(e.size_bytes for e in view.pending) if view else 0,
        converging_until=None if exact else ", ".join(str(c) for _, c in pin.complete_at or ()),
        retention=choice.retention,
        constraints_hold=hold,
        constraints_why=why,
        estimate_s=_estimate_s(planned, config.throttle.rate),
        refused=tuple(refused),
        warnings=tuple(warnings),
        notes=tuple(notes),
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


def _known_job(config: "JobConfig", catalog: "Catalog") -> Iterator[str]:
    """What a start would find of the job. Raises UsageError for a config that leads to a different result."""
    try:
        row = catalog.job(config.job.name)
    except NoSuchJob:
        return
    require_same(catalog.definition(row.name), config, catalog.change_logs.has_been_read(row.name))
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
