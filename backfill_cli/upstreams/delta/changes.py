"""Delta tables as a change log: the change data feed of each table, read many versions at a time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backfill_cli.contracts import ChangeLog, Extras, TableSpec, own
from backfill_cli.errors import START_OVER, BackfillError, HistoryGone
from backfill_cli.formats import frames
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.delta.damage import faulty
from backfill_cli.lake.delta.edge import Where, named_in
from backfill_cli.model.position import Position
from backfill_cli.model.schema import columns_of, field
from backfill_cli.model.upstream import LogStart, Pin, UpstreamEpoch, UpstreamView
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import from_spark, spark_reading
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.delta.log import FollowedTable
from backfill_cli.upstreams.delta.snapshot import DeltaSnapshot, file_gone, vacuumed
from backfill_cli.upstreams.delta.table import PinnedTable

_MARKS = {own.OP: "string", own.SEQ: "long", own.MS: "long"}


class DeltaChanges(ChangeLog):
    """See contracts.ChangeLog. snapshot: of the same tables, pinned before `begin` is called."""

    before_images = True
    correctable = False
    keeps = "the change data feed until it is applied (logs and change files are kept by the table's retentions)"

    def __init__(self, tables: Sequence[TableSpec], snapshot: DeltaSnapshot) -> None:
        self.one_log = len(tables) == 1
        self._snapshot = snapshot
        self.extras = Extras(warnings=self._warnings)
        self._logs: dict[str, FollowedTable] = {}

    @property
    def _where(self) -> Mapping[str, Where]:
        return {name: one.where for name, one in self._snapshot.tables.items()}

    def begin(self, schema: Mapping[str, str]) -> LogStart:
        held = {name: one.held for name, one in self._snapshot.tables.items() if one.held is not None}
        self._follow({name: {"id": one.id, "physical": one.physical} for name, one in held.items()})
        position = Position.of({name: one.version for name, one in held.items()})
        self.observe(position)  # refuse what cannot be followed before anything is read
        return LogStart(position, max((one.ms for one in held.values()), default=None), None, schema, {})

    def restore(self, pin: Pin) -> None:
        self._follow(json.loads(pin.identity)["delta"])

    def _follow(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._logs = {
            name: FollowedTable(name, self._where[name], told["id"], told["physical"])
            for name, told in tables.items()
        }

    def observe(self, position: Position) -> UpstreamView:
        found = [(e.ms, n, name, e) for name, log in self._logs.items() for n, e in self._epochs(log, position)]
        pending = tuple(epoch for *_, epoch in sorted(found, key=lambda one: one[:3]))
        latest = position
        for epoch in pending:
            latest = latest.join(Position(epoch.cursors))
        return UpstreamView("{}", latest, pending)

    def _epochs(self, log: FollowedTable, position: Position) -> Iterator[tuple[int, UpstreamEpoch]]:
        return enumerate(log.epochs(_version(position, log.name)))

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        columns = columns_of(schema)
        first, last = _version(after, table) + 1, _version(up_to, table)
        if last < first:
            marks = {name: field(name, kind) for name, kind in _MARKS.items()}
            return spark.createDataFrame([], frames.struct_type(marks | columns))
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        with spark_reading(FROM_COPY):
            found = feed.option("startingVersion", first).option("endingVersion", last)
            told = found.load(self._where[table].uri)
        self._logs[table].require_log(last)
        gone = F.col("_change_type").isin("delete", "update_preimage")
        image = F.col("_change_type") == "update_preimage"
        return told.select(
            F.when(gone, "D").otherwise("U").alias(own.OP),
            # a commit changes a row once; what it removes comes before what it adds
            F.struct(F.col("_commit_version").alias("version"), (~gone).alias("puts"), image.alias("image")).alias(
                own.SEQ
            ),
            F.unix_millis("_commit_timestamp").alias(own.MS),
            *(quoted(name) for name in columns),
        )

    def acknowledge(self, position: Position) -> None:
        """The table keeps its own log; what was parsed of it is forgotten."""
        for name, log in self._logs.items():
            log.applied(_version(position, name))

    def remembered(self, position: Position) -> str:
        """The commit of each table's version."""
        found = {name: (at := _version(position, name), log.crc(at)) for name, log in self._logs.items()}
        return json.dumps({name: one for name, one in found.items() if one[1] is not None})

    def recall(self, memory: str) -> None:
        """Receives what an earlier process read: a restored table can have another commit of that version."""
        for name, (version, crc) in json.loads(memory).items():
            self._logs[name].recall(version, crc)

    def require_read(self, table: str, position: Position) -> None:
        """The table's version is the one that the job has read. Raises Fatal."""
        self._logs[table].require_read(_version(position, table))

    def _warnings(self) -> Sequence[str]:
        """How long the tables keep what the job has still to read."""
        return [told for name, one in self._snapshot.tables.items() if (told := retention(name, one.held))]

    def failure(self, exc: Exception) -> BackfillError | None:
        """Our error for a Spark failure about the feed: turned off, cleaned up, or files removed by VACUUM."""
        text = str(exc)
        told = next((meaning for mark, meaning in _FAILURES.items() if mark in text), None)
        if told is not None:
            where = named_in(text, self._where.values())
            shown = ", ".join(one.shown for one in self._where.values()) if where is None else where.shown
            return HistoryGone(f"{shown}: {told}", START_OVER)
        known = vacuumed(exc, list(self._where.values())) or from_spark(exc, FROM_COPY)
        faults = (faulty(log.where, log.pending_files, file_gone) for log in self._logs.values())
        return known or next(filter(None, faults), None)


_FAILURES = {
    "DELTA_MISSING_CHANGE_DATA": "its change data feed was off for a time: some changes are not in it",
    "DELTA_VERSION_NOT_FOUND": "log cleanup removed a version that is not applied yet",
    "DELTA_LOG_FILE_NOT_FOUND": "log cleanup removed a version that is not applied yet",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE": "its columns changed in a way that its feed cannot show",
}


def _version(position: Position, table: str) -> int:
    version = position.get(table)
    assert isinstance(version, int)
    return version


def retention(name: str, held: PinnedTable | None) -> str | None:
    """What VACUUM may remove before the job reads it, for `plan`. None if the table was not pinned here."""
    if held is None:
        return None
    kept = held.properties.get("delta.deletedFileRetentionDuration", "interval 1 week")
    log = held.properties.get("delta.logRetentionDuration", "interval 30 days")
    return (
        f"table {name!r}: VACUUM may remove files of version {held.version}, and changes, that are older than "
        f"{kept}; its log is kept for {log}: reading the snapshot, and any pause, must take less "
        "(delta.deletedFileRetentionDuration, delta.logRetentionDuration)"
    )
