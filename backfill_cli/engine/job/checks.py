"""What a new job needs before anything is created for it: one list, which `start` requires and `plan` reports.

`plan` says what a job would do, from metadata and a sample; nothing is written.
"""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.config import JobConfig
from backfill_cli.contracts import JobDefinition, Lease, Sink, SinkTable, Source, derived_table, own
from backfill_cli.engine.job.asked import before_waiting
from backfill_cli.engine.job.columns import left_out, require_used
from backfill_cli.engine.job.derived import planned_derived
from backfill_cli.engine.job.estimate import of_earlier, of_sample
from backfill_cli.engine.job.gauges import told_once
from backfill_cli.engine.job.headroom import answer, too_short
from backfill_cli.engine.job.held import held_without_runner, spell_pending_start
from backfill_cli.engine.job.ownership import owners_sought, require_kept, require_new, start_over_named
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import (
    Selected,
    changed_keys,
    choose,
    constraints,
    nothing_follows,
    present,
    require_apart,
    require_keys,
    require_same_strategy,
    require_whole,
)
from backfill_cli.engine.job.side_tables import side_tables
from backfill_cli.engine.spool.folder import owned
from backfill_cli.engine.staging.files import nothing_left, require_shared
from backfill_cli.engine.staging.sample import Sampled, require_readable
from backfill_cli.engine.staging.transform import require_own_columns, sink_schema
from backfill_cli.errors import BackfillError, NoSuchJob, SinkInUse, Transient, UsageError, command
from backfill_cli.model.checkpoint import Owner
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.job import OF_RUNS, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import table_of
from backfill_cli.model.reports import PlannedDeadline, PlannedDerived, PlannedTable, PlanReport, Refusal
from backfill_cli.model.schema import fields_of, names_of, shown_column
from backfill_cli.model.units import spell_epoch
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.spark.api import Session
from backfill_cli.spark.session import require_startable

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks found out. owner: the job's catalog according to the sink, for `ownership.take`.

    sample: what was read of the snapshot, and how long that took. derived: what its sink keeps beside its tables.
    """

    choice: Selected
    pin: Pin
    tables: tuple[SinkTable, ...]
    owner: Owner | None
    sample: Sampled
    derived: tuple[PlannedDerived, ...] = ()


class Asking(Protocol):
    """How a command asks: `start` waits for what may pass and raises the rest, `plan` notes some and goes on."""

    def ask(self, check: Callable[[], Answer]) -> Answer | None:
        """The answer; None for a refusal that was noted. Raises any other."""
        ...

    def clear(self) -> None:
        """Called before the upstream is pinned: removes, or notes, what an interrupted start left there."""
        ...

    def pinned(self) -> None:
        """Called once the upstream is pinned: beside the checks that follow, `start` opens Spark."""
        ...

    def looks(self, doing: str) -> None:
        """What is being checked, for whoever waits for the checks alone."""
        ...

    def may_create(self, lease: Lease) -> bool:
        """Whether the job could hold what it needs; if not, no row is read: what has its name may be another's."""
        ...


def require_all(
    config: JobConfig, catalog: Catalog, resources: Resources, into_existing: bool, asking: Asking
) -> Checked:
    """Everything that can be checked of a new job holds; nothing is created, and nothing left behind.

    Raises what `asking` does not note. Whatever can refuse a start is added here, so that `plan` shows it, too.
    """
    upstream, sink, name, session = resources.upstream, resources.sink, config.job.name, lambda: resources.spark
    owner = asking.ask(lambda: require_new(name, catalog, sink))
    asking.clear()
    require_spool_free(config)
    choice, pin = _pinned(config, resources)
    asking.pinned()
    readable = upstream.lease is None or asking.may_create(upstream.lease)
    with nothing_left(Path(config.job.staging)):
        tables = _placed(config, resources, pin, plain=not into_existing)
        for table in config.tables:
            require_own_columns(session, pin.schema[table.name], config.transform_of(table.name))
        asking.looks("looking at the sink")
        _require_sink(config, catalog, sink, tables, into_existing, asking)
        derived = asking.ask(lambda: planned_derived(config, sink, tables))
        sample = None
        if readable:
            asking.looks("reading a sample of the rows")
            sample = asking.ask(lambda: require_readable(session, upstream, config, pin, tables))
    return Checked(choice, pin, tables, owner, sample or Sampled(), derived or ())


def require_again(config: JobConfig, catalog: Catalog, resources: Resources, asking: Asking) -> Checked:
    """As `require_all`, for a job that exists: what its next run needs, from metadata alone."""
    job, sink = catalog.definition(config.job.name), resources.sink
    before = before_waiting(job, config, catalog, catalog.job(job.name).live)
    require_same_strategy(job, config, resources.upstream)
    with ExitStack() as opened:
        was = resources
        if before is not config:
            was = opened.enter_context(Resources(before, opening=resources.opening, waits=False))
        asking.ask(lambda: _require_as_left(job, catalog, was))
    choice, pin = _pinned(config, resources)
    with nothing_left(Path(config.job.staging)):
        tables = _placed(config, resources, pin, plain=True)
    owner = asking.ask(lambda: require_kept(job.name, catalog, sink))
    _require_sink(config, catalog, sink, tables, True, asking)
    derived = asking.ask(lambda: planned_derived(config, sink, (*tables, *job.beside)))
    return Checked(choice, pin, tables, owner, Sampled(), derived or ())


def _require_as_left(job: JobDefinition, catalog: Catalog, resources: Resources) -> None:
    """The upstream has what the job's next run observes first. Raises what that run would.

    A runner observes it by itself; what an upstream holds for the job is asked by `held.held_without_runner`.
    """
    row, upstream = catalog.job(job.name), resources.rows
    if row.live or upstream.capabilities.log is not None:
        return
    upstream.restore(job.pin)
    if memory := catalog.change_logs.memory(job.name):
        upstream.recall(memory)
    upstream.observe(catalog.change_logs.acknowledged(job.name), row.phase == Phase.SNAPSHOT)


def _pinned(config: JobConfig, resources: Resources) -> tuple[Selected, Pin]:
    """The upstream fits the config's strategy, keys and transforms."""
    upstream = resources.upstream
    choice = choose(config.job.strategy, upstream.capabilities)
    require_keys(config.table_specs(), upstream.capabilities)
    pin = resources.with_retries(upstream.pin)
    require_whole(config, upstream, resources.sink)
    if any(config.sets_aside(table.name) for table in config.tables):
        from backfill_cli.engine.job.aside import require_aside

        require_aside(config, choice.strategy, upstream, pin)
    return choice, pin


def _placed(config: JobConfig, resources: Resources, pin: Pin, plain: bool) -> tuple[SinkTable, ...]:
    """The sink's tables are no table of the upstream's, and staging has a folder that everything shares."""
    upstream, sink, session = resources.upstream, resources.sink, lambda: resources.spark
    tables = sink_tables(config, session, upstream, pin, plain)
    placed = (*tables, *(derived_table(one.value) for one in config.derived))
    resources.with_retries(lambda: require_apart(config.job.name, upstream, sink, placed))
    require_staging(config.job.staging)
    require_shared(config, session)
    return tables


def _require_sink(
    config: JobConfig,
    catalog: Catalog,
    sink: Sink,
    tables: Sequence[SinkTable],
    into_existing: bool,
    asking: Asking,
) -> None:
    with owners_sought(catalog):
        asking.ask(lambda: sink.check(config.job.name, tables, into_existing))


def require_staging(staging: str) -> None:
    """The staging folder exists and can be written. Raises UsageError if not."""
    place = Path(staging).absolute()
    there = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"job.staging {staging}: {there} is not a writable folder", "name another folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"job.staging {staging}: {error.strerror}", "name another folder") from None


def require_spool_free(config: JobConfig) -> None:
    """No other job of the same name uses the place of a chain's spool. Raises UsageError if one does."""
    if config.job.strategy == "chain" and owned(config.spool.path, config.job.name):
        raise UsageError(
            f"spool.path {config.spool.path} holds the spool of another catalog's job {config.job.name!r}",
            "name another folder, or drop that job with its own catalog",
        )


def sink_tables(
    config: JobConfig, session: Session, upstream: Source, pin: Pin, plain: bool
) -> tuple[SinkTable, ...]:
    """The job's tables as the sink sees them, after the transform, each with a side table for unreadable rows.

    Raises UsageError for a column of the upstream with a name of ours, or that differs from another in case only.
    """
    for name, schema in pin.schema.items():
        own.refuse_names(f"table {name!r}", names_of(schema))
    require_used(config, pin)
    tables = tuple(
        SinkTable(
            t.name,
            t.sink_name,
            config.sink_key(t.name),
            sink_schema(session, pin.schema[t.name], config.transform_of(t.name)),
            plain_inserts=plain,
            place=_place(config, upstream, t.name),
        )
        for t in config.tables
    )
    for table in tables:
        own.refuse_names(f"table {table.name!r}, after its transform", names_of(table.schema))
    return (*tables, *side_tables(tables, upstream, pin))


def _place(config: JobConfig, upstream: Source, table: str) -> tuple[str, ...] | None:
    """See `SinkTable.place`: what a transform selects need not be it, whatever its name."""
    if upstream.capabilities.partitions is None:
        return None
    return upstream.capabilities.place if config.transform_of(table).select is None else ()


@dataclass
class _Noting:
    """See Asking: what a report can hold is noted, and the next check asked; nothing is waited for.

    readable: whether the upstream's rows and log may be looked at.
    """

    config: JobConfig
    catalog: Catalog
    tell: Callable[[Limit | str], None]
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

    def pinned(self) -> None:
        """Spark is opened only for what nothing else can tell; a start would open it in any case."""
        require_startable(self.config)

    def looks(self, doing: str) -> None:
        self.tell(doing)

    def may_create(self, lease: Lease) -> bool:
        begun = self.catalog.starts.of(self.config.job.name)
        refused = lease.obstacles(None if begun is None else begun.mark)
        self.refused += refused
        self.readable = not refused
        if begun is not None and (left := lease.leftovers(begun.mark)):
            self.notes.append(f"{spell_pending_start(begun)}; start will remove what it left: {', '.join(left)}")
        self.notes += lease.preview() if self.readable else ()
        return self.readable

    def cost(self, lease: Lease) -> None:
        """What the job, which exists, holds in its upstream while no runner has it."""
        held = held_without_runner(self.config.job.name, self.catalog, lease)
        if held is not None and held.is_over:
            self.warnings.append(f"{held}: start would give it up and exit with code 7; raise the limit first")
        elif held is not None:
            self.notes.append(str(held))


def plan(
    config: JobConfig,
    catalog: Catalog,
    into_existing: bool = False,
    tell: Callable[[Limit | str], None] = lambda _doing: None,
    until: str | None = None,
    tries: Callable[[Resources], object] = lambda _resources: None,
) -> PlanReport:
    """Pin, observe and check what `start` checks, and report the result.

    tell: receives what is being looked at. until: with which it is started, if it is known. tries: what is tried
    besides. Raises what `start` would raise for a config that cannot run.
    """
    noting = _Noting(config, catalog, tell)
    known = tuple(_known_job(config, catalog))
    config = present(catalog.definition(config.job.name) if known else None, config)
    with start_over_named(config.job.name, catalog), Resources(config, tell, waits=False) as resources:
        upstream, sink = resources.upstream, resources.sink
        noting.notes += nothing_follows(config.job.name, upstream.capabilities, until)
        if known:
            checked = require_again(config, catalog, resources, noting)
            noting.notes += _edited(config, catalog)
        else:
            try:
                checked = require_all(config, catalog, resources, into_existing, noting)
            except BackfillError as error:
                raise error.without_job() from error.__cause__
        noting.warnings += upstream.extras.warnings()
        if not noting.refused:
            noting.warnings += sink.extras.warnings(checked.tables)
        if known and upstream.lease is not None:
            noting.cost(upstream.lease)
        pin, tables = checked.pin, checked.tables
        # once refused, the upstream is not read further: the object with its name may belong to somebody else
        view = upstream.observe(pin.position, snapshot_open=True) if noting.readable else None
        headroom = _headroom(upstream, pin, view)
        hold, why = constraints(checked.choice.strategy, upstream.capabilities, sink.capabilities.transactional)
        tries(resources)
    kept = sink.capabilities.logical_types
    estimated = upstream.capabilities.log is not None
    fields, made = upstream.extras.fields(), config.transform_of
    planned = [
        replace(
            planned_of(table, pin, estimated, kept),
            transformed=made(table.name).select is not None,
            left_out=left_out(config, pin, table),
            fields=tuple(fields.get(table.name, ())),
            rate=config.table(table.name).rate,
        )
        for table in tables
        if not table.side
    ]
    beside = [planned_of(table, pin, False, kept) for table in tables if table.side]
    estimate_s, by = estimate_of(config, catalog, planned, checked.sample)
    now_ms, job = wall_clock_ms(), catalog.job(config.job.name) if known else None
    short = too_short(headroom, checked.choice.strategy, estimate_s, now_ms)
    due = config.throttle.deadline(now_ms if job is None else job.created_ms)
    running = job is not None and job.live
    again = "start --config FILE" + " --into-existing" * (into_existing and not known)
    return PlanReport(
        job=config.job.name,
        strategy=checked.choice.strategy,
        why=checked.choice.why,
        tables=tuple(planned),
        position=_shown(pin),
        pending_epochs=len(view.pending) if view else None,
        pending_bytes=sum(e.size_bytes for e in view.pending) if view else 0,
        converging_until=_consistent_from(pin, [one.name for one in planned]),
        retention=checked.choice.retention,
        constraints_hold=hold,
        constraints_why=why,
        estimate_s=estimate_s,
        estimated_by=by,
        refused=tuple(noting.refused),
        warnings=(*noting.warnings, *(() if short is None else (short,))),
        notes=tuple(noting.notes),
        exists=known,
        follows=upstream.capabilities.follows,
        side_tables=tuple(beside),
        running=running,
        then=command(f"status {config.job.name}" if running else again),
        headroom=headroom,
        guards=told_once(config, catalog),
        deadline=None if due is None else PlannedDeadline.of(due.finish_ms, estimate_s, now_ms),
        derived=checked.derived,
    )


def _headroom(upstream: Source, pin: Pin, view: UpstreamView | None) -> Headroom | None:
    """How long the upstream keeps what a job that begins now has not read; None where it may not be asked."""
    ask = upstream.extras.headroom
    if ask is None or view is None:
        return None
    oldest_ms = next((epoch.ms for epoch in view.pending), None)
    return answer(ask, Unread(pin.position, True, wall_clock_ms(), oldest_ms))


def planned_of(table: SinkTable, pin: Pin, estimated: bool, kept: Collection[str]) -> PlannedTable:
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


def _consistent_from(pin: Pin, tables: Sequence[str]) -> str | None:
    """Of one log that all tables share, its cursor alone; what it has of each one's folder says no more."""
    cursors = list(pin.complete_at or ())
    shared = [cursor for log, cursor in cursors if table_of(log, tables) is None]
    told = dict.fromkeys(map(str, shared or (cursor for _, cursor in cursors)))
    return None if pin.complete_at is None else ", ".join(told)


def _known_job(config: JobConfig, catalog: Catalog) -> Iterator[str]:
    """What a start would find of the job."""
    try:
        row = catalog.job(config.job.name)
    except NoSuchJob:
        return
    then = "start exits with code 5 while its runner is alive" if row.live else "start continues it"
    yield f"job {row.name!r} already exists ({row.state}, commit {spell_epoch(row.epoch)}): {then}"
    if row.state == JobState.FAILED:
        yield f"its last run failed: {row.reason}"


def _edited(config: JobConfig, catalog: Catalog) -> Iterator[str]:
    """How the config differs from the job's, whose result it does not change, and what makes the job use it."""
    row = catalog.job(config.job.name)
    if any(one.verb in OF_RUNS for one in row.waiting):
        return  # no `set` follows these
    keys = changed_keys(catalog.definition(row.name).config, config)
    if keys and config.file:
        use = command(f"set {row.name} --config {shlex.quote(config.file)}")
        yield f"the config differs from the job's: {', '.join(keys)}; for the job to use it: {use}"


def estimate_of(
    config: JobConfig, catalog: Catalog, tables: Sequence[PlannedTable], sample: Sampled
) -> tuple[tuple[float, float] | None, str]:
    """The snapshot's time, and what that is known by; None, and why it is not known."""
    if config.throttle.rate == 0:
        return None, "throttle.rate is 0: no row of the snapshot is read"
    rates = config.control.rates
    stopped = [table.name for table in tables if rates.get(table.name) == 0]
    if stopped:
        return None, f"the rate of table {stopped[0]} is 0: no row of it is read"
    if any(table.rows is None for table in tables):
        return None, "number of rows not known"
    found = of_earlier(config, catalog) or of_sample(sample.rows, sample.seconds)
    if found is None:
        return None, "no job of its kind has run in this catalog"
    least_s, most_s = found.seconds(sum(table.rows or 0 for table in tables), config.throttle.rate)
    own_s = max(((one.rows or 0) / rates[one.name] for one in tables if one.name in rates), default=0.0)
    return (max(least_s, own_s), max(most_s, own_s)), found.by
