"""Tables of which a job keeps only the columns that its derived tables use: `keep = "columns"`."""

from collections.abc import Sequence
from shlex import quote

from backfill_cli.config import JobConfig, from_stored
from backfill_cli.config.columns import lacking, readers_of, same, selected, used_in
from backfill_cli.config.connectors import sink_of
from backfill_cli.contracts import JobDefinition, SinkTable, own
from backfill_cli.engine.job.apart import why_none_joins, why_none_leaves
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
    for table, columns in used_in(after.tables, after.derived, _dialect(after)).items():
        lacks = lacking(had[table], columns) if table in had else ()
        if lacks:
            refused = _not_kept(job, before, after, table, lacks, file)
            raise refused.naming(job.name, job.has_tables_to_itself)


def _not_kept(
    job: JobDefinition, before: JobConfig, after: JobConfig, table: str, lacks: Sequence[str], file: str
) -> UsageError:
    name, dialect = before.job.name, _dialect(after)
    had, has = (
        "".join(f" --derived {quote(reader)}" for reader in readers_of(table, one.tables, one.derived, dialect))
        for one in (before, after)
    )
    rows, of_file = f" --with-rows --confirm {name}", f" --config {quote(file)}"
    lines = [f"remove {name}{had}{rows}"] if had else []
    lines += [f"remove {name} --table {quote(table)}{rows}", f"add {name} --table {quote(table)}{of_file}"]
    lines.append(f"add {name}{has}{of_file}")
    anew = "for it to be read anew with them, each command once the one before is done: " + command(*lines)
    can = before.unreached_upstream().capabilities
    comes_back = not (why_none_leaves(job, can) or why_none_joins(job, can)) and len(before.tables) > 1
    return UsageError(
        f"job {name!r} does not keep {', '.join(lacks)} of table {table!r}, which its derived tables would use",
        (anew + "; or " if comes_back else "") + START_OVER,
    )


def _dialect(config: JobConfig) -> str:
    dialect = sink_of(config.tree["sink"]).dialect
    assert dialect is not None, "a config with keep has been checked"
    return dialect
