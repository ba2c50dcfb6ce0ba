"""A job forgotten: in catalog and sink, or only in the sink when its catalog is lost. The sink's rows stay.

Everything is checked first, then done in an order that the same command can repeat: what names the job goes last.
"""

import json
import shutil
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.lease import JobLock, user
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import JobDefinition, Sink, SinkTable, Swap, derived_table
from backfill_cli.contracts.refusals import TargetTaken
from backfill_cli.engine.job.aside import holds, let_go, tables_of
from backfill_cli.engine.job.held import settle
from backfill_cli.engine.job.ownership import require_lost, start_over_named
from backfill_cli.engine.job.resources import Resources
from backfill_cli.errors import (
    BackfillError,
    ConfigError,
    HistoryGone,
    NoSuchJob,
    StateConflict,
    Transient,
    UsageError,
    command,
)
from backfill_cli.failpoint import hit
from backfill_cli.model.aside import out
from backfill_cli.model.codec import decode
from backfill_cli.model.cutover import Found, LiveName
from backfill_cli.model.upstream import PendingStart, Pin


@dataclass(frozen=True, slots=True)
class Dropped:
    """known: whether the sink knew the job; it does not if the job was dropped half-way, or if its file is gone.

    left: the statements that remove what is still in the upstream. why: why it is. tables: the sink's. gone:
    whether they were dropped with their rows; otherwise they stay. others: those that were set aside and that
    other jobs have taken since, which stay as they are. live: names that people query and that are, and
    stay, views of these tables.
    """

    known: bool
    left: tuple[str, ...] = ()
    why: str = ""
    tables: tuple[str, ...] = ()
    gone: bool = False
    live: tuple[LiveName, ...] = ()
    others: tuple[str, ...] = ()


def drop(
    name: str,
    catalog: Catalog,
    without_sink: bool = False,
    with_rows: bool = False,
    without_upstream: bool = False,
) -> Dropped:
    """Remove the job from catalog, sink, staging and upstream; without with_rows, the sink's rows stay.

    If another catalog has taken the job over, its markers, its staging and what it holds in the upstream belong to
    that catalog and stay. Raises Held while a runner has the job, here or elsewhere, and before anything changes
    what reaching the upstream raises. without_sink, without_upstream: that system is not accessed; what is left in
    the upstream is reported. Raises UsageError, with_rows, for tables that had rows before the job, or that people
    query.
    """
    with start_over_named(name, catalog), catalog.lock_job(name) as lock, ExitStack() as held_open:
        begun = catalog.starts.of(name)
        if name not in {row.name for row in catalog.jobs()}:
            config = _config_of_start(name, catalog, begun)
            done = _start_dropped(name, config, begun, catalog, without_sink, without_upstream)
            catalog.leave_nothing(lock)
            return done
        definition = catalog.definition(name)
        dropped, others = _to_drop(definition) if with_rows else (), set[str]()
        try:
            config = from_stored(definition.config)
        except ConfigError:
            if not (without_sink and without_upstream):
                raise
            return _forgotten(name, definition, catalog, lock)
        resources = held_open.enter_context(Resources(config))
        known, ours = (False, True) if without_sink else _asked(name, catalog, resources)
        live = _live(definition, config, resources.sink) if known and ours else ()
        if dropped:
            _refuse_queried(name, live)
        rows = " --with-rows" if with_rows else ""
        instead = f"drop {name}{rows} --without-upstream --confirm {name}"
        left = _Left(instead, config, definition.pin, without_upstream)
        if ours:
            left.require_able(resources)
        # Claimed, so that no runner elsewhere resumes the job between the check and the end.
        with catalog.claim(name, user(), wall_clock_ms(), lock):
            hit("drop-claimed")
            if ours:
                if known and dropped:  # first, because it can be refused while nothing has changed
                    others = _of_others(definition, resources.sink)
                    gone = [one for one in dropped if one.name not in others]
                    resources.sink.drop([*gone, *map(derived_table, definition.derived)])
                    hit("drop-tables-dropped")
                left.release(resources, begun)
                for one in out(definition.aside) if holds(config.unreached_upstream()) else ():
                    if not without_upstream:
                        let_go(one, config, resources)
                if not without_sink:
                    resources.sink.forget(name)
                hit("drop-forgotten")
                _remove_files(config, name)
                hit("drop-unstaged")
            catalog.drop(name, lock)
            catalog.leave_nothing(lock)
            away = known and ours and with_rows
            stay = tuple(one.target for one in dropped if one.name in others and not one.side)
            return Dropped(known, left.statements, left.why, _tables(definition, others), away, live, stay)


def _forgotten(name: str, definition: JobDefinition, catalog: Catalog, lock: JobLock) -> Dropped:
    """The catalog no longer has the job, whose config no version here accepts: neither sink nor upstream is asked.

    Both can be asked by another config afterwards (`drop_from_sink`).
    """
    with catalog.claim(name, user(), wall_clock_ms(), lock):
        catalog.drop(name, lock)
        catalog.leave_nothing(lock)
    shutil.rmtree(Path(json.loads(definition.config)["job"]["staging"]) / name, ignore_errors=True)
    return Dropped(False, tables=_tables(definition))


def _to_drop(definition: JobDefinition) -> tuple[SinkTable, ...]:
    """All its tables. Raises UsageError if one may hold rows that are not the job's."""
    name = definition.name
    tables = tables_of(definition)
    for table in tables:
        if not table.plain_inserts and not table.side:
            raise UsageError(
                f"job {name!r} was started --into-existing: {table.target} may have rows that are not the job's",
                command(f"drop {name} --confirm {name}") + ", and delete the job's rows by hand",
            )
    return tables


def live_names(name: str, catalog: Catalog) -> tuple[LiveName, ...]:
    """The names that people query which are views of a job's tables; none if the sink cannot be read now."""
    definition = catalog.definition(name)
    with suppress(BackfillError):
        config = from_stored(definition.config)
        if all(table.live is None for table in config.tables):
            return ()
        with Resources(config) as resources:
            return _live(definition, config, resources.sink)
    return ()


def require_unqueried(name: str, target: str, catalog: Catalog) -> None:
    """Nobody queries a table of the job since a cutover. Raises UsageError: nothing would fill it any more."""
    names = [one.live for one in live_names(name, catalog) if one.target == target]
    if names:
        raise UsageError(
            f"people query {target} as {names[0]} since the cutover of job {name!r}: nothing would fill it any "
            "more",
            "restore what was there before: " + command(f"cutover {name} --reverse"),
        )


def _live(definition: JobDefinition, config: JobConfig, sink: Sink) -> tuple[LiveName, ...]:
    """Those of the names in the config that were cut over."""
    named = {table.name: table.live for table in config.tables if table.live is not None}
    cutover = sink.extras.cutover
    if not named or cutover is None or cutover.in_place:  # an in-place sink refuses by itself
        return ()
    own = [table for table in definition.tables if table.name in named and not table.side]
    swaps = [Swap(table, named[table.name]) for table in own]
    lives = cutover.live(definition.name, swaps)
    found = (LiveName(one.table.name, one.table.target, one.live, lives[one.table.name]) for one in swaps)
    return tuple(one for one in found if one.now.found is Found.OURS)


def _refuse_queried(name: str, live: tuple[LiveName, ...]) -> None:
    """Raises UsageError if a name that people query is a view of a table that would be dropped."""
    for one in live:
        raise UsageError(
            f"{one.live} is a view of {one.target} since the cutover of job {name!r}: without that table it "
            "could not be queried",
            "restore what was there before: "
            + command(f"cutover {name} --reverse")
            + "; or forget the job and keep its tables: "
            + command(f"drop {name} --confirm {name}"),
        )


def _of_others(definition: JobDefinition, sink: Sink) -> set[str]:
    """The names of the tables that are set aside and that other jobs have by now; the rest are this job's again.

    A table that is set aside has no marker: its name alone makes it nobody's.
    """
    others = set[str]()
    for table in tables_of(definition)[len(definition.tables) :]:
        try:
            sink.prepare(definition.name, [table], True)
        except TargetTaken:
            others.add(table.name)
        except Transient:
            raise
        except BackfillError:  # what it lacks, or has, is no reason to keep it: whose it is was asked first
            continue
    return others


def _tables(definition: JobDefinition, others: Collection[str] = ()) -> tuple[str, ...]:
    tables = tuple(one.target for one in tables_of(definition) if not one.side and one.name not in others)
    return (*tables, *(one.target for one in definition.derived))


def _asked(name: str, catalog: Catalog, resources: Resources) -> tuple[bool, bool]:
    """Whether the sink knows the job, and whether what it has of the job is this catalog's."""
    try:
        held, ours = resources.sink.owner(name), catalog.identity()
        try:
            known = bool(resources.sink.committed(name))
        except StateConflict:  # it cannot tell its epoch; starting over resolves that
            known = True
    except BackfillError as error:
        gone = "if the sink is gone for good: " + command(f"drop {name} --without-sink --confirm {name}")
        error.hint = error.hint.also("; ", gone)
        raise
    return known, held is None or held == ours or (ours is not None and held.catalog == ours.catalog)


def _config_of_start(name: str, catalog: Catalog, begun: PendingStart | None) -> JobConfig:
    """The config of a start that did not complete. Raises NoSuchJob if there is none."""
    starter = catalog.starters.of(name)
    if begun is None and starter is None:
        catalog.job(name)  # raises, with the names of those that exist
    told = begun.config if begun is not None else starter.config if starter is not None else ""
    return from_stored(told)


def _start_dropped(
    name: str,
    config: JobConfig,
    begun: PendingStart | None,
    catalog: Catalog,
    without_sink: bool,
    without_upstream: bool,
) -> Dropped:
    """Nothing is left of a start that did not complete, except tables without rows in the sink.

    It has staged nothing: a folder of the job's name is of another catalog's job.
    """
    with Resources(config) as resources:
        _, ours = (False, False) if without_sink else _asked(name, catalog, resources)
        left: tuple[str, ...] = ()
        if begun is not None and without_upstream:
            left = _removal(config, begun.pin, begun.mark)
        elif begun is not None:
            settle(name, catalog)
        if ours:
            resources.sink.forget(name)
        catalog.starts.end(name)
        return Dropped(False, left, NOT_ASKED if left else "")


NOT_ASKED = "it was not asked to remove it"


class _Left:
    """What a job leaves in its upstream. statements: those that remove it. why: why it stays.

    instead: the command that drops the job without its upstream. without: that was asked for.
    """

    def __init__(self, instead: str, config: JobConfig, pin: Pin, without: bool) -> None:
        self._instead, self._config, self._pin, self._without = instead, config, pin, without
        self.statements: tuple[str, ...] = ()
        self.why = ""

    def require_able(self, resources: Resources) -> None:
        """The upstream answers and lets the job go, or it is known how to remove what stays there.

        Raises what prevents it; then nothing has changed. Another system behind the same options does not: what
        the job held is not there. One in which no job holds anything is not asked.
        """
        if self._without:
            self.statements, self.why = _removal(self._config, self._pin), NOT_ASKED
            return
        if not self._holds():
            return
        try:
            lease = resources.upstream.lease
            if lease is not None:
                lease.require_releasable(self._pin)
        except (StateConflict, HistoryGone):
            return
        except BackfillError as error:
            without = "leave there what the job holds, and see how to remove it: " + command(self._instead)
            error.hint = error.hint.also("; or ", without)
            raise

    def _holds(self) -> bool:
        """Whether jobs hold anything in an upstream of this kind."""
        return self._config.unreached_upstream().lease is not None

    def release(self, resources: Resources, begun: PendingStart | None) -> None:
        """The upstream no longer holds anything for the job, or `statements` remove it."""
        if self._without or not self._holds():
            return
        try:
            lease = resources.upstream.lease
            if lease is not None:
                lease.release(self._pin)
                if begun is not None:
                    lease.adopt(begun.mark, self._pin)
        except (StateConflict, HistoryGone) as error:
            self.statements, self.why = _removal(self._config, self._pin), " ".join(error.message.split())


def _removal(config: JobConfig, pin: Pin, mark: str | None = None) -> tuple[str, ...]:
    """The statements that remove what a job, or a start with this mark, holds; without asking the upstream."""
    lease = config.unreached_upstream().lease
    return () if lease is None else tuple(lease.removal(pin, mark))


def drop_from_sink(
    name: str, catalog: Catalog, config: JobConfig, with_rows: bool = False, without_upstream: bool = False
) -> Dropped:
    """As `drop`, for a job whose catalog is lost, in the sink and the upstream of `config`.

    Raises NoSuchJob when the sink has no record of the job, Held while its catalog or a runner of it exists,
    UsageError when `catalog` has the job.
    """
    with catalog.lock_job(name), Resources(config) as resources:
        if name in {row.name for row in catalog.jobs()}:
            raise UsageError(
                f"catalog {catalog.path} has job {name!r}: --sink is for jobs whose catalog is lost",
                command(f"drop {name} --confirm {name}"),
            )
        sink = resources.sink
        if not sink.knows(name):
            raise NoSuchJob(
                f"the sink of this config has no record of job {name!r}", "check the job's name and [sink]"
            )
        require_lost(name, catalog, sink)
        saved = sink.saved(name)
        if saved is None:
            _remove_files(config, name)
            hit("drop-unstaged")
            sink.forget(name)
            return Dropped(True)
        definition, stored = decode(JobDefinition, saved.definition), config
        with suppress(ConfigError):
            stored = from_stored(definition.config)  # it determines the job's folders, if it is accepted
        dropped = _to_drop(definition) if with_rows else ()
        live = _live(definition, stored, sink)
        if dropped:
            _refuse_queried(name, live)
        rows = " --with-rows" if with_rows else ""
        instead = f"drop {name} --sink job.toml{rows} --without-upstream --confirm {name}"
        left = _Left(instead, config, definition.pin, without_upstream)
        left.require_able(resources)
        others = _of_others(definition, sink) if dropped else set()
        if dropped:
            gone = [one for one in dropped if one.name not in others]
            sink.drop([*gone, *map(derived_table, definition.derived)])
            hit("drop-tables-dropped")
        left.release(resources, None)
        _remove_files(stored, name)
        hit("drop-unstaged")
        sink.forget(name)
        stay = tuple(one.target for one in dropped if one.name in others and not one.side)
        return Dropped(True, left.statements, left.why, _tables(definition, others), bool(dropped), live, stay)


def _remove_files(config: JobConfig, name: str) -> None:
    """Remove the job's folders in staging and spool."""
    roots = [config.job.staging, *([config.spool.path] if config.job.strategy == "chain" else [])]
    for root in roots:
        shutil.rmtree(Path(root) / name, ignore_errors=True)
