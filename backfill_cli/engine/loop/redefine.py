"""A job gets another definition at a barrier: another config, or a table that joins or leaves it.

Nothing is in flight then, and the command is still in the inbox. One transaction of the catalog takes it and
writes the definition: after a crash the command is there, or the job is what it says. What cannot be is refused
there, and the job goes on as it was.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.runner import RunnerStore
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.ownership import owners_sought
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import require_same, require_same_strategy
from backfill_cli.engine.job.side_tables import late_tables
from backfill_cli.errors import BackfillError, Held
from backfill_cli.failpoint import hit
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Barrier, Mutations, until_redefined
from backfill_cli.model.limit import Limit

PATIENCE_S = 10.0
"""How long what may pass is waited for: longer, and the command is refused, as the job goes on without it."""

Tell = Callable[[Limit | str], None]


def redefined(
    job: JobDefinition,
    config: JobConfig,
    resources: Resources,
    store: RunnerStore,
    catalog: Catalog,
    opened: ExitStack,
    tell: Tell,
) -> tuple[JobDefinition, JobConfig, Resources]:
    """The job as it goes on, once the command that redefines it is taken or refused.

    opened: closes what this opens. Spark's session stays the one that `resources` has.
    """
    recovered = resources.with_retries(store.load)
    _, command = until_redefined(store.commands())
    if command is None:
        return job, config, resources
    barrier = Barrier.next(recovered.last_epoch, wall_clock_ms(), Mutations(recovered.control, (command,)))
    phase, verbs = recovered.committed.phase, barrier.mutations.verbs
    record = EpochRecord(barrier.epoch, barrier.prev_ms, phase, barrier.epoch, mutations=verbs)
    change = Change.read(command.payload)
    try:
        another = from_stored(change.config)
        fresh = opened.enter_context(_opened(another, resources, tell, PATIENCE_S))
        made = _made(job, another, change, fresh, catalog)
    except Held:
        raise
    except BackfillError as refusal:
        why = Limit(refusal.message, hint=refusal.hint)
        resources.with_retries(lambda: store.refused(command, record, why))
        tell(f"{command.said}, requested by {command.by}, was refused: {why.said}")
        same = opened.enter_context(_opened(config, resources, tell, config.retry.limit_s))
        same.with_retries(lambda: same.upstream.restore(job.pin))
        return job, config, same
    hit("redefinition-checked")
    control = change.paced(recovered.control)
    resources.with_retries(lambda: store.redefined(command, record, job, made, control))
    hit("redefined")
    tell(f"{command.said}, requested by {command.by}: the job goes on with {_spell(change)}")
    fresh.patience_s = another.retry.limit_s
    return made, another, fresh


def _opened(config: JobConfig, before: Resources, tell: Tell, patience_s: float) -> Resources:
    """Upstream and sink of a config, and the Spark session that is there."""
    opened = Resources(config, tell, opening=before.opening)
    opened.patience_s = min(patience_s, opened.patience_s)
    return opened


def _made(
    job: JobDefinition, config: JobConfig, change: Change, resources: Resources, catalog: Catalog
) -> JobDefinition:
    """The job with this config. Raises what refuses it; then nothing has changed."""
    require_same(job, config, lambda: catalog.change_logs.has_been_read(job.name))
    require_same_strategy(job, config, resources.upstream)
    late = late_tables(job, resources.upstream)
    with owners_sought(catalog):
        resources.with_retries(lambda: resources.sink.check(job.name, late, into_existing=False) if late else None)
    resources.with_retries(lambda: resources.upstream.restore(job.pin))
    tables = (*job.tables, *late)
    resources.with_retries(lambda: resources.sink.prepare(job.name, tables, into_existing=True))
    return replace(job, config=change.config, config_file=change.file or job.config_file, tables=tables)


def _spell(change: Change) -> str:
    return f"the new {', '.join(change.keys)}" if change.keys else "the config as it was"
