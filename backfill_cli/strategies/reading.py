"""Splits read in order: which of their rows an epoch reads, how far they have been read, and what is left pending.

Row and byte counts of a split are exact for a pinned snapshot, and estimates when current state is read.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Allowed, Budget
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import ReadSoFar, Split, SplitKey, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin, UpstreamEpoch
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

    def reads(self, done: Splits, allowed: Allowed, budget: Budget) -> Iterator[SnapshotRead]:
        """Reads splits in order, whole where they fit, until the budget or what the rate allows is used up.

        A table that may not be read now, by a rate of its own, is passed over: those behind it are read.
        """
        total: float = budget.rows if allowed.rows is None else min(budget.rows, allowed.rows)
        tables = dict(allowed.tables)
        taken = 0
        for split, progress in self.open(done):
            rest = self._rest(split, progress)
            if rest > 0 and total < 1:
                return
            own = tables.get(split.table)
            limited = allowed.rows is not None or own is not None
            left = total if own is None else min(total, own)
            if rest > 0 and left < 1:
                continue
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
            total -= used
            taken += used
            if own is not None:
                tables[split.table] = own - used

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


class Paced(StrategyState, Protocol):
    """allowance: what the rate of all tables leaves to be read. allowances: each rate of a single table."""

    @property
    def allowance(self) -> Allowance: ...
    @property
    def allowances(self) -> Mapping[str, Allowance]: ...


class Limited(Paced, Protocol):
    """position_ms: up to where the log is applied, by upstream time."""

    @property
    def position_ms(self) -> int | None: ...


P = TypeVar("P", bound=Paced)
L = TypeVar("L", bound=Limited)


@dataclass(frozen=True)
class SplitStrategy(Strategy[L]):
    """splits: all of the pin, in reading order."""

    splits: tuple[Split, ...]

    @cached_property
    def _reading(self) -> Reading:
        return Reading(self.splits)

    def _consumed(self, state: L, staged: Staged, budget: Budget) -> L:
        """The state once the epoch's reads are in the sink."""
        splits = self._reading.consumed(state.splits, staged.reads, budget.now_ms)
        return spent(replace(state, splits=splits), staged, budget)

    def _is_read(self, state: L) -> bool:
        return next(self._reading.open(state.splits), None) is None

    def unread(self, state: L) -> frozenset[str]:
        return frozenset(split.table for split, _ in self._reading.open(state.splits))

    def left_of(self, state: L, table: str) -> float | None:
        mine = replace(self._reading, splits=tuple(one for one in self.splits if one.table == table))
        return mine.so_far(state.splits).left_rows

    def left(self, state: L, table: str, tables: Sequence[str]) -> L:
        splits = {key: progress for key, progress in state.splits.items() if key[0] != table}
        state = replace(state, splits=splits, position=state.position.without(table, tables))
        return self._read_whole(state) if state.phase == Phase.SNAPSHOT and self._is_read(state) else state

    def put_back(self, state: L, more: Pin) -> L:
        read = {
            (one.table, one.id): SplitProgress(SplitStatus.CONSUMED, None, one.rows or 0) for one in more.splits
        }
        back = self.joined(state, more)
        return replace(
            back,
            phase=state.phase,
            splits={**state.splits, **read},
            snapshot_finished_ms=state.snapshot_finished_ms,
            beside=state.beside,
            **self._reached(state),
        )

    def _reached(self, state: L) -> dict[str, Any]:
        """What a table that joins would undo, of what one state has and not all."""
        return {}

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
        **buckets(state),
        "snapshot_finished_ms": state.snapshot_finished_ms,
        **({"beside": True} if state.beside else {}),
    }


def thawed(kept: Mapping[str, Any], splits: Splits, control: Control) -> dict[str, Any]:
    """The same as fields of the state; the token buckets keep their debts but earn nothing without a runner."""
    return {
        "control": control,
        "phase": Phase(kept["phase"]),
        "position": Position.of(kept["position"]),
        "position_ms": kept["position_ms"],
        "splits": dict(splits),
        **unpaid(kept),
        "snapshot_finished_ms": kept["snapshot_finished_ms"],
        "beside": kept.get("beside", False),
    }


def buckets(state: Paced) -> dict[str, Any]:
    """The token buckets, as JSON holds them."""
    tables = {table: [one.tokens, one.at_ms] for table, one in state.allowances.items()}
    return {
        "allowance": [state.allowance.tokens, state.allowance.at_ms],
        **({"allowances": tables} if tables else {}),
    }


def unpaid(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a new runner: the buckets keep their debts, but earn nothing for the time without one."""
    return {
        "allowance": Allowance(min(0.0, kept["allowance"][0]), None),
        "allowances": {
            table: Allowance(min(0.0, tokens), None) for table, (tokens, _) in kept.get("allowances", {}).items()
        },
    }


def filled(state: P, budget: Budget) -> P:
    """The state with its token buckets at this barrier: they earn during the snapshot, unless it is paused."""
    control, at_ms = state.control, budget.steady_ms
    tables = {table: state.allowances.get(table, Allowance()) for table in control.rates}
    if control.paused or state.phase != Phase.SNAPSHOT:
        held = {table: one.hold(at_ms) for table, one in tables.items()}
        return replace(state, allowance=state.allowance.hold(at_ms), allowances=held)
    whole = state.allowance.fill(budget.pace(control.pace), budget.interval_ms, at_ms)
    each = {table: one.fill(control.rates[table], budget.interval_ms, at_ms) for table, one in tables.items()}
    return replace(state, allowance=whole, allowances=each)


def allowed(state: Paced, budget: Budget) -> Allowed:
    """What the rates in force allow to be read at this barrier."""
    now = filled(state, budget)
    rows = None if budget.pace(state.control.pace) is None else now.allowance.tokens
    return Allowed(rows, {table: one.tokens for table, one in now.allowances.items()})


def spent(state: P, staged: Staged, budget: Budget) -> P:
    """The state once the rows that were read are taken out of its buckets, which are filled."""
    read = Counter[str]()
    for one, rows in staged.reads:
        read[one.table] += rows
    limited = budget.pace(state.control.pace) is not None
    whole = state.allowance.spend(read.total()) if limited else state.allowance
    each = {table: one.spend(read[table]) for table, one in state.allowances.items()}
    return replace(state, allowance=whole, allowances=each)


def observed(plan: EpochPlan, left: Sequence[UpstreamEpoch], begun_ms: int | None, latest: Position) -> EpochPlan:
    """The plan with what it leaves pending, in epochs and upstream time.

    begun_ms: upstream time that is reached once the plan is applied, None when unknown.
    """
    if not left:
        return replace(plan, pending_after=0, lag_after_ms=0, oldest_pending_ms=None, latest=latest)
    lag_ms = max(0, left[-1].ms - (begun_ms if begun_ms is not None else left[0].ms))
    return replace(plan, pending_after=len(left), lag_after_ms=lag_ms, oldest_pending_ms=left[0].ms, latest=latest)
