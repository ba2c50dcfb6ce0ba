"""The definition of a job: created once from a config, or rebuilt from its sink."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.lease import JobLock
from backfill_cli.config import JobConfig
from backfill_cli.contracts import JobDefinition, Lease, SinkTable, Source
from backfill_cli.engine.job.checks import Answer, require_all
from backfill_cli.engine.job.derived import derives_of
from backfill_cli.engine.job.held import holding, recover_start_before
from backfill_cli.engine.job.ownership import owning, require_lost, take
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import nothing_follows, present, require_same, strategy_of
from backfill_cli.errors import RESTORE, StateConflict, command
from backfill_cli.model.checkpoint import Checkpoint, Marker
from backfill_cli.model.codec import decode
from backfill_cli.model.derived import derived_in
from backfill_cli.model.job import Control
from backfill_cli.model.upstream import Pin


def create(
    config: JobConfig,
    catalog: Catalog,
    resources: Resources,
    until: str,
    into_existing: bool,
    paused_by: str | None = None,
) -> JobDefinition:
    """Check everything that can be checked, hold the upstream, create the sink's tables, then the job.

    paused_by: who has it paused from the first moment; None for a job that reads at once.
    An error leaves no trace: what is made first is what an error can remove again.
    """
    name, upstream, sink = config.job.name, resources.upstream, resources.sink
    for said in nothing_follows(name, upstream.capabilities, until):
        resources.tell(said)
    checked = require_all(config, catalog, resources, into_existing, _Insisting(config, catalog, resources))
    tables = checked.tables
    _ = resources.spark  # settings that it cannot read refuse the start, too, before anything is made
    with holding(config, catalog, upstream, checked.pin, resources) as held_pin:
        resources.with_retries(lambda: sink.prepare(name, tables, into_existing))
        with owning(name, catalog, sink):
            if config.derived:
                derives, derived = derives_of(config, sink), [one.value for one in config.derived]
                resources.with_retries(lambda: derives.prepare(name, derived, tables))
            resources.with_retries(lambda: take(name, catalog, sink, checked.owner))
            since_ms = None if paused_by is None else wall_clock_ms()
            control = replace(config.control, paused_by=paused_by, paused_since_ms=since_ms)
            definition, checkpoint = _begun(config, upstream, held_pin, until, tables, control)
            catalog.create_job(definition, control, checkpoint)
    return definition


@dataclass(frozen=True, slots=True)
class _Insisting:
    """See checks.Asking: what may pass is waited for, and a refusal ends the start."""

    config: JobConfig
    catalog: Catalog
    resources: Resources

    def ask(self, check: Callable[[], Answer]) -> Answer:
        return self.resources.with_retries(check)

    def clear(self) -> None:
        recover_start_before(self.config, self.catalog, self.resources)

    def pinned(self) -> None:
        self.resources.begin_spark()

    def looks(self, doing: str) -> None:
        """What takes longest is Spark, which starts meanwhile, and is told."""

    def may_create(self, lease: Lease) -> bool:
        self.resources.with_retries(lease.require_able)
        return True


def _begun(
    config: JobConfig, upstream: Source, pin: Pin, until: str, tables: tuple[SinkTable, ...], control: Control
) -> tuple[JobDefinition, Checkpoint]:
    """The job, and its state before the first barrier."""
    strategy = strategy_of(config, upstream.capabilities, pin)
    definition = JobDefinition(
        name=config.job.name,
        config=config.stored(),
        fingerprint=json.dumps(config.fingerprint()),
        pin=pin,
        until=until,
        strategy=strategy.name,
        tables=tables,
        config_file=config.file,
    )
    state = strategy.start(pin, control)
    checkpoint = Checkpoint(
        epoch=0,
        prev_ms=0,
        token=0,
        attempt="",
        state=strategy.freeze(state),
        phase=state.phase,
        position=state.position,
        schemas=dict(pin.schema),
        sink_schemas={t.name: t.schema for t in tables},
    )
    return definition, checkpoint


def rebuild(name: str, catalog: Catalog, config: JobConfig, resources: Resources, lock: JobLock) -> None:
    """The catalog gets from the sink what the sink keeps of the job; the job's token starts above the marker's.

    The rates are taken from the config. Raises StateConflict when the sink has no record of the job, UsageError
    when the config leads to a different result than the job's, Held when the owning catalog is not lost.
    """
    held = resources.with_retries(lambda: require_lost(name, catalog, resources.sink))
    saved = resources.with_retries(lambda: resources.sink.saved(name))
    known = name in {row.name for row in catalog.jobs()}
    if saved is None:
        raise StateConflict(
            f"the sink of this config has no record of job {name!r}",
            RESTORE
            if known
            else "check [job] name and [sink]; a new job begins with: " + command("start --config job.toml"),
        )
    kept = decode(JobDefinition, saved.definition)
    control, config = config.control, present(kept, config)  # the rates of tables that are set aside, too
    require_same(kept, config, known=known)
    definition = replace(kept, config=config.stored(), config_file=config.file)
    markers = resources.with_retries(lambda: resources.sink.committed(name))
    token = max((marker.token for marker in markers.values()), default=saved.checkpoint.token)
    checkpoint = replace(saved.checkpoint, plan=None, staged=None)
    _fill_behind(name, definition, checkpoint, markers, resources)
    catalog.rebuild(definition, checkpoint, control, token, lock)
    resources.with_retries(lambda: take(name, catalog, resources.sink, held))


def _fill_behind(
    name: str, definition: JobDefinition, saved: Checkpoint, markers: Mapping[str, Marker], resources: Resources
) -> None:
    """Derived tables that a kill left behind the others are filled: what they lack only the lost catalog knew."""
    if resources.sink.capabilities.transactional:
        return
    behind = [
        one
        for one in derived_in(definition.config)
        if (marker := markers.get(one.name)) and marker.epoch not in (0, saved.epoch)
    ]
    if behind:
        assert resources.sink.extras.derives is not None
        derives = resources.sink.extras.derives
        resources.with_retries(lambda: derives.renew(name, behind))
