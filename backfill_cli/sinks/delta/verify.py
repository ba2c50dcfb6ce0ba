"""How `verify` reads a Delta sink: at versions at which all tables are at the same epoch."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import Transient
from backfill_cli.formats.delta.commits import stamp
from backfill_cli.formats.lake.copy import LakeCopy
from backfill_cli.formats.lake.state import JobState
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.schema import names_of
from backfill_cli.sinks.delta.marks import MarkedTable
from backfill_cli.spark.beside import session_beside
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 120.0
"""A commit of several tables takes seconds; between two commits they are all at the same epoch."""
RETRY_S = 0.1


@contextmanager
def copied(
    session: "Callable[[], SparkSession]", state: JobState, tables: Sequence[MarkedTable]
) -> Iterator[LakeCopy]:
    """See `contracts.VerifiableSink`. Nothing is copied, as a version does not change."""
    versions, marker = _one_epoch(tables)
    places = {table.name: table.where for table in tables}

    def reads(spark: "SparkSession", table: SinkTable) -> "DataFrame":
        frame = spark.read.format("delta").option("versionAsOf", versions[table.name])
        return frame.load(places[table.name].uri).select(*(quoted(name) for name in names_of(table.schema)))

    saved = state.saved(marker) if marker is not None else None
    # A recreated table has the same version numbers: the identity of the log file distinguishes them.
    known = {name: str((version, stamp(places[name], version))) for name, version in versions.items()}
    yield LakeCopy(session_beside(session()), reads, saved, known)


def _one_epoch(tables: Sequence[MarkedTable]) -> tuple[dict[str, int], Marker | None]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = {table.name: held for table in tables if (held := table.versioned()) is not None}
        markers = [marker for _, marker in found.values()]
        if len({(one.epoch, one.attempt) for one in markers}) <= 1:
            return {name: version for name, (version, _) in found.items()}, markers[0] if markers else None
        if time.monotonic() > deadline:
            raise Transient(
                f"the tables have been at different epochs for {PATIENCE_S:.0f} s: their runner died between two "
                "commits",
                "run the job, which completes the epoch, then verify again",
            )
        time.sleep(RETRY_S)
