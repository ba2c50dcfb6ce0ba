"""Which tables can be set aside, and what cannot be done while some are."""

import json
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote

from backfill_cli.config import JobConfig
from backfill_cli.contracts import JobDefinition, Pinned, SinkTable, Source
from backfill_cli.engine.job.join import require_joinable, require_removable
from backfill_cli.engine.job.resources import Resources
from backfill_cli.errors import BackfillError, Hint, UsageError, command, in_config
from backfill_cli.model.aside import Aside, out
from backfill_cli.model.codec import decode
from backfill_cli.model.upstream import Pin

PATIENCE_S = 10.0
"""How long what may pass is waited for, of what need not be done."""


def require_able(name: str, strategy: str, upstream: Source, pin: Pin, tables: Sequence[str], table: str) -> None:
    """A job with these tables can go on without this one, and have it back. Raises UsageError."""
    known = tuple(SinkTable(name, name, (), "{}") for name in tables)
    job = JobDefinition(name, "", "", pin, "", strategy, known)
    require_removable(job, upstream)
    rest = tuple(one for one in known if one.name != table)
    require_joinable(JobDefinition(name, "", "", pin.without(table), "", strategy, rest), table, upstream)


def require_aside(config: JobConfig, strategy: str, upstream: Source, pin: Pin) -> None:
    """Each table for which the config asks it can be set aside. Raises UsageError naming one that cannot."""
    names = [one.name for one in config.tables]
    for table in names if len(names) > 1 else ():
        if not config.sets_aside(table):
            continue
        option = "job" if config.table(table).on_error is None else "tables"
        try:
            require_able(config.job.name, strategy, upstream, pin, names, table)
        except UsageError as error:
            raise UsageError(
                f"table {table!r} cannot be set aside after an error: {error.message}",
                in_config(f'set {option}.on_error = "stop"'),
            ) from error


def tables_of(job: JobDefinition) -> tuple[SinkTable, ...]:
    """All tables of a job in its sink, also those that are set aside."""
    return (*job.tables, *(one for aside in out(job.aside) for one in kept_of(job, aside.table)))


def kept_of(job: JobDefinition, table: str) -> tuple[SinkTable, ...]:
    """What the sink has of a table that is set aside."""
    (aside,) = [one for one in out(job.aside) if one.table == table]
    return decode(tuple[SinkTable, ...], aside.tables)


def read_anew(job: JobDefinition, table: str, kept: Sequence[SinkTable]) -> Hint:
    """The table leaves the job with its rows, and joins it anew. kept: what the sink has of it.

    Rows of others stay where some may be among them.
    """
    others = any(not one.plain_inserts and not one.side for one in kept)
    remove, add = (f"{verb} {job.name} --table {quote(table)}" for verb in ("remove", "add"))
    file = f" --config {quote(job.config_file)}" if job.config_file else ""
    if others:
        return command(remove, f"{add} --into-existing{file}")
    return command(f"{remove} --with-rows --confirm {job.name}", f"{add}{file}")


def let_go(one: Aside, config: JobConfig, opened: Resources) -> None:
    """The upstream holds nothing for a table that is set aside, unless it cannot be asked now.

    config: the job's, without the table. opened: for it.
    """
    with suppress(BackfillError):
        whole = config.with_table(json.loads(one.section), json.loads(one.options))
        with Resources(whole.of_tables({one.table}), opened.tell, opening=opened.opening) as alone:
            alone.patience_s = PATIENCE_S
            if (lease := alone.upstream.lease) is not None:
                lease.leave(one.table, decode(Pin, one.pin))


def holds(upstream: Source) -> bool:
    """Whether something is held for each table, as long as its snapshot is read. Asks nothing."""
    return isinstance(upstream.capabilities.reads, Pinned) and upstream.lease is not None


def require_none(job: JobDefinition, doing: str) -> None:
    """No table of the job is set aside or being put back. Raises UsageError naming one. doing: what needs all."""
    for one in job.aside:
        state = "is set aside" if one.refill is None else "is being put back"
        way = f"refill {job.name} --table {quote(one.table)}" if one.refill is None else f"status {job.name}"
        raise UsageError(f"job {job.name!r}: table {one.table!r} {state}: {doing}", command(way))
