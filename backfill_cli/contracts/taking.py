"""Logs that must be taken to be had: what a taking gives, what is held for it, and taking into a spool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from backfill_cli.model.job import Phase
from backfill_cli.model.plan import ChangeWindow, StagedFile
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import SplitKey
from backfill_cli.model.upstream import HeldLog, Pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TakenTable:
    """One table's changes of a window, in files: columns `(_op 'U'|'D', _seq, _ms, row…)`, as `changes` has them.

    files: paths are relative to the folder that `take` was given. netted: each key is there once, by its last
    change; else a key is once in a file, and its last `_seq` counts, of each column the last that has it.
    changes: how many there were before, of which some may not count. changed, deleted: rows in the files, by op.
    truncated: rows from before the window are gone. partial: columns that some 'U' rows do not carry; such a row
    names them in one more column, `_unsent ARRAY<STRING>`.
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
    """A window of a log, taken. window: closed. schemas: of tables whose columns changed at its begin."""

    window: ChangeWindow
    tables: Mapping[str, TakenTable]
    schemas: Mapping[str, str]


@runtime_checkable
class TakingUpstream(Protocol):
    """An upstream whose log must be taken to be had, all tables at once; its `changes` is not called."""

    def may_lack(self, table: str) -> frozenset[str]:
        """Columns that a change may leave out where it left them as they were. After `pin` or `restore`."""
        ...

    def take(
        self,
        spark: "SparkSession",
        window: ChangeWindow,
        within: Mapping[SplitKey, Cursor | None] | None,
        schemas: Mapping[str, str],
        folder: str,
    ) -> Taken:
        """The window's changes are files in `folder`, durable once the caller synchronised them.

        Called once the epoch's reads are written: an open window is closed at or after every transaction that they
        saw. within: see EpochPlan, after the reads. schemas: in force, table -> Spark schema as JSON.
        Raises Transient while the log cannot be had, HistoryGone when it no longer holds what follows
        `window.after`, BadData for a value or a change of columns that cannot be followed.
        """
        ...


@runtime_checkable
class HeldUpstream(Protocol):
    """An upstream in which a job must hold something of its own: a replication slot."""

    def may_hold(self) -> None:
        """Nothing stands in the way of `hold`. Called after `pin`, before anything is changed for a new job.

        Raises UsageError with what would make it possible.
        """
        ...

    def would_refuse(self, mark: str | None) -> Sequence[str]:
        """What `may_hold` would raise now, one sentence each with what makes it possible.

        mark: what a start that was cut off holds under it counts as gone.
        """
        ...

    def would_hold(self) -> Sequence[str]:
        """What `hold` would make, one sentence each, for people."""
        ...

    def hold(self, mark: str) -> None:
        """It is there, and can be told from what others made by a mark that nobody else can have chosen.

        Called by the start of a new job, when nothing else can refuse it; `pin` follows. May be repeated with the
        same mark. Raises UsageError where something of others has its name.
        """
        ...

    def kept(self, mark: str, pin: Pin) -> None:
        """The job has what was held under the mark, which is gone. May be repeated; `pin` need not come first."""
        ...

    def sweep(self, mark: str, pin: Pin) -> None:
        """What was held under the mark is gone with it, and nothing of others. May be repeated, as `kept`.

        pin: taken before it was held. Raises StateConflict where the options lead to another system than that.
        """
        ...

    def left(self, mark: str) -> Sequence[str]:
        """What `sweep` would remove, a name each for people. Changes nothing."""
        ...

    def held(self, pin: Pin, position: Position) -> HeldLog | None:
        """What it costs its owner now, None where nobody counts that. Changes nothing; `pin` need not come first.

        pin: that of a job which no runner has now. position: what it has taken of the log.
        Raises HistoryGone, StateConflict and BadData as `observe` would, once the job goes on; Transient
        after some seconds without an answer.
        """
        ...

    def keep_within(self, position: Position) -> None:
        """What it costs its owner is within what the options allow; else it is given up, and HistoryGone raised.

        Called at each barrier, by the runner of the job alone. position: what the job has applied.
        """
        ...

    def release(self, pin: Pin) -> None:
        """It is gone, as far as this job made it. Called when the job is dropped; may be repeated.

        pin: the job's. Raises StateConflict where the options lead to another system than it was taken of.
        """
        ...


@runtime_checkable
class SpoolingUpstream(Protocol):
    """An upstream whose log is taken into a spool while the loop is elsewhere (strategy chain)."""

    @property
    def taken(self) -> Position:
        """Up to where the log is in the spool: kept with each checkpoint, so that a lost spool is noticed."""
        ...

    def enter(self, phase: Phase, position: Position, schemas: Mapping[str, str], takes: bool) -> None:
        """A barrier begins, before `observe`. schemas: in force at `position`, table -> Spark schema as JSON.

        takes: whether the log may be taken; if not it waits with its owner.
        """
        ...
