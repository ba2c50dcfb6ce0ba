"""What the loop measures for people: rates, lag, ETA, what limits the job now. It decides nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from backfill_cli.model.checkpoint import EpochRecord, PartitionProgress, Progress
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.split import Split, SplitKey, SplitProgress, SplitStatus

WINDOW = 8  # epochs that a rate is taken over
PARTITIONS_SHOWN = 64  # more would fill a screen, and the catalog with every heartbeat

OF_FILES = (SplitStatus.NOT_STARTED, SplitStatus.CONSUMING, SplitStatus.CONSUMED)
OF_PARTITIONS = (
    SplitStatus.NOT_STARTED,
    SplitStatus.BACKFILLING,
    SplitStatus.AWAITING_LIVE,
    SplitStatus.FINISHED,
)


@dataclass(frozen=True, slots=True)
class _Read:
    """How much of the snapshot, or of the history, the sink holds.

    done, total: in what measures it best: rows where metadata tells, offsets, else bytes.
    """

    splits: Mapping[str, int]
    rows: int
    size_bytes: int
    done: float
    total: int
    share: float | None = None


@dataclass(frozen=True, slots=True)
class _Measured:
    """A committed epoch, and by the steady clock when its barrier was and when its commit was known.

    The numbers of epochs are no clock: where somebody set it back, an epoch's is the one before it plus one.
    """

    record: EpochRecord
    barrier_ms: int
    committed_ms: int


class Meter:
    """Counts what was committed, in memory only: a new runner starts its rates anew.

    The heartbeat's thread reads what the loop's writes: every attribute is replaced as a whole, never changed.
    """

    def __init__(self, job: str, splits: Sequence[Split], measure: str, interval_ms: int) -> None:
        self._job = job
        self._splits = splits
        self._measure = measure
        self._interval_ms = interval_ms
        known = all(s.rows is not None for s in splits)
        self._rows_total = sum(s.rows or 0 for s in splits) if known else None
        self._bytes_total = sum(s.size_bytes for s in splits)
        self._recent: tuple[_Measured, ...] = ()
        self._plan = EpochPlan()
        self._observed_ms: int | None = None

    def committed(self, record: EpochRecord, barrier_ms: int, committed_ms: int) -> None:
        """One epoch more is in the sink. barrier_ms, committed_ms: by the steady clock."""
        self._recent = (*self._recent, _Measured(record, barrier_ms, committed_ms))[-WINDOW:]

    def observed(self, plan: EpochPlan, now_ms: int) -> None:
        self._plan = plan
        self._observed_ms = now_ms

    def lag_ms(self, plan: EpochPlan, now_ms: int) -> int | None:
        """How far the sink is behind at `now_ms`: the age of the oldest change that it lacks; 0 for none."""
        oldest = plan.window.from_ms if plan.window else plan.oldest_pending_ms
        return 0 if oldest is None else max(0, now_ms - oldest)

    def progress(self, state: Any, epoch: int, waiting: str | None, caught_up_ms: int | None) -> Progress:
        """The numbers as of the committed `state`."""
        partitioned = any(progress.target is not None for progress in state.splits.values())
        read = self._history(state.splits) if partitioned else self._snapshot(state.splits)
        rates = self._rates()
        observed_ms = self._observed_ms
        return Progress(
            phase=state.phase,
            epoch=epoch,
            rows_read=read.rows,
            rows_total=None if partitioned else self._rows_total,
            bytes_read=read.size_bytes,
            bytes_total=self._bytes_total,
            splits=read.splits,
            pending_epochs=self._plan.pending_after,
            lag_ms=None if observed_ms is None else self.lag_ms(self._plan, observed_ms),
            rows_per_s=self._rate(state.control.rate),
            eta_s=self._eta(state, rates, read),
            limited_by=self._limit(state, waiting),
            allowed=state.allowed,
            measure=self._measure,
            not_converging=self._not_converging() if state.not_converging else None,
            converging=state.converging,
            snapshot_finished_ms=state.snapshot_finished_ms,
            log_store_finished_ms=state.log_store_finished_ms,
            caught_up_ms=caught_up_ms,
            waiting_for=waiting,
            share=read.share,
            partitions=self._partitions(state.splits) if partitioned else (),
        )

    def _snapshot(self, splits: Mapping[SplitKey, SplitProgress]) -> _Read:
        """Of files and key ranges, all of them in the pin."""
        counts = dict.fromkeys(OF_FILES, 0)
        rows, size_bytes = 0, 0.0
        for split in self._splits:
            progress = splits.get((split.table, split.id))
            if progress is None:
                counts[SplitStatus.NOT_STARTED] += 1
                continue
            counts[progress.status] += 1
            rows += progress.rows
            share = 1.0 if progress.status == SplitStatus.CONSUMED else progress.after / max(split.rows or 1, 1)
            size_bytes += split.size_bytes * share
        told = {str(status): n for status, n in counts.items()}
        if self._rows_total is not None:
            return _Read(told, rows, int(size_bytes), rows, self._rows_total)
        return _Read(told, rows, int(size_bytes), size_bytes, self._bytes_total)

    def _history(self, splits: Mapping[SplitKey, SplitProgress]) -> _Read:
        """Of partitions, those newer than the pin counted too; they have no history."""
        counts = dict.fromkeys(OF_PARTITIONS, 0)
        for progress in splits.values():
            counts[progress.status] += 1
        done = total = 0
        for split in self._splits:
            progress = splits[split.table, split.id]
            end = split.first if progress.target is None else progress.target
            done += min(progress.after, end) - split.first
            total += end - split.first
        told = {str(status): n for status, n in counts.items()}
        rows = sum(progress.rows for progress in splits.values())
        size_bytes = int(self._bytes_total * done / max(total, 1))
        return _Read(told, rows, size_bytes, done, total, share=done / total if total else 1.0)

    def _partitions(self, splits: Mapping[SplitKey, SplitProgress]) -> tuple[PartitionProgress, ...]:
        ends = {partition: int(end) for partition, end in self._plan.latest}
        lines = []
        for (_, partition), p in splits.items():
            lag = max(0, ends[partition] - p.after) if partition in ends else None
            lines.append(PartitionProgress(partition, p.status.value, p.after, p.target, lag))
        lines.sort(key=lambda line: (-(line.lag or 0), len(line.partition), line.partition))
        return tuple(lines[:PARTITIONS_SHOWN])

    def _rates(self) -> list[float]:
        """Snapshot rows per second of the recent epochs, from one barrier to the next."""
        return [rows * 1000 / span_ms for rows, span_ms in self._reads()]

    def _reads(self) -> list[tuple[int, int]]:
        """(rows, ms) of the recent epochs that read snapshot; time that the job was paused is none of theirs."""
        return [
            (epoch.record.snapshot_rows, max(1, following.barrier_ms - epoch.barrier_ms))
            for epoch, following in pairwise(self._recent)
            if epoch.record.snapshot_rows and "resume" not in following.record.mutations
        ]

    def _rate(self, limit: float | None) -> float | None:
        """Over the recent epochs together; a limit is kept on average, so that no more than it is told."""
        reads = self._reads()
        if not reads:
            return None
        rate = sum(rows for rows, _ in reads) * 1000 / sum(span_ms for _, span_ms in reads)
        return rate if limit is None else min(rate, limit)

    def _eta(self, state: Any, rates: list[float], read: _Read) -> tuple[float, float] | None:
        """Seconds until the snapshot is read, from the fastest to the slowest recent rate; None when not known."""
        if state.phase != Phase.SNAPSHOT or state.control.paused:
            return None
        if read.done:
            left = (
                read.rows / read.done * (read.total - read.done)
            )  # rows, where others measure: as dense as before
        elif self._rows_total is not None:
            left = float(self._rows_total)
        else:
            return None
        limit = state.control.rate
        if limit is not None:
            rates = [min(rate, limit) for rate in rates] or [limit]
        if not rates or min(rates) <= 0:
            return None
        return left / max(rates), left / min(rates)

    def _limit(self, state: Any, waiting: str | None) -> str:
        """What limits the job now, and the command that changes it."""
        control: Control = state.control
        if control.paused:
            return f"paused by {control.paused_by}; to go on: backfill resume {self._job}"
        if waiting is not None:
            return f"waiting: {waiting}"
        if state.phase == Phase.SNAPSHOT and state.snapshot_finished_ms is not None:
            return "awaiting live: the log's end is before where history ended"
        if state.phase == Phase.SNAPSHOT:
            return self._snapshot_limit(control)
        if state.phase == Phase.LOG_STORE:
            left = self._plan.pending_after
            return (
                f"catching up: {left:,} upstream epochs left" if left else "catching up: the last upstream epochs"
            )
        if state.converging:
            return "following; the sink is converging until the change log passes the end of the load"
        return f"nothing: following, a barrier every {self._interval_ms / 1000:g} s"

    def _snapshot_limit(self, control: Control) -> str:
        if control.rate is not None:
            return f"rate {control.rate:g} rows/s; to change: backfill throttle {self._job} --rate none"
        staged = sum(epoch.record.stage_ms for epoch in self._recent)
        committed = sum(epoch.record.commit_ms for epoch in self._recent)
        return "sink (commits take longer than reads)" if committed > staged else "upstream reads"

    def _not_converging(self) -> str:
        """Both rates, and what would help."""
        recent = [epoch for epoch in self._recent if epoch.record.upstream_epochs]
        span_s = (recent[-1].committed_ms - recent[0].barrier_ms) / 1000 if recent else 0.0
        applied = sum(epoch.record.upstream_epochs for epoch in recent)
        more = recent[-1].record.pending_epochs - recent[0].record.pending_epochs if recent else 0
        grown = applied + more
        rate = applied / span_s if span_s else 0.0
        growth = grown / span_s if span_s else 0.0
        return (
            f"not converging: {rate:.1f} upstream epochs/s applied, {growth:.1f}/s arriving; "
            "a larger barrier.target, more cores, or fewer and larger upstream commits would help"
        )
