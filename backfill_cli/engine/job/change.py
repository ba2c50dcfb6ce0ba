"""What `set`, `add` and `remove` put into a job's inbox, checked as a start checks it."""

import json
import shlex
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.engine.job.aside import kept_of, require_aside
from backfill_cli.engine.job.awaited import as_asked
from backfill_cli.engine.job.checks import estimate_of, planned_of
from backfill_cli.engine.job.derived import (
    changed_config,
    checked_derived,
    derived_of,
    require_filled_soon,
    require_unread,
)
from backfill_cli.engine.job.drop import require_unqueried
from backfill_cli.engine.job.join import (
    joined,
    require_absent,
    require_known,
    require_own_rows,
    require_removable,
    sampled,
)
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import (
    beside_aside,
    changed_keys,
    changed_rates,
    named,
    present,
    require_as_now,
    require_same_strategy,
    sections_of,
)
from backfill_cli.errors import Command, SinkInUse, UsageError, command, in_config
from backfill_cli.model.aside import Standing
from backfill_cli.model.change import Change
from backfill_cli.model.job import Phase, Verb
from backfill_cli.model.reports import PlannedDerived, PlannedTable
from backfill_cli.model.units import spell_known

OF_A_PROCESS = ("spark", "hooks")
"""Sections of the config that a run reads as it begins."""


def setting(name: str, config: JobConfig, catalog: Catalog) -> Change:
    """The change to this config. Raises UsageError for one that would give another result, or of another job."""
    require_of_job(name, config, Verb.SET)
    job = catalog.definition(name)
    own = present(job, config)
    require_as_now(job, own, catalog, catalog.job(name).live)
    sections = sections_of(job, config)
    with Resources(own) as resources:
        require_same_strategy(job, own, resources.upstream)
        require_aside(own, job.strategy, resources.upstream, job.pin)
    before = beside_aside(job, config).stored()
    keys, rates = changed_keys(before, config), changed_rates(before, config)
    return Change(own.stored(), config.file, keys=tuple(keys), rates=rates, sections=sections)


def require_of_job(name: str, config: JobConfig, verb: Verb) -> None:
    """Raises UsageError for the config of another job."""
    if config.job.name != name:
        raise UsageError(
            f"{config.file} is the config of job {config.job.name!r}, not of job {name!r}",
            command(f"{verb} {config.job.name} --config {config.file}"),
        )


def of_next_run(keys: Sequence[str]) -> list[str]:
    """The keys that act only once another process runs the job."""
    return [key for key in keys if key.partition(".")[0] in OF_A_PROCESS]


@dataclass(frozen=True, slots=True)
class Adding:
    """change: for the inbox. planned: the table. estimate_s, by: how long its snapshot takes, see PlanReport.

    lines: what the config's file lacks of the table; empty if it has it.
    """

    change: Change
    planned: PlannedTable
    estimate_s: tuple[float, float] | None
    by: str
    lines: str


def adding(name: str, table: str, config: JobConfig | None, catalog: Catalog, into_existing: bool) -> Adding:
    """A table joins the job. config: the file's, which may have it; None: no file has.

    Raises what refuses it, by the checks of a start.
    """
    awaited = as_asked(name, catalog)
    job = awaited.job
    if config is not None:
        require_of_job(name, config, Verb.ADD)
    require_absent(job, table)
    told = [] if config is None else [one for one in config.tree["tables"] if one["name"] == table]
    options = config.options_by_table(table) if config is not None and told else {}
    whole = from_stored(job.config)
    if table not in {one.name for one in whole.tables}:
        whole = whole.with_table(told[0] if told else {"name": table}, options)
    (its_own,) = [one for one in whole.tree["tables"] if one["name"] == table]
    file = "" if config is None else config.file
    alone = whole.of_tables({table})
    again = ("add", name, "--table", table, *(("--config", file) if told else ()), "--into-existing")
    rates = ((table, alone.table(table).rate),)
    change = Change(
        json.dumps(its_own),
        file,
        table,
        into_existing=into_existing,
        options=json.dumps(options),
        mark=uuid.uuid4().hex[:12],
        rates=rates,
    )
    with Resources(whole) as resources, Resources(alone, opening=resources.opening) as its:
        try:
            made = joined(job, change, catalog, resources, its, try_it=True, free=awaited.free)
            if not into_existing:
                awaited.require_gone(made.tables[0].target, shlex.join(again[:-1]))
        except SinkInUse as refused:  # of a job that begins, its start would be typed
            refused.hint = refused.hint.with_commands(lambda _start: Command(again))
            raise
        sample = sampled(made, its)
        kept, estimates = its.sink.capabilities.logical_types, its.upstream.capabilities.log is not None
    planned = planned_of(made.tables[0], made.pin, estimates, kept)
    estimate_s, by = estimate_of(alone, catalog, [planned], sample)
    section = whole.table(table)
    lines = f"[[tables]]\nname = {json.dumps(table)}\nkey = {json.dumps(section.key)}"
    return Adding(change, planned, estimate_s, by, "" if told else lines)


@dataclass(frozen=True, slots=True)
class AddingDerived:
    """change: for the inbox. planned: what `plan` tells of them."""

    change: Change
    planned: tuple[PlannedDerived, ...]


def adding_derived(
    name: str, derived: Sequence[str], config: JobConfig, catalog: Catalog, again: bool, into_existing: bool
) -> AddingDerived:
    """Derived tables of the config join the job; again: those that the job has are replaced by these.

    into_existing: so is what their tables have. Raises what refuses them.
    """
    awaited = as_asked(name, catalog)
    job = awaited.job
    require_of_job(name, config, Verb.ADD)
    has = {one["name"]: one for one in config.tree.get("derived", ())}
    told = {one: has[one] for one in derived if one in has}
    if missing := [one for one in derived if one not in told]:
        known = spell_known(missing[0], [one.name for one in config.derived], "derived tables")
        said = f"{config.file} has no derived table {missing[0]!r}{known}"
        raise UsageError(said, in_config("write its [[derived]] section there, then type this again"))
    change = Change(
        json.dumps(list(told.values())),
        config.file,
        derived=tuple(told),
        again=again,
        into_existing=into_existing,
    )
    whole = changed_config(job, change)
    after = replace(job, config=whole.stored())
    with Resources(whole) as resources:
        try:
            planned = checked_derived(after, change, awaited.schemas(catalog), resources, catalog)
        except SinkInUse as refused:
            if refused.replaceable:
                typed = f"add {name}{named(tuple(told))}{' --replace' * again} --config {quote(config.file)}"
                refused.hint += "; or, for its rows to be replaced: " + command(f"{typed} --into-existing")
            raise
    if into_existing and catalog.job(name).phase is Phase.SNAPSHOT:
        require_filled_soon(name, change)
    if not into_existing:
        typed = f"add {name}{named(tuple(told))}{' --replace' * again} --config {quote(config.file)}"
        for one in after.derived:
            awaited.require_gone(one.target, typed)
    return AddingDerived(change, planned)


def removing_derived(name: str, derived: Sequence[str], catalog: Catalog, with_rows: bool) -> Change:
    """Derived tables leave the job. Raises UsageError for one that another one reads."""
    change = Change("", derived=tuple(dict.fromkeys(derived)), with_rows=with_rows)
    asked = as_asked(name, catalog).job
    changed_config(asked, change)
    targets = {one.name: one.sink_name for one in from_stored(asked.config).derived}
    return replace(change, targets=tuple(targets[one] for one in change.derived))


def removing(name: str, table: str, catalog: Catalog, with_rows: bool) -> Change:
    """A table leaves the job. Raises UsageError for one that has to stay, or, with_rows, whose rows have to."""
    job = as_asked(name, catalog).job
    config = from_stored(job.config)
    if derived_of(job, table) is not None:
        raise UsageError(f"{table!r} is a derived table", command(f"remove {name} --derived {quote(table)}"))
    require_unread(job, config, table)
    if job.standing(table) is Standing.ASIDE:
        if with_rows:
            require_own_rows(job, table, kept_of(job, table))
        return Change("", table=table, with_rows=with_rows, rates=((table, None),))
    require_known(job, table)
    require_removable(job, config.unreached_upstream())
    (target,) = [one for one in job.tables if one.name == table]
    require_unqueried(name, target.target, catalog)
    if with_rows:
        require_own_rows(job, table, (target,))
    return Change("", table=table, with_rows=with_rows, rates=((table, None),))
