"""Logs that can only be consumed: what a take returns, what is held upstream for it, and taking into a spool."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from backfill_cli.model.job import Phase
from backfill_cli.model.plan import ChangeWindow, StagedFile
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import SplitKey
from backfill_cli.model.upstream import HeldLog, Pin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class TakenTable:
    """One table's changes in a window, in files: `(own.OP 'U'|'D', own.SEQ, own.MS, row…)`, as from `changes`.

    files: paths are relative to the folder that `take` was given. netted: each key occurs once, with its last
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
class Taken:
    """A window taken from a log. window: closed. schemas: of tables whose columns changed at its beginning."""

    window: ChangeWindow
    tables: Mapping[str, TakenTable]
    schemas: Mapping[str, str]


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
class LogBatch:
    """A window of a log. window: closed. tables: their changes, in files or as frames; a table without any can be
    absent. schemas: of tables whose columns changed at its beginning."""

    window: ChangeWindow
    tables: Mapping[str, TakenTable | ChangeFrame]
    schemas: Mapping[str, str]


@runtime_checkable
class LogReader(Protocol):
    """An upstream whose log is read for all tables at once."""

    def read_log(
        self,
        spark: "SparkSession",
        window: ChangeWindow,
        within: Mapping[SplitKey, Cursor | None] | None,
        schemas: Mapping[str, str],
        folder: str,
    ) -> LogBatch:
        """The window's changes; parameters and errors as those of `TakingUpstream.take`."""
        ...


@runtime_checkable
class TakingUpstream(Protocol):
    """An upstream whose log can only be consumed, for all tables at once; its `changes` is not called."""

    def may_lack(self, table: str) -> frozenset[str]:
        """Columns that a change can leave out when it did not alter them. Called after `pin` or `restore`."""
        ...

    def take(
        self,
        spark: "SparkSession",
        window: ChangeWindow,
        within: Mapping[SplitKey, Cursor | None] | None,
        schemas: Mapping[str, str],
        folder: str,
    ) -> Taken:
        """The window's changes are files in `folder`, durable once the caller has synced them.

        Called once the epoch's reads are written: an open window is closed at or after every transaction that they
        saw. within: see EpochPlan, after the reads. schemas: those in force, table -> Spark schema as JSON.
        Raises Transient while the log is unavailable, HistoryGone when it no longer holds what follows
        `window.after`, BadData for a value or a change of columns that cannot be followed.
        """
        ...


@runtime_checkable
class RetainingUpstream(Protocol):
    """An upstream whose log can be read again beside the job that consumes it."""

    def retained(self) -> AbstractContextManager[str]:
        """Inside, this object can read the log from what is acknowledged now on, whatever the job acknowledges.

        Yields what is held up by that, for display. Raises UsageError if the system has no room for it.
        """
        ...


@runtime_checkable
class HeldUpstream(Protocol):
    """An upstream in which a job must hold an object of its own: a replication slot."""

    def may_hold(self) -> None:
        """Check that nothing prevents `hold`. Called after `pin`, before anything is changed for a new job.

        Raises UsageError saying what would make it possible.
        """
        ...

    def would_refuse(self, mark: str | None) -> Sequence[str]:
        """What `may_hold` would raise now, one sentence each, with what would make it possible.

        mark: whatever an interrupted start holds under this mark is ignored.
        """
        ...

    def would_hold(self) -> Sequence[str]:
        """What `hold` would create, one sentence each, for display."""
        ...

    def hold(self, mark: str) -> None:
        """Create the object, with a mark that nobody else can have chosen: it tells ours from another writer's.

        Called by the start of a new job once nothing else can refuse it; `pin` follows. Can be repeated with the
        same mark. Raises UsageError when another writer's object has its name.
        """
        ...

    def kept(self, mark: str, pin: Pin) -> None:
        """Make what was held under the mark the job's, and remove the mark. Can be repeated, and without `pin`."""
        ...

    def sweep(self, mark: str, pin: Pin) -> None:
        """Remove what was held under the mark, and the mark, but nothing of other writers. Can be repeated.

        pin: taken before it was held. Raises StateConflict when the options lead to another system than the pin's.
        """
        ...

    def left(self, mark: str) -> Sequence[str]:
        """What `sweep` would remove, one name each, for display. Changes nothing."""
        ...

    def held(self, pin: Pin, position: Position) -> HeldLog | None:
        """What the object costs its owner now; None where that is not measured. Changes nothing, needs no `pin`.

        pin: that of a job without a runner. position: how far the job has taken the log.
        Raises HistoryGone, StateConflict and BadData as `observe` would when the job continues; Transient after
        some seconds without an answer.
        """
        ...

    def keep_within(self, position: Position, snapshot_open: bool) -> None:
        """Check that the cost to its owner is within the options; if not, give the object up, raise HistoryGone.

        Called at each barrier, only by the job's runner. position: what the job has applied, or taken to apply it
        later. snapshot_open: the snapshot is still being read.
        """
        ...

    def release(self, pin: Pin) -> None:
        """Remove the object if this job created it. Called when the job is dropped; can be repeated.

        pin: the job's. Raises StateConflict when the options lead to another system than the pin's.
        """
        ...

    def may_release(self, pin: Pin) -> None:
        """Raise what `release` would raise now. Changes nothing; called before anything of the job is dropped."""
        ...

    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        """The statements that remove by hand what `release` would, or `sweep` under this mark.

        Asks nothing: the upstream need not be reached, and references in its options need not be resolved.
        """
        ...


@runtime_checkable
class WaitingUpstream(Protocol):
    """An upstream that can tell for whom it waits."""

    def waits_for(self) -> str:
        """For whom a call in another thread waits, and what would end that (`with_way_on`); empty for nobody.

        Changes nothing. Raises BackfillError within some seconds.
        """
        ...


@runtime_checkable
class SpoolingUpstream(Protocol):
    """An upstream whose log is taken into a spool in parallel with the loop (strategy chain)."""

    @property
    def taken(self) -> Position:
        """The position up to which the log is in the spool: kept with each checkpoint, to detect a lost spool."""
        ...

    def enter(self, phase: Phase, position: Position, schemas: Mapping[str, str], takes: bool) -> None:
        """A barrier begins; called before `observe`. schemas: in force at `position`, table -> Spark schema.

        takes: whether the log may be taken; if not, it waits with its owner.
        """
        ...
