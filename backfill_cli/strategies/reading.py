"""Splits read in order: which of their rows an epoch reads, how far they have been read, and what is left pending.

Row and byte counts of a split are exact for a pinned snapshot, and estimates when current state is read.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import ReadSoFar, Split, SplitKey, SplitProgress, SplitStatus
from backfill_cli.model.upstream import UpstreamEpoch
from backfill_cli.strategies import Strategy, StrategyState

BYTES_A_ROW = 100  # a guess, used only to size epochs of files whose metadata holds no row count
FIRST_GUESS = 1_000  # rows of a range about which nothing is known; tripled each time it proves too low
NOT_STARTED = SplitProgress()

Splits = Mapping[SplitKey, SplitProgress]


@dataclass(frozen=True)
class Reading:
    """splits: all of them, in reading order. estimated: whether their row counts are only estimates."""

    splits: tuple[Split, ...]
    estimated: bool = False

    def open(self, done: Splits) -> Iterator[tuple[Split, SplitProgress]]:
        """The splits that are not consumed yet."""
        for split in self.splits:
            progress = done.get((split.table, split.id), NOT_STARTED)
            if progress.status != SplitStatus.CONSUMED:
                yield split, progress

    def reads(self, done: Splits, allowance: Allowance | None, budget: Budget) -> Iterator[SnapshotRead]:
        """Reads splits in order, whole where they fit, until the budget or the allowed rate is used up.

        allowance: what the rate allows at this barrier; None when no rate is set.
        """
        limited = allowance is not None
        left: float = budget.rows
        if allowance is not None:
            left = min(left, allowance.tokens)
        taken = 0
        for split, progress in self.open(done):
            rest = self._rest(split, progress)
            if rest > 0 and left < 1:
                return
            whole = rest <= max(left, 0) or not split.cuttable or (not limited and rest <= left + budget.rows / 2)
            if not whole and taken and not limited and left < budget.rows / 2:
                return  # a slice costs more than its share of the file: the next epoch reads the whole split
            most = int(left + budget.rows / 2) if self.estimated and not limited else int(left)
            limit = None if whole else most
            used = rest if whole else most
            if self.estimated and whole:
                # an estimated split has a limit even if it seems to fit: it may hold many more rows
                limit = min(most, 2 * rest if limited else max(2 * rest, FIRST_GUESS))
                used = limit if limited else max(rest, limit // 2)
            elif whole and split.bytes_read(None) is not None:
                # so has a file whose rows are guessed from its bytes
                limit = int(left if limited else left + budget.rows / 2)
            yield SnapshotRead(split.table, split.id, progress.cursor, limit_rows=limit)
            left -= used
            taken += used

    def _rest(self, split: Split, progress: SplitProgress) -> int:
        """Rows left in a split, estimated from its bytes where metadata holds no row count."""
        if self.estimated:
            left = (split.rows or 0) - progress.rows
            return left if left > 0 else max(progress.rows, FIRST_GUESS)
        if split.rows is not None:
            return split.rows - progress.rows
        done = split.bytes_read(progress.cursor) or 0
        each = max(1.0, done / progress.rows) if progress.rows else max(BYTES_A_ROW, done)
        return max(1, int((split.size_bytes - done) / each))

    def consumed(self, done: Splits, reads: Sequence[tuple[SnapshotRead, int]], epoch: int) -> Splits:
        """The splits once these closed reads, each given with its row count, are in the sink."""
        splits = dict(done)
        for read, rows in reads:
            key = (read.table, read.split)
            before = splits.get(key, NOT_STARTED)
            splits[key] = SplitProgress(
                SplitStatus.CONSUMED if read.up_to is None else SplitStatus.CONSUMING,
                read.up_to,
                before.rows + rows,
                epoch,
            )
        return splits

    def completed(self, before: Splits, after: Splits) -> tuple[str, ...]:
        """The tables whose last split was consumed between `before` and `after`."""
        still_open = {split.table for split, _ in self.open(after)}
        return tuple(t for t in dict.fromkeys(s.table for s, _ in self.open(before)) if t not in still_open)

    @cached_property
    def _rows_total(self) -> int | None:
        known = all(split.rows is not None for split in self.splits)
        return sum(split.rows or 0 for split in self.splits) if known else None

    @cached_property
    def _bytes_total(self) -> int:
        return sum(split.size_bytes for split in self.splits)

    def so_far(self, done: Splits) -> ReadSoFar:
        """Progress for display. An estimated total exceeds the rows read until the end, when it equals them.

        A split that has delivered its estimate or more is assumed to hold as many rows again.
        """
        counts = dict.fromkeys((SplitStatus.NOT_STARTED, SplitStatus.CONSUMING, SplitStatus.CONSUMED), 0)
        rows, expected, size_bytes = 0, 0, 0.0
        for split in self.splits:
            progress = done.get((split.table, split.id), NOT_STARTED)
            counts[progress.status] += 1
            rows += progress.rows
            over = progress.status == SplitStatus.CONSUMED
            estimate = split.rows or 0
            if not over and progress.rows >= estimate:
                estimate = 2 * progress.rows
            expected += progress.rows if over else estimate
            passed, whole = split.bytes_read(progress.cursor), split.size_bytes
            if passed is None:
                passed, whole = progress.rows, split.rows or 1
            share = 1.0 if over else min(1.0, passed / max(whole, 1))
            size_bytes += split.size_bytes * share
        total = self._rows_total if not self.estimated else expected
        return ReadSoFar(
            splits={str(status): n for status, n in counts.items()},
            rows=rows,
            rows_total=total,
            size_bytes=int(size_bytes),
            bytes_total=self._bytes_total,
            done=size_bytes if total is None else rows,
            total=self._bytes_total if total is None else total,
            estimated=self.estimated and counts[SplitStatus.CONSUMED] < len(self.splits),
        )


class Limited(StrategyState, Protocol):
    """position_ms: up to where the log is applied, by upstream time. allowance: what a rate leaves to be read."""

    @property
    def position_ms(self) -> int | None: ...
    @property
    def allowance(self) -> Allowance: ...


L = TypeVar("L", bound=Limited)


@dataclass(frozen=True)
class SplitStrategy(Strategy[L]):
    """splits: all of the pin, in reading order."""

    splits: tuple[Split, ...]

    @cached_property
    def _reading(self) -> Reading:
        return Reading(self.splits)

    def _allowed(self, state: L, budget: Budget) -> Allowance | None:
        """What the rate in force allows to be read at this barrier; None without one."""
        return None if budget.pace(state.control.pace) is None else refilled(state, budget)

    def _consumed(self, state: L, staged: Staged, budget: Budget) -> L:
        """The state once the epoch's reads are in the sink."""
        read_rows = sum(rows for _, rows in staged.reads)
        paced = budget.pace(state.control.pace) is not None
        allowance = state.allowance.spend(read_rows) if paced else state.allowance
        splits = self._reading.consumed(state.splits, staged.reads, budget.now_ms)
        return replace(state, splits=splits, allowance=allowance)

    def _is_read(self, state: L) -> bool:
        return next(self._reading.open(state.splits), None) is None

    def unread(self, state: L) -> frozenset[str]:
        """The tables of which rows of the snapshot are still to be read."""
        return frozenset(split.table for split, _ in self._reading.open(state.splits))

    def left(self, state: L, table: str, tables: Sequence[str]) -> L:
        splits = {key: progress for key, progress in state.splits.items() if key[0] != table}
        state = replace(state, splits=splits, position=state.position.without(table, tables))
        return self._read_whole(state) if state.phase == Phase.SNAPSHOT and self._is_read(state) else state

    @abstractmethod
    def _read_whole(self, state: L) -> L:
        """The state after a snapshot of which the last table that was still to be read has left the job."""

    def closes(self, before: L, after: L) -> tuple[str, ...]:
        return self._reading.completed(before.splits, after.splits) if before.phase == Phase.SNAPSHOT else ()

    def read_so_far(self, state: L) -> ReadSoFar:
        return self._reading.so_far(state.splits)


def frozen(state: Limited) -> dict[str, Any]:
    """What every such strategy keeps of its state, as JSON holds it."""
    return {
        "phase": state.phase,
        "position": dict(state.position.cursors),
        "position_ms": state.position_ms,
        "allowance": [state.allowance.tokens, state.allowance.at_ms],
        "snapshot_finished_ms": state.snapshot_finished_ms,
        **({"beside": True} if state.beside else {}),
    }


def thawed(kept: Mapping[str, Any], splits: Splits, control: Control) -> dict[str, Any]:
    """The same as fields of the state; the token bucket keeps its debt but earns nothing without a runner."""
    return {
        "control": control,
        "phase": Phase(kept["phase"]),
        "position": Position.of(kept["position"]),
        "position_ms": kept["position_ms"],
        "splits": dict(splits),
        "allowance": unpaid(kept),
        "snapshot_finished_ms": kept["snapshot_finished_ms"],
        "beside": kept.get("beside", False),
    }


def unpaid(kept: Mapping[str, Any]) -> Allowance:
    """The token bucket for a new runner: it keeps its debt, but earns nothing for the time without one."""
    return Allowance(min(0.0, kept["allowance"][0]), None)


def refilled(state: Limited, budget: Budget) -> Allowance:
    """The token bucket at this barrier: it earns tokens during the snapshot phase, unless the job is paused."""
    if state.control.paused or state.phase != Phase.SNAPSHOT:
        return state.allowance.hold(budget.steady_ms)
    return state.allowance.fill(budget.pace(state.control.pace), budget.interval_ms, budget.steady_ms)


def observed(plan: EpochPlan, left: Sequence[UpstreamEpoch], begun_ms: int | None, latest: Position) -> EpochPlan:
    """The plan with what it leaves pending, in epochs and upstream time.

    begun_ms: upstream time that is reached once the plan is applied, None when unknown.
    """
    if not left:
        return replace(plan, pending_after=0, lag_after_ms=0, oldest_pending_ms=None, latest=latest)
    lag_ms = max(0, left[-1].ms - (begun_ms if begun_ms is not None else left[0].ms))
    return replace(plan, pending_after=len(left), lag_after_ms=lag_ms, oldest_pending_ms=left[0].ms, latest=latest)
