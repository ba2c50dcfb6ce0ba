"""An upstream whose log passes through a spool: what the loop of a chain job sees.

Until the spool is drained, the spool is the log; then the log is read directly. Snapshot rows come from a separate
upstream object, because the log's object is used by a thread beside the loop.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path

from backfill_cli.config import JobConfig
from backfill_cli.contracts import (
    ArrowTasks,
    ChangeFrame,
    JobDefinition,
    JobStore,
    LogBatch,
    LogRequest,
    Source,
    SpoolEntry,
    Taken,
    TakenTable,
    own,
)
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.spool.taker import Taker, TakerSettings, take
from backfill_cli.engine.staging.files import column_names, older_names
from backfill_cli.errors import BackfillError
from backfill_cli.formats.frames import metadata
from backfill_cli.model.balanced import balanced
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import encode
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.position import START, Position
from backfill_cli.model.skipped import added
from backfill_cli.model.split import SplitStatus
from backfill_cli.model.upstream import Pin, SpoolView, UpstreamEpoch, UpstreamView
from backfill_cli.spark.api import DataFrame, F, SparkSession


class SpooledUpstream(Source):
    """See contracts.Source and ports.Spooling. rows: reads the snapshot. log: the source whose log is taken."""

    def __init__(self, rows: Source, log: Source, taker: Taker, spool: Spool) -> None:
        self.rows, self.log, self.taker, self._spool = rows, log, taker, spool
        self.capabilities = log.capabilities
        self._direct = self._spools = False
        self._committed: Position | None = None
        self._covered = self.capabilities.log is None

    def take_up(self, committed: Checkpoint, known: Sequence[SpoolEntry]) -> None:
        """Resumes after what an earlier process committed and took. known: entries that the catalog knows.

        Raises StateConflict when the spool lacks some of these.
        """
        self._committed = committed.position
        self.taker.begin(self._spool.entries(committed.position, known))
        self._spool.require_reach(committed.taken, committed.position, self.taker.entries)
        self._spool.sweep(self.taker.entries)
        newest = self.taker.entries[-1].memory if self.taker.entries else committed.memory
        if newest:
            self.log.recall(newest)
        begun = any(split.status != SplitStatus.NOT_STARTED for split in committed.splits.values())
        self.rows.snapshot_only(begun)

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
            if self.log.lease is not None:
                self.log.lease.enforce_limit(position, snapshot_open=False)
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
            added=self.taker.added,
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
        return self.log.extras.format_position(position) or "the start of the change log"

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
        return self.log.remembered(position) if self._direct else ""

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

    def leaves_rows_out(self, table: str) -> bool:
        return self.rows.leaves_rows_out(table)

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        return self.rows.scan(spark, table, reads)

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks | None:
        return self.rows.batches(table, reads, cores)

    def read_log(self, spark: SparkSession, asked: LogRequest) -> LogBatch:
        """The window's changes: of the spool until that is drained, then of the log itself."""
        if self._direct:
            return self.log.read_log(spark, asked)
        window = asked.window
        entries = [one for one in self.taker.entries if _within(one, window)]
        for entry in entries:
            self._spool.require_unchanged(entry)
        tables = {name: drained(spark, self._spool, entries, name) for name in asked.schemas}
        none: Mapping[str, int] = {}
        skipped = reduce(added, (entry.skipped for entry in entries), none)
        return LogBatch(window, tables, dict(window.schema), skipped)

    def failure(self, exc: Exception) -> BackfillError | None:
        """The error behind a Spark failure while a frame of either was computed; None if neither knows it."""
        return self.rows.failure(exc) or self.log.failure(exc)

    def close(self) -> None:
        """Both are closed by whoever opened them."""


def _within(entry: SpoolEntry, window: ChangeWindow) -> bool:
    return window.after <= entry.window.after and entry.window.up_to <= window.up_to


def drained(
    spark: SparkSession, spool: Spool, entries: Sequence[SpoolEntry], table: str
) -> TakenTable | ChangeFrame:
    """One table's changes of some entries. If an entry truncates the table, earlier changes are meaningless."""
    held = [(entry, entry.tables[table]) for entry in entries if table in entry.tables]
    last = max((i for i, (_, one) in enumerate(held) if one.truncated), default=None)
    counted = held if last is None else held[last:]
    count, truncated = sum(one.changes for _, one in held), last is not None
    with_files = [(entry, one) for entry, one in counted if one.files]
    if not with_files:
        return TakenTable(changes=count, truncated=truncated)
    partial = tuple(dict.fromkeys(name for _, one in with_files for name in one.partial))
    return ChangeFrame(_frame(spark, spool, with_files), count, truncated=truncated, partial=partial)


def _frame(spark: SparkSession, spool: Spool, held: Sequence[tuple[SpoolEntry, TakenTable]]) -> DataFrame:
    """All changes, with `own.SEQ` ordering them across entries, and with each column that some entry has."""

    def read(names: Sequence[str], paths: Sequence[Path]) -> DataFrame:
        frame, older = spark.read.parquet(*map(str, paths)), older_names(names)
        number = F.regexp_extract(metadata(frame, "file_path"), r"^.*/(\d{12})-[0-9a-f]{12}/", 1).cast("long")
        place = next((name for name, now in older.items() if now == own.SEQ), own.SEQ)
        told = frame.withColumn(place, F.struct(number.alias("entry"), F.col(place).alias("place")))
        return told.withColumnsRenamed(older)

    # Spark takes the columns of one of the files that it is given.
    alike: dict[tuple[str, ...], list[Path]] = {}
    for entry, one in held:
        paths = [spool.place(entry.name) / file.path for file in one.files]
        alike.setdefault(column_names(paths[0]), []).extend(paths)
    frames = [read(names, paths) for names, paths in sorted(alike.items())]
    return balanced(lambda some, more: some.unionByName(more, allowMissingColumns=True), frames)


def open_spooled(
    job: JobDefinition,
    config: JobConfig,
    rows: Source,
    log: Source,
    session: Callable[[], SparkSession],
    store: JobStore,
    now_ms: Callable[[], int],
    steady_ms: Callable[[], int],
) -> SpooledUpstream:
    """What the loop of a chain job reads from; `take_up` comes next, once the job is recovered.

    rows: reads the snapshot. log: the upstream whose log is taken, which is pinned or restored.
    Raises StateConflict for a spool that belongs to another job.
    """
    spool = Spool(config.spool.path, job.name, owner(job), log.extras.format_position)
    spool.open()
    rows.restore(job.pin)

    def takes(window: ChangeWindow, schemas: Mapping[str, str], folder: Path) -> Taken:
        return take(session(), log, config, window, schemas, folder)

    settings = TakerSettings(
        interval_ms=int(config.barrier.interval_s * 1000),
        max_bytes=config.spool.max_size,
        stops_when_full=config.spool.on_full == "stop",
        retry_limit_ms=int(config.retry.limit_s * 1000),
    )
    taker = Taker(log, spool, store, takes, settings, now_ms, steady_ms)
    return SpooledUpstream(rows, log, taker, spool)


def owner(job: JobDefinition) -> str:
    """What distinguishes a job from others of its name, even without its catalog: what it copies, from where."""
    told = f"{job.fingerprint}\n{encode(job.pin)}"
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
