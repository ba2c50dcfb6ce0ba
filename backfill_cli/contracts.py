"""What the engine asks of an upstream, a sink and a catalog: who calls, when, and what follows each error.

All of them raise `errors.Transient` (the engine tries again with backoff, up to the config's limit) or
`errors.Fatal` (nothing is committed, the last epoch stays, the job fails). Anything else is a bug.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backfill_cli.errors import BackfillError
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Marker, Progress, Recovered
from backfill_cli.model.digest import Digest, DigestSpec, KeyRanges
from backfill_cli.model.job import Command, Control, JobState
from backfill_cli.model.plan import SnapshotRead, Staged
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
class ArrowTasks:
    """Rows that Spark's Python workers make as Arrow batches, one task a part.

    make: the batches of a part, called in a worker: a function of a module, or a `partial` of one. What it raises
    of ours reaches `Upstream.failure` as text.
    parts: what it is called with. reads: which of the plan's reads (index) the rows of each part belong to.
    schema: Spark schema of the rows as JSON; the batches have just these columns.
    """

    make: "Callable[[Any], Iterator[pa.RecordBatch]]"
    parts: tuple[Any, ...]
    reads: tuple[int, ...]
    schema: str


@runtime_checkable
class BatchedUpstream(Protocol):
    """An upstream whose rows are made in Python workers: staging can write them there."""

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        """The rows of these reads as source columns, if every one of them can be expected to be good.

        None where that is not so: `scan` gives them. A row that turns out not to be good fails the read with
        Transient, and the next call gives None.
        """
        ...


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A table of a job as its sink sees it.

    target: as the config names it ("schema.name" or a name). key: sink columns. schema: Spark schema as JSON,
    after the transform; a column's metadata may carry {"logical": "uuid"|"json"}.
    plain_inserts: snapshot rows are inserted; else (an existing table) deleted by key first.
    side: one of ours beside the job's, its name begins with `_backfill_`: rows that could not be read.
    """

    name: str
    target: str
    key: tuple[str, ...]
    schema: str
    plain_inserts: bool = True
    side: bool = False


@dataclass(frozen=True, slots=True)
class SavedJob:
    """What a sink keeps beside its marker so that a lost catalog can be rebuilt from it.

    definition: config (references, never secrets), fingerprint, pin; JSON, written when it changes.
    checkpoint: the committed one, its splits complete when read.
    """

    definition: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """One epoch for a sink: applied whole, once, with its marker.

    folder: where the staged files are (the attempt's folder). unique: tables whose keys are now all there and
    must be checked for duplicates in the same transaction. saved: what to keep beside the marker (changed splits
    only).
    only: tables still to apply (recovery), None for all.
    """

    job: str
    epoch: int
    prev_epoch: int
    token: int
    attempt: str
    tables: tuple[SinkTable, ...]
    folder: str
    staged: Staged
    unique: tuple[str, ...]
    saved: SavedJob
    only: frozenset[str] | None = None


class Sink(Protocol):
    """Where rows go. Opened briefly, never held between commits."""

    transactional: bool
    """Whether all tables of an epoch commit in one transaction."""

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        """Create the job's tables, or add columns that are new; no change when all is there.

        Raises SinkInUse for a table that has rows and is not this job's (unless into_existing), Held for a table
        of another job, BadData for a column whose type differs.
        """
        ...

    def fence(self, job: str, token: int) -> None:
        """Write the token into every marker, waiting for commits in flight; from here on older tokens are refused.

        Raises Held when the marker's token is newer.
        """
        ...

    def committed(self, job: str) -> Mapping[str, Marker]:
        """Each table's marker; no entry for a table that has none."""
        ...

    def commit(self, commit: EpochCommit) -> None:
        """Apply one epoch and its markers, atomically, once. The same (epoch, attempt) again is ignored.

        Raises Held for an older token, StateConflict for an epoch that is not greater, BadData for duplicate keys,
        Transient while somebody else holds the sink (saying who) or the disk is full.
        """
        ...

    def saved(self, job: str) -> SavedJob | None:
        """What `commit` kept, None when this sink holds nothing of the job."""
        ...

    def forget(self, job: str) -> None:
        """Remove the job's markers and side rows; the data stays."""
        ...


@dataclass(frozen=True, slots=True)
class Survey:
    """What a sink tells of a table without reading it much.

    low, high: of the word of the first key column (see model/digest.py), None when it has none or no row is there.
    few: string columns with so few distinct values that the sink can hash them from a list.
    """

    low: int | None
    high: int | None
    few: frozenset[str]


class SinkCopy(Protocol):
    """A sink's tables at one checkpoint; no commit changes what it reads, and it holds up none."""

    def saved(self) -> SavedJob | None:
        """As `Sink.saved`, of this copy: the checkpoint that its rows are at."""
        ...

    def survey(self, table: SinkTable) -> Survey: ...

    def digest(self, table: SinkTable, spec: DigestSpec, ranges: KeyRanges | None) -> Mapping[int, Digest]:
        """By range number: rows, a hash for the key and each other column (all in one, range 0, without ranges).

        The formula is model/digest.py's, so that it equals what Spark computes of the upstream. May be called from
        another thread than the other methods.
        """
        ...

    def frame(
        self,
        spark: "SparkSession",
        table: SinkTable,
        columns: Sequence[str],
        only: tuple[DigestSpec, KeyRanges, Sequence[int]] | None,
    ) -> "DataFrame":
        """These columns of the table's rows, as the types of its Spark schema; `only` those of some ranges."""
        ...


@runtime_checkable
class CheckedSink(Protocol):
    """A sink that `plan` can ask."""

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        """Raises what `prepare` would; changes nothing, and creates nothing."""
        ...


@runtime_checkable
class VerifiableSink(Protocol):
    """A sink that `verify` can read."""

    def copied(self, job: str, live: bool, folder: Path) -> AbstractContextManager[SinkCopy]:
        """The sink as it is between two commits.

        live: a runner has the job and must not be held up. folder: an empty folder of the caller's, shared with
        Spark, for what has to be written; the caller removes it.
        """
        ...


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """What a job is: set once at its start.

    config: the resolved config with references (never secrets) as JSON. fingerprint: JSON object of what must not
    change. pin: with all its splits. until: 'caught-up' or 'forever'. tables: as the sink sees them.
    """

    name: str
    config: str
    fingerprint: str
    pin: Pin
    until: str
    strategy: str
    tables: tuple[SinkTable, ...]


class JobStore(Protocol):
    """The catalog as one runner uses it. Every method is one transaction."""

    def load(self) -> Recovered:
        """All that a runner starts with."""
        ...

    def commands(self) -> tuple[Command, ...]:
        """Commands posted and not taken, oldest first. Cheap when none was posted since the last call."""
        ...

    def take(self, commands: Sequence[Command], control: Control, state: JobState, record: EpochRecord) -> None:
        """Take commands at a barrier: the control they lead to, and the barrier that took them."""
        ...

    def prepare(self, checkpoint: Checkpoint, committed: EpochRecord | None, progress: Progress) -> None:
        """Promise an epoch; `committed` marks the epoch before it.

        Raises Held when the runner's lease is no longer its own.
        """
        ...

    def mark(self, committed: EpochRecord, progress: Progress | None) -> None:
        """The prepared epoch is in the sink. progress None leaves the numbers as they were (recovery)."""
        ...

    def unprepare(self, epoch: int) -> None:
        """Drop a prepared epoch that no sink table has. Its number is not used again."""
        ...

    def heartbeat(self, now_ms: int, progress: Progress) -> None:
        """Renew the lease. Raises Held when it is no longer ours."""
        ...

    def become(self, state: JobState, reason: str) -> None:
        """Change the job's state along an arrow that exists."""
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


@dataclass(frozen=True, slots=True)
class SinkConnector:
    """How a sink plugs in: the entry point group `backfill.sinks` names one of these. As for upstreams."""

    options: type["BaseModel"]
    open: Callable[[Any], Sink]
    fingerprint: Callable[[Any], Mapping[str, Any]]
