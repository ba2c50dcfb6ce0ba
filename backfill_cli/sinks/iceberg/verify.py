"""How `verify` reads an Iceberg sink: each table at a snapshot, all of them at the same epoch."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import StateConflict, Transient
from backfill_cli.formats.lake.copy import LakeCopy, Reads
from backfill_cli.formats.lake.state import Claim, JobRecord, JobState
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.iceberg.heads import Head
from backfill_cli.sinks.iceberg.markers import marker_of
from backfill_cli.sinks.iceberg.tables import place_of, refuse_other_columns, rows_at
from backfill_cli.spark.beside import session_beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Tables commit one after the other; the longest commit seen, of three tables, took 20 s.
PATIENCE_S = 120.0
RETRY_S = 0.2


@contextmanager
def copied(
    session: "Callable[[], SparkSession]",
    text: str,
    state: JobState,
    record: JobRecord,
    look: Callable[[Claim], Head | None],
    live: bool,
) -> Iterator[LakeCopy]:
    """See `contracts.VerifiableSink`. Nothing is copied, as snapshots do not change. Raises as `_at_one_epoch`."""
    pinned, marker = _at_one_epoch(record, look, live)
    yield LakeCopy(session_beside(session()), _reads(text, pinned, record, look), state.saved(marker), pinned)


def _at_one_epoch(
    record: JobRecord, look: Callable[[Claim], Head | None], live: bool
) -> tuple[Mapping[str, int], Marker]:
    """(table → the snapshot to read, their marker): all tables are at the marker's epoch.

    Raises Transient if the tables of a live job are never at the same epoch within PATIENCE_S, and StateConflict
    if no runner has the job and its tables are at several epochs, or one does not exist.
    """
    deadline = time.monotonic() + (PATIENCE_S if live else 0)
    while True:
        held = {table: look(claim) for table, claim in record.claims.items()}
        there = {table: one for table, one in held.items() if one is not None}
        markers = {table: marker_of(one, record.claims[table]) for table, one in there.items()}
        epochs = {(marker.epoch, marker.attempt) for marker in markers.values()}
        if len(there) == len(held) and len(epochs) == 1:
            pinned = {table: one.main.snapshot_id for table, one in there.items() if one.main is not None}
            return pinned, next(iter(markers.values()))
        if time.monotonic() > deadline:
            break
        time.sleep(RETRY_S)
    told = ", ".join(f"{table}: {markers[table].epoch if table in markers else 'gone'}" for table in held)
    if live:
        raise Transient(
            f"job {record.job!r}: its tables are at several epochs ({told})", "it is retried automatically"
        )
    raise StateConflict(
        f"job {record.job!r}: its tables are at several epochs ({told}): a commit was interrupted",
        f"backfill resume {record.job}",
    )


def _reads(text: str, pinned: Mapping[str, int], record: JobRecord, look: Callable[[Claim], Head | None]) -> Reads:
    """Reads the tables at these snapshots. Raises if a column of theirs has been dropped since."""

    def rows(spark: "SparkSession", table: SinkTable) -> "DataFrame":
        claim = record.claims[table.name]
        if (held := look(claim)) is not None:
            refuse_other_columns(table, held, claim)
        place = place_of(text, table)
        place.register(spark)
        return rows_at(table, place, spark, pinned.get(table.name))

    return rows
