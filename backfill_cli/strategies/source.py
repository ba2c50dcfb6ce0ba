"""Source strategy: history and live log of the same partitions; each offset comes from exactly one of the two.

Per partition `backfilling(b) → awaiting live(b) → finished`; b is the last offset that history delivered. The
table in docs/design.md says for each row of either reader whether it is visible. Both readers are ours, so
neither reads what would be hidden: with offsets as next positions (cursor = b + 1) the table becomes

    first <= history < target <= live

1. The target is set at the pin, as if a live row had been seen there at once ("backfilling(none), live row at
   u: hidden, target = u"). No live row is read before its partition is finished, so none has to be hidden.
2. "Backfilling, history row: visible" up to the target, then "awaiting live(b)". A gap, a marker or a compacted
   tail before the target has no row to end at, so the end of the range counts: cursor = target, b = target - 1.
3. "Awaiting live(b), history row: hidden": history is no longer read.
4. "Awaiting live(b), live's position > b: finished": the log reaches the cursor and still has it.
   Live begins at the cursor: "u < b" and "u = b", both hidden, are never read, "u > b: visible" is its first row.
5. "Finished": only live rows, from the cursor on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from backfill_cli.model.checkpoint import PartitionProgress
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Allowance, Budget
from backfill_cli.model.plan import ChangeWindow, EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.split import (
    ReadSoFar,
    Split,
    SplitKey,
    SplitProgress,
    SplitStatus,
    partition_table,
)
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.strategies import Strategy
from backfill_cli.strategies.partitions import (
    HISTORY,
    STATUSES,
    covers,
    in_order,
    offset_of,
    offsets,
    partition_logs,
    spread,
    target_of,
)
from backfill_cli.strategies.reading import allowed, buckets, filled, observed, spent, unpaid

HISTORY_SHARE = 0.1
"""Of an epoch's rows, where live rows would take all: a backlog of these no longer stops history."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """splits: every known partition, those of the pin and newer ones; cursor: its next offset, live or not.

    position_ms: upstream time of the live rows applied, None before the first. snapshot_finished_ms: the barrier
    after which no history was left (*reported*; the phase is *left* once every partition is finished).
    """

    control: Control
    splits: Mapping[SplitKey, SplitProgress]
    position_ms: int | None = None
    allowance: Allowance = field(default_factory=Allowance)
    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    snapshot_finished_ms: int | None = None
    beside: bool = False

    converging: bool = False
    log_store_finished_ms: None = None

    @property
    def phase(self) -> Phase:
        done = all(p.status == SplitStatus.FINISHED for p in self.splits.values())
        return Phase.UPSTREAM if done else Phase.SNAPSHOT

    @property
    def position(self) -> Position:
        return Position.of({partition: offset_of(p) for (_, partition), p in self.splits.items()})


@dataclass(frozen=True)
class SourceStrategy(Strategy[SourceState]):
    """splits: the partitions of the pin, whose names are unique among all tables. accept_gap: whether offsets
    between the archive's end and the log's beginning may be missing."""

    splits: tuple[Split, ...]
    accept_gap: bool = False
    name: str = "source"

    def start(self, pin: Pin, control: Control) -> SourceState:
        return SourceState(control, self._known({}))

    def plan(self, state: SourceState, view: UpstreamView, budget: Budget) -> EpochPlan:
        """Live first, then as much history as the budget and the commanded rate leave, and at least its share.

        Raises HistoryGone and Transient as `PartitionLog.seen` and `partition_logs` do.
        """
        if state.control.paused:
            return _observed(EpochPlan(), state, view)
        kept = {partition: progress for (_, partition), progress in state.splits.items()}
        logs = partition_logs(self._table, view, {p: offset_of(progress) for p, progress in kept.items()})
        seen = {log.partition: log.seen(kept.get(log.partition), self.accept_gap) for log in logs}
        moved = {p: now for p, now in seen.items() if now is not kept.get(p)}
        share = self._reads(state, seen, max(1, int(budget.rows * HISTORY_SHARE)), budget)
        reserved = sum(int(read.up_to or 0) - int(read.after or 0) for read in share)
        window, live_rows = _window(seen, view, budget.rows - reserved, budget.now_ms)
        plan = EpochPlan(
            reads=self._reads(state, seen, budget.rows - live_rows, budget),
            window=window,
            hands_over=tuple(p for p, now in moved.items() if now.status == SplitStatus.FINISHED),
            splits={self._key(p): now for p, now in moved.items()},
        )
        return _observed(plan, state, view)

    def _reads(
        self, state: SourceState, seen: Mapping[str, SplitProgress], left: int, budget: Budget
    ) -> tuple[SnapshotRead, ...]:
        """History, spread over the partitions that have some left, so that tasks read in parallel."""
        rates = allowed(state, budget)
        if rates.rows is not None:
            left = min(left, int(rates.rows))
        wanted = {p: target_of(now) - offset_of(now) for p, now in seen.items() if now.status in HISTORY}
        for table, most in rates.tables.items():
            of_table = {p: rows for p, rows in wanted.items() if self._table(p) == table}
            wanted |= {**dict.fromkeys(of_table, 0), **spread(of_table, int(most))}
        return tuple(
            SnapshotRead(self._table(p), p, offset_of(seen[p]), offset_of(seen[p]) + rows)
            for p, rows in spread(wanted, left).items()
        )

    def advance(self, state: SourceState, plan: EpochPlan, staged: Staged | None, budget: Budget) -> SourceState:
        """An idle barrier (staged None) moves only the pace: what it observed, the next one observes again."""
        state = filled(state, budget)
        if staged is None:
            return _reported(state, budget)
        splits = dict(state.splits)
        splits |= {key: replace(progress, epoch=budget.now_ms) for key, progress in plan.splits.items()}
        for read, rows in staged.reads:
            key = (read.table, read.split)
            splits[key] = _moved(splits[key], read.split, read.after, read.up_to, rows, budget)
        if staged.window is not None:
            begun = offsets(staged.window.after)
            for p, up_to in offsets(staged.window.up_to).items():
                splits[self._key(p)] = _moved(splits[self._key(p)], p, begun[p], up_to, 0, budget)
            state = replace(state, position_ms=staged.window.up_to_ms)
        return _reported(spent(replace(state, splits=splits), staged, budget), budget)

    def joined(self, state: SourceState, more: Pin) -> SourceState:
        """Their partitions begin where their pin says, as those of a new job do."""
        beside = state.beside or state.snapshot_finished_ms is not None
        return replace(state, splits=self._known(state.splits), snapshot_finished_ms=None, beside=beside)

    def put_back(self, state: SourceState, more: Pin) -> SourceState:
        """Their partitions are live from where the pin's position says, whatever history they lacked."""
        back = {
            (self._table(p), p): SplitProgress(SplitStatus.FINISHED, at, target=at)
            for p, at in offsets(more.position).items()
        }
        return replace(state, splits=self._known({**state.splits, **back}))

    def left(self, state: SourceState, table: str, tables: Sequence[str]) -> SourceState:
        return replace(state, splits={key: one for key, one in state.splits.items() if key[0] != table})

    # -- for display ---------------------------------------------------------------------------------------------

    def read_so_far(self, state: SourceState) -> ReadSoFar:
        """Measured in offsets; partitions newer than the pin are counted, but have no history."""
        counts = dict.fromkeys(STATUSES, 0)
        for progress in state.splits.values():
            counts[progress.status] += 1
        done = total = 0
        for split in self.splits:
            progress, first = state.splits[split.table, split.id], split.first or 0
            end = first if progress.target is None else progress.target
            done += min(offset_of(progress), end) - first
            total += end - first
        bytes_total = sum(split.size_bytes for split in self.splits)
        return ReadSoFar(
            splits={str(status): n for status, n in counts.items()},
            rows=sum(progress.rows for progress in state.splits.values()),
            rows_total=None,
            size_bytes=int(bytes_total * done / max(total, 1)),
            bytes_total=bytes_total,
            done=done,
            total=total,
            share=done / total if total else 1.0,
        )

    def unread(self, state: SourceState) -> frozenset[str]:
        return frozenset(table for (table, _), one in state.splits.items() if one.status in HISTORY)

    def left_of(self, state: SourceState, table: str) -> float:
        of_table = (one for (name, _), one in state.splits.items() if name == table and one.status in HISTORY)
        return float(sum(target_of(one) - offset_of(one) for one in of_table))

    def partitions(self, state: SourceState, latest: Position) -> tuple[PartitionProgress, ...]:
        ends = offsets(latest)
        lines = []
        for (table, partition), progress in state.splits.items():
            offset = offset_of(progress)
            lag = max(0, ends[partition] - offset) if partition in ends else None
            lines.append(PartitionProgress(partition, progress.status, offset, progress.target, lag, table))
        return tuple(sorted(lines, key=lambda line: (-(line.lag or 0), in_order(line.partition))))

    # -- for the catalog -----------------------------------------------------------------------------------------

    def freeze(self, state: SourceState) -> str:
        return json.dumps(
            {
                "position_ms": state.position_ms,
                **buckets(state),
                "snapshot_finished_ms": state.snapshot_finished_ms,
                **({"beside": True} if state.beside else {}),
            },
            sort_keys=True,
        )

    def thaw(self, state: str, splits: Mapping[SplitKey, SplitProgress], control: Control) -> SourceState:
        kept = json.loads(state)
        return SourceState(
            control,
            self._known(splits),
            kept["position_ms"],
            snapshot_finished_ms=kept["snapshot_finished_ms"],
            beside=kept.get("beside", False),
            **unpaid(kept),
        )

    def _table(self, partition: str) -> str:
        """Whose partition it is. A new one without a table in its name is of the job's one table."""
        return partition_table(partition) or self.splits[0].table

    def _key(self, partition: str) -> SplitKey:
        return self._table(partition), partition

    def _known(self, kept: Mapping[SplitKey, SplitProgress]) -> dict[SplitKey, SplitProgress]:
        """Every partition; one without progress in the catalog is at the beginning of its pin."""
        begun = {(split.table, split.id): _begin(split) for split in self.splits}
        return begun | {key: p for key, p in kept.items() if p.status != SplitStatus.NOT_STARTED}


def _begin(split: Split) -> SplitProgress:
    """A partition before its first read: already finished if it has no history."""
    status = SplitStatus.NOT_STARTED if split.rows else SplitStatus.FINISHED
    first = split.first or 0
    return SplitProgress(status, first, target=first + (split.rows or 0))


def _moved(
    before: SplitProgress, partition: str, after: Cursor | None, up_to: Cursor | None, rows: int, budget: Budget
) -> SplitProgress:
    """The partition's progress after `after <= offset < up_to` was read. rows: rows of history."""
    said = f"partition {partition} is at offset {before.cursor}, but the plan read from {after} to {up_to}"
    assert before.cursor == after, said
    assert isinstance(up_to, int), said
    status = before.status
    if status != SplitStatus.FINISHED:
        status = SplitStatus.AWAITING_LIVE if up_to >= target_of(before) else SplitStatus.BACKFILLING
    return replace(before, status=status, cursor=up_to, rows=before.rows + rows, epoch=budget.now_ms)


def _window(
    seen: Mapping[str, SplitProgress], view: UpstreamView, most: int, now_ms: int
) -> tuple[ChangeWindow | None, int]:
    """The live rows of the finished partitions, at most that many, and how many; None if there are none."""
    reached = {p: offset_of(now) for p, now in seen.items()}
    live = {p for p, now in seen.items() if now.status == SplitStatus.FINISHED}
    ends = offsets(view.latest)
    shares = spread({p: ends[p] - reached[p] for p in live if ends[p] > reached[p]}, most)
    if not shares:
        return None, 0
    after = {p: reached[p] for p in shares}
    up_to = {p: reached[p] + rows for p, rows in shares.items()}
    begun = [e.ms for e in view.pending if any(p in up_to and int(end) > after[p] for p, end in e.cursors)]
    ended = [e.ms for e in view.pending if covers(reached | up_to, e) and not covers(reached, e)]
    from_ms = begun[0] if begun else now_ms
    up_to_ms = max(from_ms, ended[-1]) if ended else from_ms
    window = ChangeWindow(Position.of(after), Position.of(up_to), from_ms, up_to_ms, len(ended))
    return window, sum(shares.values())


def _observed(plan: EpochPlan, state: SourceState, view: UpstreamView) -> EpochPlan:
    """The plan with what it leaves pending: at least one while the log extends past what it reads."""
    reached = {p: offset_of(now) for (_, p), now in {**state.splits, **plan.splits}.items()}
    reached |= {read.split: read.up_to for read in plan.reads if isinstance(read.up_to, int)}
    reached |= offsets(plan.window.up_to) if plan.window else {}
    left = [epoch for epoch in view.pending if not covers(reached, epoch)]
    plan = observed(plan, left, plan.window.up_to_ms if plan.window else state.position_ms, view.latest)
    behind = any(end > reached.get(p, 0) for p, end in offsets(view.latest).items())
    return replace(plan, pending_after=max(1, plan.pending_after)) if behind else plan


def _reported(state: SourceState, budget: Budget) -> SourceState:
    """Records the barrier that left no history to read; awaiting live counts, or an idle topic would block it."""
    if any(p.status in HISTORY for p in state.splits.values()):
        return replace(state, snapshot_finished_ms=None)
    if state.snapshot_finished_ms is not None:
        return state
    return replace(state, snapshot_finished_ms=budget.now_ms, beside=False)
