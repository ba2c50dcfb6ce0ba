"""An epoch's plan: WHAT to read, as a value. `plan` prints it; the engine and the simulation carry it out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from backfill_cli.model.codec import Pairs
from backfill_cli.model.position import START, Cursor, Position
from backfill_cli.model.refill import RefillPart
from backfill_cli.model.split import SplitKey, SplitProgress


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """Rows of a split from the cursor `after` (None: its beginning) up to the cursor `up_to` (None: its end).

    limit_rows: read at most this many rows; such a read is open. Its upstream closes it by setting `up_to` to the
    cursor of the row after the last one (None at the split's end) and `limit_rows` to None.
    """

    table: str
    split: str
    after: Cursor | None = None
    up_to: Cursor | None = None
    limit_rows: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeWindow:
    """The changes after `after` up to and including `up_to`: `epochs` upstream epochs.

    from_ms, up_to_ms: upstream time of the first and last of them. schema: that of the first, see UpstreamEpoch.
    open: it ends where the log is once the plan's reads are done; `up_to` is what was observed before.
    limit: it may end earlier, after the transaction with which this many changes were taken; None for no limit.
    expected: how many changes the plan took it for, by metadata: many more than there are, where whole files were
    rewritten; 0 if there is no metadata.
    """

    after: Position
    up_to: Position
    from_ms: int
    up_to_ms: int
    epochs: int
    schema: tuple[tuple[str, str], ...] = ()
    open: bool = False
    limit: int | None = None
    expected: int = 0


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What one epoch reads. Empty (false) when there is nothing to read.

    closes_snapshot: the tables whose last snapshot rows are in this epoch (their keys are checked then); known
    once it is staged.
    hands_over: partitions that pass to the live log: this makes a checkpoint, even without rows.
    splits: how the observation alone, before any read, changes partitions: new, handed over, target raised.
    within: where current state is read, how far each split had been read before this plan (a cursor, None for its
    end; absent: not at all). A change of a key that no split has reached by the end of the plan's reads is
    dropped, as a later read will see it. None: every change counts.
    spooled: the window is of the spool, not of the log itself. covers: the position that covers the end of a
    snapshot of current state, set at the barrier that learns it. converging: the sink may lack rows of which a
    change leaves columns unchanged: a later change inserts or deletes them. refill: what it applies of one, which
    reads nothing and moves no position. filling: see `EpochCommit`.
    pending_after: upstream epochs observed and not taken. left: changes in them, as metadata tells; 0 where the
    strategy does not count them. lag_after_ms: their span in upstream time.
    oldest_pending_ms: time of the first of them, None if there is none. latest: the newest position observed.
    """

    reads: tuple[SnapshotRead, ...] = ()
    window: ChangeWindow | None = None
    closes_snapshot: tuple[str, ...] = ()
    hands_over: tuple[str, ...] = ()
    splits: Annotated[Mapping[SplitKey, SplitProgress], Pairs()] = field(default_factory=dict)
    within: Annotated[Mapping[SplitKey, Cursor | None], Pairs()] | None = None
    spooled: bool = False
    covers: Position | None = None
    converging: bool = False
    refill: RefillPart | None = None
    filling: tuple[str, ...] = ()
    pending_after: int = 0
    left: int = 0
    lag_after_ms: int = 0
    oldest_pending_ms: int | None = None
    latest: Position = START

    def __bool__(self) -> bool:
        return bool(self.reads) or self.window is not None or bool(self.hands_over)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of staged rows. path: relative to the attempt's folder."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StagedTable:
    """One table's rows of one epoch, written once.

    inserts: snapshot rows, columns as in the sink. changes: net by key, `(own.OP 'U'|'D', row…)`, where a 'D' row
    holds only the key columns.
    rows, changed, deleted: how many of each were written.
    truncated: all rows that the sink holds from earlier epochs are deleted first.
    partial: sink columns that some 'U' rows leave as they are in the sink. Such a row names them in an extra
    column of the changes, `own.UNSENT ARRAY<STRING>`, and its values for them are meaningless. If empty, that
    column is absent.
    """

    inserts: tuple[StagedFile, ...] = ()
    changes: tuple[StagedFile, ...] = ()
    rows: int = 0
    changed: int = 0
    deleted: int = 0
    truncated: bool = False
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Staged:
    """An epoch's rows, durable and immutable, under one attempt id.

    reads: the plan's snapshot reads, closed, with how many rows each delivered (before `where`).
    window: the plan's, closed: its end may be known only once the reads are done.
    changes_read: how many changes the window held before netting. images: additional rows that only hold the state
    before an update. skipped: records of the log that changed no row, by kind.
    """

    attempt: str
    tables: Mapping[str, StagedTable] = field(default_factory=dict)
    reads: tuple[tuple[SnapshotRead, int], ...] = ()
    changes_read: int = 0
    window: ChangeWindow | None = None
    images: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.inserted + self.upserted + self.deleted

    @property
    def inserted(self) -> int:
        return sum(t.rows for t in self.tables.values())

    @property
    def upserted(self) -> int:
        """Rows inserted or replaced by key: net changes do not tell which."""
        return sum(t.changed for t in self.tables.values())

    @property
    def deleted(self) -> int:
        return sum(t.deleted for t in self.tables.values())
