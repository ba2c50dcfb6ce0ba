"""An upstream whose log passes through a spool: what the loop of a chain job sees.

Until the spool is drained, the spool is the log; then the log is read directly. Snapshot rows come from a separate
upstream object, because the log's object is used by a thread beside the loop.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backfill_cli.contracts import (
    ApartUpstream,
    ArrowTasks,
    BatchedUpstream,
    HeldUpstream,
    RememberingUpstream,
    ShowingUpstream,
    SpoolEntry,
    TakingUpstream,
    Upstream,
)
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.spool.taker import Taker
from backfill_cli.errors import BackfillError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin, SpoolView, UpstreamEpoch, UpstreamView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SpooledUpstream:
    """See contracts.Upstream. rows: reads the snapshot. log: the upstream whose log is taken, or read."""

    def __init__(self, rows: Upstream, log: Upstream, taker: Taker, spool: Spool) -> None:
        self.rows, self.log, self.taker, self._spool = rows, log, taker, spool
        self.capabilities = log.capabilities
        self._direct = self._spools = False
        self._committed: Position | None = None
        self._covered = not self.capabilities.current

    def take_up(self, committed: Checkpoint, known: Sequence[SpoolEntry]) -> None:
        """Resumes after what an earlier process committed and took. known: entries that the catalog knows.

        Raises StateConflict when the spool lacks some of these.
        """
        self._committed = committed.position
        self.taker.begin(self._spool.entries(committed.position, known))
        self._spool.require_reach(committed.taken, committed.position, self.taker.entries)
        self._spool.sweep(self.taker.entries)
        newest = self.taker.entries[-1].memory if self.taker.entries else committed.memory
        if newest and isinstance(self.log, RememberingUpstream):
            self.log.recall(newest)
        if isinstance(self.rows, ApartUpstream):
            begun = any(split.status != SplitStatus.NOT_STARTED for split in committed.splits.values())
            self.rows.read_apart(begun=begun)

    # -- where the loop is ---------------------------------------------------------------------------------------

    def enter(self, phase: Phase, position: Position, schemas: Mapping[str, str], takes: bool = True) -> None:
        """A barrier begins. The log is taken in parallel with the loop until the spool has been drained, and read
        directly once the spool holds nothing of it. schemas: in force at `position`.
        """
        self.taker.check()
        self.taker.snapshot_open = phase == Phase.SNAPSHOT
        # Changes after an epoch in flight are not taken yet: if the sink refuses it, the log must still have them.
        begun = bool(self.taker.entries) or position == self._committed
        self._spools = phase != Phase.UPSTREAM and begun
        if not (self._spools and takes):
            self.taker.hold()  # before anything is read: an entry may be in progress
        self._direct = not (self._spools or self._left(position))
        if not self._spools:
            return
        self.taker.go_on_from(position, schemas)
        if not takes:
            return
        self.taker.go_on()
        if phase != Phase.LOG_STORE:
            return
        if self._covered:
            self.taker.take()
        else:
            self._covered = self.taker.cover()

    # -- the log -------------------------------------------------------------------------------------------------

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        if self._direct:
            view = self.log.observe(position, False)
            if isinstance(self.log, HeldUpstream):
                self.log.keep_within(position, snapshot_open=False)
            return view
        entries = self._left(position)
        pending = tuple(
            UpstreamEpoch(
                entry.window.up_to.cursors,
                entry.window.up_to_ms,
                entry.changes,
                entry.size_bytes,
                tuple(entry.schemas.items()),
            )
            for entry in entries
        )
        return UpstreamView(
            identity="{}",
            latest=self.taker.position,
            pending=pending,
            held_bytes=self.taker.held_bytes,
            oldest_ms=entries[0].window.from_ms if entries else self.taker.untaken_ms,
            spool=SpoolView(
                taken=self._shown(self.taker.position),
                applied=self._shown(position),
                entries=len(entries),
                changes=sum(entry.changes for entry in entries),
                size_bytes=self.taker.size_bytes,
                behind=self.taker.behind,
                full=self.taker.full,
                covers=self._covered,
                waits=self.taker.waits,
            ),
        )

    def _shown(self, position: Position) -> str:
        told = self.log.shown(position) if isinstance(self.log, ShowingUpstream) else str(position)
        return told or "the start of the change log"

    def _left(self, position: Position) -> list[SpoolEntry]:
        """What the spool holds after a position."""
        return [entry for entry in self.taker.entries if not entry.window.up_to <= position]

    def acknowledge(self, position: Position) -> None:
        """Removes from the spool what the sink holds; what was read directly is acknowledged upstream."""
        self._committed = position
        self.taker.trim(position)
        if self._direct:
            self.log.acknowledge(position)

    def remembered(self, position: Position) -> str:
        """The log's memory at a position, once everything that was taken is applied; empty before."""
        entries = self.taker.entries
        if entries and entries[-1].window.up_to == position:
            return entries[-1].memory
        return self.log.remembered(position) if self._direct and isinstance(self.log, RememberingUpstream) else ""

    @property
    def taken(self) -> Position:
        """The position up to which the spool reaches; START if it is empty."""
        entries = self.taker.entries
        return entries[-1].window.up_to if entries else START

    def recall(self, memory: str) -> None:
        """See `take_up`: the memory that counts is that of the position up to which the log was taken."""

    # -- the snapshot --------------------------------------------------------------------------------------------

    def pin(self) -> Pin:
        return self.log.pin()

    def restore(self, pin: Pin) -> None:
        """Both objects receive the job's pin."""
        self.rows.restore(pin)
        self.log.restore(pin)

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        return self.rows.closed(table, reads)

    def row_count(self, read: SnapshotRead) -> int | None:
        return self.rows.row_count(read)

    def scan(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> "DataFrame":
        return self.rows.scan(spark, table, reads)

    def batches(self, spark: "SparkSession", table: str, reads: Sequence[SnapshotRead]) -> ArrowTasks | None:
        return self.rows.batches(spark, table, reads) if isinstance(self.rows, BatchedUpstream) else None

    def changes(
        self, spark: "SparkSession", table: str, after: Position, up_to: Position, schema: str
    ) -> "DataFrame":
        return self.log.changes(spark, table, after, up_to, schema)

    def failure(self, exc: Exception) -> BackfillError | None:
        """The error behind a Spark failure while a frame of either was computed; None if neither knows it."""
        return self.rows.failure(exc) or self.log.failure(exc)

    def close(self) -> None:
        """Both are closed by whoever opened them."""

    @property
    def taking_log(self) -> TakingUpstream | None:
        """The log, if it can only be consumed; otherwise None."""
        return self.log if isinstance(self.log, TakingUpstream) else None
