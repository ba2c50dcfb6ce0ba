"""A job that one of its tables has left."""

import json
from dataclasses import replace

from backfill_cli.config import JobConfig
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.engine.staging.quarantine import side_name


def having_left(job: JobDefinition, table: str, config: JobConfig) -> JobDefinition:
    """The job without the table. config: the one that it has then."""
    gone = {one.name for one in of_table(job, table)}
    return replace(
        without_aside(job, table),  # of one that was being put back: its refill ends
        config=config.stored(),
        fingerprint=json.dumps(config.fingerprint()),
        pin=job.pin.without(table),
        tables=tuple(one for one in job.tables if one.name not in gone),
    )


def of_table(job: JobDefinition, table: str) -> list[SinkTable]:
    """The sink's tables of one of the job's: it, and that of its rows that could not be read."""
    return [one for one in job.tables if one.name in (table, side_name(table))]


def without_aside(job: JobDefinition, table: str) -> JobDefinition:
    """The job, which does not remember that the table was set aside."""
    return replace(job, aside=tuple(one for one in job.aside if one.table != table))
