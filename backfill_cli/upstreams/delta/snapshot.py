"""Delta tables as a snapshot side: a pinned version, read by ranges of the first key column."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from backfill_cli.contracts import ArrowTasks, SnapshotSide, TableSpec
from backfill_cli.errors import START_OVER, BackfillError, HistoryGone, UsageError, in_config, sql
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.delta import is_name
from backfill_cli.lake.delta.damage import faulty
from backfill_cli.lake.delta.edge import Where, named_in
from backfill_cli.lake.delta.names import Session, beside, located
from backfill_cli.lake.delta.plain import plain_files, version_files
from backfill_cli.lake.key_ranges import Held, KeyRange, closed_read, frame_of
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.model.units import spell_known
from backfill_cli.model.upstream import Pin, SnapshotPin
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import GONE, from_spark, spark_reading
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.delta import DeltaOptions
from backfill_cli.upstreams.delta.table import PinnedTable, pinned


@dataclass
class SnapshotTable:
    """held: what this process pinned; None where another one did. locate: asked once, when it is first needed."""

    spec: TableSpec
    locate: Callable[[], Where]
    version: int = -1
    schema: str = ""
    ranges: Mapping[str, KeyRange] = field(default_factory=dict)
    frame: DataFrame | None = None
    held: PinnedTable | None = None
    plain: "PlainFiles | None" = None
    asked: bool = False

    def plain_files(self) -> PlainFiles | None:
        """What workers can read by themselves; asked of the log once a process."""
        if not self.asked:
            self.plain = plain_files(self.where, self.version, self.spec.key[0], columns_of(self.schema))
            self.asked = True
        return self.plain

    @cached_property
    def where(self) -> Where:
        return self.locate()

    def held_reads(self, reads: Sequence[SnapshotRead]) -> list[Held]:
        return [Held(replace(read, limit_rows=None), self.ranges[read.split]) for read in reads]


class DeltaSnapshot(SnapshotSide):
    """See contracts.SnapshotSide. Nothing is read before `pin` or `restore`."""

    keeps = "the files of the pinned version until they are read (VACUUM removes what is older than its retention)"

    def __init__(self, options: DeltaOptions, tables: Sequence[TableSpec], session: Session) -> None:
        self._version = options.version
        self.tables = {t.name: SnapshotTable(t, partial(place_of, options.table, t.name, session)) for t in tables}

    def pin(self) -> SnapshotPin:
        found = {name: pinned(t.where, t.spec, self._version) for name, t in self.tables.items()}
        for name, one in found.items():
            self.tables[name].held = one
        identity = {
            "delta": {
                name: {"id": one.id, "version": one.version, "ms": one.ms, "physical": dict(one.physical)}
                for name, one in found.items()
            }
        }
        splits = tuple(split for one in found.values() for split in one.splits)
        return SnapshotPin(splits, {name: schema_text(one.columns) for name, one in found.items()}, identity)

    def restore(self, pin: Pin) -> None:
        for name, table in self.tables.items():
            version = pin.position.get(name)
            table.version = version if isinstance(version, int) else -1
            table.schema = pin.schema[name]
            table.ranges = {s.id: KeyRange.of_json(s.detail) for s in pin.splits if s.table == name}
            table.frame, table.plain, table.asked = None, None, False

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        ranges = self.tables[table].ranges
        return [closed_read(read, ranges[read.split]) for read in reads]

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        one = self.tables[table]
        columns = columns_of(one.schema)
        key = one.spec.key[0]
        with spark_reading(FROM_COPY):
            if one.frame is None:  # planning it reads the log: once a process
                frame = spark.read.format("delta").option("versionAsOf", one.version).load(one.where.uri)
                one.frame = frame.select(*(quoted(name) for name in columns))
            return frame_of(one.frame, key, columns[key]["type"], one.held_reads(reads))

    def batches(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        """See contracts.SnapshotSide: plain files of a local disk, see lake/plain_files.py."""
        one = self.tables[table]
        files = one.plain_files()
        return None if files is None else files.tasks(one.held_reads(reads), arrow_tasks.cores(spark))

    def failure(self, exc: Exception) -> BackfillError | None:
        """Our error for a failure over these tables; where its words do not tell, their files do."""
        tables = [table.where for table in self.tables.values()]
        known = vacuumed(exc, tables) or from_spark(exc, FROM_COPY)
        faults = (
            faulty(one.where, partial(version_files, one.where, one.version), file_gone)
            for one in self.tables.values()
        )
        return known or next(filter(None, faults), None)


def place_of(template: str, table: str, session: Session) -> Where:
    """The table's folder. Raises UsageError where the option names a catalog that has no such table."""
    if not is_name(template):
        return Where.of(template, table)
    name = template.replace("{table}", table)
    found = located(session(), name)
    if found is None:
        known = spell_known(name, beside(session(), name))
        raise UsageError(f"{name}: no Delta table with that name{known}", in_config("correct upstream.table"))
    return found


def vacuumed(exc: Exception, tables: Sequence[Where]) -> BackfillError | None:
    """What a missing file of one of these tables means; None: not that."""
    text = str(exc)
    if not any(name in text for name in ("FILE_NOT_EXIST", "FileNotFoundException", GONE)):
        return None
    where = named_in(text, tables)
    return None if where is None else file_gone(where)


def file_gone(where: Where, path: str = "") -> HistoryGone:
    return HistoryGone(
        f"{where.shown}: VACUUM removed a file that was still to be read{path and f': {path}'}",
        START_OVER
        + "; keep files longer than the job needs: "
        + sql(
            f"ALTER TABLE delta.`{where.shown}` SET TBLPROPERTIES (delta.deletedFileRetentionDuration = "
            "'interval 30 days')"
        ),
    )
