"""What the loop measures for display: rates, lag, ETA, what limits the job now. It decides nothing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from shlex import quote

from backfill_cli.errors import command
from backfill_cli.model.backlog import Backlog, Trend
from backfill_cli.model.checkpoint import EpochRecord, Progress, Written, by_table
from backfill_cli.model.committing import Committing
from backfill_cli.model.deadline import Outlook
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.pace import TablePace
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.position import START
from backfill_cli.model.split import ReadSoFar
from backfill_cli.model.units import spell_count, spell_duration, spell_number, spell_rate, spell_size
from backfill_cli.model.upstream import Incomplete, UpstreamView
from backfill_cli.strategies import S, Strategy, StrategyState

WINDOW = 8  # number of epochs that a rate is computed over, more if they do not last MEANT_MS
MOST = 100
LONG_MS = 1_000  # what takes longer is reported while it lasts
LATELY_MS = 5_000
MEANT_MS = 3_000  # a rate over less depends on when an epoch happened to begin, and jumps
SLOWLY = 2.0  # times as long as without what arrives meanwhile
FASTER = "a larger barrier.target, more cores, or fewer and larger upstream commits would help"
LESS = "larger commits (barrier.target), or a SELECT whose changes reach fewer rows, as plan tells, would help"
PARTITIONS_SHOWN = 64  # more would fill a screen, and the catalog at every heartbeat


@dataclass(frozen=True, slots=True)
class _Measured:
    """A committed epoch, with the steady-clock times of its barrier and of when its commit was known.

    Epoch numbers cannot serve as a clock: after the time of day is set back, each is just the previous one plus
    one. kept_ms: by derived table, how long its commit took to keep it.
    """

    record: EpochRecord
    barrier_ms: int
    committed_ms: int
    kept_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InHand:
    """What was read and is not committed yet, as far as it is known. being_read: rows of the snapshot among these
    that are of the epoch that is being staged."""

    rows: int = 0
    changes: int = 0
    being_read: int = 0


NOTHING = InHand()


@dataclass(frozen=True, slots=True)
class _Doing:
    """since_ms: by the time of day; since_steady_ms: by the steady clock."""

    what: str
    since_ms: int
    since_steady_ms: int


class Meter:
    """Counts what was committed, in memory only: a new runner starts without rates.

    The heartbeat's thread reads what the loop's thread writes: every attribute is replaced as a whole, never
    mutated.
    """

    def __init__(self, job: str, interval_ms: int, follows: bool = True) -> None:
        self._job = job
        self._interval_ms = interval_ms
        self._follows = follows
        self._recent: tuple[_Measured, ...] = ()
        self._first: _Measured | None = None
        self._plan = EpochPlan()
        self._observed_ms: int | None = None
        self._view = UpstreamView("{}", START)
        self._first_log = Backlog()  # bytes that come before rows are read, after each commit
        self._settled_ms: int | None = None
        self._oldest_ms: int | None = None  # when the oldest change was made that was pending when last observed
        self._flying_ms: int | None = None  # … of the epoch that the sink is committing
        self._flying_steady_ms: int | None = None  # since when it is, by the steady clock
        self._committing: _Doing | None = None
        self._writes = 0  # rows, of that epoch
        self._where: Committing | None = None  # how far the sink is with it
        self._flying_epochs = 0  # upstream epochs that it applies
        self._pending = 0  # upstream epochs that the sink lacks, of those last observed, without these
        self._seen_since = True  # whether there was an observation since that epoch was prepared
        self._doing: _Doing | None = None
        self._opening: str | None = None
        self._told: _Doing | None = None
        self._told_in_hand, self._told_steady_ms = NOTHING, 0
        self._told_oldest_ms: int | None = None
        self._stands = False  # whether what is incomplete was so at the observation before
        self._told_incomplete: Incomplete | None = None

    @contextmanager
    def busy(self, doing: str, now_ms: int, steady_ms: int) -> Iterator[None]:
        """Records that the runner is doing this, while the block lasts."""
        self._doing = _Doing(doing, now_ms, steady_ms)
        try:
            yield
        finally:
            self._doing = None

    def opening(self, what: str | None, now_ms: int, steady_ms: int) -> None:
        """Records what has to start before anything can be staged; None once it has."""
        if what != self._opening:
            self._opening = what
            self._doing = None if what is None else _Doing(what, now_ms, steady_ms)

    @property
    def is_busy(self) -> bool:
        """Whether the runner is doing something now that it reports itself."""
        return self._doing is not None

    def untold(self, steady_ms: int, in_hand: InHand = NOTHING) -> bool:
        """Whether `progress` has yet to report what the runner has been doing for a while, that it is done, or how
        far it is."""
        doing, told = self._doing or self._committing, self._told
        if self._stands and self._view.incomplete != self._told_incomplete:
            return True
        if doing is None:
            return told is not None
        if steady_ms - doing.since_steady_ms < LONG_MS:
            return False
        return doing != told or (in_hand != self._told_in_hand and steady_ms - self._told_steady_ms >= LONG_MS)

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest change was made that the sink lacks; None if it lacks none."""
        return min((ms for ms in (self._flying_ms, self._oldest_ms) if ms is not None), default=None)

    @property
    def lag_untold(self) -> bool:
        """Whether the sink lacks something although the last report said that it lacks nothing."""
        return self._oldest_ms is not None and self._told_oldest_ms is None

    def flying(self, steady_ms: int, now_ms: int = 0, rows: int = 0) -> None:
        """The last observed plan is prepared: the sink lacks what it reads until it has `landed`.

        rows: that the sink writes.
        """
        self._writes = rows
        self._committing = _Doing(f"writing {spell_count(rows, 'row')} to the sink", now_ms, steady_ms)
        self._flying_ms, self._flying_steady_ms, self._seen_since = self._oldest_ms, steady_ms, False
        self._pending, self._flying_epochs = self._plan.pending_after, self._pending - self._plan.pending_after

    def writing(self, at: Committing, now_ms: int, steady_ms: int) -> None:
        """The sink is so far with what is flying. Called by the commit's thread."""
        self._where, before = at, self._committing
        if at.filling is not None:
            self._committing = _Doing(at.said, now_ms, steady_ms)
        elif before is not None:
            self._committing = replace(
                before, what=f"writing {spell_count(self._writes, 'row')} to the sink: {at.said}"
            )

    @property
    def where(self) -> Committing | None:
        """How far the sink is with what is flying; None if nothing is, or where it does not tell."""
        return self._where

    def landed(self) -> None:
        """The sink has what that plan reads."""
        self._flying_ms = self._flying_steady_ms = self._committing = self._where = None
        self._flying_epochs = 0
        if not self._seen_since:
            self._oldest_ms = self._after(self._plan)

    def committed(
        self, record: EpochRecord, barrier_ms: int, committed_ms: int, kept_ms: Mapping[str, int] | None = None
    ) -> None:
        """One more epoch is in the sink. barrier_ms, committed_ms: by the steady clock. kept_ms: see _Measured."""
        measured = _Measured(record, barrier_ms, committed_ms, kept_ms or {})
        self._first = self._first or measured
        recent = (*self._recent, measured)
        while len(recent) > WINDOW and (len(recent) > MOST or barrier_ms - recent[1].barrier_ms >= MEANT_MS):
            recent = recent[1:]
        self._recent = recent
        comes_first = self._view.log_first and self._view.waits is None
        self._first_log = self._first_log.after(_size(self._view)) if comes_first else Backlog()

    def settled(self, state: StrategyState, plan: EpochPlan, began_ms: int) -> None:
        """The sink has the plan of a barrier begun at `began_ms`; if nothing is left, it has all there was."""
        if state.phase == Phase.UPSTREAM and not state.converging and not plan.pending_after:
            self._settled_ms = began_ms

    def observed(self, plan: EpochPlan, now_ms: int, view: UpstreamView) -> None:
        """Records what a barrier observed and planned."""
        self._stands = view.incomplete is not None and view.incomplete == self._view.incomplete
        self._plan = plan
        self._view = view
        self._observed_ms, self._seen_since = now_ms, True
        self._pending = _lacking(plan)
        self._oldest_ms = self._oldest_of(plan)

    def discarded(self) -> None:
        """The last observed plan will not be applied: what it reads is pending again."""
        window = self._plan.window
        if window is not None:
            self._plan = replace(
                self._plan,
                window=None,
                pending_after=_lacking(self._plan),
                oldest_pending_ms=window.from_ms,
            )

    def _oldest_of(self, plan: EpochPlan) -> int | None:
        """Upstream time of the oldest change that the sink lacks until this plan is applied."""
        if self._view.oldest_ms is not None:
            return self._view.oldest_ms
        return plan.window.from_ms if plan.window else self._after(plan)

    def _after(self, plan: EpochPlan) -> int | None:
        """Upstream time of the oldest change that the sink lacks once this plan is applied."""
        newest = self._view.incomplete
        return newest.since_ms if newest is not None and not plan.pending_after else plan.oldest_pending_ms

    def lag_ms(self, plan: EpochPlan, now_ms: int) -> int:
        """How far the sink is behind at `now_ms`: the age of the oldest change that it lacks; 0 for none."""
        oldest = self._oldest_of(plan)
        return 0 if oldest is None else max(0, now_ms - oldest)

    def progress(
        self,
        strategy: Strategy[S],
        state: S,
        epoch: int,
        waiting: Limit | None,
        caught_up_ms: int | None,
        steady_ms: int = 0,
        in_hand: InHand = NOTHING,
        not_converging: bool = False,
        outlook: Outlook | None = None,
    ) -> Progress:
        """The numbers as of the committed `state`. not_converging: see Sizes. outlook: of a deadline."""
        read = strategy.read_so_far(state)
        tables, first = strategy.own_paces(state), self._first_rate(in_hand, steady_ms)
        own = _own(tables, strategy.unread(state)) if tables else None
        limit = min((rate for rate in (state.control.pace, own) if rate is not None), default=None)
        rates = self._rates() or ([] if first is None else [first])
        observed_ms = self._observed_ms
        self._told = self._doing or self._committing
        self._told_in_hand, self._told_steady_ms = in_hand, steady_ms
        oldest_ms = self.oldest_ms
        self._told_oldest_ms, self._told_incomplete = oldest_ms, self._view.incomplete
        doing = self._told
        changes_per_s, written_per_s = self._log_rates(steady_ms) or (None, None)
        partitions = strategy.partitions(state, self._plan.latest)
        follows = state.phase != Phase.SNAPSHOT
        eta_s = None if not_converging else self._eta(state, rates, read, limit, tables)
        of_table = max(tables, key=lambda one: one.left_s) if own is not None and own == limit else None
        limited_by = self._limit(state, waiting, steady_ms, eta_s, not_converging, outlook, of_table)
        if outlook is not None:
            outlook = replace(outlook, cause=limited_by if outlook.late else None)
        return Progress(
            phase=state.phase,
            epoch=epoch,
            rows_read=read.rows,
            rows_total=read.rows_total,
            rows_estimated=read.estimated,
            bytes_read=read.size_bytes,
            bytes_total=read.bytes_total,
            splits=read.splits,
            pending_epochs=self._pending + self._flying_epochs + (self._view.incomplete is not None),
            lag_ms=None if observed_ms is None else max(0, observed_ms - (oldest_ms or observed_ms)),
            rows_per_s=self._rate(limit) or (first if first is None or limit is None else min(first, limit)),
            eta_s=eta_s,
            limited_by=limited_by,
            not_converging=self._not_converging() if not_converging else self._first_stays(),
            converging=state.converging,
            snapshot_finished_ms=state.snapshot_finished_ms,
            beside=state.beside,
            log_store_finished_ms=state.log_store_finished_ms,
            caught_up_ms=caught_up_ms,
            waiting_for=waiting,
            share=read.share,
            partitions=partitions[:PARTITIONS_SHOWN],
            tables=by_table(partitions),
            held_bytes=self._view.held_bytes,
            partitions_added=self._view.added,
            incomplete=self._view.incomplete,
            spool=self._view.spool,
            oldest_ms=oldest_ms,
            settled_ms=self._settled_ms,
            looked_ms=observed_ms,
            interval_ms=self._interval_ms,
            changes_per_s=changes_per_s if follows else None,
            written_per_s=written_per_s if follows else None,
            doing=None if doing is None else doing.what,
            doing_ms=None if doing is None else doing.since_ms,
            rows_in_hand=in_hand.rows,
            changes_in_hand=in_hand.changes,
            follows=self._follows,
            deadline=outlook,
            committing=self._where,
        )

    @property
    def read_per_s(self) -> float | None:
        """Rows of the snapshot that were read in a second lately; None before that is known."""
        return self._rate(None)

    def _rates(self) -> list[float]:
        """Snapshot rows per second of the recent epochs, barrier to barrier; see `_reads`."""
        return [rows * 1000 / span_ms for rows, span_ms in self._reads()]

    def _reads(self) -> list[tuple[int, int]]:
        """(rows, ms) of the recent epochs that read snapshot rows, excluding time while the job was paused.

        Empty before they have lasted long enough, together, without a run's first epoch: that one starts workers.
        """
        reads = [
            (one.record.snapshot_rows, max(1, following.barrier_ms - one.barrier_ms))
            for one, following in pairwise(self._recent)
            if one != self._first
            and one.record.snapshot_rows
            and "resume" not in following.record.mutations.split(", ")
        ]
        return reads if sum(span_ms for _, span_ms in reads) >= MEANT_MS else []

    def _rate(self, limit: float | None) -> float | None:
        """Over the recent epochs together; a limit holds on average, so no rate above the limit is shown."""
        reads = self._reads()
        if not reads:
            return None
        rate = sum(rows for rows, _ in reads) * 1000 / sum(span_ms for _, span_ms in reads)
        return rate if limit is None else min(rate, limit)

    def _first_rate(self, in_hand: InHand, steady_ms: int) -> float | None:
        """Rows per second of a run's first epoch, while it is being staged; it includes starting workers."""
        doing, others = self._doing, in_hand.rows - in_hand.being_read
        if self._recent or others or doing is None or steady_ms - doing.since_steady_ms < MEANT_MS:
            return None
        return in_hand.being_read * 1000 / (steady_ms - doing.since_steady_ms) or None

    def _eta(
        self,
        state: StrategyState,
        rates: list[float],
        read: ReadSoFar,
        limit: float | None,
        tables: Sequence[TablePace],
    ) -> tuple[float, float] | None:
        """Seconds until the snapshot is read, at the fastest and at the slowest recent rate; None if unknown.

        limit: rows per second that may be read. tables: which have a rate of their own.

        While catching up: seconds until nothing is pending, if nothing more arrives and if changes arrive as
        recently.
        """
        if state.control.paused or state.phase == Phase.UPSTREAM:
            return None
        if state.phase == Phase.LOG_STORE:
            applied, arriving, span_s = self._applied()
            left_epochs = self._pending + self._flying_epochs
            meant = applied > arriving and span_s * 1000 >= MEANT_MS
            return (left_epochs / applied, left_epochs / (applied - arriving)) if meant else None
        if (left := read.left_rows) is None:
            return None
        if limit is not None:
            rates = [min(rate, limit) for rate in rates] or [limit]
        if not rates or min(rates) <= 0:
            return None
        own_s = max((one.left_s for one in tables), default=0.0)
        return None if own_s == math.inf else (max(own_s, left / max(rates)), max(own_s, left / min(rates)))

    def _limit(
        self,
        state: StrategyState,
        waiting: Limit | None,
        steady_ms: int,
        eta_s: tuple[float, float] | None,
        not_converging: bool,
        outlook: Outlook | None = None,
        of_table: TablePace | None = None,
    ) -> Limit:
        """What limits the job now, with the command that changes it. waiting: what holds the loop up.

        of_table: whose own rate limits it, where only such tables are left to be read.
        """
        if state.control.paused:
            return _paused(self._job, state.control)
        if waiting is not None:
            return replace(waiting, kind=Kind.WAITING)
        if self._opening is not None:
            return Limit(self._opening, Kind.NOW)
        spool = self._view.spool
        if spool is not None and spool.waits is not None:
            return replace(spool.waits, text=f"the log is not being read; waiting: {spool.waits.text}")
        if spool is not None and spool.full:
            return Limit(
                "the log is not being read: the spool is at spool.max_size; "
                "reading resumes as its changes are applied"
            )
        if state.phase == Phase.SNAPSHOT and state.snapshot_finished_ms is not None:
            return Limit("the change log has not reached the end of the snapshot yet", Kind.AWAITING_LIVE)
        if state.phase == Phase.SNAPSHOT:
            enough = None if outlook is None else outlook.rate
            return self._of_snapshot(state.control, steady_ms, enough, of_table)
        if state.phase == Phase.LOG_STORE:
            return self._not_converging() if not_converging else self._of_derived() or self._of_backlog(eta_s)
        return self._of_log(state, steady_ms)

    def _of_snapshot(
        self, control: Control, steady_ms: int, enough: float | None, of_table: TablePace | None
    ) -> Limit:
        """enough: rows/s, for a deadline. of_table: see `_limit`."""
        lift = command(f"throttle {self._job} --rate none")
        slowing = control.slowing
        by = "" if slowing is None else f", by {slowing.by}; {slowing.lifts}"
        if control.pace == 0:
            return Limit(f"rate 0: no row of the snapshot is read{by}", hint=lift, to="read it")
        if (waits := self._view.waits) is not None:
            return Limit(f"rows are read once an older transaction has ended: {waits.text}", hint=waits.hint)
        if self._view.log_first:
            left = spell_size(_size(self._view))
            first = Limit(f"the change log comes first, {left} of it: rows are read again after that")
            return self._first_stays() or first
        rates = [rate for rate in (control.pace, None if of_table is None else of_table.rate) if rate is not None]
        if enough is not None and enough < min(rates, default=math.inf):
            return Limit(f"rate {spell_number(round(enough))} rows/s, which is enough for throttle.finish_by")
        if of_table is not None:
            return self._of_table(of_table)
        if control.pace is not None:
            return Limit(f"rate {spell_number(control.pace)} rows/s{by}", hint=lift, to="change")
        staged = sum(epoch.record.stage_ms for epoch in self._recent)
        committed = sum(epoch.record.commit_ms for epoch in self._recent)
        if self._flying_steady_ms is not None and self._doing is None:
            committed += steady_ms - self._flying_steady_ms
        return Limit("sink (commits take longer than reads)" if committed > staged else "upstream reads")

    def _of_table(self, one: TablePace) -> Limit:
        lift = command(f"throttle {self._job} --table {quote(one.table)} --rate none")
        if not one.rate:
            return Limit(f"rate 0 of table {one.table}: no row of it is read", hint=lift, to="read it")
        return Limit(f"rate {spell_number(one.rate)} rows/s of table {one.table}", hint=lift, to="change")

    def _of_backlog(self, eta_s: tuple[float, float] | None) -> Limit:
        """What is left, and about how long that takes if half of what is applied arrives anew meanwhile."""
        left = self._plan.pending_after
        behind = f"{spell_count(left, 'upstream commit')} left" if left else "the last upstream commits"
        if eta_s is not None and eta_s[1] >= SLOWLY * eta_s[0] > 0:
            behind = f"slowly, about {spell_duration(eta_s[1])}: {behind}"
        return Limit(behind, Kind.CATCHING_UP)

    def _of_derived(self) -> Limit | None:
        """That of a derived table whose upkeep takes most of the time of recent commits past the snapshot."""
        recent = [one for one in self._recent if one.record.phase != Phase.SNAPSHOT]
        took: dict[str, int] = {}
        for one in recent:
            for name, ms in one.kept_ms.items():
                took[name] = took.get(name, 0) + ms
        spent_ms = sum(one.record.stage_ms + one.record.commit_ms for one in recent)
        name = max(took, key=lambda each: took[each], default="")
        if not name or spent_ms < LONG_MS or 2 * took[name] <= spent_ms:
            return None
        share = min(100, round(100 * took[name] / spent_ms))
        return Limit(f"derived table {name}: keeping it takes {share}% of the time of recent commits; {LESS}")

    def _of_log(self, state: StrategyState, steady_ms: int) -> Limit:
        if self._plan.pending_after:
            return self._of_derived() or self._of_backlog(None)
        newest = self._view.incomplete
        if state.converging and newest is None:
            until = "the sink equals the upstream once the change log passes the end of the load"
            return Limit(until, Kind.FOLLOWING)
        doing, flying_ms = self._doing, self._flying_steady_ms
        if doing is not None and steady_ms - doing.since_steady_ms >= LONG_MS:
            return Limit(f"the current commit: {doing.what}")
        if flying_ms is not None and steady_ms - flying_ms >= LONG_MS:
            if self._where is not None:
                return Limit(self._where.said, Kind.NOW)
            return Limit("the current commit: the sink is writing it")
        if newest is not None:
            return newest.limit(state.converging)
        if not self._follows:
            return Limit(
                "nothing to follow: the config names no changes", hint=command(f"stop {self._job}"), to="end it"
            )
        if self._observed_ms is None:
            return Limit("looking for changes upstream", Kind.NOW)
        return Limit(f"a commit every {spell_duration(self._interval_ms / 1000)}", Kind.FOLLOWING)

    def _log_rates(self, steady_ms: int) -> tuple[float, Written] | None:
        """Changes read and rows written per second, recently; 0 if none for a while, None before MEANT_MS."""
        recent = [epoch for epoch in self._recent if epoch.record.phase != Phase.SNAPSHOT]
        quiet_ms = max(LATELY_MS, 3 * self._interval_ms)
        if not recent or steady_ms - recent[-1].committed_ms > quiet_ms:
            return 0.0, Written(0.0, 0.0, 0.0)
        if max(steady_ms, recent[-1].committed_ms) - recent[0].barrier_ms < MEANT_MS:
            return None
        records = [epoch.record for epoch in recent]
        span_s = max(MEANT_MS, recent[-1].committed_ms - recent[0].barrier_ms) / 1000
        written = Written(
            sum(record.rows_inserted or 0 for record in records) / span_s,
            sum(record.rows_upserted or 0 for record in records) / span_s,
            sum(record.rows_deleted or 0 for record in records) / span_s,
        )
        return sum(record.changes_read for record in records) / span_s, written

    def _applied(self) -> tuple[float, float, float]:
        """Upstream epochs per second, recently: applied, and arriving meanwhile; over how many seconds."""
        recent = [epoch for epoch in self._recent if epoch.record.upstream_epochs]
        span_s = (recent[-1].committed_ms - recent[0].barrier_ms) / 1000 if recent else 0.0
        if span_s <= 0:
            return 0.0, 0.0, 0.0
        applied = sum(epoch.record.upstream_epochs for epoch in recent)
        # What is pending after an epoch was pending at its barrier: what that barrier saw did not arrive
        # meanwhile.
        more = recent[-1].record.pending_epochs - recent[0].record.pending_epochs
        arrived = max(0, applied - recent[0].record.upstream_epochs + more)
        return applied / span_s, arrived / span_s, span_s

    def _first_stays(self) -> Limit | None:
        """That a log which comes before rows are read does not become shorter."""
        if self._first_log.trend is not Trend.STAYS:
            return None
        first = f"{spell_size(_size(self._view))} of the change log come before rows are read"
        return Limit(f"{first}, and as much arrives as is applied; {FASTER}", Kind.NOT_CONVERGING)

    def _not_converging(self) -> Limit:
        """Both rates, as far as the last commits show them, and what would help."""
        applied, arriving, _ = self._applied()
        come, go = (spell_rate(rate, "upstream commits") for rate in (arriving, applied))
        more = f"{come} arrive, {go} are applied" if arriving > applied else "as much arrives as is applied"
        return Limit(f"{more}; {FASTER}", Kind.NOT_CONVERGING)


def _own(tables: Sequence[TablePace], unread: frozenset[str]) -> float | None:
    """What tables with rates of their own may read together; None where others are left to be read."""
    return sum(one.rate for one in tables) if unread == {one.table for one in tables} else None


def _paused(job: str, control: Control) -> Limit:
    """By whom and, of a guard, what ends it."""
    return Limit(f"by {control.pauser}{control.ends}", Kind.PAUSED, command(f"resume {job}"))


def _size(view: UpstreamView) -> int:
    """Bytes of log that are pending."""
    return sum(epoch.size_bytes for epoch in view.pending)


def _lacking(plan: EpochPlan) -> int:
    """Upstream epochs that the sink lacks until this plan is applied."""
    return plan.pending_after + (plan.window.epochs if plan.window else 0)
