"""Iceberg tables as a source: a pinned snapshot, kept by a tag while it is read, and what changed after it."""

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import Lease, TableSpec, own
from backfill_cli.errors import START_OVER, BackfillError, BadData, StateConflict
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.iceberg.edge import failing
from backfill_cli.lake.iceberg.places import Settings, settings_of
from backfill_cli.lake.merge import literal
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.lake.upstream import LakeTable, LakeUpstream, PinnedTable
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import Columns
from backfill_cli.model.upstream import Pin, UpstreamEpoch
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.beside import session_beside
from backfill_cli.spark.failures import GONE, from_spark, spark_reading
from backfill_cli.spark.names import backticked, quoted
from backfill_cli.upstreams.iceberg import IcebergOptions
from backfill_cli.upstreams.iceberg.log import FollowedTable, rows
from backfill_cli.upstreams.iceberg.table import NOTHING, Table, cursor_of, pinned, plain_files, snapshot_of

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

_EXPIRED = ("is not a parent ancestor", "Cannot find snapshot", "Cannot find the end snapshot")


class IcebergSourceTable(LakeTable):
    """snapshot: the one that is read. tag: the one that keeps it, if any. log: of the table that was pinned."""

    log: FollowedTable

    def __init__(self, spec: TableSpec, text: str, settings: Settings) -> None:
        super().__init__(spec)
        self.table = Table(spec, text, settings)
        self.snapshot = NOTHING
        self.tag: str | None = None

    def location(self) -> str:
        return self.table.now().identity

    def pinned(self, version: int | str) -> PinnedTable:
        """Once the tag exists, the snapshot that it keeps is pinned."""
        return pinned(self.table, version, None if self.tag is None else self.pinned_snapshot, self.tag)

    @property
    def pinned_snapshot(self) -> int | None:
        """The snapshot that this process pinned; None if another one did, or if the table has none yet."""
        found = NOTHING if self.held is None else snapshot_of(str(self.held.cursor))
        return None if found == NOTHING else found

    def go_to(self, cursor: Cursor | None) -> None:
        self.snapshot = snapshot_of(str(cursor))

    def rows(self, spark: SparkSession) -> DataFrame:
        return self.table.rows_at(spark, self.snapshot)

    def rows_at(self, spark: SparkSession, cursor: Cursor | None) -> DataFrame:
        return self.table.rows_at(spark, self.snapshot if cursor is None else snapshot_of(str(cursor)))

    def find_plain(self, columns: Columns) -> PlainFiles | None:
        return plain_files(self.table, self.snapshot, columns)

    def check(self) -> None:
        if self.snapshot != NOTHING and self.table.now().snapshot(self.snapshot) is None:
            raise self.table.expired(self.snapshot)

    def follow(self, identity: Mapping[str, Any]) -> None:
        self.log = FollowedTable(self.table, identity["id"], identity["fields"])

    def epochs(self, cursor: Cursor | None) -> Sequence[UpstreamEpoch]:
        return self.log.epochs(_cursor(cursor))

    def changes(
        self, spark: SparkSession, after: Cursor | None, up_to: Cursor | None, columns: Columns
    ) -> DataFrame | None:
        first, last = _cursor(after), _cursor(up_to)
        between = self._between(first, last) if first < last else []
        if all(rows(one) == 0 for one in between):
            return None
        self.table.asked_for(snapshot_of(first), between[-1].snapshot_id)
        self.log.require_columns(self.table.now())
        told = self._changelog(spark, snapshot_of(first), between)
        self.log.require_columns(self.table.now())  # again, for an ALTER TABLE in between
        lacking = [name for name in columns if name not in told.columns]
        if lacking:
            raise BadData(
                f"{self.table.place}: column {lacking[0]!r} was dropped, and changes from before that are not "
                "applied yet",
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

    def _between(self, first: str, last: str) -> "list[Snapshot]":
        """The snapshots after `first`, up to and including `last`."""
        return [one for one in self.log.after(self.table.now(), first) if cursor_of(one) <= last]

    def _changelog(self, spark: SparkSession, after: int, between: "Sequence[Snapshot]") -> DataFrame:
        """The rows of added and removed files, without those only carried over, and `own.MS`."""
        self.table.place.register(spark)
        ends = {"end-snapshot-id": str(between[-1].snapshot_id)}
        if after != NOTHING:
            ends["start-snapshot-id"] = str(after)
        with spark_reading(FROM_COPY):
            has_map = "map<" in str(self.table.now().told.schema())
            found = self._unsorted(spark, ends) if has_map else self._compared(spark, ends)
            # No join: its filter would be pushed into the changelog's scan, which fails on its metadata columns.
            commits = [F.lit([one.snapshot_id for one in between]), F.lit([one.timestamp_ms for one in between])]
            ms = F.try_element_at(F.map_from_arrays(*commits), F.col("_commit_snapshot_id"))
            return found.withColumn(own.MS, ms)

    def _compared(self, spark: SparkSession, ends: Mapping[str, str]) -> DataFrame:
        view, place = f"{own.CHANGES}_{uuid.uuid4().hex}", self.table.place
        options = ", ".join(f"{literal(key)}, {literal(value)}" for key, value in ends.items())
        spark.sql(
            f"CALL {backticked(place.catalog)}.system.create_changelog_view(table => {literal(place.in_catalog)}, "
            f"options => map({options}), changelog_view => '{view}', compute_updates => false)"
        )
        try:
            return spark.table(view)
        finally:
            spark.catalog.dropTempView(view)

    def _unsorted(self, spark: SparkSession, ends: Mapping[str, str]) -> DataFrame:
        """Includes carried-over rows, as delete and insert: rows with maps cannot be compared by sorting."""
        return spark.read.options(**ends).table(f"{self.table.place.sql}.changes")

    def warning(self) -> str:
        kept_ms = int(self.table.now().told.properties.get("history.expire.max-snapshot-age-ms", 5 * 86_400_000))
        return (
            f"table {self.spec.name!r}: expire_snapshots may remove changes that are not applied yet, once they "
            f"are older than {kept_ms / 86_400_000:g} days (history.expire.max-snapshot-age-ms) or its argument; "
            "any pause must be shorter"
        )

    def tells_gone(self, text: str) -> bool:
        """Whether a failure says that the snapshot expired, or that a file of it that was to be read is gone."""
        if f"Cannot find snapshot with ID {self.snapshot}" in text:
            return True
        files = [] if self._plain is None or GONE not in text else self._plain.paths()
        told = any(f"{path}: {GONE}" in text for path in files)
        return told and self.table.now().snapshot(self.snapshot) is None


class IcebergUpstream(LakeUpstream[IcebergSourceTable], Lease):
    """See contracts.Source and Lease: a tag on each table keeps the pinned snapshot from expiring."""

    kind = "iceberg"
    keeps = (
        "the pinned snapshot until it is read (the job's tag keeps it from expiring), the snapshots after it "
        "until they are applied (expire_snapshots removes old ones)"
    )

    def __init__(self, options: IcebergOptions, tables: Sequence[TableSpec]) -> None:
        self._tagged = options.tag
        settings = settings_of(lambda: self._session())
        super().__init__((IcebergSourceTable(one, options.table, settings) for one in tables), options.version)
        self.lease = self

    def failure(self, exc: Exception) -> BackfillError | None:
        """Our error for a failure over these tables: a snapshot has expired, or a file is damaged, or gone."""
        text = str(exc)
        gone = next((one for one in self.tables.values() if one.tells_gone(text)), None)
        if gone is not None:
            return gone.table.expired(gone.snapshot)
        tables = [one.table for one in self.tables.values()]

        def fault(content: bool) -> BackfillError | None:
            found = (one.table.fault([one.snapshot], False, content) for one in self.tables.values())
            return next(filter(None, found), None)

        def log_fault(content: bool) -> BackfillError | None:
            found = (one.fault(_reached(one), True, content) for one in tables if one.asked)
            return next(filter(None, found), None)

        known = fault(content=False) or from_spark(exc, FROM_COPY) or fault(content=True)
        return known or expired_in(text, tables) or log_fault(content=False) or log_fault(content=True)

    # The tag that keeps the snapshot

    def preview(self) -> Sequence[str]:
        return [
            f"a tag on {one.table.place} keeps snapshot {one.pinned_snapshot} from expiring until it is read"
            for one in self.tables.values()
            if self._tagged and one.pinned_snapshot is not None
        ]

    def create(self, mark: str) -> None:
        for one in self.tables.values():
            if self._tagged and one.pinned_snapshot is not None and one.tag is None:
                if _tag(mark) not in one.table.now().refs:  # unless a try whose answer was lost created it
                    self._alter(one, f"CREATE TAG {_tag(mark)} AS OF VERSION {one.pinned_snapshot}")
                one.tag = _tag(mark)

    def clean_up(self, mark: str, pin: Pin) -> None:
        for one in self.tables.values():
            self._drop(one, _tag(mark))

    def leftovers(self, mark: str) -> Sequence[str]:
        tables = [one.table for one in self.tables.values()]
        return [f"tag {_tag(mark)} on {table.place}" for table in tables if _tag(mark) in table.now().refs]

    def enforce_limit(self, position: Position, snapshot_open: bool) -> None:
        """The tag of a table whose changes are being applied is dropped: its snapshot has been read.

        Changes that are only taken meanwhile, into a spool, leave the tag where it is.
        """
        if snapshot_open:
            return
        pin = self._taken()
        for name, tag in _tags(pin).items():
            if tag is not None and position.get(name) != pin.position.get(name):
                self._drop(self.tables[name], tag)

    def release(self, pin: Pin) -> None:
        for one, tag in self._held_by(pin):
            self._drop(one, tag)

    def require_releasable(self, pin: Pin) -> None:
        for _ in self._held_by(pin):
            pass

    def _held_by(self, pin: Pin) -> Iterator[tuple[IcebergSourceTable, str]]:
        """The tables with the tag that the job has on each; one that is gone has none. Raises StateConflict."""
        for name, told in json.loads(pin.identity).get("iceberg", {}).items():
            one = self.tables[name]
            held = one.table.if_there()
            if held is None or told["tag"] is None:
                continue
            if str(held.told.table_uuid) != told["id"]:
                raise StateConflict(
                    f"{one.table.place}: the table was replaced: its id is {held.told.table_uuid}", START_OVER
                )
            yield one, told["tag"]

    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        tags = _tags(pin) if mark is None else dict.fromkeys(self.tables, _tag(mark))
        places = {name: self.tables[name].table.place for name in tags}
        return [
            str(places[name].in_spark(places[name].alter(f"DROP TAG IF EXISTS {tag}")))
            for name, tag in tags.items()
            if tag is not None
        ]

    def _drop(self, one: IcebergSourceTable, tag: str) -> None:
        """The tag does not exist. Whether it did is read from metadata, without Spark."""
        if tag in one.table.now().refs:
            self._alter(one, f"DROP TAG IF EXISTS {tag}")

    def _alter(self, one: IcebergSourceTable, what: str) -> None:
        with failing(one.table.place):
            spark = session_beside(self._session())
            one.table.place.register(spark)
            spark.sql(f"ALTER TABLE {one.table.place.sql} {what}")


def expired_in(text: str, tables: Sequence[Table]) -> BackfillError | None:
    """The error for a failure that names a snapshot which one of these tables asked for. None: nothing of that."""
    if any(mark in text for mark in _EXPIRED):
        for number in map(int, re.findall(r"[0-9]+", text)):
            for table in tables:
                if number in table.asked:
                    return table.expired(number)
    return None


def _reached(table: Table) -> list[int]:
    """The snapshots after the oldest that Spark had to read lately; none if the table was taken back since."""
    held, found = table.now(), list[int]()
    for one in held.ancestors(held.main):
        if one.snapshot_id == table.asked[0]:
            return found
        found.append(one.snapshot_id)
    return found if table.asked[0] == NOTHING else []


def _cursor(cursor: Cursor | None) -> str:
    """The table's cursor; if it has none, the one before its first snapshot."""
    return str(cursor or cursor_of(None))


def _tag(mark: str) -> str:
    return f"backfill_pin_{mark}"


def _tags(pin: Pin) -> Mapping[str, str | None]:
    return {name: told["tag"] for name, told in json.loads(pin.identity)["iceberg"].items()}
