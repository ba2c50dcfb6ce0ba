"""The two sides of an upstream: state that is read by split, and a log of its changes.

Usually both are of one system; `pair.py` makes one upstream of two sides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from backfill_cli.contracts.table import TableSpec
from backfill_cli.errors import BackfillError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import LogStart, Pin, SnapshotPin, UpstreamView

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession


class SnapshotReads(Protocol):
    """Reads of a pinned snapshot, by split."""

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """The same reads with open ones closed: each ends at a cursor, or at its split's end.

        Called once per epoch and table, before `scan`; not for partitioned logs, whose reads are planned closed.
        Only the side that made a cursor understands it: the engine keeps it as JSON and never compares cursors.
        """
        ...

    def row_count(self, read: SnapshotRead) -> int | None:
        """The row count of a closed read according to metadata; None if only reading can tell."""
        ...

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        """The rows of these closed reads of the pin, as source columns, in any order.

        If `row_count` does not know the size of one of the reads, an extra column `own.READ INT` holds the index
        into `reads` that a row belongs to; only then does the engine count rows per read.
        Partitioned logs add `own.ERROR STRING` (why a row cannot be read, NULL for a good one), `own.RAW BINARY`.
        """
        ...


class ChangeReads(Protocol):
    """Reads of a change log between two positions."""

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        """The changes of `(after, up_to]`: `(own.OP 'U'|'D', own.SEQ, own.MS BIGINT|NULL, source columns…)`.

        `own.OP`: 'U' is the row after the change, 'D' means deleted (at least the key columns are set). A change
        of a key is two rows: a 'D' of the old key before a 'U' of the new one. `own.SEQ`: orderable, strictly in
        log order among the rows of one key. If it is a struct, it can end in `image BOOLEAN`: true for a row that
        only holds the state before an update and is not counted as a change for display. schema: Spark schema as
        JSON, in which the columns are read.
        Partitioned logs add `own.ERROR` and `own.RAW` as `scan` does.
        """
        ...

    def acknowledge(self, position: Position) -> None:
        """Allow the log to discard what precedes `position`: sink or spool holds it. Called after each commit."""
        ...


class Connected(Protocol):
    """Holds connections, and interprets failures of what it reads."""

    def failure(self, exc: Exception) -> BackfillError | None:
        """The error behind a Spark failure while reading this side, naming the place; None if it is unrelated."""
        ...

    def close(self) -> None: ...


class SnapshotSide(SnapshotReads, Connected, Protocol):
    """State, pinned and read split by split. keeps: what must stay unchanged, and for how long; for `plan`."""

    keeps: str

    def pin(self) -> SnapshotPin:
        """Pin the state. Called once in a job's life. Reads metadata only, never rows.

        Raises Fatal for paths that are missing or empty, and for formats and types that cannot be read.
        """
        ...

    def restore(self, pin: Pin) -> None:
        """Resume a job's pin: after `pin`, and in each later process. Raises Fatal naming what has changed."""
        ...

    def check(self) -> None:
        """Check that what was pinned is unchanged, at every barrier while it is read. Raises Fatal if not."""
        ...


class ChangeLog(ChangeReads, Connected, Protocol):
    """Ordered changes, readable until they are acknowledged.

    before_images: the log contains the old key of a key change. one_log: all tables share one order, so
    constraints across tables hold. correctable: changes that are not applied yet can be corrected in the log
    itself. keeps: as for a snapshot side.
    """

    before_images: bool
    one_log: bool
    correctable: bool
    keeps: str

    def begin(self, schema: Mapping[str, str]) -> LogStart:
        """Where the log continues after the snapshot. Called once in a job's life, after the snapshot was pinned.

        Can read a few changes, to learn about their columns.

        schema: table -> Spark schema of the snapshot's rows as JSON.
        Raises HistoryGone when the log no longer holds what follows the snapshot, ConfigError or BadData for
        columns that its changes cannot be read into, Transient and UsageError for what is missing.
        """
        ...

    def restore(self, pin: Pin) -> None:
        """Resume a job's pin in a later process."""
        ...

    def observe(self, position: Position) -> UpstreamView:
        """What exists after `position`. Called at every barrier: cheap when nothing changed, no Spark.

        Raises Fatal when the log is a different one, HistoryGone when changes after `position` are gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class SnapshotConnector:
    """How a snapshot side plugs in beside a change log of another system: its part of `UpstreamConnector`.

    options, open, fingerprint: as there, for `[upstream.snapshot]`.
    """

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], SnapshotSide]
    fingerprint: Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ChangesConnector:
    """How a change log plugs in beside a snapshot of another system. options: for `[upstream.changes]`."""

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], ChangeLog]
    fingerprint: Callable[[Any], Mapping[str, Any]]
