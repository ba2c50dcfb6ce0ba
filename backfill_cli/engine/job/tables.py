"""A job's tables as the sink sees them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.config import JobConfig
from backfill_cli.contracts import JobDefinition, SinkTable, Source, own
from backfill_cli.engine.staging.quarantine import side_table
from backfill_cli.engine.staging.transform import sink_schema
from backfill_cli.model.schema import names_of
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sink_tables(
    config: JobConfig, spark: "SparkSession", upstream: Source, pin: Pin, plain: bool
) -> tuple[SinkTable, ...]:
    """The job's tables as the sink sees them, after the transform, each with a side table for unreadable rows.

    Raises UsageError for a column of the upstream with a name of ours, or that differs from another in case only.
    """
    for name, schema in pin.schema.items():
        own.refuse_names(f"table {name!r}", names_of(schema))
    tables = tuple(
        SinkTable(
            t.name,
            t.sink_name,
            config.sink_key(t.name),
            sink_schema(spark, pin.schema[t.name], config.transform_of(t.name)),
            plain_inserts=plain,
        )
        for t in config.tables
    )
    for table in tables:
        own.refuse_names(f"table {table.name!r}, after its transform", names_of(table.schema))
    return (*tables, *_side_tables(tables, upstream, pin))


def late_tables(job: JobDefinition, upstream: Source) -> tuple[SinkTable, ...]:
    """The side tables that the job lacks: its config did not ask for them when it was created."""
    known = {table.name for table in job.tables}
    tables = [table for table in job.tables if not table.side]
    return tuple(table for table in _side_tables(tables, upstream, job.pin) if table.name not in known)


def _side_tables(tables: Sequence[SinkTable], upstream: Source, pin: Pin) -> tuple[SinkTable, ...]:
    """A table for unreadable rows beside each of these, if the upstream's options ask for it."""
    if not upstream.capabilities.quarantines:
        return ()
    return tuple(side_table(table, upstream, pin.schema[table.name]) for table in tables)
