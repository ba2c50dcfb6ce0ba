"""What the loop measures for people: rates, lag, ETA, what limits the job now. It decides nothing."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from backfill_cli.model.checkpoint import EpochRecord, Progress
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.split import Split, SplitStatus

WINDOW = 8  # epochs that a rate is taken over


class Meter:
    """Counts what was committed, in memory only: a new runner starts its rates anew."""

    def __init__(self, job: str, splits: Sequence[Split], measure: str, interval_ms: int) -> None:
        self._job = job
        self._splits = splits
        self._measure = measure
        self._interval_ms = interval_ms
        known = all(s.rows is not None for s in splits)
        self._rows_total = sum(s.rows or 0 for s in splits) if known else None
        self._bytes_total = sum(s.size_bytes for s in splits)
        self._recent: deque[EpochRecord] = deque(maxlen=WINDOW)
        self._plan = EpochPlan()
        self._observed_ms: int | None = None

    def committed(self, record: EpochRecord) -> None:
        self._recent.append(record)

    def observed(self, plan: EpochPlan, now_ms: int) -> None:
        self._plan = plan
        self._observed_ms = now_ms

    def lag_ms(self, plan: EpochPlan, now_ms: int) -> int | None:
        """How far the sink is behind at `now_ms`: the age of the oldest change that it lacks; 0 for none."""
        oldest = plan.window.from_ms if plan.window else plan.oldest_pending_ms
        return 0 if oldest is None else max(0, now_ms - oldest)

    def progress(self, state: Any, epoch: int, waiting: str | None, caught_up_ms: int | None) -> Progress:
        """The numbers as of the committed `state`."""
        counts = dict.fromkeys(SplitStatus, 0)
        rows_read, bytes_read = 0, 0.0
        for split in self._splits:
            progress = state.splits.get((split.table, split.id))
            if progress is None:
                counts[SplitStatus.NOT_STARTED] += 1
                continue
            counts[progress.status] += 1
            rows_read += progress.rows
            share = 1.0 if progress.status == SplitStatus.CONSUMED else progress.after / max(split.rows or 1, 1)
            bytes_read += split.size_bytes * share
        rates = self._rates()
        observed_ms = self._observed_ms
        return Progress(
            phase=state.phase,
            epoch=epoch,
            rows_read=rows_read,
            rows_total=self._rows_total,
            bytes_read=int(bytes_read),
            bytes_total=self._bytes_total,
            splits={str(status): n for status, n in counts.items()},
            pending_epochs=self._plan.pending_after,
            lag_ms=None if observed_ms is None else self.lag_ms(self._plan, observed_ms),
            rows_per_s=sum(rates) / len(rates) if rates else None,
            eta_s=self._eta(state, rates, rows_read, bytes_read),
            limited_by=self._limit(state, waiting),
            allowed=state.allowed,
            measure=self._measure,
            not_converging=self._not_converging() if state.not_converging else None,
            converging=state.converging,
            snapshot_finished_ms=state.snapshot_finished_ms,
            log_store_finished_ms=state.log_store_finished_ms,
            caught_up_ms=caught_up_ms,
            waiting_for=waiting,
        )

    def _rates(self) -> list[float]:
        """Snapshot rows per second of the recent epochs."""
        rates = []
        for before, after in zip(self._recent, list(self._recent)[1:], strict=False):
            span_ms = after.committed_ms - before.committed_ms
            if after.snapshot_rows and span_ms > 0:
                rates.append(after.snapshot_rows * 1000 / span_ms)
        return rates

    def _eta(
        self, state: Any, rates: list[float], rows_read: int, bytes_read: float
    ) -> tuple[float, float] | None:
        """Seconds until the snapshot is read, from the fastest to the slowest recent rate; None when not known."""
        if state.phase != Phase.SNAPSHOT or state.control.paused:
            return None
        if self._rows_total is not None:
            left: float = self._rows_total - rows_read
        elif bytes_read:
            left = rows_read / bytes_read * (self._bytes_total - bytes_read)
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
        if state.phase == Phase.SNAPSHOT:
            return self._snapshot_limit(control)
        if state.phase == Phase.LOG_STORE:
            return f"catching up: {self._plan.pending_after} upstream epochs left"
        if state.converging:
            return "following; the sink is converging until the change log passes the end of the load"
        return f"nothing: following, a barrier every {self._interval_ms / 1000:g} s"

    def _snapshot_limit(self, control: Control) -> str:
        if control.rate is not None:
            return f"rate {control.rate:g} rows/s; to change: backfill throttle {self._job} --rate none"
        staged = sum(r.stage_ms for r in self._recent)
        committed = sum(r.commit_ms for r in self._recent)
        return "sink (commits take longer than reads)" if committed > staged else "upstream reads"

    def _not_converging(self) -> str:
        """Both rates, and what would help."""
        recent = [r for r in self._recent if r.upstream_epochs]
        span_s = (recent[-1].committed_ms - recent[0].prev_ms) / 1000 if recent else 0.0
        applied = sum(r.upstream_epochs for r in recent)
        grown = applied + (recent[-1].pending_epochs - recent[0].pending_epochs if recent else 0)
        rate = applied / span_s if span_s else 0.0
        growth = grown / span_s if span_s else 0.0
        return (
            f"not converging: {rate:.1f} upstream epochs/s applied, {growth:.1f}/s arriving; "
            "a larger barrier.target, more cores, or fewer and larger upstream commits would help"
        )
