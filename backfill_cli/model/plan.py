"""An epoch's plan: WHAT to read, as a value. `plan` prints it, the engine reads it, the simulator too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from backfill_cli.model.codec import Pairs
from backfill_cli.model.position import START, Position
from backfill_cli.model.split import SplitKey, SplitProgress


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """Rows `after <= index < up_to` of a split, the index its row's or its offset.

    up_to None reads to the end (an uncuttable split).
    """

    table: str
    split: str
    after: int
    up_to: int | None


@dataclass(frozen=True, slots=True)
class ChangeWindow:
    """The changes after `after`, up to and with `up_to`: `epochs` upstream epochs.

    from_ms, up_to_ms: upstream time of the first and of the last of them. schema: see UpstreamEpoch, of the first.
    """

    after: Position
    up_to: Position
    from_ms: int
    up_to_ms: int
    epochs: int
    schema: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What one epoch reads. Empty (false) when there is nothing to read.

    closes_snapshot: the tables whose last snapshot rows are in this epoch (their keys are checked then).
    hands_over: partitions that the live log takes over: a checkpoint, also without rows.
    splits: what the observation alone changes of partitions, before any read: new, handed over, target raised.
    pending_after: upstream epochs observed and not taken. lag_after_ms: their span in upstream time.
    oldest_pending_ms: time of the first of them, None without one. latest: the newest position observed.
    """

    reads: tuple[SnapshotRead, ...] = ()
    window: ChangeWindow | None = None
    closes_snapshot: tuple[str, ...] = ()
    hands_over: tuple[str, ...] = ()
    splits: Annotated[Mapping[SplitKey, SplitProgress], Pairs()] = field(default_factory=dict)
    pending_after: int = 0
    lag_after_ms: int = 0
    oldest_pending_ms: int | None = None
    latest: Position = START

    def __bool__(self) -> bool:
        return bool(self.reads) or self.window is not None or bool(self.hands_over)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of staged rows. path is relative to the attempt's folder."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StagedTable:
    """One table's rows of one epoch, written once.

    inserts: snapshot rows, columns as in the sink. changes: net by key, columns `(_op 'U'|'D', row…)` where a
    'D' row holds the key columns only.
    rows, changed, deleted: how many of each were written.
    """

    inserts: tuple[StagedFile, ...] = ()
    changes: tuple[StagedFile, ...] = ()
    rows: int = 0
    changed: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Staged:
    """An epoch's rows, durable and immutable, under one attempt id.

    reads: the plan's snapshot reads, closed: how many rows each delivered (before `where`).
    changes_read: how many changes the window held before netting.
    """

    attempt: str
    tables: Mapping[str, StagedTable] = field(default_factory=dict)
    reads: tuple[tuple[SnapshotRead, int], ...] = ()
    changes_read: int = 0

    @property
    def rows(self) -> int:
        return sum(t.rows + t.changed + t.deleted for t in self.tables.values())
