"""What a new job needs before anything is created for it: one list, which `start` requires and `plan` reports."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig
from backfill_cli.contracts import JobDefinition, Lease, Sink, SinkTable, Source, own
from backfill_cli.engine.job.ownership import owners_sought, require_kept, require_new
from backfill_cli.engine.job.select import (
    Selected,
    choose,
    require_apart,
    require_keys,
    require_same,
    require_same_strategy,
    require_whole,
)
from backfill_cli.engine.spool.folder import owned
from backfill_cli.engine.staging.files import nothing_left, require_shared
from backfill_cli.engine.staging.quarantine import side_name, side_table
from backfill_cli.engine.staging.sample import require_readable
from backfill_cli.engine.staging.transform import require_own_columns, sink_schema
from backfill_cli.errors import UsageError, in_config
from backfill_cli.model.checkpoint import Owner
from backfill_cli.model.job import Phase
from backfill_cli.model.schema import names_of
from backfill_cli.model.upstream import Pin
from backfill_cli.spark.api import SparkSession

if TYPE_CHECKING:
    from backfill_cli.engine.job.resources import Resources


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks found out. owner: the job's catalog according to the sink, for `ownership.take`."""

    choice: Selected
    pin: Pin
    tables: tuple[SinkTable, ...]
    owner: Owner | None


class Asking(Protocol):
    """How a command asks: `start` waits for what may pass and raises the rest, `plan` notes some and goes on."""

    def ask(self, check: Callable[[], Answer]) -> Answer | None:
        """The answer; None for a refusal that was noted. Raises any other."""
        ...

    def clear(self) -> None:
        """Called before the upstream is pinned: removes, or notes, what an interrupted start left there."""
        ...

    def may_create(self, lease: Lease) -> bool:
        """Whether the job could hold what it needs; if not, no row is read: what has its name may be another's."""
        ...


def require_all(
    config: JobConfig, catalog: Catalog, resources: "Resources", into_existing: bool, asking: Asking
) -> Checked:
    """Everything that can be checked of a new job holds; nothing is created, and nothing left behind.

    Raises what `asking` does not note. Whatever can refuse a start is added here, so that `plan` shows it, too.
    """
    upstream, sink, name = resources.upstream, resources.sink, config.job.name
    owner = asking.ask(lambda: require_new(name, catalog, sink))
    asking.clear()
    require_spool_free(config)
    choice, pin = _pinned(config, resources)
    readable = upstream.lease is None or asking.may_create(upstream.lease)
    with nothing_left(Path(config.job.staging)):
        tables = _placed(config, resources, pin, plain=not into_existing)
        for table in config.tables:
            require_own_columns(resources.spark, pin.schema[table.name], config.transform_of(table.name))
        if readable:
            asking.ask(lambda: require_readable(lambda: resources.spark, upstream, config, pin, tables))
    _require_sink(config, catalog, sink, tables, into_existing, asking)
    return Checked(choice, pin, tables, owner)


def require_again(config: JobConfig, catalog: Catalog, resources: "Resources", asking: Asking) -> Checked:
    """As `require_all`, for a job that exists: what its next run needs, from metadata alone."""
    job, sink = catalog.definition(config.job.name), resources.sink
    require_same(job, config, catalog.change_logs.has_been_read(job.name))
    require_same_strategy(job, config, resources.upstream)
    asking.ask(lambda: _require_as_left(job, catalog, resources))
    choice, pin = _pinned(config, resources)
    with nothing_left(Path(config.job.staging)):
        tables = _placed(config, resources, pin, plain=True)
    owner = asking.ask(lambda: require_kept(job.name, catalog, sink))
    _require_sink(config, catalog, sink, tables, True, asking)
    return Checked(choice, pin, tables, owner)


def _require_as_left(job: JobDefinition, catalog: Catalog, resources: "Resources") -> None:
    """The upstream has what the job's next run observes first. Raises what that run would.

    A runner observes it by itself; what an upstream holds for the job is asked by `held.held_without_runner`.
    """
    row, upstream = catalog.job(job.name), resources.rows
    if row.live or upstream.capabilities.log is not None:
        return
    upstream.restore(job.pin)
    upstream.observe(catalog.change_logs.acknowledged(job.name), row.phase == Phase.SNAPSHOT)


def _pinned(config: JobConfig, resources: "Resources") -> tuple[Selected, Pin]:
    """The upstream fits the config's strategy, keys and transforms."""
    upstream = resources.upstream
    choice = choose(config.job.strategy, upstream.capabilities)
    require_keys(config.table_specs(), upstream.capabilities)
    pin = resources.patiently(upstream.pin)
    require_whole(config, upstream, resources.sink)
    return choice, pin


def _placed(config: JobConfig, resources: "Resources", pin: Pin, plain: bool) -> tuple[SinkTable, ...]:
    """The sink's tables are no table of the upstream's, and staging has a folder that everything shares."""
    upstream, sink, spark = resources.upstream, resources.sink, resources.spark
    tables = sink_tables(config, spark, upstream, pin, plain)
    resources.patiently(lambda: require_apart(upstream, sink, tables))
    require_staging(config.job.staging)
    require_shared(config, spark)
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
    config: JobConfig, spark: SparkSession, upstream: Source, pin: Pin, plain: bool
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


def late_tables(job: JobDefinition, upstream: Source) -> tuple[SinkTable, ...]:
    """The side tables that the job lacks: its config did not ask for them when it was created."""
    known = {table.name for table in job.tables}
    tables = [table for table in job.tables if not table.side]
    return tuple(table for table in _side_tables(tables, upstream, job.pin) if table.name not in known)


def _side_tables(tables: Sequence[SinkTable], upstream: Source, pin: Pin) -> tuple[SinkTable, ...]:
    """A table for unreadable rows beside each of these, if the upstream's options ask for it."""
    if not upstream.capabilities.quarantines:
        return ()
    names = {table.name for table in tables}
    for name in sorted(names & {side_name(name) for name in names}):
        raise UsageError(
            f"table {name!r}: rows that cannot be read are kept under this name",
            in_config('set upstream.on_error = "fail", or give a new job\'s table another name in [[tables]]'),
        )
    return tuple(side_table(table, upstream, pin.schema[table.name]) for table in tables)
