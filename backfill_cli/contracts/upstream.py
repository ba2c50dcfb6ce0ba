"""Where rows come from: what the engine needs from an upstream, and how an upstream plugs in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backfill_cli.contracts.looked import Looked
from backfill_cli.contracts.sides import ChangeReads, ChangesConnector, Connected, SnapshotConnector, SnapshotReads
from backfill_cli.contracts.table import TableSpec
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin, UpstreamView

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class UpstreamCapabilities:
    """pinned: a snapshot can be read at a fixed position. keeps_log: changes stay readable until acknowledged.

    before_images: the log contains the old key of a key change.
    one_log: all tables share one order, so constraints across tables hold.
    partitioned: history and live log have the same partitions and offsets (strategy source).
    place: for a partitioned log, the source columns that hold partition and offset.
    appends: rows are events, written once and never changed: `scan` also reads live ranges, `changes` is not
    called.
    current: only the current state can be read, in key order (strategy arrangement).
    quarantines: a row that cannot be read can be kept in a side table of the sink; otherwise it stops the job.
    accepts_gap: offsets between the archive's end and the log's beginning may be missing.
    keeps: what the upstream has to keep, and for how long, in words for `plan`.
    correctable_log: changes that are not applied yet can be corrected in the log itself, as in a file.
    follows: whether changes can arrive after the snapshot; if not, a job has nothing to wait for.
    """

    pinned: bool
    keeps_log: bool
    before_images: bool
    one_log: bool
    partitioned: bool = False
    place: tuple[str, ...] = ()
    appends: bool = False
    current: bool = False
    quarantines: bool = False
    accepts_gap: bool = False
    keeps: str = ""
    correctable_log: bool = False
    follows: bool = True


class Upstream(SnapshotReads, ChangeReads, Connected, Protocol):
    """Where rows come from: both sides as the engine sees them, one object per job and process."""

    capabilities: UpstreamCapabilities

    def pin(self) -> Pin:
        """Pins a snapshot. Called once in a job's life. Reads metadata only, never rows.

        Raises Fatal for paths that are missing or empty, and for formats and types that cannot be read.
        """
        ...

    def restore(self, pin: Pin) -> None:
        """Resumes a pin that an earlier runner made. Raises Fatal naming what has changed."""
        ...

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        """What exists after `position`. Called at every barrier: cheap when nothing changed, no Spark.

        snapshot_open: the snapshot is still being read, so its pin is checked too.
        Raises Fatal when the upstream's identity changed, HistoryGone when changes after `position` are gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one read. read: index of the plan's read. what: the argument for `ArrowTasks.make`."""

    read: int
    what: Any


@dataclass(frozen=True, slots=True)
class ArrowTasks:
    """Rows that Spark's Python workers produce as Arrow batches, one task per part.

    make: returns the batches of a piece; called in a worker, so a function of a module, or a `partial` of one. Our
    own errors raised in it reach `Upstream.failure` as text.
    parts: the pieces of each task, in order. Every task is sent all of them: a few per core, however many pieces.
    schema: Spark schema of the rows as JSON; the batches have exactly these columns.
    not_plain: whether a failure only means that some rows are not plain, so that `scan` has to read them.
    """

    make: "Callable[[Any], Iterator[pa.RecordBatch]]"
    parts: tuple[tuple[Piece, ...], ...]
    schema: str
    not_plain: Callable[[Exception], bool] = lambda _failure: False


@runtime_checkable
class BatchedUpstream(Protocol):
    """An upstream whose rows are produced in Python workers: staging can write them there."""

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        """The rows of these reads as source columns, if all of them can be expected to be good.

        Otherwise None, and `scan` reads them. Rows that turn out not to be plain may fail the task: if
        `ArrowTasks.not_plain` confirms that, the engine repeats the reads with `scan`. Other failures are treated
        as failures of `scan`.
        """
        ...


@runtime_checkable
class SparkUpstream(Protocol):
    """An upstream whose tables live in Spark."""

    def use(self, session: "Callable[[], SparkSession]") -> None:
        """Receives the function that returns the run's Spark session, starting it on first use. Called first."""
        ...


@runtime_checkable
class PastUpstream(Protocol):
    """An upstream whose tables can be read as of any position: `verify` then needs no changes."""

    def rows_at(self, spark: "SparkSession", table: str, position: Position) -> "DataFrame":
        """All rows of the table as of `position`, as source columns. Called after `restore`."""
        ...


@runtime_checkable
class LocatedUpstream(Protocol):
    """An upstream whose tables could be the same as a sink's, or two of which could be one."""

    def places(self) -> Mapping[str, frozenset[str]]:
        """For each table, where its rows are (several places if split): texts unique to the table, however the
        config spells it. After `pin`.
        """
        ...


@runtime_checkable
class ShowingUpstream(Protocol):
    """An upstream whose system has its own notation for positions."""

    def shown(self, position: Position) -> str:
        """A position in the system's notation."""
        ...


@runtime_checkable
class AdvisingUpstream(Protocol):
    """An upstream that can warn before a start."""

    def advice(self) -> Sequence[str]:
        """What `plan` adds about the pin: one sentence each on what the job cannot check by itself."""
        ...


@runtime_checkable
class DirectUpstream(Protocol):
    """An upstream whose snapshot DuckDB can read by itself: used by `verify --independent`."""

    def duckdb_sql(self, table: str, types: Mapping[str, str]) -> str:
        """A query for the rows of the pinned snapshot, using DuckDB's own readers.

        types: by column, in DuckDB's notation. Raises UsageError when DuckDB would not read them exactly.
        """
        ...


@runtime_checkable
class RememberingUpstream(Protocol):
    """An upstream that recognises what it has applied: its memory is kept with each checkpoint."""

    def remembered(self, position: Position) -> str:
        """The memory of everything up to `position`; called once the changes up to it are staged."""
        ...

    def recall(self, memory: str) -> None:
        """Receives the memory of an earlier process, after `restore`. It is compared with what exists at the next
        `observe` or `changes`, which raise Fatal naming what differs.
        """
        ...


@runtime_checkable
class ApartUpstream(Protocol):
    """An upstream whose current rows can be read beside a log that another object takes."""

    def read_apart(self, begun: bool) -> None:
        """Leaves out columns that are added: the log delivers them. begun: some rows have already been read."""
        ...


@dataclass(frozen=True, slots=True)
class UpstreamConnector:
    """How an upstream plugs in: an entry in the group `backfill.upstreams` names an UpstreamConnector.

    options: the model of its part of the config, with units and help. open: from those options (secrets resolved)
    and the job's tables; accesses nothing yet. fingerprint: the options that must not change in a job's life.
    event_key: columns that identify a row of a table whose config names no key; empty if the config must name one.
    primary_keys: the primary keys that the upstream knows for the named tables; None if it knows none.
    snapshot, changes: its sides for use beside another system; None for a side that it does not have.
    look: finds out the options by reading data: a place of rows, and optionally one of changes. None: not
    supported.
    formats: lake table formats for which Spark needs jars, see spark/table_formats.py.
    """

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], Upstream]
    fingerprint: Callable[[Any], Mapping[str, Any]]
    event_key: Callable[[Any], tuple[str, ...]] = lambda _options: ()
    primary_keys: Callable[[Any, Sequence[str]], Mapping[str, Sequence[str]]] | None = None
    snapshot: SnapshotConnector | None = None
    changes: ChangesConnector | None = None
    look: Callable[[str, str | None], Looked] | None = None
    formats: tuple[str, ...] = ()
