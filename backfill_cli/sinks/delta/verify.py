"""How `verify` reads a Delta sink: at versions at which all tables are at the same epoch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BackfillError
from backfill_cli.lake.copy import LakeCopy, at_one_epoch
from backfill_cli.lake.delta.commits import stamp
from backfill_cli.lake.delta.faults import faulty
from backfill_cli.lake.delta.plain import version_files
from backfill_cli.lake.state import JobState
from backfill_cli.model.schema import names_of
from backfill_cli.sinks.delta.marks import MarkedTable
from backfill_cli.spark.beside import session_beside
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def copied(
    session: "Callable[[], SparkSession]", job: str, state: JobState, tables: Sequence[MarkedTable], live: bool
) -> Iterator[LakeCopy]:
    """See `contracts.VerifiableSink`. Nothing is copied: a version does not change. Raises as `at_one_epoch`."""
    versions, marker = at_one_epoch(job, state, lambda: {one.name: one.versioned() for one in tables}, live)
    places = {table.name: table.where for table in tables}

    def reads(spark: "SparkSession", table: SinkTable) -> "DataFrame":
        frame = spark.read.format("delta").option("versionAsOf", versions[table.name])
        return frame.load(places[table.name].uri).select(*(quoted(name) for name in names_of(table.schema)))

    saved = state.saved(marker) if marker is not None else None
    # A recreated table has the same version numbers: the identity of the log file distinguishes them.
    known = {name: str((version, stamp(places[name], version))) for name, version in versions.items()}

    def fault(name: str) -> BackfillError | None:
        return faulty(places[name], partial(version_files, places[name], versions[name]))

    yield LakeCopy(session_beside(session()), reads, saved, known, fault)
