"""What lake tables as a source share: a pinned version, read by ranges of keys, and the log that follows it."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from backfill_cli.contracts import ArrowTasks, Capabilities, Extras, Pinned, Source, TableSpec, own
from backfill_cli.errors import START_OVER, Fatal, HistoryGone, UsageError, in_config, of_table
from backfill_cli.formats import frames
from backfill_cli.lake.damage import FROM_COPY
from backfill_cli.lake.key_ranges import FileKeys, KeyRange, KeyRead, closed_read, frame_of, planned
from backfill_cli.lake.plain_files import PlainFiles
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import Columns, columns_of, field, schema_text
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import spark_reading
from backfill_cli.spark.names import quoted

_MARKS = {own.OP: "string", own.SEQ: "long", own.MS: "long"}


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table at one version, from its metadata only. cursor: the version's. ms: when it was written.

    identity: what a pin keeps of the table for later processes: its `id`, and what its columns are in files.
    properties: the table's.
    """

    cursor: Cursor
    ms: int
    columns: Columns
    splits: tuple[Split, ...]
    identity: Mapping[str, Any]
    properties: Mapping[str, str]


class LakeTable(ABC):
    """A table of the job. held: what this process pinned; None where another one did.

    columns, ranges: of the version that is read; ranges by split.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.held: PinnedTable | None = None
        self.columns: Columns = {}
        self.ranges: Mapping[str, KeyRange] = {}
        self._plain: PlainFiles | None = None
        self._asked = False

    @abstractmethod
    def location(self) -> str:
        """Where its rows are, as a text that is unique to the table."""

    @abstractmethod
    def pinned(self, version: int | str) -> PinnedTable:
        """The table at the version that the config names. Raises as contracts.Source.pin does."""

    @abstractmethod
    def go_to(self, cursor: Cursor | None) -> None:
        """This version is the one that is read."""

    @abstractmethod
    def rows(self, spark: SparkSession) -> DataFrame:
        """All rows of the version."""

    @abstractmethod
    def rows_at(self, spark: SparkSession, cursor: Cursor | None) -> DataFrame:
        """All rows of another version, which the job has read."""

    @abstractmethod
    def find_plain(self, columns: Columns) -> PlainFiles | None:
        """The version's files, if workers can read them by themselves."""

    @abstractmethod
    def check(self) -> None:
        """The version can still be read. Raises HistoryGone."""

    @abstractmethod
    def follow(self, identity: Mapping[str, Any]) -> None:
        """The log is that of the table with this identity, which `pinned` gave."""

    @abstractmethod
    def epochs(self, cursor: Cursor | None) -> Sequence[UpstreamEpoch]:
        """What follows the cursor, oldest first; raises as contracts.Source.observe does."""

    @abstractmethod
    def changes(
        self, spark: SparkSession, after: Cursor | None, up_to: Cursor | None, columns: Columns
    ) -> DataFrame | None:
        """See contracts.ChangeReads. None: there are none."""

    @abstractmethod
    def warning(self) -> str | None:
        """How long the table keeps what the job has still to read, for `plan`."""

    @abstractmethod
    def headroom(self, unread: Unread, oldest_ms: int | None) -> Headroom | None:
        """How long it keeps what is unread, by what was seen of it; None before it was looked at.

        oldest_ms: when the oldest commit was made that is not read, None if there is none. Asks nothing: another
        thread calls it.
        """

    def splits(self, files: Iterable[FileKeys], deleted: int = 0, counted: bool = True) -> tuple[Split, ...]:
        """The key ranges that files are read in.

        deleted: how many of their rows are gone. counted: whether it is known of all files how many they have.
        """
        known, made = list(files), list[Split]()
        for index, one in enumerate(planned(known) if known else ()):
            gone = min(deleted, one.rows)  # it is unknown which ranges they are in, but the total is right
            deleted -= gone
            rows = one.rows - gone if counted else None
            made.append(Split(self.spec.name, f"{index:05d}", rows, one.size_bytes, one.sliced, one.to_json()))
        return tuple(made)

    def pin(self, version: int | str) -> PinnedTable:
        self.held = self.pinned(version)
        self.follow(self.held.identity)
        return self.held

    def restore(self, pin: Pin) -> None:
        name = self.spec.name
        self.columns = columns_of(pin.schema[name])
        self.ranges = {one.id: KeyRange.of_json(one.detail) for one in pin.splits if one.table == name}
        self._asked = False
        self.go_to(pin.position.get(name))

    def plain(self) -> PlainFiles | None:
        """What workers can read by themselves; asked of the metadata once a process."""
        if not self._asked:
            self._plain, self._asked = self.find_plain(self.columns), True
        return self._plain

    def reads(self, reads: Sequence[SnapshotRead]) -> list[KeyRead]:
        return [KeyRead(replace(read, limit_rows=None), self.ranges[read.split]) for read in reads]


ITS_OWN = (Fatal, UsageError, HistoryGone)
"""What a table's own files and log can fail with, beside bad data."""

T = TypeVar("T", bound=LakeTable)


class LakeUpstream(Source, Generic[T]):
    """See contracts.Source. kind: the format's name in a pin. keeps: see contracts.Capabilities."""

    kind: str
    keeps: str
    _pin: Pin

    def __init__(self, tables: Iterable[T], version: int | str) -> None:
        self.tables = {one.spec.name: one for one in tables}
        self._version = version
        self._unread: Collection[str] = self.tables.keys()
        self.capabilities = Capabilities(
            Pinned(), before_images=True, one_log=len(self.tables) == 1, keeps=self.keeps
        )
        self.extras = Extras(
            warnings=self._warnings, places=self._places, rows_at=self._rows_at, headroom=self._headroom
        )

    def use(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def pin(self) -> Pin:
        found = {name: one.pin(self._version) for name, one in self.tables.items()}
        position = Position.of({name: one.cursor for name, one in found.items()})
        self._view(position, "")  # refuse what cannot be followed before anything is read
        self._pin = Pin(
            position=position,
            position_ms=max((one.ms for one in found.values()), default=None),
            complete_at=None,
            splits=tuple(split for one in found.values() for split in one.splits),
            schema={name: schema_text(one.columns) for name, one in found.items()},
            identity=json.dumps({self.kind: {name: one.identity for name, one in found.items()}}, sort_keys=True),
        )
        for table in self.tables.values():
            table.restore(self._pin)
        return self._pin

    def restore(self, pin: Pin) -> None:
        self._pin = pin
        for name, identity in json.loads(pin.identity)[self.kind].items():
            with of_table(name, *ITS_OWN):
                self.tables[name].restore(pin)
                self.tables[name].follow(identity)

    def read_on(self, tables: Collection[str]) -> None:
        self._unread = tables

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        for name in self._unread if snapshot_open else ():
            with of_table(name, *ITS_OWN):
                self.tables[name].check()
        return self._view(position, self._pin.identity)

    def _view(self, position: Position, identity: str) -> UpstreamView:
        found = [
            (epoch.ms, number, name, epoch)
            for name, one in self.tables.items()
            for number, epoch in enumerate(_epochs(name, one, position))
        ]
        pending = tuple(epoch for *_, epoch in sorted(found, key=lambda one: one[:3]))
        latest = position
        for epoch in pending:
            latest = latest.join(Position(epoch.cursors))
        return UpstreamView(identity, latest, pending)

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        return [closed_read(read, self.tables[table].ranges[read.split]) for read in reads]

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        one = self.tables[table]
        key, columns = one.spec.key[0], one.columns
        with spark_reading(FROM_COPY):
            rows = one.rows(spark).select(*(quoted(name) for name in columns))
            return frame_of(rows, key, columns[key]["type"], one.reads(reads))

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks | None:
        """Plain files of a local disk, see plain_files.py."""
        one = self.tables[table]
        return None if (files := one.plain()) is None else files.tasks(one.reads(reads), cores)

    def changes(self, spark: SparkSession, table: str, after: Position, up_to: Position, schema: str) -> DataFrame:
        columns = columns_of(schema)
        found = self.tables[table].changes(spark, after.get(table), up_to.get(table), columns)
        if found is None:
            marks = {name: field(name, kind) for name, kind in _MARKS.items()}
            return spark.createDataFrame([], frames.struct_type(marks | columns))
        return found

    def _headroom(self, unread: Unread) -> Headroom | None:
        oldest_ms = unread.oldest_ms
        if unread.snapshot_open and unread.position != self._pin.position:
            oldest_ms = self._pin.position_ms  # the log is taken ahead of the snapshot, whose files may go
        found = (one.headroom(unread, oldest_ms) for one in self.tables.values())
        return Headroom.least(one for one in found if one is not None)

    def _warnings(self) -> Sequence[str]:
        return [told for one in self.tables.values() if (told := one.warning()) is not None]

    def _places(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset({one.location()}) for name, one in self.tables.items()}

    def _rows_at(self, spark: SparkSession, table: str, position: Position) -> DataFrame:
        with spark_reading(FROM_COPY):
            return self.tables[table].rows_at(spark, position.get(table))


def _epochs(name: str, table: LakeTable, position: Position) -> Sequence[UpstreamEpoch]:
    with of_table(name, *ITS_OWN):
        return table.epochs(position.get(name))


def require_key(shown: str, table: TableSpec, columns: Columns) -> None:
    """Raises UsageError for a key with a column that the upstream's table does not have. shown: that table."""
    lacking = [name for name in table.key if name not in columns]
    if lacking:
        raise UsageError(
            f"{shown}: no column {lacking[0]!r}, which is in the key of table {table.name!r}; columns: "
            + ", ".join(columns),
            in_config("correct tables.key"),
        )


def replaced(shown: str, found: object, ours: str) -> Fatal:
    """The error for a table with another id than the job's."""
    return Fatal(f"{shown}: the table was replaced: its id is {found}, the job's is {ours}", START_OVER)
