"""How `verify` reads an Iceberg sink: each table at a snapshot, all of them at the same epoch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BackfillError
from backfill_cli.lake.copy import LakeCopy, Reads, at_one_epoch
from backfill_cli.lake.iceberg.data_files import snapshot_fault
from backfill_cli.lake.iceberg.metadata import reading_metadata
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.state import Claim, JobRecord, JobState
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.iceberg.heads import Head
from backfill_cli.sinks.iceberg.markers import marker_of
from backfill_cli.sinks.iceberg.tables import place_of, refuse_other_columns, rows_at
from backfill_cli.spark.beside import session_beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def copied(
    session: "Callable[[], SparkSession]",
    text: str,
    state: JobState,
    record: JobRecord,
    look: Callable[[Claim], Head | None],
    live: bool,
) -> Iterator[LakeCopy]:
    """See `contracts.VerifiableSink`. Nothing is copied, as snapshots do not change. Raises as `at_one_epoch`."""

    def now(claim: Claim) -> tuple[int | None, Marker] | None:
        held = look(claim)
        if held is None:
            return None
        main = held.main
        return None if main is None else main.snapshot_id, marker_of(held, claim)

    pinned, marker = at_one_epoch(record.job, state, lambda: {t: now(c) for t, c in record.claims.items()}, live)
    saved = None if marker is None else state.saved(marker)

    def fault(name: str) -> BackfillError | None:
        claim, number = record.claims[name], pinned.get(name)
        try:
            held = look(claim)
            snapshot = None if held is None or number is None else held.snapshot(number)
            with reading_metadata(Place.of(claim.place)):
                return None if held is None or snapshot is None else snapshot_fault(held, snapshot)
        except BackfillError as exc:
            return exc

    yield LakeCopy(session_beside(session()), _reads(text, pinned, record, look), saved, pinned, fault)


def _reads(
    text: str, pinned: Mapping[str, int | None], record: JobRecord, look: Callable[[Claim], Head | None]
) -> Reads:
    """Reads the tables at these snapshots. Raises if a column of theirs has been dropped since."""

    def rows(spark: "SparkSession", table: SinkTable) -> "DataFrame":
        claim = record.claims[table.name]
        if (held := look(claim)) is not None:
            refuse_other_columns(table, held, claim)
        place = place_of(text, table)
        place.register(spark)
        return rows_at(table, place, spark, pinned.get(table.name))

    return rows
