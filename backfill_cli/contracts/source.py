"""Where rows come from: what the engine asks of a source, and how a source plugs in.

A source is one object per job and process. What it can do is data (`capabilities`); what only some have is an
attribute that is None for the others (`lease`), or an optional callable (`extras`). Nothing else is asked: no flag
needs a second one, and a method that is not abstract has a default that is right for a source without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Edges
from backfill_cli.contracts.domain import Domain
from backfill_cli.contracts.gauge import Gauge
from backfill_cli.contracts.options import Looked, Named
from backfill_cli.errors import BackfillError, Fatal, HistoryGone, UsageError, of_table
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import ChangeWindow, SnapshotRead, StagedFile
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.pushdown import Wanted
from backfill_cli.model.reports import FieldRead, Refusal
from backfill_cli.model.split import SplitKey
from backfill_cli.model.upstream import HeldLog, LogStart, Pin, SnapshotPin, UpstreamView

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of a job as its source sees it.

    key: source columns that identify a row. immutable_key: the key is promised never to change.
    filtered: a `where` leaves rows out once they are read: until then a row of the snapshot may have a NULL key.
    domain: values that the sink does not hold; none where a transform comes between.
    wanted: what reads of the snapshot may be limited to; the transform, which follows, is what decides.
    """

    name: str
    key: tuple[str, ...]
    immutable_key: bool = False
    filtered: bool = False
    domain: Domain = Domain()  # noqa: RUF009
    wanted: Wanted = Wanted()  # noqa: RUF009


class BrokenContract(UsageError):
    """A plug-in says of itself what cannot be."""


class Contract(ABC):  # noqa: B024 what is abstract is in its subclasses
    """What a plug-in is a subclass of. One that leaves out what must be written is refused when it is opened."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if lacking := sorted(cls._lacking()):
            raise BrokenContract(
                f"{cls.__name__} lacks {', '.join(lacking)}",
                "correct the plug-in: the docstrings of backfill_cli.contracts say what each of them is",
            )
        return super().__new__(cls)

    @classmethod
    def _lacking(cls) -> Iterable[str]:
        return cls.__abstractmethods__


# -- rows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one read. read: index of the plan's read. what: the argument for `ArrowTasks.make`."""

    read: int
    what: Any


@dataclass(frozen=True, slots=True)
class ArrowTasks:
    """Rows that Spark's Python workers produce as Arrow batches, one task per part.

    make: returns the batches of a piece; called in a worker, so a function of a module, or a `partial` of one. Our
    own errors raised in it are those of the job.
    parts: the pieces of each task, in order. Every task is sent all of them: a few per core, however many pieces.
    schema: Spark schema of the rows as JSON; the batches have exactly these columns.
    """

    make: "Callable[[Any], Iterator[pa.RecordBatch]]"
    parts: tuple[tuple[Piece, ...], ...]
    schema: str

    def frame(self, spark: "SparkSession", numbered: bool = False) -> "DataFrame":
        """The rows as a frame. numbered: with the read that each is of, in a column `own.READ INT`."""
        from backfill_cli.spark import arrow_tasks

        return arrow_tasks.of_pieces(spark, self.make, self.parts, self.schema, own.READ if numbered else None)


@dataclass(frozen=True, slots=True)
class RangeTasks:
    """Rows of ranges of a partitioned log that Python workers produce, of several tables in one task.

    make: returns batches of a part, each with the index of the read that it is of; those of a read are in the
    order of its offsets, those of several can alternate. Called as that of ArrowTasks.
    schemas: by table, Spark schema of its rows as JSON. offsets: in all parts. edges: by table, `InOrder.edges` of
    those whose order has to be checked; parts are in the order of the log then.
    """

    make: "Callable[[Any], Iterator[tuple[int, pa.RecordBatch]]]"
    parts: tuple[Any, ...]
    schemas: Mapping[str, str]
    offsets: int
    edges: "Mapping[str, Callable[[pa.Table], Edges | None]]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TakenTable:
    """One table's changes in a window, in files: `(own.OP 'U'|'D', own.SEQ, own.MS, row…)`, as from `changes`.

    files: paths are relative to the folder that they were written to. netted: each key occurs once, with its last
    change; otherwise a key can occur several times, and its last `own.SEQ` counts (for each column, the last row
    that carries it).
    changes: how many there were before netting, some of which may not count. changed, deleted: rows in the files,
    by op.
    truncated: rows from before the window are gone. partial: columns that some 'U' rows do not carry; such a row
    names them in an extra column, `own.UNSENT ARRAY<STRING>`.
    """

    files: tuple[StagedFile, ...] = ()
    netted: bool = True
    changes: int = 0
    changed: int = 0
    deleted: int = 0
    truncated: bool = False
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeFrame:
    """One table's changes in a window as a frame, with the columns of `changes`.

    changes: how many there are, with keys that are known to be set; None: both are found while they are written.
    netted, truncated, partial: as for TakenTable.
    """

    frame: "DataFrame"
    changes: int | None = None
    netted: bool = False
    truncated: bool = False
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogRequest:
    """A window of a log that is to be read, of all tables.

    within: see EpochPlan, after the reads. schemas: those in force, table -> Spark schema as JSON. folder: for
    files with changes.
    """

    window: ChangeWindow
    within: Mapping[SplitKey, Cursor | None] | None
    schemas: Mapping[str, str]
    folder: str


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A window of a log. window: closed. schemas: of tables whose columns changed at its beginning.

    Tables without changes can be absent. skipped: records that change no row, by kind, of a log that counts them
    itself; workers tell them otherwise.
    """

    window: ChangeWindow
    tables: Mapping[str, TakenTable | ChangeFrame | ArrowTasks]
    schemas: Mapping[str, str]
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taken(LogBatch):
    """A window taken from a log: all of its changes are in files."""

    tables: Mapping[str, TakenTable]


class SnapshotReads(Contract):
    """Reads of a snapshot, by split. Either `scan` or `batches` must be written."""

    @classmethod
    def _lacking(cls) -> Iterable[str]:
        neither = cls.scan is SnapshotReads.scan and cls.batches is SnapshotReads.batches
        return (*super()._lacking(), *(("batches or scan",) if neither else ()))

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        """The rows of these closed reads of the pin, as source columns, in any order.

        Columns and rows that `TableSpec.wanted` does not need may be left out, see `leaves_rows_out`.
        If `row_count` does not know the size of one of the reads, an extra column `own.READ INT` holds the index
        into `reads` that a row belongs to; only then does the engine count rows per read.
        Rows that cannot be read, where the options ask for them to be kept: files add `own.QUARANTINED STRUCT<file
        STRING, line BIGINT, value BINARY, reason STRING>`, NULL in a good row; in others all columns but
        `own.READ` are NULL. Partitioned logs add `own.ERROR STRING` (why, NULL for a good row), `own.RAW BINARY`.
        By default what `batches` gives.
        """
        from backfill_cli.spark import arrow_tasks

        tasks = self.batches(table, reads, arrow_tasks.cores(spark))
        if tasks is None:
            raise BrokenContract(
                f"{type(self).__name__} lacks scan: its batches give nothing for table {table!r}",
                "correct the plug-in: write scan, too, for what batches cannot produce",
            )
        return tasks.frame(spark, numbered=None in map(self.row_count, reads))

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """The same reads with open ones closed: each ends at a cursor, or at its split's end.

        Called once per epoch and table, before `scan`; not for partitioned logs, whose reads are planned closed.
        Only the side that made a cursor understands it: the engine keeps it as JSON and never compares cursors.
        """
        return reads

    def row_count(self, read: SnapshotRead) -> int | None:
        """The row count of a closed read according to metadata; None if only reading can tell.

        Exact, and with rows that cannot be read: the job fails if another number is read. It counts the rows that
        are passed, also those that `TableSpec.wanted` lets the source leave out.
        """
        return None

    def leaves_rows_out(self, table: str) -> bool:
        """Whether reads of this table can give fewer rows than there are, by `TableSpec.wanted`."""
        return False

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks | None:
        """The rows of these reads, as from `scan`, to be produced and written in Python workers.

        cores: how many tasks run at once. None if they cannot be: `scan` then reads them, as it does for jobs with
        a transform and for `verify`. A sample is produced in the command's own process, before Spark has started.
        """
        return None


class ChangeReads(Contract):
    """Reads of a change log between two positions, as often as wanted: `changes`, or `change_batches`."""

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        """The changes of `(after, up_to]`: `(own.OP 'U'|'D', own.SEQ, own.MS BIGINT|NULL, source columns…)`.

        `own.OP`: 'U' is the row after the change, 'D' means deleted (at least the key columns are set). A change
        of a key is two rows: a 'D' of the old key before a 'U' of the new one. `own.SEQ`: orderable, strictly in
        log order among the rows of one key. If it is a struct, it can end in `image BOOLEAN`: true for a row that
        only holds the state before an update and is not counted as a change for display. schema: Spark schema as
        JSON, in which the columns are read.
        'T': all rows from before it in the log are gone; its columns are NULL.
        A 'U' row can lack columns that its change did not alter: it names them in an extra column, `own.UNSENT
        ARRAY<STRING>`, NULL in a row that has all.
        Rows that cannot be read as in `scan`, with a NULL `own.OP`. Not called where the log is consumed.
        By default what `change_batches` gives.
        """
        from backfill_cli.spark import arrow_tasks

        tasks = self.change_batches(table, after, up_to, schema, arrow_tasks.cores(spark))
        if tasks is None:
            raise RuntimeError(f"the log of {type(self).__name__} is consumed, not read")
        return tasks.frame(spark)

    def change_batches(
        self, table: str, after: Position, up_to: Position, schema: str, cores: int
    ) -> ArrowTasks | None:
        """The same changes, to be produced, netted and written in Python workers; None if they cannot be.

        cores: how many tasks run at once. A sample is produced as one of `batches`. The rows of a part, and the
        parts, are in the order of the log; none only holds the state before an update. Where a row names columns
        in `own.UNSENT`, or is a 'T', Spark nets them.
        `own.QUARANTINED`: see engine/staging/quarantine.py.
        """
        return None

    def acknowledge(self, position: Position) -> None:
        """Allow the log to discard what precedes `position`: sink or spool holds it. Called after each commit."""

    def remembered(self, position: Position) -> str:
        """What must be recognised later of everything up to `position`: kept with the checkpoint, "" for nothing.

        Called once the changes up to it are staged.
        """
        return ""

    def recall(self, memory: str) -> None:
        """Receives what an earlier process remembered, if that was something; called after `restore`.

        It is compared with what exists at the next `observe` or `changes`, which raise Fatal naming what differs.
        What it says of tables that have left the job is ignored.
        """

    def rejoined(self, memory: str, tables: Collection[str], before: str = "") -> str:
        """What was remembered, for a job whose snapshot is read again, as these tables have joined it.

        They may have been in it before, and be others by now. before: what was remembered as they left, if their
        logs go on from there.
        """
        return memory


class Connected:
    """Holds connections, and interprets failures of what it reads."""

    def failure(self, exc: Exception) -> BackfillError | None:
        """The error behind a Spark failure while reading from here, naming the place; None if it is unrelated.

        Our own errors that workers raised, and files that Spark finds damaged, are recognised without it.
        """
        return None

    def close(self) -> None:
        """Release what is held open in this process."""


# -- what a source can do -----------------------------------------------------------------------------------------


class ConsumableLog(Contract):
    """A log that can only be consumed, for all tables at once, and together with reads of the current state."""

    @abstractmethod
    def take(self, spark: "SparkSession", asked: LogRequest) -> Taken:
        """The window's changes are files in its folder, durable once the caller has synced them.

        Called once the epoch's reads are written: an open window is closed at or after every transaction that they
        saw.
        Raises Transient while the log is unavailable, HistoryGone when it no longer holds what follows
        `window.after`, BadData for a value or a change of columns that cannot be followed.
        """

    def may_lack(self, table: str) -> frozenset[str]:
        """Columns that a change can leave out when it did not alter them. Called after `pin` or `restore`."""
        return frozenset()

    def retained(self) -> AbstractContextManager[str]:
        """Inside, this object can read the log from what is acknowledged now on, whatever the job acknowledges.

        Yields what is held up by that, for display. Raises UsageError if the system has no room for it.
        """
        return nullcontext("")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A snapshot can be read at a fixed position (strategy snapshot)."""


@dataclass(frozen=True, slots=True)
class Current:
    """Only the current state can be read, in key order (strategy arrangement).

    log: taken together with the reads. Rows that are read as they are now hold changes that are still in the log:
    a log that is read by itself would apply some of them to rows that are not there yet.
    """

    log: ConsumableLog

    def __post_init__(self) -> None:
        if not isinstance(self.log, ConsumableLog):
            raise BrokenContract(
                "rows can be read only as they are now, so the log must be read together with them: "
                f"{type(self.log).__name__} is no ConsumableLog",
                "correct the plug-in: Capabilities(Current(log), …), with its own subclass of ConsumableLog",
            )


@dataclass(frozen=True, slots=True)
class Partitions:
    """History and live log have the same partitions and offsets (strategy source).

    place: the source columns that hold partition and offset. appends: the tables whose rows are events, written
    once and never changed: `scan` also reads live ranges, `changes` is not called. accepts_gap: offsets between
    the archive's end and the log's beginning may be missing.
    Partitions are named as model/split.py says; tables whose records are in one log have positions of their own.
    """

    place: tuple[str, ...]
    appends: frozenset[str] = frozenset()
    accepts_gap: bool = False


@dataclass(frozen=True, slots=True)
class Capabilities:
    """reads: how rows are read, which decides the strategy.

    before_images: the log contains the old key of a key change.
    one_log: all tables share one order, so constraints across tables hold.
    keeps_log: changes stay readable until acknowledged; if not, only strategy chain fits.
    quarantines: a row that cannot be read can be kept in a side table of the sink; otherwise it stops the job.
    keeps: what the upstream has to keep, and for how long: what follows "the upstream must keep " in `plan`.
    correctable_log: changes that are not applied yet can be corrected in the log itself, as in a file.
    follows: whether changes can arrive after the snapshot; if not, a job has nothing to wait for.
    apart: what the upstream says of a table, and where its log is, is the same whatever other tables the job has.
    """

    reads: Pinned | Current | Partitions
    before_images: bool
    one_log: bool
    keeps_log: bool = True
    quarantines: bool = False
    keeps: str = ""
    correctable_log: bool = False
    follows: bool = True
    apart: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.reads, Pinned | Current | Partitions):
            raise BrokenContract(
                f"it does not say how its rows can be read: {self.reads!r}",
                "correct the plug-in: Capabilities(Pinned(), …), or Current(log), or Partitions(place)",
            )

    @property
    def log(self) -> ConsumableLog | None:
        """The log, where it is taken together with reads of the current state."""
        return self.reads.log if isinstance(self.reads, Current) else None

    @property
    def partitions(self) -> Partitions | None:
        return self.reads if isinstance(self.reads, Partitions) else None

    @property
    def place(self) -> tuple[str, ...]:
        """The source columns that say where a row is, if there are any."""
        return self.reads.place if isinstance(self.reads, Partitions) else ()


@dataclass(frozen=True, slots=True)
class Extras:
    """What some sources can tell beside rows; called after `pin` or `restore`.

    warnings: what `plan` adds about the pin, a sentence each on what the job cannot check by itself.
    fields: of each table whose records name their schemas, what the schemas' fields become; after `pin`.
    format_position: a position in the system's own notation.
    places: for each table, where its rows are (several places if split): texts unique to the table, however the
    config spells it. For sources whose tables could be the same as a sink's, or two of which could be one.
    duckdb_sql: of a table, and its columns' types in DuckDB's notation, a query for the pinned snapshot's rows by
    DuckDB's own readers, for `verify --independent`. Raises UsageError when DuckDB would not read them exactly.
    rows_at: all rows of a table as of any position, as source columns: `verify` then needs no changes.
    waits_for: for whom a call in another thread waits, and what would end that; None for nobody.
    Changes nothing. Raises BackfillError within some seconds.
    clock_ms: the time of day by the system's clock, in milliseconds since 1970. Raises what any call that connects
    raises.
    beside: other systems that it needs, for `doctor`: what asks each, and returns what to say of it. Raises
    BackfillError.
    headroom: how long the upstream keeps what is unread; None: nothing is known that removes it. Called now and
    then, in a thread beside all other calls, with connections of its own. Changes nothing. Raises BackfillError
    within some seconds.
    """

    warnings: Callable[[], Sequence[str]] = lambda: ()
    fields: Callable[[], Mapping[str, Sequence[FieldRead]]] = dict
    format_position: Callable[[Position], str] = str
    places: Callable[[], Mapping[str, frozenset[str]]] = dict
    duckdb_sql: Callable[[str, Mapping[str, str]], str] | None = None
    rows_at: "Callable[[SparkSession, str, Position], DataFrame] | None" = None
    waits_for: Callable[[], Limit | None] | None = None
    clock_ms: Callable[[], int] | None = None
    beside: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    headroom: Callable[[Unread], Headroom | None] | None = None


class Lease(Contract):
    """What a job holds upstream and nobody else has: a replication slot, a tag.

    mark: chosen by the start of a job, such that nobody else can have chosen it: it tells ours from another
    writer's. pin: the job's, or that of the start.
    """

    def require_able(self) -> None:
        """Check that nothing prevents `create`. Called after `pin`, before anything is changed for a new job.

        Raises UsageError saying what would make it possible.
        """

    def obstacles(self, mark: str | None) -> Sequence[Refusal]:
        """What `require_able` would raise now, one sentence each, with what would make it possible.

        mark: whatever an interrupted start holds under this mark is ignored.
        """
        return ()

    @abstractmethod
    def preview(self) -> Sequence[str]:
        """What `create` would create, one sentence each, for display."""

    @abstractmethod
    def create(self, mark: str) -> None:
        """Create the object, under the mark. Called by the start of a new job once nothing else can refuse it;
        `pin` follows. Can be repeated with the same mark. Raises UsageError when another writer's object has its
        name.
        """

    def adopt(self, mark: str, pin: Pin) -> None:
        """Make what was created under the mark the job's, and remove the mark. Can be repeated, without `pin`."""

    @abstractmethod
    def clean_up(self, mark: str, pin: Pin) -> None:
        """Remove what was created under the mark, and the mark, but nothing of other writers. Can be repeated.

        Raises StateConflict when the options lead to another system than the pin's.
        """

    @abstractmethod
    def leftovers(self, mark: str) -> Sequence[str]:
        """What `clean_up` would remove, one name each, for display. Changes nothing."""

    def lag(self, pin: Pin, position: Position) -> HeldLog | None:
        """What the object costs its owner now; None where that is not measured. Changes nothing, needs no `pin`.

        For a job without a runner. position: how far the job has taken the log.
        Raises HistoryGone, StateConflict and BadData as `observe` would when the job continues; Transient after
        some seconds without an answer.
        """
        return None

    @abstractmethod
    def enforce_limit(self, position: Position, snapshot_open: bool) -> None:
        """Check that the cost to its owner is within the options; if not, give the object up, raise HistoryGone.

        Called at each barrier, only by the job's runner. position: what the job has applied, or taken to apply it
        later. snapshot_open: the snapshot is still being read.
        """

    @abstractmethod
    def release(self, pin: Pin) -> None:
        """Remove the object if this job created it. Called when the job is dropped; can be repeated.

        Raises StateConflict when the options lead to another system than the pin's.
        """

    @abstractmethod
    def require_releasable(self, pin: Pin) -> None:
        """Raise what `release` would raise now. Changes nothing; called before anything of the job is dropped."""

    def require_joinable(self) -> None:
        """Raise what `join` would raise now. Called after `pin` of a source of these tables alone."""

    def join(self, mark: str) -> None:
        """The job holds these tables, too: its object has their changes, or they get one under the mark.

        Called after `pin`, which follows once more; can be repeated. Raises UsageError with what makes it
        possible.
        """

    def give_up(self, table: str, mark: str) -> None:
        """What `join` made for a table under this mark is gone: the job does not get it. Can be repeated."""

    def leave(self, table: str, pin: Pin) -> None:
        """The job need not hold this table any more, which may be gone. Can be repeated. pin: the job's, with it.

        Called of a source of this table alone, without `pin`.
        """

    @abstractmethod
    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        """The statements that remove by hand what `release` would, or `clean_up` under this mark.

        Asks nothing: the upstream need not be reached, and references in its options need not be resolved.
        """


# -- sources ------------------------------------------------------------------------------------------------------


class Source(SnapshotReads, ChangeReads, Connected):
    """Where rows come from, as the engine sees it. Accesses nothing before `pin`, `restore` or a lease's method.

    lease: what a job holds upstream; None for nothing.
    """

    capabilities: Capabilities
    lease: Lease | None = None
    extras = Extras()

    def use(self, session: "Callable[[], SparkSession]") -> None:
        """Receives the function that returns the run's Spark session, starting it on first use. Called first."""

    @abstractmethod
    def pin(self) -> Pin:
        """Pins a snapshot. Called once in a job's life. Reads metadata only, never rows.

        Raises Fatal for paths that are missing or empty, and for formats and types that cannot be read.
        """

    @abstractmethod
    def restore(self, pin: Pin) -> None:
        """Resumes a pin that an earlier runner made. Raises Fatal naming what has changed."""

    def read_on(self, tables: Collection[str]) -> None:
        """Rows of the snapshot are still to be read of these tables only. Called after `restore`."""

    def keeps_aside(self, table: str) -> str:
        """What the upstream still does for a table that is set aside, in words; empty for nothing.

        Asks nothing.
        """
        return ""

    @abstractmethod
    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        """What exists after `position`. Called at every barrier: cheap when nothing changed, no Spark.

        snapshot_open: the snapshot is still being read, so its pin is checked too.
        Raises Fatal when the upstream's identity changed, HistoryGone when changes after `position` are gone.
        """

    def read_log(self, spark: "SparkSession", asked: LogRequest) -> LogBatch:
        """The window's changes, of all tables: how the engine reads any log, once the epoch's reads are written.

        Raises what `ConsumableLog.take` does. A log that can be read again gives tasks or frames, with the columns
        of `window.schema`.
        """
        from backfill_cli.spark import arrow_tasks

        log, window = self.capabilities.log, asked.window
        if log is not None:
            return log.take(spark, asked)
        cores = arrow_tasks.at_once(spark)
        tables: dict[str, ChangeFrame | ArrowTasks] = {}
        for name, schema in asked.schemas.items():
            end = window.after, window.up_to, schema
            with of_table(name, Fatal, HistoryGone):
                tasks = None if cores is None else self.change_batches(name, *end, cores)
                tables[name] = tasks or ChangeFrame(self.changes(spark, name, *end))
        return LogBatch(window, tables, dict(window.schema))

    def ranges(self, reads: Sequence[SnapshotRead], schemas: Mapping[str, str], cores: int) -> RangeTasks | None:
        """The rows of these ranges of partitions, history and live ones: of events as from `scan`, else changes.

        schemas: as for LogRequest. cores: how many tasks run at once. Tables that the tasks' schemas lack, or all
        for None, are read each by itself: workers cannot produce their rows.
        """
        return None

    def read_by(self, schemas: Mapping[str, str]) -> None:
        """Now `scan` of a partitioned log has these columns: those in force, table -> Spark schema as JSON.

        Called before its reads are staged, or verified.
        """

    def widened(
        self, schemas: Mapping[str, str], reads: Sequence[SnapshotRead], new: SnapshotRead
    ) -> Mapping[str, str] | None:
        """The tables' columns with those that rows have beside; None if none are known.

        Called after these reads of a partitioned log raised ColumnAdded: each call finds more, or ends with None.
        schemas: those in force, as for `read_by`. new: the record that has the column.
        """
        return None

    def snapshot_only(self, begun: bool) -> None:
        """Another object takes the log (strategy chain): columns that are added are left out, it delivers them.

        begun: some rows have already been read.
        """


class SnapshotSide(SnapshotReads, Connected):
    """State, pinned and read split by split. keeps: what must stay unchanged, and for how long; for `plan`."""

    keeps: str
    extras = Extras()

    @abstractmethod
    def pin(self) -> SnapshotPin:
        """Pin the state. Called once in a job's life. Reads metadata only, never rows.

        Raises Fatal for paths that are missing or empty, and for formats and types that cannot be read.
        """

    @abstractmethod
    def restore(self, pin: Pin) -> None:
        """Resume a job's pin: after `pin`, and in each later process. Raises Fatal naming what has changed."""

    def read_on(self, tables: Collection[str]) -> None:
        """Rows are still to be read of these tables only, see `Source.read_on`."""

    def check(self) -> None:
        """Check that what was pinned is unchanged, at every barrier while it is read. Raises Fatal if not."""


class ChangeLog(ChangeReads, Connected):
    """Ordered changes, readable until they are acknowledged.

    before_images, one_log, apart: see Capabilities. correctable: `correctable_log` there. keeps: what must stay,
    and for how long; for `plan`.
    """

    before_images: bool
    one_log: bool
    apart: bool = True
    correctable: bool
    keeps: str
    extras = Extras()

    @classmethod
    def _lacking(cls) -> Iterable[str]:
        neither = cls.changes is ChangeReads.changes and cls.change_batches is ChangeReads.change_batches
        return (*super()._lacking(), *(("change_batches or changes",) if neither else ()))

    @abstractmethod
    def begin(self, schema: Mapping[str, str]) -> LogStart:
        """Where the log continues after the snapshot. Called once in a job's life, after the snapshot was pinned.

        Can read a few changes, to learn about their columns.

        schema: table -> Spark schema of the snapshot's rows as JSON.
        Raises HistoryGone when the log no longer holds what follows the snapshot, ConfigError or BadData for
        columns that its changes cannot be read into, Transient and UsageError for what is missing.
        """

    @abstractmethod
    def restore(self, pin: Pin) -> None:
        """Resume a job's pin in a later process."""

    @abstractmethod
    def observe(self, position: Position) -> UpstreamView:
        """What exists after `position`. Called at every barrier: cheap when nothing changed, no Spark.

        Its `identity` can be "{}": `Pair` puts the pin's there.
        Raises Fatal when the log is a different one, HistoryGone when changes after `position` are gone.
        """


# -- connectors ---------------------------------------------------------------------------------------------------


Side = TypeVar("Side", SnapshotSide, ChangeLog)


@dataclass(frozen=True)  # with slots, `SideConnector[…]` could not be called
class SideConnector(Generic[Side]):
    """How a side plugs in beside one of another system: its part of `UpstreamConnector`, whose fields it has.

    options: for `[upstream.snapshot]` or `[upstream.changes]`. look: as for an upstream, given what is known of
    the other side; its options are those of this side alone.
    """

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], Side]
    fingerprint: Callable[[Any], Mapping[str, Any]]
    look: Callable[[Named, Looked], Looked] | None = None


SnapshotConnector = SideConnector[SnapshotSide]
ChangesConnector = SideConnector[ChangeLog]


@dataclass(frozen=True, slots=True)
class UpstreamConnector:
    """How a source plugs in: an entry in the group `backfill.upstreams` names an UpstreamConnector.

    options: the model of its part of the config, with units and help. open: from those options (secrets resolved)
    and the job's tables; accesses nothing yet. fingerprint: the options that must not change in a job's life.
    event_key: columns that identify a row of a table whose config names no key; empty if the config must name one.
    primary_keys: the primary keys that the upstream knows for tables whose config names none, by those and all of
    the job's tables; None if it knows none.
    snapshot, changes: its sides for use beside another system; None for a side that it does not have.
    look: finds out the options by reading data, without Spark; None: not supported. claims: whether a place is
    data of this kind, by its form or by what lies there; for `init --from`, which names no type.
    formats: lake table formats for which Spark needs jars, see spark/table_formats.py.
    gauge: asks a query for one number, within some seconds, for guards; None: it has no SQL. gauges: queries for
    what guards can name, `replication-lag` in seconds and `sessions`.
    """

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], Source]
    fingerprint: Callable[[Any], Mapping[str, Any]]
    event_key: Callable[[Any], tuple[str, ...]] = lambda _options: ()
    primary_keys: Callable[[Any, Sequence[str], Sequence[str]], Mapping[str, Sequence[str]]] | None = None
    snapshot: SnapshotConnector | None = None
    changes: ChangesConnector | None = None
    look: Callable[[Named], Looked] | None = None
    claims: Callable[[str], bool] = lambda _text: False
    formats: tuple[str, ...] = ()
    gauge: Callable[[Any, str, float], Gauge] | None = None
    gauges: Mapping[str, str] = field(default_factory=dict)
