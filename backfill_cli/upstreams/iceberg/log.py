"""Follows the snapshots of an Iceberg table: which are new, which cannot be followed, and what they changed."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.table.snapshots import Snapshot

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER, BadData, Fatal
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.iceberg.metadata import Held
from backfill_cli.lake.iceberg.types import columns
from backfill_cli.lake.upstream import replaced
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.names import by_numbers
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.failures import GONE, spark_reading
from backfill_cli.spark.names import literal, quoted
from backfill_cli.upstreams.iceberg.headroom import AGE, Expiry, headroom
from backfill_cli.upstreams.iceberg.table import (
    NEWEST,
    NOTHING,
    Table,
    copied_on_write,
    counted,
    cursor_of,
    field_ids,
    has_deletes,
    number,
    schema_of,
    snapshot_of,
)


class IcebergSourceTable(Table):
    """A table and its snapshots after the last applied one. Idle, it costs one lookup of its newest metadata."""

    def follow(self, identity: Mapping[str, Any]) -> None:
        self._id: str = identity["id"]
        self._fields = dict(identity["fields"])
        self._known: tuple[str, str, list[UpstreamEpoch]] | None = None
        self._tag: str | None = identity["tag"]
        self._seen: tuple[Held, str, list[UpstreamEpoch]] | None = None

    def epochs(self, after: Cursor | None) -> Sequence[UpstreamEpoch]:
        """Each advances the position, with or without data."""
        held, cursor = self.now(), _cursor(after)
        if self._known is None or self._known[:2] != (held.file, cursor):
            self._known = (held.file, cursor, list(self._made(held, self._after(held, cursor), cursor)))
        self._seen = (held, cursor, self._known[2])
        return self._known[2]

    def headroom(self, unread: Unread, oldest_ms: int | None) -> Headroom | None:
        """By the snapshots that were seen, whose times it knows itself."""
        if self._seen is None:
            return None
        held, cursor, pending = self._seen
        begun, main = held.snapshot(snapshot_of(cursor)), held.told.refs.get("main")
        pending_ms, tagged = tuple(one.ms for one in pending), unread.snapshot_open and self._tag is not None
        if unread.snapshot_open and not tagged and oldest_ms is not None:
            pending_ms = tuple(sorted((oldest_ms, *pending_ms)))  # the pinned one, if the log is taken ahead of it
        branch = (None, None) if main is None else (main.max_snapshot_age_ms, main.min_snapshots_to_keep)
        longer = f"SET TBLPROPERTIES ('{AGE}' = '2592000000')"
        return headroom(
            Expiry.of(held.told.properties, *branch),
            None if begun is None else begun.timestamp_ms,
            pending_ms,
            tagged,
            place=str(self.place),
            longer=self.place.in_spark(self.place.alter(longer)),
            unread=unread,
        )

    def _after(self, held: Held, cursor: str) -> Sequence[Snapshot]:
        """The snapshots after this cursor, oldest first. Raises as contracts.Source.observe does."""
        if str(held.told.table_uuid) != self._id:
            raise replaced(str(self.place), held.told.table_uuid, self._id)
        begun = snapshot_of(cursor)
        found: list[Snapshot] = []
        for one in held.ancestors(held.main):
            if one.snapshot_id == begun:
                return found[::-1]
            found.append(one)
        if begun == NOTHING and held.reaches_start(held.main):
            return found[::-1]
        if not held.reaches_start(held.main):
            raise self.expired(begun)
        raise Fatal(
            f"{self.place}: snapshot {begun}, which the job has applied, is no longer an ancestor of the "
            "newest one: the table was rolled back, or its branch replaced",
            "go back to it, if it still exists: "
            + self.place.in_spark(self.place.call("set_current_snapshot", f"snapshot_id => {begun}"))
            + "; else "
            + START_OVER,
        )

    def _require_columns(self, held: Held) -> None:
        """The table's columns are those of its snapshots, as changes are read with the schema that it has now.

        ALTER TABLE creates no snapshot. Raises Fatal if a name now means a different column.
        """
        for name, kept in field_ids(held.told.schema()).items():
            if self._fields.get(name, kept) != kept:
                raise Fatal(
                    f"{self.place}: {name!r} is a different column now: the former one was dropped or "
                    "renamed, and changes from before that are not applied yet",
                    START_OVER,
                )

    def _made(self, held: Held, found: Sequence[Snapshot], cursor: str) -> Iterator[UpstreamEpoch]:
        before = held.snapshot(snapshot_of(cursor))
        ms, told = (before.timestamp_ms if before is not None else 0), before
        order = cursor
        for one in found:
            self._require(held, one)
            if by_numbers(cursor_of(one)) <= by_numbers(order):  # as positions compare them
                raise Fatal(
                    f"{self.place}: snapshot {one.snapshot_id} does not have a later sequence number than "
                    "the one before it: it was written in format version 1",
                    NEWEST,
                )
            ms, order = max(ms, one.timestamp_ms), cursor_of(one)
            yield UpstreamEpoch(
                ((self.spec.name, order),), ms, rows(one), size_bytes(one), self._changed(held, told, one)
            )
            told = one

    def _changed(self, held: Held, before: Snapshot | None, one: Snapshot) -> tuple[tuple[str, str], ...]:
        then, now = schema_of(held, before), schema_of(held, one)
        if then.schema_id == now.schema_id:
            return ()
        name = self.spec.name
        self.require_names(columns(name, now))
        old, new = (schema_text(columns(name, schema)) for schema in (then, now))
        return ((name, new),) if old != new else ()

    def _require(self, held: Held, one: Snapshot) -> None:
        """Raises Fatal for a snapshot that cannot be followed, naming why."""
        if has_deletes(one):
            raise Fatal(
                f"{self.place}: snapshot {one.snapshot_id} has delete files (merge-on-read): its changes "
                "cannot be followed",
                copied_on_write(self.place) + "; then " + START_OVER,
            )
        for added in schema_of(held, one).fields:
            if added.name not in self._fields and added.initial_default is not None:
                raise Fatal(
                    f"{self.place}: column {added.name!r} was added with the default "
                    f"{str(added.initial_default)!r}, which rows from before that have too; the sink's rows would "
                    "have NULL, and those of a new job the default",
                    START_OVER,
                )
        for name, kept in field_ids(schema_of(held, one)).items():
            if self._fields.setdefault(name, kept) != kept:
                raise Fatal(
                    f"{self.place}: snapshot {one.snapshot_id} has a different column {name!r}: the former "
                    "one was dropped or renamed",
                    START_OVER,
                )

    def changes(
        self, spark: SparkSession, after: Cursor | None, up_to: Cursor | None, columns: Columns
    ) -> DataFrame | None:
        first, last = _cursor(after), _cursor(up_to)
        between = self._between(first, last) if first < last else []
        if all(rows(one) == 0 for one in between):
            return None
        self.asked_for(snapshot_of(first), between[-1].snapshot_id)
        self._require_columns(self.now())
        told = self._changelog(spark, snapshot_of(first), between)
        self._require_columns(self.now())  # again, for an ALTER TABLE in between
        lacking = [name for name in columns if name not in told.columns]
        if lacking:
            raise BadData(
                f"{self.place}: column {lacking[0]!r} was dropped, and changes from before that are not "
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

    def _between(self, first: str, last: str) -> list[Snapshot]:
        """The snapshots after `first`, up to and including `last`."""
        return [one for one in self._after(self.now(), first) if cursor_of(one) <= last]

    def _changelog(self, spark: SparkSession, after: int, between: Sequence[Snapshot]) -> DataFrame:
        """The rows of added and removed files, without those only carried over, and `own.MS`."""
        self.place.register(spark)
        ends = {"end-snapshot-id": str(between[-1].snapshot_id)}
        if after != NOTHING:
            ends["start-snapshot-id"] = str(after)
        with spark_reading(FROM_COPY):
            has_map = "map<" in str(self.now().told.schema())
            found = self._unsorted(spark, ends) if has_map else self._compared(spark, ends)
            # No join: its filter would be pushed into the changelog's scan, which fails on its metadata columns.
            commits = [F.lit([one.snapshot_id for one in between]), F.lit([one.timestamp_ms for one in between])]
            ms = F.try_element_at(F.map_from_arrays(*commits), F.col("_commit_snapshot_id"))
            return found.withColumn(own.MS, ms)

    def _compared(self, spark: SparkSession, ends: Mapping[str, str]) -> DataFrame:
        view = f"{own.CHANGES}_{uuid.uuid4().hex}"
        options = ", ".join(f"{literal(key)}, {literal(value)}" for key, value in ends.items())
        how = f"options => map({options}), changelog_view => '{view}', compute_updates => false"
        spark.sql(self.place.procedure("create_changelog_view", how))
        try:
            return spark.table(view)
        finally:
            spark.catalog.dropTempView(view)

    def _unsorted(self, spark: SparkSession, ends: Mapping[str, str]) -> DataFrame:
        """Includes carried-over rows, as delete and insert: rows with maps cannot be compared by sorting."""
        return spark.read.options(**ends).table(f"{self.place.sql}.changes")

    def warning(self) -> str:
        kept_ms = int(self.now().told.properties.get("history.expire.max-snapshot-age-ms", 5 * 86_400_000))
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
        return told and self.now().snapshot(self.snapshot) is None


def rows(one: Snapshot) -> int | None:
    """How many changes a snapshot has; None if only reading it shows, as whole files were rewritten."""
    operation = one.summary.operation.value if one.summary is not None else ""
    if operation == "replace":
        return 0
    if operation == "append":
        return counted(one, "added-records")
    if operation == "delete" and counted(one, "deleted-records") and not number(one, "added-records"):
        return counted(one, "deleted-records")
    return None


def size_bytes(one: Snapshot) -> int:
    if one.summary is not None and one.summary.operation.value == "replace":
        return 0
    return number(one, "added-files-size") + number(one, "removed-files-size")


def _cursor(cursor: Cursor | None) -> str:
    """The table's cursor; if it has none, the one before its first snapshot."""
    return str(cursor or cursor_of(None))
