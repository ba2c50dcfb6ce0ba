"""A job forgotten: in catalog and sink, or in the sink alone when its catalog is lost. The sink's rows stay.

Checked first, then done in an order that the same command can repeat: what names the job goes last.
"""

import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.actor import user
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import HeldUpstream, JobDefinition, SavedJob, Sink, SinkTable
from backfill_cli.contracts.cutover import CutoverSink, Swap
from backfill_cli.engine.job.ownership import require_lost
from backfill_cli.engine.job.resources import Resources
from backfill_cli.errors import BackfillError, NoSuchJob, UsageError
from backfill_cli.failpoint import hit
from backfill_cli.model.codec import decode
from backfill_cli.model.cutover import Found, LiveName
from backfill_cli.model.upstream import Pin


@dataclass(frozen=True, slots=True)
class Dropped:
    """known: whether the sink knew the job: one that was dropped half-way, or whose file is gone, it does not.

    left: what is still in the upstream, and how to remove it; None for nothing. tables: the sink's. gone: whether
    they are gone with their rows, which else stay. live: names that people query which are, and stay, views of its
    tables.
    """

    known: bool
    left: str | None = None
    tables: tuple[str, ...] = ()
    gone: bool = False
    live: tuple[LiveName, ...] = ()


def drop(name: str, catalog: Catalog, without_sink: bool = False, with_rows: bool = False) -> Dropped:
    """Nothing of the job is left in catalog, sink, staging and upstream but, without with_rows, the sink's rows.

    Markers in a sink that another catalog took over, its staging and what it holds in the upstream are that
    catalog's and stay. Raises Held while a runner has the job, here or elsewhere. An upstream that cannot be
    reached is no reason to keep a job: what is left in it is told. without_sink: the sink is gone for good and is
    not asked. Raises UsageError for tables with_rows that had rows before the job, or that people query.
    """
    left = None
    with catalog.lock_job(name) as lock, ExitStack() as held_open:
        definition = catalog.definition(name)
        dropped = _to_drop(definition) if with_rows else ()
        config = from_stored(definition.config)
        resources = held_open.enter_context(Resources(config))
        known, ours = (False, True) if without_sink else _asked(name, catalog, resources)
        live = _live(definition, config, resources.sink) if known and ours else ()
        if dropped:
            _refuse_queried(name, live)
        # Claimed, so that no runner elsewhere takes the job up between the check and the end.
        with catalog.claim(name, user(), time.time_ns() // 1_000_000, lock):
            hit("drop-claimed")
            if ours:
                if known and dropped:  # first, as it may be refused: then nothing has changed
                    resources.sink.drop(dropped)
                    hit("drop-tables-dropped")
                left = _released(resources, definition.pin)
                if not without_sink:
                    resources.sink.forget(name)
                hit("drop-forgotten")
                _remove_files(config, name)
                hit("drop-unstaged")
            catalog.drop(name, lock)
            return Dropped(known, left, _tables(definition), gone=known and ours and with_rows, live=live)


def _to_drop(definition: JobDefinition) -> tuple[SinkTable, ...]:
    """All its tables. Raises UsageError where rows of others may be in one."""
    name = definition.name
    for table in definition.tables:
        if not table.plain_inserts and not table.side:
            raise UsageError(
                f"job {name!r} was started --into-existing: {table.target} may have rows that are not the job's",
                f"backfill drop {name} --confirm {name}, and delete by hand what is to go",
            )
    return definition.tables


def live_names(name: str, catalog: Catalog) -> tuple[LiveName, ...]:
    """The names that people query which are views of a job's tables; none where the sink cannot be asked now."""
    with suppress(BackfillError):
        definition = catalog.definition(name)
        config = from_stored(definition.config)
        if any(table.live is not None for table in config.tables):
            with Resources(config) as resources:
                return _live(definition, config, resources.sink)
    return ()


def _live(definition: JobDefinition, config: JobConfig, sink: Sink) -> tuple[LiveName, ...]:
    """Of those that the config names the ones that were cut over."""
    named = {table.name: table.live for table in config.tables if table.live is not None}
    if not named or not isinstance(sink, CutoverSink):
        return ()
    own = [table for table in definition.tables if table.name in named and not table.side]
    swaps = [Swap(table, named[table.name]) for table in own]
    lives = sink.live(definition.name, swaps)
    found = (LiveName(one.table.name, one.table.target, one.live, lives[one.table.name]) for one in swaps)
    return tuple(one for one in found if one.now.found is Found.OURS)


def _refuse_queried(name: str, live: tuple[LiveName, ...]) -> None:
    """Raises UsageError where a name that people query is a view of a table that would go."""
    for one in live:
        raise UsageError(
            f"{one.live} is a view of {one.target} since the cut over of job {name!r}: without that table nobody "
            "could query it",
            f"put back what was there before: backfill cutover {name} --reverse; or forget the job and keep its "
            f"tables: backfill drop {name} --confirm {name}",
        )


def _tables(definition: JobDefinition) -> tuple[str, ...]:
    return tuple(table.target for table in definition.tables if not table.side)


def _asked(name: str, catalog: Catalog, resources: Resources) -> tuple[bool, bool]:
    """Whether the sink knows the job, and whether what it has of it is this catalog's."""
    try:
        held, ours = resources.sink.owner(name), catalog.identity()
        known = bool(resources.sink.committed(name))
    except BackfillError as error:
        gone = f"if the sink is gone for good: backfill drop {name} --without-sink --confirm {name}"
        error.hint = f"{error.hint}; {gone}" if error.hint else gone
        raise
    return known, held is None or held == ours or (ours is not None and held.catalog == ours.catalog)


def _released(resources: Resources, pin: Pin) -> str | None:
    """The upstream holds nothing for the job any more; else what is left in it, and why."""
    try:
        upstream = resources.upstream
        if isinstance(upstream, HeldUpstream):
            upstream.release(pin)
    except BackfillError as error:
        said = " ".join(error.message.split())
        return f"what the job held there (its replication slot) stays, remove it by hand: {said}"
    return None


def drop_from_sink(name: str, catalog: Catalog, config: JobConfig, with_rows: bool = False) -> Dropped:
    """As `drop`, of a job whose catalog is lost, in the sink and the upstream of `config`.

    Raises NoSuchJob when the sink holds nothing of it, Held while its catalog or a runner of it is there,
    UsageError when `catalog` has it.
    """
    with catalog.lock_job(name), Resources(config) as resources:
        if name in {row.name for row in catalog.jobs()}:
            raise UsageError(
                f"catalog {catalog.path} has job {name!r}: --sink is for jobs whose catalog is lost",
                f"backfill drop {name} --confirm {name}",
            )
        sink = resources.sink
        if not sink.committed(name):
            raise NoSuchJob(
                f"the sink of this config holds nothing of job {name!r}", "check the job's name and [sink]"
            )
        require_lost(name, catalog, sink)
        saved = sink.saved(name)
        definition = None if saved is None else decode(JobDefinition, saved.definition)
        dropped = _to_drop(definition) if with_rows and definition is not None else ()
        live = () if definition is None else _live(definition, from_stored(definition.config), sink)
        if dropped:
            _refuse_queried(name, live)
            sink.drop(dropped)
            hit("drop-tables-dropped")
        left = None if definition is None else _released(resources, definition.pin)
        _remove_files(_as_saved(saved, config), name)
        hit("drop-unstaged")
        sink.forget(name)
        return Dropped(True, left, () if definition is None else _tables(definition), bool(dropped), live)


def _as_saved(saved: SavedJob | None, config: JobConfig) -> JobConfig:
    """The config by which the job has its folders: the one that was saved, else this one."""
    return config if saved is None else from_stored(decode(JobDefinition, saved.definition).config)


def _remove_files(config: JobConfig, name: str) -> None:
    """The job's folders in staging and spool are gone."""
    roots = [config.job.staging, *([config.spool.path] if config.job.strategy == "chain" else [])]
    for root in roots:
        shutil.rmtree(Path(root) / name, ignore_errors=True)
