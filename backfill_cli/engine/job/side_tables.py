"""The tables for unreadable rows, beside those that a job writes."""

from collections.abc import Sequence

from backfill_cli.contracts import JobDefinition, SinkTable, Source
from backfill_cli.engine.staging.quarantine import side_name, side_table
from backfill_cli.errors import UsageError, in_config
from backfill_cli.model.upstream import Pin


def late_tables(job: JobDefinition, upstream: Source) -> tuple[SinkTable, ...]:
    """The side tables that the job lacks: its config did not ask for them when it was created."""
    known = {table.name for table in job.tables}
    tables = [table for table in job.tables if not table.side]
    return tuple(table for table in side_tables(tables, upstream, job.pin) if table.name not in known)


def side_tables(tables: Sequence[SinkTable], upstream: Source, pin: Pin) -> tuple[SinkTable, ...]:
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
