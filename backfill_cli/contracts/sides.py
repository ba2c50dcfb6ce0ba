"""The two sides of an upstream: state that is read by split, and a log of what changes it.

Mostly of one system, and maybe of two: `pair.py` makes one upstream of them.
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
    """Reads of what was pinned, by split."""

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        """The same reads, the open ones closed: each ends at a cursor, or at its split's end.

        Called once per epoch and table, before `scan`; not of partitioned logs, whose reads are planned closed. A
        cursor is its maker's own: the engine keeps it as JSON and compares none.
        """
        ...

    def row_count(self, read: SnapshotRead) -> int | None:
        """How many rows a closed read has, by metadata; None where only reading tells."""
        ...

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        """The rows of these closed reads of the pin, source columns, in any order.

        One extra column `_read INT` tells which of `reads` (its index) a row belongs to where
        `row_count` does not know how many one of them has: only then does the engine count by read.
        Partitioned logs add `_error STRING` (why a row cannot be read, NULL for a good one) and `_raw BINARY`.
        """
        ...


class ChangeReads(Protocol):
    """Reads of a change log, between two positions."""

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        """The changes of `(after, up_to]`: `(_op 'U'|'D', _seq, _ms BIGINT|NULL, source columns…)`.

        `_op`: 'U' the row as it is after, 'D' gone (at least the key columns are set). A key change is two rows,
        a 'D' of the old key before a 'U' of the new one. `_seq`: orderable (a struct will do), strictly the log's
        order among the rows of one key. Where it is a struct it may end in `image BOOLEAN`: true of a row that
        only says what was there before an update, and is no change for people. schema: Spark schema as JSON that
        the columns are read as.
        Partitioned logs add `_error` and `_raw` as `scan` does.
        """
        ...

    def acknowledge(self, position: Position) -> None:
        """What is older than `position` may go: sink or spool holds it. Called after each commit."""
        ...


class Connected(Protocol):
    """What holds connections, and knows the failures of what it reads."""

    def failure(self, exc: Exception) -> BackfillError | None:
        """What a failure of Spark while reading this means, naming the place; None when it is not ours."""
        ...

    def close(self) -> None: ...


class SnapshotSide(SnapshotReads, Connected, Protocol):
    """State, held still and read split by split. keeps: what must stay as it is, and how long; for `plan`."""

    keeps: str

    def pin(self) -> SnapshotPin:
        """Hold the state still. Called once in a job's life. Reads metadata only, never rows.

        Raises Fatal for paths that are missing or empty, formats and types that cannot be read.
        """
        ...

    def restore(self, pin: Pin) -> None:
        """Take up a job's pin: after `pin`, and in each later process. Raises Fatal naming what changed since."""
        ...

    def check(self) -> None:
        """What was pinned is as it was; asked at every barrier while it is being read. Raises Fatal."""
        ...


class ChangeLog(ChangeReads, Connected, Protocol):
    """Ordered changes, readable until they are acknowledged.

    before_images: the log tells the old key of a key change. one_log: one order for all tables, so constraints
    across tables hold. keeps: as of a snapshot side.
    """

    before_images: bool
    one_log: bool
    keeps: str

    def begin(self, schema: Mapping[str, str]) -> LogStart:
        """Where the log goes on after the snapshot. Called once in a job's life, after the snapshot was pinned.

        May read a few changes, for what they say of their columns.

        schema: table -> Spark schema of the snapshot's rows as JSON.
        Raises HistoryGone when the log no longer holds what follows the snapshot, ConfigError or BadData for
        columns that its changes cannot be read as, Transient and UsageError as for what is not there.
        """
        ...

    def restore(self, pin: Pin) -> None:
        """Take up a job's pin in a later process."""
        ...

    def observe(self, position: Position) -> UpstreamView:
        """What there is after `position`. Called at every barrier: cheap when nothing changed, no Spark.

        Raises Fatal when the log is another one, HistoryGone when changes after `position` are gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class SnapshotConnector:
    """How a snapshot side plugs in beside a change log of another system: its part of `UpstreamConnector`.

    options, open, fingerprint: as there, of `[upstream.snapshot]`.
    """

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], SnapshotSide]
    fingerprint: Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ChangesConnector:
    """How a change log plugs in beside a snapshot of another system. options: of `[upstream.changes]`."""

    options: type["BaseModel"]
    open: Callable[[Any, Sequence[TableSpec]], ChangeLog]
    fingerprint: Callable[[Any], Mapping[str, Any]]
