"""Tables of which a job keeps only the columns that its derived tables use: `keep = "columns"`."""

from collections.abc import Mapping, Sequence
from shlex import quote

from backfill_cli.config import JobConfig, from_stored
from backfill_cli.config.columns import lacking, readers_of, same, selected, used_in
from backfill_cli.config.connectors import sink_of
from backfill_cli.contracts import JobDefinition, SinkTable, own
from backfill_cli.engine.job.apart import why_none_comes_back
from backfill_cli.errors import START_OVER, UsageError, command, in_config
from backfill_cli.model.schema import names_of
from backfill_cli.model.upstream import Pin


def require_used(config: JobConfig, pin: Pin) -> None:
    """Tables of which only columns are kept have those that SELECTs name. Raises UsageError naming one."""
    for table in config.tables:
        if table.keep is None or (select := config.transform_of(table.name).select) is None:
            continue
        there = {own.fold(name): name for name in names_of(pin.schema[table.name])}
        for name in selected(select):
            found = there.get(own.fold(name))
            if found is None or not same(name, found, _dialect(config)):
                other = "" if found is None else f" but {found!r}"
                raise UsageError(
                    f"table {table.name!r} has no column {name!r}{other}, which a derived table uses",
                    in_config("correct derived.sql" if found is None else f'write "{found}" in derived.sql'),
                )


def left_out(config: JobConfig, pin: Pin, table: SinkTable) -> int | None:
    """How many columns of the upstream's are not kept of a table of which only columns are; None for any other."""
    if config.table(table.name).keep is None:
        return None
    return len(names_of(pin.schema[table.name])) - len(names_of(table.schema))


def require_kept(job: JobDefinition, after: JobConfig, file: str) -> None:
    """What a job keeps of its tables suffices for all SELECTs that it would have. Raises UsageError.

    after: the job's config with another derived table, or a file's, whose tables have what its SELECTs use. file:
    where the new ones are.
    """
    before = from_stored(job.config)
    had = {one.name: one for one in before.tables if one.keep is not None}
    if not had:
        return
    using = used_in(after.tables, after.derived, _dialect(after))
    lacks = {name: lacking(had[name], columns) for name, columns in using.items() if name in had}
    if any(lacks.values()):
        refused = _not_kept(job, before, after, {name: some for name, some in lacks.items() if some}, file)
        raise refused.naming(job.name, job.has_tables_to_itself)


def _not_kept(
    job: JobDefinition, before: JobConfig, after: JobConfig, lacks: Mapping[str, Sequence[str]], file: str
) -> UsageError:
    """lacks: the columns that are not kept, by table; of each some."""
    name = before.job.name
    columns = " and ".join(f"{', '.join(some)} of table {table!r}" for table, some in lacks.items())
    said = f"job {name!r} does not keep {columns}, which its derived tables would use"
    if (why := why_none_comes_back(job, before.unreached_upstream().capabilities)) is not None:
        which = f"table {next(iter(lacks))!r}" if len(lacks) == 1 else "these tables"
        return UsageError(f"{said}, and cannot read {which} anew: {why}", START_OVER)
    dialect, rows, of_file = _dialect(after), f" --with-rows --confirm {name}", f" --config {quote(file)}"
    had, has = (
        "".join(f" --derived {quote(reader)}" for reader in readers_of(lacks, one.tables, one.derived, dialect))
        for one in (before, after)
    )
    lines = [f"remove {name}{had}{rows}"] if had else []
    for table in lacks:
        lines += [f"remove {name} --table {quote(table)}{rows}", f"add {name} --table {quote(table)}{of_file}"]
    lines.append(f"add {name}{has}{of_file}")
    which = "it" if len(lacks) == 1 else "them"
    anew = f"for {which} to be read anew with these columns: "
    return UsageError(said, anew + command(*lines) + "; or " + START_OVER)


def _dialect(config: JobConfig) -> str:
    dialect = sink_of(config.tree["sink"]).dialect
    assert dialect is not None, "a config with keep has been checked"
    return dialect
