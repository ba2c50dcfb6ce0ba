"""A job's derived tables, which its sink keeps: what they need, what depends on them, and how they change."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from shlex import quote

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import Derives, JobDefinition, Sink, SinkTable, derived_table
from backfill_cli.engine.job.ownership import owners_sought
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import require_apart
from backfill_cli.errors import BackfillError, UsageError, command, in_config
from backfill_cli.failpoint import hit
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.derived import Derived
from backfill_cli.model.job import Phase
from backfill_cli.model.reports import PlannedDerived
from backfill_cli.model.units import spell_known


def derives_of(config: JobConfig, sink: Sink) -> Derives:
    """What keeps them. Raises UsageError for a sink that cannot."""
    derives = sink.extras.derives
    if derives is None:
        kind = config.tree["sink"]["type"]
        raise UsageError(
            f"derived table {config.derived[0].name!r}: the sink {kind} cannot keep it: it needs one that has SQL",
            in_config('use sink.type "duckdb", "postgres", "delta" or "iceberg", or leave [[derived]] out'),
        )
    return derives


def planned_derived(config: JobConfig, sink: Sink, tables: Sequence[SinkTable]) -> tuple[PlannedDerived, ...]:
    """What `plan` tells of them. Raises what `prepare_derived` would; creates nothing."""
    if not config.derived:
        return ()
    lives = {one.name: one.live for one in config.tables if one.live is not None}
    return derives_of(config, sink).check(config.job.name, [one.value for one in config.derived], tables, lives)


def prepare_derived(job: JobDefinition, schemas: Mapping[str, str], resources: Resources) -> None:
    """The sink can fill and keep them; it has the job's tables. schemas: those that these have by now."""
    derived = job.derived
    if derived:
        derives, tables = derives_of(resources.config, resources.sink), readable(job, schemas)
        resources.with_retries(lambda: derives.prepare(job.name, derived, tables))


def readable(job: JobDefinition, schemas: Mapping[str, str]) -> tuple[SinkTable, ...]:
    """The tables that derived tables can read, with the columns that they have."""
    return (*(replace(one, schema=schemas.get(one.name, one.schema)) for one in job.tables), *job.beside)


# -- one that is added, changed or removed


def derived_of(job: JobDefinition, name: str) -> Derived | None:
    return next((one for one in job.derived if one.name == name), None)


def changed_config(job: JobDefinition, change: Change) -> JobConfig:
    """The job's config once a derived table is added, changed or removed. Raises UsageError where it cannot."""
    config, name = from_stored(job.config), change.table
    if not change.config:
        require_leaves(job, name)
        return config.without_derived(name)
    section = json.loads(change.config)
    held, wanted = derived_of(job, name), Derived.read(section)
    add = f"add {job.name} --derived {quote(name)} --config {quote(change.file)}"
    if held is None and change.again:
        known = spell_known(name, [one.name for one in job.derived], "derived tables")
        said = f"job {job.name!r}: derived table {name!r} does not exist{known}"
        raise UsageError(said, command(add))
    if held is not None and held == wanted:
        verify = command(f"verify {job.name} --table {quote(name)} --fix")
        raise UsageError(
            f"job {job.name!r} has derived table {name!r}, as the config has it", "to fill it anew: " + verify
        )
    if held is not None and not change.again:
        said = f"job {job.name!r} has derived table {name!r}, with another SELECT, key or target"
        raise UsageError(said, "to have the new one take its place: " + command(f"{add} --replace"))
    if held is not None and held.target != wanted.target:
        anew = command(f"remove {job.name} --derived {quote(name)}", add)
        said = f"derived table {name!r} is in {held.target}, not in {wanted.target}: its target stays"
        raise UsageError(said, f'set derived.target = "{held.target}", or begin with another table: ' + anew)
    _require_free(job, config, wanted)
    return config.with_derived(section)


def _require_free(job: JobDefinition, config: JobConfig, wanted: Derived) -> None:
    """No table of the job has its name or its target. Raises UsageError naming it."""
    if job.standing(wanted.name) is not None:
        said = f"derived table {wanted.name!r}: a table of job {job.name!r} has that name"
        raise UsageError(said, in_config('give it another name: derived.name = "revenue_2"'))
    taken = {one.target: f"table {one.name!r}" for one in (*job.tables, *job.beside)}
    taken |= {one.live: f"table {one.name!r}, which people query there" for one in config.tables if one.live}
    taken |= {one.target: f"derived table {one.name!r}" for one in job.derived if one.name != wanted.name}
    if (whose := taken.get(wanted.target)) is not None:
        said = f"derived table {wanted.name!r}: its target, {wanted.target}, is that of {whose}"
        raise UsageError(said, in_config('name another target: derived.target = "revenue_2"'))


def require_leaves(job: JobDefinition, name: str) -> None:
    """The job has this derived table, which no other one reads. Raises UsageError."""
    if derived_of(job, name) is None:
        known = spell_known(name, [one.name for one in job.derived], "derived tables")
        said = f"job {job.name!r}: derived table {name!r} does not exist{known}"
        raise UsageError(said, command(f"status {job.name}"))
    for one, read in _reads(job, from_stored(job.config)).items():
        if name in read:
            first = command(f"remove {job.name} --derived {quote(one)}")
            said = f"derived table {name!r} cannot leave job {job.name!r}: derived table {one!r} reads it"
            raise UsageError(said, "remove that one first: " + first)


def _reads(job: JobDefinition, config: JobConfig) -> Mapping[str, Sequence[str]]:
    """By derived table, what it reads."""
    return derives_of(config, config.open_sink()).reads(job.derived, (*job.tables, *job.beside))


def checked_derived(
    job: JobDefinition, name: str, schemas: Mapping[str, str], resources: Resources, catalog: Catalog
) -> PlannedDerived:
    """What `plan` tells of the one called `name`. Raises what refuses it; nothing has changed.

    job: with it. schemas: of its tables. resources: opened for its config.
    """
    upstream, sink, tables = resources.upstream, resources.sink, readable(job, schemas)
    resources.with_retries(lambda: upstream.restore(job.pin))
    placed = (*tables, *(derived_table(one) for one in job.derived))
    resources.with_retries(lambda: require_apart(job.name, upstream, sink, placed))
    with owners_sought(catalog):
        planned = resources.with_retries(lambda: planned_derived(resources.config, sink, tables))
    return next(one for one in planned if one.name == name)


def take_in(
    job: JobDefinition, change: Change, committed: Checkpoint, resources: Resources, catalog: Catalog
) -> None:
    """The sink has a marker of the derived table, and the next commit fills it. Raises what refuses it.

    job: with it. Once a derived table of the job is filled, or could be, this one is filled for trial before.
    """
    name = change.table
    derives, tables = derives_of(resources.config, resources.sink), readable(job, committed.sink_schemas)
    (one,) = [one for one in job.derived if one.name == name]
    checked_derived(job, name, committed.sink_schemas, resources, catalog)
    markers = resources.with_retries(lambda: resources.sink.committed(job.name))
    begun = any(markers[one.name].begun for one in job.derived if one.name in markers)
    if committed.epoch and (begun or committed.phase is not Phase.SNAPSHOT):
        resources.with_retries(lambda: derives.rehearse(job.name, job.derived, tables, name))
    hit("derived-checked")
    try:
        with owners_sought(catalog):
            resources.with_retries(lambda: derives.prepare(job.name, job.derived, tables))
        hit("derived-prepared")
        if change.again:
            resources.with_retries(lambda: derives.renew(job.name, [one]))
            hit("derived-renewed")
    except BackfillError:
        if not change.again:
            with suppress(BackfillError):
                resources.sink.leave(job.name, [name])
        raise


def require_unread(job: JobDefinition, config: JobConfig, table: str) -> None:
    """No derived table reads this one. Raises UsageError naming one."""
    if not job.derived:
        return
    for name, tables in _reads(job, config).items():
        if table in tables:
            raise UsageError(
                f"table {table!r} cannot leave job {job.name!r}: its derived table {name!r} reads it",
                "remove that one first: " + command(f"remove {job.name} --derived {quote(name)}"),
            )
