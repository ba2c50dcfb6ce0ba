"""A table that joins a job: checked as those of a new job are, and pinned beside them.

The job goes on as if it had read nothing of it: its splits are not started, and its log, if it has one, stands at
its pin. Nothing else of the job changes.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from backfill_cli.catalog import Catalog
from backfill_cli.contracts import JobDefinition, SinkTable, Source
from backfill_cli.engine.job.apart import why_none_joins, why_none_leaves
from backfill_cli.engine.job.checks import sink_tables
from backfill_cli.engine.job.ownership import owners_sought
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import require_apart, require_keys, require_same_strategy, require_whole
from backfill_cli.engine.staging.files import nothing_left
from backfill_cli.engine.staging.sample import Sampled, require_readable
from backfill_cli.errors import Hint, UsageError, command
from backfill_cli.model.aside import Standing
from backfill_cli.model.change import Change
from backfill_cli.model.units import spell_known
from backfill_cli.model.upstream import Pin

APART = "give it a job of its own: " + command("start --config FILE")


@dataclass(frozen=True, slots=True)
class Joined:
    """definition: of the job with the table. pin: of the table alone. tables: the sink's of it."""

    definition: JobDefinition
    pin: Pin
    tables: tuple[SinkTable, ...]


def joined(
    job: JobDefinition,
    change: Change,
    catalog: Catalog,
    whole: Resources,
    alone: Resources,
    *,
    try_it: bool,
    free: Collection[str] = (),
) -> Joined:
    """The job once the change's table has joined it. Raises what refuses it.

    whole, alone: opened for the config with the table, and for the table alone. try_it: a command asks, which
    changes nothing; otherwise the upstream holds the table's changes from now on. free: the sink's tables that
    will not be the job's by then.
    """
    config, upstream, lease = alone.config, alone.upstream, alone.upstream.lease
    require_joinable(job, change.table, whole.upstream)
    require_same_strategy(job, whole.config, whole.upstream)
    require_keys(config.table_specs(), upstream.capabilities)
    pin = alone.with_retries(upstream.pin)
    if lease is not None:
        alone.with_retries(lease.require_joinable if try_it else lambda: lease.join(change.mark))
        pin = alone.with_retries(upstream.pin)
    require_whole(config, upstream, alone.sink)
    with nothing_left(Path(config.job.staging)):
        plain = not change.into_existing
        tables = sink_tables(config, lambda: alone.spark, upstream, pin, plain)
        after = replace(
            job,
            config=whole.config.stored(),
            config_file=change.file or job.config_file,
            fingerprint=json.dumps(whole.config.fingerprint()),
            pin=job.pin.joined(pin),
            tables=(*job.tables, *tables),
        )
        whole.with_retries(lambda: whole.upstream.restore(after.pin))
        whole.with_retries(lambda: require_apart(job.name, whole.upstream, whole.sink, after.tables))
        stand = [one for one in tables if one.target not in free]
        with owners_sought(catalog):
            whole.with_retries(lambda: whole.sink.check(job.name, stand, change.into_existing))
    return Joined(after, pin, tables)


def sampled(made: Joined, alone: Resources) -> Sampled:
    """What a sample of the table's rows shows. Raises what refuses them. alone: opened for it."""
    with nothing_left(Path(alone.config.job.staging)):
        return require_readable(lambda: alone.spark, alone.upstream, alone.config, made.pin, made.tables)


def require_joinable(job: JobDefinition, table: str, upstream: Source) -> None:
    """A table can join the job. Raises UsageError saying why not, and what can be done instead."""
    require_absent(job, table)
    if (why := why_none_joins(job, upstream.capabilities)) is not None:
        raise UsageError(f"table {table!r} cannot join job {job.name!r}: {why}", APART)


def require_absent(job: JobDefinition, table: str) -> None:
    """The job has no such table, nor one that is set aside. Raises UsageError."""
    match job.standing(table):
        case None:
            return
        case Standing.ASIDE:
            raise UsageError(
                f"job {job.name!r}: table {table!r} is set aside",
                "put it back: " + command(f"refill {job.name} --table {quote(table)}"),
            )
        case _:
            raise UsageError(f"job {job.name!r} has table {table!r} already", command(f"status {job.name}"))


def require_known(job: JobDefinition, table: str) -> None:
    """The table is one of the job's, which goes on with another one. Raises UsageError."""
    known = [one.name for one in job.tables if not one.side]
    if table not in known:
        raise UsageError(
            f"job {job.name!r}: table {table!r} does not exist{spell_known(table, known)}",
            command(f"status {job.name}"),
        )
    if len(known) == 1:
        raise UsageError(
            f"{table!r} is the only table of job {job.name!r}",
            "to forget the job: " + command(f"drop {job.name} --confirm {job.name}"),
        )
    if not job.others_in(table):
        back = next(one for one in known if one != table)
        raise UsageError(
            f"job {job.name!r} cannot go on without table {table!r}: table {back!r} {Standing.BACK}",
            "try again once that is done: " + command(f"status {job.name}"),
        )


def require_own_rows(job: JobDefinition, table: str, tables: Sequence[SinkTable]) -> None:
    """A table that is to be dropped has no rows but the job's. tables: the sink's, of it. Raises UsageError."""
    for one in tables:
        if not one.plain_inserts and not one.side:
            raise UsageError(
                f"{one.target} cannot be dropped with its rows: rows of others may be in it",
                "let it stay: " + command(f"remove {job.name} --table {quote(table)}"),
            )


def require_removable(job: JobDefinition, upstream: Source) -> None:
    """A table can leave the job. Raises UsageError saying why not, and what can be done instead."""
    if (why := why_none_leaves(job, upstream.capabilities)) is not None:
        raise UsageError(f"no table can leave job {job.name!r}: {why}", _without_it(job.name))


def _without_it(name: str) -> Hint:
    forget = command(f"drop {name} --confirm {name}", "start --config FILE --into-existing")
    return "start over with the other tables, over the rows that are there: " + forget
