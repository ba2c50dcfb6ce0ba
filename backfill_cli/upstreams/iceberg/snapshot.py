"""Iceberg tables as a snapshot side: a pinned snapshot, read by ranges of the first key column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from backfill_cli.contracts import ArrowTasks, SnapshotSide
from backfill_cli.errors import START_OVER, BackfillError, HistoryGone
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.iceberg import metadata
from backfill_cli.lake.iceberg.edge import reading_metadata
from backfill_cli.lake.iceberg.metadata import changed_files, snapshot_files
from backfill_cli.lake.key_ranges import Held, KeyRange, closed_read, frame_of
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.model.upstream import Pin, SnapshotPin
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import GONE, from_spark, spark_reading
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.iceberg.plain import plain_files
from backfill_cli.upstreams.iceberg.table import NOTHING, PinnedTable, Table, pinned, snapshot_of


@dataclass
class SnapshotTable:
    """held: what this process pinned; None if another one did. tag: the one that keeps the snapshot, if any."""

    table: Table
    snapshot: int = NOTHING
    schema: str = ""
    ranges: Mapping[str, KeyRange] = field(default_factory=dict)
    held: PinnedTable | None = None
    tag: str | None = None
    plain: PlainFiles | None = None
    asked: bool = False

    def held_reads(self, reads: Sequence[SnapshotRead]) -> list[Held]:
        return [Held(replace(read, limit_rows=None), self.ranges[read.split]) for read in reads]

    def plain_files(self) -> PlainFiles | None:
        """What workers can read by themselves; asked of the metadata once a process."""
        if not self.asked:
            self.plain, self.asked = plain_files(self.table, self.snapshot, columns_of(self.schema)), True
        return self.plain


class IcebergSnapshot(SnapshotSide):
    """See contracts.SnapshotSide. Nothing is read before `pin` or `restore`."""

    keeps = "the pinned snapshot until it is read (the job's tag keeps it from expiring)"

    def __init__(self, tables: Sequence[Table], version: int | str) -> None:
        self._version = version
        self.tables = {one.spec.name: SnapshotTable(one) for one in tables}

    def pin(self) -> SnapshotPin:
        """See contracts.SnapshotSide. Once the tag exists, the snapshot that it keeps is pinned."""
        for one in self.tables.values():
            tagged = one.held.snapshot if one.tag is not None and one.held is not None else None
            one.held = pinned(one.table, self._version, tagged)
        held = {name: (one.tag, one.held) for name, one in self.tables.items() if one.held is not None}
        identity = {
            "iceberg": {
                name: {"id": one.id, "snapshot": one.snapshot, "tag": tag, "fields": dict(one.fields)}
                for name, (tag, one) in held.items()
            }
        }
        splits = tuple(split for _, one in held.values() for split in one.splits)
        return SnapshotPin(splits, {name: schema_text(one.columns) for name, (_, one) in held.items()}, identity)

    def restore(self, pin: Pin) -> None:
        for name, one in self.tables.items():
            one.snapshot = snapshot_of(str(pin.position.get(name)))
            one.schema = pin.schema[name]
            one.ranges = {s.id: KeyRange.of_json(s.detail) for s in pin.splits if s.table == name}
            one.plain, one.asked = None, False

    def check(self) -> None:
        """The pinned snapshots exist. Raises HistoryGone."""
        for one in self.tables.values():
            if one.snapshot != NOTHING and one.table.now().snapshot(one.snapshot) is None:
                raise expired(one.table, one.snapshot)

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        ranges = self.tables[table].ranges
        return [closed_read(read, ranges[read.split]) for read in reads]

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        one = self.tables[table]
        columns = columns_of(one.schema)
        key = one.table.spec.key[0]
        rows = rows_at(spark, one.table, one.snapshot).select(*(quoted(name) for name in columns))
        return frame_of(rows, key, columns[key]["type"], one.held_reads(reads))

    def batches(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        """See contracts.SnapshotSide: plain files of a local disk, see lake/plain_files.py."""
        one = self.tables[table]
        files = one.plain_files()
        return None if files is None else files.tasks(one.held_reads(reads), arrow_tasks.cores(spark))

    def failure(self, exc: Exception) -> BackfillError | None:
        text = str(exc)
        found = (one for one in self.tables.values() if _tells_gone(one, text))
        gone = next(found, None)
        if gone is not None:
            return expired(gone.table, gone.snapshot)
        return self._faulty(content=False) or from_spark(exc, FROM_COPY) or self._faulty(content=True)

    def _faulty(self, content: bool) -> BackfillError | None:
        found = (faulty(one.table, [one.snapshot], False, content) for one in self.tables.values())
        return next(filter(None, found), None)


def _tells_gone(one: SnapshotTable, text: str) -> bool:
    """Whether a failure says that the snapshot expired, or that a file of it that was to be read is gone."""
    if f"Cannot find snapshot with ID {one.snapshot}" in text:
        return True
    if GONE not in text or one.plain is None or not any(f"{path}: {GONE}" in text for path in one.plain.paths()):
        return False
    return one.table.now().snapshot(one.snapshot) is None


def faulty(table: Table, snapshots: Sequence[int], changed: bool, content: bool) -> BackfillError | None:
    """What is wrong with files of these snapshots; None if nothing is, or if they have expired.

    changed: only those that the snapshots added or removed. content: whether they are read to their end.
    """
    try:
        held = table.now()
        with reading_metadata(table.place):
            there = [one for number in snapshots if (one := held.snapshot(number)) is not None]
            of = changed_files if changed else snapshot_files
            return metadata.faulty(held, [file for one in there for file in of(held, one)], content)
    except BackfillError as exc:
        return exc


def rows_at(spark: SparkSession, table: Table, snapshot: int) -> DataFrame:
    """All rows at a snapshot, with the columns that the table had then."""
    table.place.register(spark)
    table.asked_for(snapshot)
    with spark_reading(FROM_COPY):
        return spark.sql(f"SELECT * FROM {table.place.sql} VERSION AS OF {snapshot}")


def expired(table: Table, snapshot: int) -> HistoryGone:
    return HistoryGone(
        f"{table.place}: snapshot {snapshot} has expired",
        START_OVER
        + "; keep snapshots longer than the job needs: "
        + table.place.in_spark(
            table.place.alter("SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '2592000000')")
        ),
    )
