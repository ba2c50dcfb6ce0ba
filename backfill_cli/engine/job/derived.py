"""A job's derived tables, which its sink keeps: what they need, what depends on them, and how they change."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from shlex import quote

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import Derives, JobDefinition, Sink, SinkTable, derived_table
from backfill_cli.contracts.refusals import in_toml, other_name, other_target
from backfill_cli.engine.job.columns import require_kept
from backfill_cli.engine.job.ownership import owners_sought
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import named, require_apart
from backfill_cli.errors import BackfillError, Hint, UsageError, command, in_config
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


def planned_derived(
    config: JobConfig, sink: Sink, tables: Sequence[SinkTable], into: Collection[str] = ()
) -> tuple[PlannedDerived, ...]:
    """What `plan` tells of them. Raises what `prepare_derived` would; creates nothing.

    into: see `Derives.prepare`.
    """
    if not config.derived:
        return ()
    lives = {one.name: one.live for one in config.tables if one.live is not None}
    return derives_of(config, sink).check(
        config.job.name, [one.value for one in config.derived], tables, lives, into
    )


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
    """The job's config once derived tables are added, changed or removed. Raises UsageError for what cannot be."""
    config = from_stored(job.config)
    if not change.config:
        require_leave(job, change)
        return config.without_derived(change.derived)
    sections = json.loads(change.config)
    wanted = list(map(Derived.read, sections))
    held = {one.name: one for one in job.derived if one.name in change.derived}
    add = f"add {job.name}{named(change.derived)} --config {quote(change.file)}"
    if change.again and not held:
        name = change.derived[0]
        known = spell_known(name, [one.name for one in job.derived], "derived tables")
        raise UsageError(f"job {job.name!r}: derived table {name!r} does not exist{known}", command(add))
    if same := [one.name for one in wanted if held.get(one.name) == one]:
        verify = command(f"verify {job.name} --table {quote(same[0])} --fix")
        others = [one for one in change.derived if one not in same]
        rest = f"add {job.name}{named(others)} --config {quote(change.file)}{' --replace' * change.again}"
        said = f"job {job.name!r} has derived table {same[0]!r}, as the config has it"
        without = "leave it out: " + command(rest) + "; " if others else Hint()
        raise UsageError(said, without + "to fill it anew: " + verify)
    if held and not change.again:
        said = (
            f"job {job.name!r} has derived table {next(iter(held))!r}, with another SELECT, key, target or refresh"
        )
        raise UsageError(said, "to have the new one take its place: " + command(f"{add} --replace"))
    for one in wanted:
        if one.name in held and (before := held[one.name].target) != one.target:
            alone = named([one.name])
            anew = command(f"remove {job.name}{alone}", f"add {job.name}{alone} --config {quote(change.file)}")
            said = f"derived table {one.name!r} is in {before}, not in {one.target}: its target stays"
            raise UsageError(said, f"set derived.target = {in_toml(before)}, or begin with another table: " + anew)
        _require_free(job, config, one)
    after = config.with_derived(*sections)
    require_kept(job, after, change.file)
    return after


def _require_free(job: JobDefinition, config: JobConfig, wanted: Derived) -> None:
    """No table of the job has its name or its target. Raises UsageError naming it."""
    if job.standing(wanted.name) is not None:
        said = f"derived table {wanted.name!r}: a table of job {job.name!r} has that name"
        raise UsageError(
            said, in_config(f"give it another name: derived.name = {in_toml(other_name(wanted.name))}")
        )
    taken = {one.target: f"table {one.name!r}" for one in (*job.tables, *job.beside)}
    taken |= {one.live: f"table {one.name!r}, which people query there" for one in config.tables if one.live}
    taken |= {one.target: f"derived table {one.name!r}" for one in job.derived if one.name != wanted.name}
    if (whose := taken.get(wanted.target)) is not None:
        said = f"derived table {wanted.name!r}: its target, {wanted.target}, is that of {whose}"
        raise UsageError(said, other_target(wanted.name, wanted.target))


def require_leave(job: JobDefinition, change: Change) -> None:
    """The job has these derived tables, and none that stays reads one of them. Raises UsageError."""
    for name in change.derived:
        if derived_of(job, name) is None:
            known = spell_known(name, [one.name for one in job.derived], "derived tables")
            said = f"job {job.name!r}: derived table {name!r} does not exist{known}"
            raise UsageError(said, command(f"status {job.name}"))
    gone, said = list(change.derived), ""
    for one, read in _reads(job, from_stored(job.config)).items():  # each after those that it reads
        if one not in gone and (which := next((name for name in read if name in gone), None)) is not None:
            said = said or f"{which!r} cannot leave job {job.name!r}: derived table {one!r} reads it"
            gone.append(one)
    if said:
        rows = f" --with-rows --confirm {job.name}" if change.with_rows else ""
        raise UsageError(
            f"derived table {said}", "remove them together: " + command(f"remove {job.name}{named(gone)}{rows}")
        )


def _reads(job: JobDefinition, config: JobConfig) -> Mapping[str, Sequence[str]]:
    """By derived table, what it reads."""
    return derives_of(config, config.open_sink()).reads(job.derived, (*job.tables, *job.beside))


def checked_derived(
    job: JobDefinition, change: Change, schemas: Mapping[str, str], resources: Resources, catalog: Catalog
) -> tuple[PlannedDerived, ...]:
    """What `plan` tells of those that join or change. Raises what refuses them; nothing has changed.

    job: with them. schemas: of its tables. resources: opened for its config.
    """
    upstream, sink, tables = resources.upstream, resources.sink, readable(job, schemas)
    resources.with_retries(lambda: upstream.restore(job.pin))
    placed = (*tables, *(derived_table(one) for one in job.derived))
    resources.with_retries(lambda: require_apart(job.name, upstream, sink, placed))
    with owners_sought(catalog):
        planned = resources.with_retries(
            lambda: planned_derived(resources.config, sink, tables, taken_over(change))
        )
    return tuple(one for one in planned if one.name in change.derived)


def taken_over(change: Change) -> Collection[str]:
    """The derived tables that join into a table with rows, which are replaced."""
    return change.derived if change.into_existing else ()


def take_in(
    job: JobDefinition, change: Change, committed: Checkpoint, resources: Resources, catalog: Catalog
) -> None:
    """The sink has markers of the derived tables, and the next commit fills them. Raises what refuses them.

    job: with them. Once a derived table of the job is filled, or could be, these are filled for trial before.
    """
    derives, tables = derives_of(resources.config, resources.sink), readable(job, committed.sink_schemas)
    into = taken_over(change)
    checked_derived(job, change, committed.sink_schemas, resources, catalog)
    markers = resources.with_retries(lambda: resources.sink.committed(job.name))
    begun = any(markers[one.name].begun for one in job.derived if one.name in markers)
    if committed.epoch and (begun or committed.phase is not Phase.SNAPSHOT):
        resources.with_retries(lambda: derives.rehearse(job.name, job.derived, tables, change.derived, into))
    elif into:
        require_filled_soon(job.name, change)
    hit("derived-checked")
    held = [one for one in job.derived if one.name in change.derived and one.name in markers]
    try:
        with owners_sought(catalog):
            resources.with_retries(lambda: derives.prepare(job.name, job.derived, tables, into))
        hit("derived-prepared")
        if held:
            resources.with_retries(lambda: derives.renew(job.name, held))
            hit("derived-renewed")
    except BackfillError:
        with suppress(BackfillError):
            resources.sink.leave(job.name, [one for one in change.derived if one not in markers])
        raise


def require_filled_soon(name: str, change: Change) -> None:
    """Raises UsageError: while the snapshot is read, no commit fills a table that has rows."""
    again = f"add {name}{named(change.derived)}{' --replace' * change.again} --into-existing"
    raise UsageError(
        f"job {name!r} reads its snapshot: rows of a table that exists are replaced once it is read",
        "then type: " + command(f"{again} --config {quote(change.file)}"),
    )


def require_unread(job: JobDefinition, config: JobConfig, table: str) -> None:
    """No derived table reads this one. Raises UsageError naming one."""
    if not job.derived:
        return
    gone: list[str] = []
    for name, read in _reads(job, config).items():  # each after those that it reads
        if table in read or not set(gone).isdisjoint(read):
            gone.append(name)
    if gone:
        raise UsageError(
            f"table {table!r} cannot leave job {job.name!r}: its derived table {gone[0]!r} reads it",
            "remove what reads it first: " + command(f"remove {job.name}{named(gone)}"),
        )
