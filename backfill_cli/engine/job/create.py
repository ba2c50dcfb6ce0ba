"""The definition of a job: created once from a config, compared at each later start, rebuilt from its sink."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.config.differences import differences, moved
from backfill_cli.contracts import CheckedSink, HeldUpstream, JobDefinition, SinkTable, Upstream, own
from backfill_cli.engine.job.ownership import owning, require_lost, require_new, take
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import (
    choose,
    nothing_follows,
    require_apart,
    require_keys,
    require_whole,
    strategy_of,
)
from backfill_cli.engine.job.starting import holding, settle_before
from backfill_cli.engine.spool.folder import holds_entries, owned
from backfill_cli.engine.staging.files import nothing_left, require_shared
from backfill_cli.engine.staging.partitions import side_table
from backfill_cli.engine.staging.sample import require_readable
from backfill_cli.engine.staging.schemas import sink_schema
from backfill_cli.errors import RESTORE, START_OVER, StateConflict, UsageError, start_over
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import decode
from backfill_cli.model.job import Control
from backfill_cli.model.schema import names_of
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_cli.catalog.lease import JobLock


_HOW_WRITTEN = (
    *(
        f"upstream.{side}{option}"
        for side in ("changes.", "changes.value.", "value.")
        for option in ("decimals", "timestamps")
    ),
    "upstream.changes.file_format",
    *(f"upstream.changes.csv.{option}" for option in ("header", "quote", "escape", "multi_line")),
)


def create(
    config: JobConfig, catalog: Catalog, resources: Resources, until: str, into_existing: bool
) -> JobDefinition:
    """Check everything that can be checked, hold the upstream, create the sink's tables, then the job.

    An error leaves no trace: what is made first is what an error can remove again.
    """
    name = config.job.name
    held = resources.patiently(lambda: require_new(name, catalog, resources.sink))
    settle_before(config, catalog, resources)
    upstream = resources.upstream
    choose(config.job.strategy, upstream.capabilities)
    for said in nothing_follows(name, upstream.capabilities, until):
        resources.tell(said)
    require_keys(config.table_specs(), upstream.capabilities)
    pin = resources.patiently(upstream.pin)
    require_whole(config, upstream, resources.sink)
    if isinstance(upstream, HeldUpstream):
        resources.patiently(upstream.may_hold)
    tables = sink_tables(config, resources.spark, upstream, pin, plain=not into_existing)
    resources.patiently(lambda: require_apart(upstream, resources.sink, tables))
    with nothing_left(Path(config.job.staging)):
        _require_staging(config.job.staging)
        require_spool_free(config)
        require_shared(config, resources.spark)
        resources.patiently(lambda: require_readable(lambda: resources.spark, upstream, config, pin))
    sink = resources.sink
    if isinstance(sink, CheckedSink):
        checked = sink
        resources.patiently(lambda: checked.check(name, tables, into_existing))
    with holding(config, catalog, upstream, pin, resources) as held_pin:
        resources.patiently(lambda: sink.prepare(name, tables, into_existing))
        with owning(name, catalog, sink):
            resources.patiently(lambda: take(name, catalog, sink, held))
            definition, checkpoint = _begun(config, upstream, held_pin, until, tables)
            catalog.create_job(definition, Control(rate=config.throttle.rate), checkpoint)
    return definition


def _begun(
    config: JobConfig, upstream: Upstream, pin: Pin, until: str, tables: tuple[SinkTable, ...]
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
    state = strategy.start(pin, Control(rate=config.throttle.rate))
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


def require_staging_place(staging: str) -> None:
    """The staging folder exists, or could be created. Raises UsageError if not."""
    place = Path(staging).absolute()
    there = next(folder for folder in (place, *place.parents) if os.path.lexists(folder))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"job.staging {staging}: {there} is not a writable folder", "name another folder")


def require_spool_free(config: JobConfig) -> None:
    """No other job of the same name uses the place of a chain's spool. Raises UsageError if one does."""
    if config.job.strategy == "chain" and owned(config.spool.path, config.job.name):
        raise UsageError(
            f"spool.path {config.spool.path} holds the spool of another catalog's job {config.job.name!r}",
            "name another folder, or drop that job with its own catalog",
        )


def _require_staging(staging: str) -> None:
    """The staging folder exists. Raises UsageError when it cannot be created."""
    try:
        Path(staging).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"job.staging {staging}: {error.strerror}", "name a writable folder") from None


def require_same(job: JobDefinition, config: JobConfig, has_read_changes: bool = True, known: bool = True) -> None:
    """The config leads to the same result as the job's own, and its spool is where the config says.

    has_read_changes: some change was decoded with the job's own config; until then, how changes are written may be
    corrected. known: the catalog has the job, not the sink alone. Raises UsageError with every difference.
    """
    name, before = job.name, from_stored(job.config)
    had = before.fingerprint()
    if holds_entries(before.spool.path, name) and not owned(config.spool.path, name):
        raise UsageError(
            f"job {name!r}: spool.path is now {config.spool.path}, but the spool is in {before.spool.path}",
            f"move {before.spool.path}/{name} to {config.spool.path}/{name}, or set spool.path back",
        )
    found = differences(had, config.fingerprint())
    found = [one for one in found if not _says_how_written(one, ": nothing → " if has_read_changes else ": ")]
    if found:
        raise _different(name, found, moved(had, config.fingerprint()), known)


def _different(name: str, found: list[str], folder: tuple[str, str] | None, known: bool) -> UsageError:
    """The error for a config that leads to another result. folder: that was moved perhaps, and its new path."""
    over = START_OVER if known else start_over(name, "--sink job.toml", "--with-rows")
    hint = (
        "undo these changes (only throttle, barrier, catch_up, retry, spool, spark, hooks, staging, live, and "
        f"what a hint asked you to add may change), or name another job, or {over}"
    )
    if folder is not None and os.path.isdir(folder[1]) and not os.path.lexists(folder[0]):
        forget = (
            f"forget the job here: backfill drop {name} --without-sink --confirm {name}; "
            "start then names the command that drops its rows"
        )
        back = shlex.join(["mv", folder[1], folder[0]])
        hint = f"{folder[0]} is gone: if it was moved here, move it back: {back}; or {forget if known else over}"
    return UsageError(
        f"job {name!r} exists, and this config would produce a different result. These options differ:\n  "
        + "\n  ".join(found),
        hint,
    )


def _says_how_written(difference: str, told: str) -> bool:
    """Whether it concerns how changes are written. told: `: nothing → ` accepts only options that were not set."""
    return difference.startswith(tuple(f"{option}{told}" for option in _HOW_WRITTEN))


def require_same_strategy(job: JobDefinition, config: JobConfig, upstream: Upstream) -> None:
    """The config leads to the job's own strategy. Raises UsageError if it leads to another."""
    asked = choose(config.job.strategy, upstream.capabilities).strategy
    if asked != job.strategy:
        raise UsageError(
            f"job {job.name!r} exists with strategy {job.strategy!r}, but this config leads to {asked!r}",
            f'set job.strategy = "{job.strategy}" again, or name another job, or {START_OVER}',
        )


def changed_keys(stored: str, config: JobConfig) -> list[str]:
    """The keys of the config that differ from the stored one, without values: they can be long or confidential."""
    return [told.partition(": ")[0] for told in differences(json.loads(stored), json.loads(config.stored()))]


def sink_tables(
    config: JobConfig, spark: "SparkSession", upstream: Upstream, pin: Pin, plain: bool
) -> tuple[SinkTable, ...]:
    """The job's tables as the sink sees them, after the transform, each with a side table for unreadable rows.

    Raises UsageError for a column of the upstream with a name of ours, or that differs from another in case only.
    """
    for name, schema in pin.schema.items():
        own.refuse_names(f"table {name!r}", names_of(schema))
    tables = tuple(
        SinkTable(
            t.name,
            t.sink_name,
            config.sink_key(t.name),
            sink_schema(spark, pin.schema[t.name], config.transform_of(t.name)),
            plain_inserts=plain,
        )
        for t in config.tables
    )
    for table in tables:
        own.refuse_names(f"table {table.name!r}, after its transform", names_of(table.schema))
    return (*tables, *_side_tables(tables, upstream, pin))


def late_tables(job: JobDefinition, upstream: Upstream) -> tuple[SinkTable, ...]:
    """The side tables that the job lacks: its config did not ask for them when it was created."""
    known = {table.name for table in job.tables}
    tables = [table for table in job.tables if not table.side]
    return tuple(table for table in _side_tables(tables, upstream, job.pin) if table.name not in known)


def _side_tables(tables: Sequence[SinkTable], upstream: Upstream, pin: Pin) -> tuple[SinkTable, ...]:
    """A table for unreadable rows beside each of these, if the upstream's options ask for it."""
    if not upstream.capabilities.quarantines:
        return ()
    return tuple(side_table(table, upstream, pin.schema[table.name]) for table in tables)


def rebuild(name: str, catalog: Catalog, config: JobConfig, resources: Resources, lock: "JobLock") -> None:
    """The catalog gets from the sink what the sink keeps of the job; the job's token starts above the marker's.

    The rate is taken from the config. Raises StateConflict when the sink has no record of the job, UsageError when
    the config leads to a different result than the job's, Held when the owning catalog is not lost.
    """
    held = resources.patiently(lambda: require_lost(name, catalog, resources.sink))
    saved = resources.patiently(lambda: resources.sink.saved(name))
    known = name in {row.name for row in catalog.jobs()}
    if saved is None:
        raise StateConflict(
            f"the sink of this config has no record of job {name!r}",
            RESTORE
            if known
            else "check [job] name and [sink]; a new job begins with: backfill start --config job.toml",
        )
    kept = decode(JobDefinition, saved.definition)
    require_same(kept, config, known=known)
    definition = replace(kept, config=config.stored(), config_file=config.file)
    markers = resources.patiently(lambda: resources.sink.committed(name))
    token = max((marker.token for marker in markers.values()), default=saved.checkpoint.token)
    checkpoint = replace(saved.checkpoint, plan=None, staged=None)
    catalog.rebuild(definition, checkpoint, Control(rate=config.throttle.rate), token, lock)
    resources.patiently(lambda: take(name, catalog, resources.sink, held))
