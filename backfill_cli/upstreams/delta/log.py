"""Follows the log of one Delta table: which versions are new, and which cannot be followed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import RESTORE, START_OVER, Fatal, Hint, HistoryGone, UsageError, sql
from backfill_cli.lake.damage import Stored
from backfill_cli.lake.delta.commits import (
    FEED,
    Commit,
    Stamp,
    TableMetadata,
    changed_files,
    columns_of_delta,
    commit,
    last_checkpoint,
    later,
    lost,
    stamp,
)
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.upstream import LakeTable, replaced
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.position import Cursor
from backfill_cli.model.schema import schema_text
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.upstreams.delta.headroom import headroom

OF_THE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
_NOT_FOLLOWED = {
    "RESTORE": "took it back to an earlier version",
    "CREATE OR REPLACE TABLE": "replaced it",
    "CREATE OR REPLACE TABLE AS SELECT": "replaced it",
    "REPLACE TABLE": "replaced it",
    "REPLACE TABLE AS SELECT": "replaced it",
    "CLONE": "replaced it by a clone",
}


class FollowedTable(LakeTable):
    """A table and its versions after the last applied one. Idle, it costs two reads of its log.

    locate: asked once, when it is first needed.
    """

    def __init__(self, spec: TableSpec, locate: Callable[[], Where]) -> None:
        super().__init__(spec)
        self._locate = locate

    @cached_property
    def where(self) -> Where:
        return self._locate()

    def location(self) -> str:
        return self.where.identity

    def follow(self, identity: Mapping[str, Any]) -> None:
        self._id: str = identity["id"]
        self._physical: dict[str, str] = dict(identity["physical"])
        self._known: list[Commit] = []  # parsed, but not yet applied, in order
        self._at, self._ms = -1, 0
        self._stamp: Stamp | None = None
        self._crcs: dict[int, int] = {}
        self._schemas: dict[int, str] = {}
        self._properties: Mapping[str, str] | None = None

    def headroom(self, unread: Unread, oldest_ms: int | None) -> Headroom | None:
        properties = self._properties
        return None if properties is None else headroom(properties, self.where, oldest_ms, unread)

    def _after(self, version: int) -> Sequence[Commit]:
        """The versions after this one. Raises as contracts.Source.observe does."""
        self._know(version)
        self._read_on()
        if last_checkpoint(self.where) > self._at:
            self._read_on()  # it may have been written since
        if last_checkpoint(self.where) > self._at and commit(self.where, self._at + 1) is None:
            raise HistoryGone(
                f"{self.where.shown}: version {self._at + 1} was removed from its log by log cleanup",
                START_OVER + "; delta.logRetentionDuration says how long versions are kept",
            )
        if (beyond := later(self.where, self._at + 1)) is not None:
            self._read_on()  # it may have been written since
            if beyond > self._at + 1:
                raise lost(self.where, self._at + 1, beyond)
        return [one for one in self._known if one.version > version]

    def _read_on(self) -> None:
        while (found := commit(self.where, self._at + 1)) is not None:
            self._require(found)
            self._ms = max(self._ms, found.ms)
            self._known.append(replace(found, ms=self._ms))
            self._crcs[found.version] = found.crc
            self._at, self._stamp = found.version, stamp(self.where, found.version)

    def pending_files(self) -> list[Stored]:
        """The files with the changes of the versions that are not applied yet."""
        return changed_files(self.where, [one.version for one in self._known])

    def applied(self, version: int) -> None:
        """Versions up to this one will not be requested again."""
        self._known = [one for one in self._known if one.version > version]
        self._crcs = {one: crc for one, crc in self._crcs.items() if one >= version}

    def crc(self, version: int) -> int | None:
        """What identifies the commit of a version that was read, for `recall`; None if its file was gone."""
        return self._crcs.get(version)

    def recall(self, version: int, crc: int) -> None:
        """An earlier process read this commit: it is compared with the log's when it is next looked at."""
        self._crcs[version] = crc

    def _know(self, version: int) -> None:
        """The table is still the job's: its id is checked at first, and if the last known log file has changed."""
        first = self._known[0].version - 1 if self._known else self._at
        if self._at < 0 or version < first:
            self._known = []
            self._require_ours(version)
            self.require_read(version)
            self._at, self._stamp = version, stamp(self.where, version)
        elif (now := stamp(self.where, self._at)) != self._stamp:
            self._require_ours(self._at)
            self.require_read(self._at)
            self._stamp = now

    def require_read(self, version: int) -> None:
        """The log's file of a version is the one that was read, here or by an earlier process. Raises Fatal.

        Of one that nobody has read, and of one that log cleanup removed, nothing is known.
        """
        found = commit(self.where, version)
        if found is not None and found.crc != self._crcs.setdefault(version, found.crc):
            raise Fatal(
                f"{self.where.shown}: version {version} of its log is not the one that the job has read "
                f"({self.where.log_file(version)}): the table was restored from a copy, and written to",
                START_OVER,
            )

    def _require_ours(self, version: int) -> None:
        """It is still the job's table, and it has this version. Raises Fatal."""
        opened = self.where.open()
        metadata = opened.metadata()
        self._properties = dict(metadata.configuration)
        if (found := str(metadata.id)) != self._id:
            raise replaced(self.where.shown, found, self._id)
        if opened.version() < version:
            raise Fatal(
                f"{self.where.shown}: version {version}, which the job has read, is missing from its log, whose "
                f"newest is {opened.version()}: the table was restored from an older copy "
                f"({self.where.log_file(version)})",
                RESTORE,
            )

    def require_log(self, version: int) -> None:
        """The log has this version: of one that it lacks, Spark leaves out the changes without a word."""
        if stamp(self.where, version) is None:
            self._require_ours(version)

    def _require(self, found: Commit) -> None:
        """Raises Fatal for a version that cannot be followed, naming why."""
        did = _NOT_FOLLOWED.get(found.operation.upper())
        if did is not None:
            self._refuse(found, f"{did} ({found.operation})", START_OVER)
        if found.metadata is not None:
            self._require_metadata(found, found.metadata)

    def _require_metadata(self, found: Commit, metadata: TableMetadata) -> None:
        if metadata.id != self._id:
            self._refuse(found, f"belongs to another table, with the id {metadata.id}", START_OVER)
        if metadata.properties.get(FEED, "").lower() != "true":
            fix = sql(f"ALTER TABLE delta.`{self.where.shown}` SET TBLPROPERTIES ({FEED} = true)")
            self._refuse(found, "turned its change data feed off", fix + ", then " + START_OVER)
        columns, physical = columns_of_delta(metadata.schema)
        require_names(self.where, columns)
        for name, held in self._physical.items():
            if physical.get(name, held) != held:
                what = f"has a different column {name!r}: the former one was dropped or renamed"
                self._refuse(found, what, START_OVER)
        self._physical.update(physical)
        self._properties = metadata.properties

    def _refuse(self, found: Commit, what: str, hint: Hint | str) -> None:
        raise Fatal(f"{self.where.shown}: version {found.version} {what}", hint)

    def epochs(self, cursor: Cursor | None) -> Sequence[UpstreamEpoch]:
        """Each advances the position, with or without data."""
        told: str | None = None
        made: list[UpstreamEpoch] = []
        for one in self._after(version_of(cursor)):
            changed: tuple[tuple[str, str], ...] = ()
            if one.metadata is not None:
                now = schema_text(columns_of_delta(one.metadata.schema)[0])
                told = self._schema_at(one.version - 1) if told is None else told
                changed = ((self.spec.name, now),) if now != told else ()
                told = now
            made.append(
                UpstreamEpoch(((self.spec.name, one.version),), one.ms, one.changes, one.size_bytes, changed)
            )
        return made

    def _schema_at(self, version: int) -> str:
        if version not in self._schemas:
            schema = self.where.open(version).schema().to_json()
            self._schemas = {version: schema_text(columns_of_delta(schema)[0])}
        return self._schemas[version]


def require_names(where: Where, names: Iterable[str]) -> None:
    """Raises UsageError for a column that has the name of one of the change data feed's own."""
    taken = next((name for name in names if name.lower() in OF_THE_FEED), None)
    if taken is not None:
        raise UsageError(
            f"{where.shown}: column {taken!r} has the name of a column of Delta's change feed, which hides it",
            "follow a copy of the table in which the column has another name",
        )


def version_of(cursor: Cursor | None) -> int:
    assert isinstance(cursor, int)
    return cursor
