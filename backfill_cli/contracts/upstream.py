"""Where rows come from: what the engine asks of an upstream, and how one plugs in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backfill_cli.errors import BackfillError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin, UpstreamView

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of a job as its upstream sees it. key: source columns of the row's identity."""

    name: str
    key: tuple[str, ...]
    immutable_key: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamCapabilities:
    """pinned: a snapshot can be read at a fixed position. keeps_log: changes stay readable until acknowledged.

    before_images: the log tells the old key of a key change.
    one_log: one order for all tables, so constraints across tables hold.
    partitioned: history and live log are the same partitions and offsets (strategy source).
    place: of a partitioned log, the source columns that hold partition and offset.
    appends: rows are events, each there once and for good: `scan` reads live ranges too, `changes` is not called.
    quarantines: a row that cannot be read is kept in a side table of the sink, else it stops the job.
    accepts_gap: offsets between the archive's end and the log's begin may be missing.
    """

    pinned: bool
    keeps_log: bool
    before_images: bool
    one_log: bool
    partitioned: bool = False
    place: tuple[str, ...] = ()
    appends: bool = False
    quarantines: bool = False
    accepts_gap: bool = False


class Upstream(Protocol):
    """Where rows come from. One object a job and a process; `close` ends it."""

    capabilities: UpstreamCapabilities

    def pin(self) -> Pin:
        """Hold a snapshot still. Called once in a job's life. Reads metadata only, never rows.

        Raises Fatal for paths that are missing or empty, formats and types that cannot be read.
        """
        ...

    def restore(self, pin: Pin) -> None:
        """Take up a pin that an earlier runner made. Raises Fatal naming what changed since."""
        ...

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        """What there is after `position`. Called at every barrier: cheap when nothing changed, no Spark.

        snapshot_open: the snapshot is still being read, so its pin is checked too.
        Raises Fatal when the identity changed, HistoryGone when changes after `position` are gone.
        """
        ...

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        """The rows of these slices of the pin, source columns, in any order.

        One extra column `_read INT` tells which of `reads` (its index) a row belongs to where a read is open-ended
        (up_to None) or its index has gaps (partitioned): only then does the engine count by read. For the other
        closed reads the count is `up_to - after`.
        Partitioned logs add `_error STRING` (why a row cannot be read, NULL for a good one) and `_raw BINARY`.
        """
        ...

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        """The changes of `(after, up_to]`: `(_op 'U'|'D', _seq, _ms BIGINT|NULL, source columns…)`.

        `_op`: 'U' the row as it is after, 'D' gone (at least the key columns are set). A key change is two rows,
        a 'D' of the old key before a 'U' of the new one. `_seq`: orderable (a struct will do), strictly the log's
        order among the rows of one key. schema: Spark schema as JSON that the columns are read as.
        """
        ...

    def acknowledge(self, position: Position) -> None:
        """The sink holds everything up to `position`: what is older may go. Called after each commit."""
        ...

    def failure(self, exc: Exception) -> BackfillError | None:
        """What a failure of Spark while reading this means, naming the place; None when it is not ours."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one read. read: which of the plan's reads (index). what: `ArrowTasks.make` is called with it."""

    read: int
    what: Any


@dataclass(frozen=True, slots=True)
class ArrowTasks:
    """Rows that Spark's Python workers make as Arrow batches, one task a part.

    make: the batches of a piece, called in a worker: a function of a module, or a `partial` of one. What it raises
    of ours reaches `Upstream.failure` as text.
    parts: the pieces of each task, in order. Every task is sent all of them: a few a core, however many pieces.
    schema: Spark schema of the rows as JSON; the batches have just these columns.
    careful: whether a failure only says that some rows are not plain, so that `scan` has to read them.
    """

    make: "Callable[[Any], Iterator[pa.RecordBatch]]"
    parts: tuple[tuple[Piece, ...], ...]
    schema: str
    careful: Callable[[Exception], bool] = lambda _failure: False


@runtime_checkable
class BatchedUpstream(Protocol):
    """An upstream whose rows are made in Python workers: staging can write them there."""

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        """The rows of these reads as source columns, if every one of them can be expected to be good.

        None where that is not so: `scan` gives them. Rows that turn out not to be plain after all may fail the
        task: where `ArrowTasks.careful` says so, the engine reads the same by `scan`. Other failures are those of
        `scan`.
        """
        ...


@runtime_checkable
class AdvisingUpstream(Protocol):
    """An upstream that sees what a start should be told of before."""

    def advice(self) -> Sequence[str]:
        """What `plan` says of the pin: one sentence each on what the job cannot check by itself."""
        ...


@runtime_checkable
class DirectUpstream(Protocol):
    """An upstream whose snapshot DuckDB can read by itself: `verify --independent` asks it."""

    def duckdb_sql(self, table: str, types: Mapping[str, str]) -> str:
        """A query for the rows of the pinned snapshot, as DuckDB's own readers find them.

        types: by column, as DuckDB writes them. Raises UsageError where DuckDB would not read them exactly.
        """
        ...


@runtime_checkable
class RememberingUpstream(Protocol):
    """An upstream that knows again what it applied: kept with each checkpoint, in catalog and sink."""

    def remembered(self, position: Position) -> str:
        """What to know again of everything up to `position`; called once the changes up to it are staged."""
        ...

    def recall(self, memory: str) -> None:
        """What an earlier process remembered, after `restore`. Compared with what is there at the next `observe`
        or `changes`, which raise Fatal naming what differs.
        """
        ...


@dataclass(frozen=True, slots=True)
class UpstreamConnector:
    """How an upstream plugs in: the entry point group `backfill.upstreams` names one of these.

    options: the model of its part of the config, with units and help. open: from those options (secrets resolved)
    and the job's tables; touches nothing yet. fingerprint: what of the options must not change in a job's life.
    event_key: columns that identify a row of a table whose config names no key; none where it must.
    """

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], Upstream]
    fingerprint: Callable[[Any], Mapping[str, Any]]
    event_key: Callable[[Any], tuple[str, ...]] = lambda _options: ()
