"""A table is set aside where an error is of it alone: the job goes on with its other tables, exactly.

It leaves the job's definition as a table does that is removed, but for what puts it back. One transaction of the
catalog writes that, also in the epoch that is promised: recovery then gives it to the other tables alone. So the
sink's table keeps the rows of its last commit, and a crash finds the job with the table, or without it.
"""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.jobs import spell_tables
from backfill_cli.catalog.runner import RunnerStore
from backfill_cli.config import JobConfig
from backfill_cli.contracts import JobDefinition, JobStore, Partitions, SinkTable, Source
from backfill_cli.engine.job.aside import holds, let_go, require_able
from backfill_cli.engine.job.drop import require_unqueried
from backfill_cli.engine.job.leave import of_table
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import strategy_of
from backfill_cli.engine.loop.checkpoints import lacking, promised
from backfill_cli.engine.loop.redefine import Tell, opened_as
from backfill_cli.engine.staging.quarantine import side_name
from backfill_cli.errors import BackfillError, BadData, Held, Transient, UsageError
from backfill_cli.failpoint import hit
from backfill_cli.model.aside import Aside
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Recovered
from backfill_cli.model.codec import encode
from backfill_cli.model.job import Barrier, Control, Mutations, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import table_of
from backfill_cli.model.refill import Refill, RefillState
from backfill_cli.model.split import UNREAD
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies import Strategy, StrategyState

SET_ASIDE = "set aside"
"""Begins the ledger's entry for it."""

LINES = 100
"""Of the ledger, that are looked at: more lines of commands in a row nobody types."""


def set_aside(
    job: JobDefinition,
    config: JobConfig,
    resources: Resources,
    store: RunnerStore,
    opened: ExitStack,
    tell: Tell,
    token: int,
    table: str,
    cause: Limit,
) -> tuple[JobDefinition, JobConfig, Resources]:
    """The job as it goes on, without this table. cause: why. job: as the catalog has it.

    opened: closes what this opens. Spark's session stays the one that `resources` has. token: of the runner.
    """
    recovered = resources.with_retries(store.load)
    barrier = Barrier.next(recovered.last_epoch, wall_clock_ms(), Mutations(recovered.control))
    fresh = opened.enter_context(opened_as(_without(config, table), resources, tell))
    keeps = resources.upstream.keeps_aside(table)
    reason, why = cause.columns
    gone = of_table(job, table)
    last, own = _last_of(table, job, recovered, resources), [one.name for one in job.tables if not one.side]
    section = next(one for one in config.tree["tables"] if one["name"] == table)
    one = Aside(
        table,
        json.dumps(section, ensure_ascii=False),
        json.dumps(config.options_by_table(table), ensure_ascii=False),
        spell_tables(gone),
        barrier.epoch,
        last.epoch,
        reason,
        why,
        keeps,
        position={log: at for log, at in last.position if table_of(log, own) == table},
        began={log: at for log, at in job.pin.position if table_of(log, own) == table},
        schema=last.schemas.get(table, job.pin.schema[table]),
        sink_schemas={one.name: last.sink_schemas.get(one.name, one.schema) for one in gone},
        memory=resources.upstream.rejoined("", [table], last.memory),
        pin=encode(_without_snapshot(job.pin.only(table), resources.upstream)),
        exact=last.epoch > 0 and _is_whole(table, job, last, config, resources.upstream),
    )
    definition = replace(
        job,
        config=fresh.config.stored(),
        fingerprint=json.dumps(fresh.config.fingerprint()),
        pin=job.pin.without(table),
        tables=tuple(one for one in job.tables if one not in gone),
        aside=(*(other for other in job.aside if other.table != table), _as_it_is(one, job)),
    )
    strategy = strategy_of(fresh.config, fresh.upstream.capabilities, definition.pin)
    left = _left(recovered, strategy, table, job.tables)
    promise = left.prepared or promised(left, left.committed, barrier.epoch, wall_clock_ms(), token)
    record = EpochRecord(
        barrier.epoch, barrier.prev_ms, left.committed.phase, barrier.epoch, mutations=f"{SET_ASIDE} {table}"
    )
    hit("aside-checked")
    resources.with_retries(lambda: store.set_aside(record, job, definition, left.committed, promise))
    hit("aside")
    tell(Limit(f"{table} is set aside: {cause.text}", hint=cause.hint))
    fresh.with_retries(lambda: fresh.sink.leave(job.name, [one.name for one in gone]))
    fresh.with_retries(lambda: fresh.upstream.restore(definition.pin))
    if holds(fresh.upstream):  # what it was read from need not be kept; if this is missed, see `_put_back`, `drop`
        let_go(one, fresh.config, resources)
    return definition, fresh.config, fresh


def _last_of(table: str, job: JobDefinition, recovered: Recovered, resources: Resources) -> Checkpoint:
    """The commit that the table's rows in the sink are at: the promised one, if the sink has it already."""
    committed, prepared = recovered.committed, recovered.prepared
    if prepared is None:
        return committed
    try:
        found = resources.with_retries(lambda: resources.sink.committed(job.name)).get(table)
    except Transient:
        raise
    except BackfillError:  # the table may be what cannot be read
        return committed
    has = found is not None and (found.epoch, found.attempt) == (prepared.epoch, prepared.attempt)
    return replace(prepared, splits={**committed.splits, **prepared.splits}) if has else committed


def _as_it_is(one: Aside, job: JobDefinition) -> Aside:
    """One that was being put back is at no commit: changes were applied to rows that were not right."""
    before = [known for known in job.aside if known.table == one.table and known.refill is not None]
    return replace(one, epoch=0, exact=False) if before and not before[0].exact else one


def _is_whole(table: str, job: JobDefinition, last: Checkpoint, config: JobConfig, upstream: Source) -> bool:
    """Whether a commit has all rows of the table, or what it lacks of a topic's history is in its log."""
    if isinstance(upstream.capabilities.reads, Partitions):
        return True
    strategy = strategy_of(config, upstream.capabilities, job.pin)
    return table not in strategy.unread(strategy.thaw(last.state, last.splits, Control()))


def _without_snapshot(pin: Pin, upstream: Source) -> Pin:
    """What is needed of it once the table is back, or its lease is to be released: not what it read."""
    return pin if isinstance(upstream.capabilities.reads, Partitions) else replace(pin, splits=())


def of_one_table(error: BackfillError, job: JobDefinition, config: JobConfig) -> str | None:
    """The table that is to be set aside for this error; None where the run ends with it."""
    own, table = [one.name for one in job.tables if not one.side], error.table
    if not table or isinstance(error, Transient | Held) or table not in own or not job.others_in(table):
        return None
    if not config.sets_aside(table):
        return None
    try:
        require_able(job.name, job.strategy, config.unreached_upstream(), job.pin, own, table)
    except UsageError:
        return None
    return table


def why_not(
    job: JobDefinition,
    config: JobConfig,
    resources: Resources,
    store: JobStore,
    catalog: Catalog,
    table: str,
    cause: BackfillError,
) -> str | None:
    """Why the table is not set aside: the error may be of all, though it was met at this one. None: it is of it.

    The look of each barrier is taken at the other tables, at this moment. Those that fail by themselves will be
    set aside, too; one must be left that does not. A failure that is not of its data, and that such a look at the
    table alone does not meet, may be of what only a read or a commit meets: of such, no second table is set aside
    before the others have committed an epoch. Nor is one that people query since a cutover: they would not see
    that it is not filled any more.
    """
    try:
        for one in job.tables:
            if one.name == table:
                require_unqueried(job.name, one.target, catalog)
    except BackfillError as refusal:
        return refusal.message
    recovered = resources.with_retries(store.load)
    others = [one.name for one in config.tables if one.name != table]
    while (error := _look(job, config, resources, recovered, others)) is not None:
        if error.table not in others or isinstance(error, Transient) or not config.sets_aside(error.table):
            return f"the others fail, too: {error.message}"
        others.remove(error.table)
        if not others:
            return f"the others fail, too: {error.message}"
    if not job.aside or isinstance(cause, BadData):
        return None
    last = max(job.aside, key=lambda one: one.since)
    since = [one for one in catalog.ledger(job.name, LINES) if one.epoch > last.since]
    if all(one.mutations for one in since) and _look(job, config, resources, recovered, [table]) is None:
        return f"the others have committed nothing since {last.table} was set aside"
    return None


def _look(
    job: JobDefinition, config: JobConfig, resources: Resources, recovered: Recovered, tables: Sequence[str]
) -> BackfillError | None:
    """What is wrong with the upstream as these of the job's tables need it; None: nothing."""
    gone = [one.name for one in job.tables if not one.side and one.name not in tables]
    try:
        with opened_as(config.of_tables(set(tables)), resources, lambda _: None) as fresh:
            upstream, pin = fresh.upstream, reduce(Pin.without, gone, job.pin)
            strategy, left = strategy_of(fresh.config, upstream.capabilities, pin), job.tables
            for table in gone:
                recovered = _left(recovered, strategy, table, left)
                left = tuple(one for one in left if one.name != table)
            at = recovered.committed
            fresh.with_retries(lambda: upstream.restore(pin))
            if at.memory:
                upstream.recall(at.memory)
            if strategy.thaw(at.state, at.splits, recovered.control).beside:
                upstream.read_on({of for (of, _), one in at.splits.items() if one.status in UNREAD})
            fresh.with_retries(lambda: upstream.observe(at.position, at.phase is Phase.SNAPSHOT))
    except BackfillError as error:
        return error
    return None


def not_put_back(job: JobDefinition, refills: Sequence[Refill | None]) -> tuple[str, Limit] | None:
    """The first table whose refill has failed or was cancelled, and why. refills: of `job.aside`, in its order."""
    for one, refill in zip(job.aside, refills, strict=True):
        if one.refill is None:
            continue
        if refill is None:
            return one.table, one.cause
        if refill.state in (RefillState.FAILED, RefillState.CANCELLED):
            return one.table, refill.why
    return None


def refills_of(job: JobDefinition, catalog: Catalog) -> list[Refill | None]:
    """The refill that puts each table of `job.aside` back, if it is being put back."""
    return [None if one.refill is None else catalog.refills.of(job.name, one.refill) for one in job.aside]


def _without(config: JobConfig, table: str) -> JobConfig:
    return config.of_tables({one.name for one in config.tables} - {table})


def _left(
    recovered: Recovered, strategy: Strategy[StrategyState], table: str, tables: Sequence[SinkTable]
) -> Recovered:
    """What is committed, and what is promised, without the table."""
    own = [one.name for one in tables if not one.side]
    committed, prepared = recovered.committed, recovered.prepared
    state = strategy.left(strategy.thaw(committed.state, committed.splits, recovered.control), table, own)
    names = {table, side_name(table)}
    left = replace(lacking(committed, strategy, state, table, names), splits=state.splits)
    if prepared is None:
        return replace(recovered, committed=left)
    splits = {**committed.splits, **prepared.splits}
    state = strategy.left(strategy.thaw(prepared.state, splits, recovered.control), table, own)
    promise = lacking(prepared, strategy, state, table, names)
    return replace(recovered, committed=left, prepared=_staged_for_others(promise, table))


def _staged_for_others(promise: Checkpoint, table: str) -> Checkpoint:
    """The promised epoch, from the same files, for the other tables."""
    plan, staged, names = promise.plan, promise.staged, {table, side_name(table)}
    assert plan is not None
    assert staged is not None
    if plan.refill is not None and table in staged.tables:
        plan = EpochPlan()  # what it applied of the refill is not applied
    return replace(
        promise,
        plan=replace(
            plan,
            reads=tuple(one for one in plan.reads if one.table != table),
            closes_snapshot=tuple(one for one in plan.closes_snapshot if one != table),
            filling=tuple(one for one in plan.filling if one != table),
        ),
        staged=_without_table(staged, names),
    )


def _without_table(staged: Staged, names: set[str]) -> Staged:
    return replace(
        staged,
        tables={of: one for of, one in staged.tables.items() if of not in names},
        reads=tuple((read, rows) for read, rows in staged.reads if read.table not in names),
    )
