"""Iceberg tables as a change log: what changed between the snapshots of each, read many snapshots at a time."""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ChangeLog, own
from backfill_cli.errors import START_OVER, BackfillError, BadData
from backfill_cli.formats import frames
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.merge import literal
from backfill_cli.model.position import Position
from backfill_cli.model.schema import columns_of, field
from backfill_cli.model.upstream import LogStart, Pin, UpstreamEpoch, UpstreamView
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import from_spark, spark_reading
from backfill_cli.spark.names import backticked, quoted
from backfill_cli.upstreams.iceberg.log import FollowedTable, rows
from backfill_cli.upstreams.iceberg.snapshot import IcebergSnapshot, expired, faulty
from backfill_cli.upstreams.iceberg.table import NOTHING, Table, cursor_of, snapshot_of

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

_EXPIRED = ("is not a parent ancestor", "Cannot find snapshot", "Cannot find the end snapshot")

_MARKS = {own.OP: "string", own.SEQ: "long", own.MS: "long"}


class IcebergChanges(ChangeLog):
    """See contracts.ChangeLog. snapshot: of the same tables, pinned before `begin` is called."""

    before_images = True
    correctable = False
    keeps = "the snapshots after it until they are applied (expire_snapshots removes old ones)"

    def __init__(self, snapshot: IcebergSnapshot) -> None:
        self._snapshot = snapshot
        self._tables: Mapping[str, Table] = {name: one.table for name, one in snapshot.tables.items()}
        self.one_log = len(self._tables) == 1
        self._logs: dict[str, FollowedTable] = {}

    def begin(self, schema: Mapping[str, str]) -> LogStart:
        held = {name: one.held for name, one in self._snapshot.tables.items() if one.held is not None}
        self._follow({name: {"id": one.id, "fields": one.fields} for name, one in held.items()})
        position = Position.of({name: one.cursor for name, one in held.items()})
        self.observe(position)  # refuse what cannot be followed before anything is read
        return LogStart(position, max((one.ms for one in held.values()), default=None), None, schema, {})

    def restore(self, pin: Pin) -> None:
        self._follow(json.loads(pin.identity)["iceberg"])

    def _follow(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._logs = {
            name: FollowedTable(self._tables[name], told["id"], told["fields"]) for name, told in tables.items()
        }

    def observe(self, position: Position) -> UpstreamView:
        found: list[tuple[int, int, str, UpstreamEpoch]] = []
        for name, log in self._logs.items():
            found += [(epoch.ms, n, name, epoch) for n, epoch in enumerate(log.epochs(_cursor(position, name)))]
        pending = tuple(epoch for *_, epoch in sorted(found, key=lambda one: one[:3]))
        latest = position
        for epoch in pending:
            latest = latest.join(Position(epoch.cursors))
        return UpstreamView("{}", latest, pending)

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        columns = columns_of(schema)
        first, last = _cursor(after, table), _cursor(up_to, table)
        between = self._between(table, first, last) if first < last else []
        if all(rows(one) == 0 for one in between):
            marks = {name: field(name, kind) for name, kind in _MARKS.items()}
            return spark.createDataFrame([], frames.struct_type(marks | columns))
        self._tables[table].asked_for(snapshot_of(first), between[-1].snapshot_id)
        self._logs[table].require_columns(self._tables[table].now())
        told = self._changelog(spark, self._tables[table], snapshot_of(first), between)
        self._logs[table].require_columns(self._tables[table].now())  # again, for an ALTER TABLE in between
        lacking = [name for name in columns if name not in told.columns]
        if lacking:
            raise BadData(
                f"{self._tables[table].place}: column {lacking[0]!r} was dropped, and changes from before that "
                "are not applied yet",
                START_OVER,
            )
        gone = F.col("_change_type") == "DELETE"
        return told.select(
            F.when(gone, "D").otherwise("U").alias(own.OP),
            # a snapshot changes a row once; what it removes comes before what it adds
            F.struct(F.col("_change_ordinal").alias("snapshot"), (~gone).alias("puts")).alias(own.SEQ),
            own.MS,
            *(quoted(name) for name in columns),
        )

    def _between(self, table: str, first: str, last: str) -> "list[Snapshot]":
        """The snapshots after `first`, up to and including `last`."""
        held = self._tables[table].now()
        later = self._logs[table].after(held, first)
        return [one for one in later if cursor_of(one) <= last]

    def _changelog(
        self, spark: SparkSession, table: Table, after: int, between: "Sequence[Snapshot]"
    ) -> DataFrame:
        """The rows of added and removed files, without those only carried over, and `own.MS`."""
        table.place.register(spark)
        ends = {"end-snapshot-id": str(between[-1].snapshot_id)}
        if after != NOTHING:
            ends["start-snapshot-id"] = str(after)
        with spark_reading(FROM_COPY):
            found = self._unsorted(spark, table, ends) if _has_map(table) else self._compared(spark, table, ends)
            # No join: its filter would be pushed into the changelog's scan, which fails on its metadata columns.
            commits = [F.lit([one.snapshot_id for one in between]), F.lit([one.timestamp_ms for one in between])]
            ms = F.try_element_at(F.map_from_arrays(*commits), F.col("_commit_snapshot_id"))
            return found.withColumn(own.MS, ms)

    def _compared(self, spark: SparkSession, table: Table, ends: Mapping[str, str]) -> DataFrame:
        view = f"{own.CHANGES}_{uuid.uuid4().hex}"
        options = ", ".join(f"{literal(key)}, {literal(value)}" for key, value in ends.items())
        spark.sql(
            f"CALL {backticked(table.place.catalog)}.system.create_changelog_view(table => "
            f"{literal(table.place.in_catalog)}, options => map({options}), changelog_view => '{view}', "
            "compute_updates => false)"
        )
        try:
            return spark.table(view)
        finally:
            spark.catalog.dropTempView(view)

    def _unsorted(self, spark: SparkSession, table: Table, ends: Mapping[str, str]) -> DataFrame:
        """Includes carried-over rows, as delete and insert: rows with maps cannot be compared by sorting."""
        return spark.read.options(**ends).table(f"{table.place.sql}.changes")

    def acknowledge(self, position: Position) -> None:
        """Nothing: the table keeps its own log."""

    def advice(self) -> Sequence[str]:
        """How long the tables keep what the job has still to read."""
        return [
            f"table {name!r}: expire_snapshots may remove changes that are not applied yet, once they are older "
            f"than {_days(table.now().told.properties)} or its argument; any pause must be shorter"
            for name, table in self._tables.items()
        ]

    def failure(self, exc: Exception) -> BackfillError | None:
        """Our error for a Spark failure about the log: a snapshot that was to be read has expired."""
        text = str(exc)
        if any(mark in text for mark in _EXPIRED):
            for number in map(int, re.findall(r"[0-9]+", text)):
                for table in self._tables.values():
                    if number in table.asked:
                        return expired(table, number)
        return self._faulty(content=False) or from_spark(exc, FROM_COPY) or self._faulty(content=True)

    def _faulty(self, content: bool) -> BackfillError | None:
        found = (faulty(one, _reached(one), True, content) for one in self._tables.values() if one.asked)
        return next(filter(None, found), None)


def _cursor(position: Position, table: str) -> str:
    """The table's cursor; if it has none, the one before its first snapshot."""
    return str(position.get(table) or cursor_of(None))


def _reached(table: Table) -> list[int]:
    """The snapshots after the oldest that Spark had to read lately; none if the table was taken back since."""
    held, found = table.now(), list[int]()
    for one in held.ancestors(held.main):
        if one.snapshot_id == table.asked[0]:
            return found
        found.append(one.snapshot_id)
    return found if table.asked[0] == NOTHING else []


def _has_map(table: Table) -> bool:
    return "map<" in str(table.now().told.schema())


def _days(properties: Mapping[str, str]) -> str:
    kept_ms = int(properties.get("history.expire.max-snapshot-age-ms", 5 * 86_400_000))
    return f"{kept_ms / 86_400_000:g} days (history.expire.max-snapshot-age-ms)"
