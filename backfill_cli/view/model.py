"""What people see of a job: one read model, rendered as a table, as lines and as JSON."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from shlex import quote

from backfill_cli.catalog import Catalog, JobRow, SplitGroup, Taken, wall_clock_ms
from backfill_cli.catalog.verified import Verified
from backfill_cli.errors import Hint, NoSuchJob, command, sql
from backfill_cli.model.aside import Aside
from backfill_cli.model.checkpoint import EpochRecord, PartitionProgress, Progress, TablePartitions, Written
from backfill_cli.model.committing import Committing
from backfill_cli.model.derived import Derived, Filling
from backfill_cli.model.failures import OTHERS
from backfill_cli.model.headroom import Headroom, Kept
from backfill_cli.model.job import ENDED as ENDED_STATES
from backfill_cli.model.job import Control, Hold, JobState, Phase, Verb
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.refill import PENDING, Extent, Refill, RefillProgress, RefillState
from backfill_cli.model.reports import PlannedDeadline
from backfill_cli.model.skipped import Skipped
from backfill_cli.model.split import SplitStatus, partition_number, partition_table
from backfill_cli.model.units import spell_count, spell_duration, spell_moment, spell_number
from backfill_cli.model.upstream import Incomplete, SpoolView
from backfill_cli.view.answers import UNTOLD
from backfill_cli.view.console import from_here

ENDED = frozenset(state.value for state in ENDED_STATES)
LEAST_SHARE = 0.01  # below this an ETA is a guess
LAGS = 120  # that JSON tells
CAUSES_SHOWN = 6
NAMED = 5  # tables of one line
OLD_S = 15.0  # a live runner reports its numbers every 10 s, and at each commit


class Dead(StrEnum):
    """A state that is shown but never stored: the runner died before it could store one."""

    DEAD = "dead"


DEAD = Dead.DEAD


@dataclass(frozen=True, slots=True)
class RunnerView:
    """Who holds the job. alive: whether that runner is at work now."""

    host: str | None
    pid: int | None
    renewed_ms: int | None
    alive: bool
    claimed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class VerifiedView:
    """What the last verify found, over all its tables. share: of the keys; None for all. age_s: how long ago.

    not_compared: how many keys changed upstream since the checkpoint and could not be compared. left_out: tables
    of the job that it did not compare. different_before: those of them that differed when they last were.
    """

    equal: bool
    epoch: int
    at_ms: int
    age_s: float | None
    share: float | None
    tables: Sequence[str]
    missing: int
    extra: int
    changed: int
    not_compared: int = 0
    left_out: Sequence[str] = ()
    different_before: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class DeadlineView:
    """When the snapshot is to be read, by `throttle.finish_by`; None once it is.

    left_s: seconds from now, 0 once it is missed. rate: rows per second that are enough; None: as fast as it goes.
    late: whether it cannot be met at the present rate. late_s: by about how much it is missed, None where nobody
    can say. cause: what limits the job then.
    """

    at_ms: int
    left_s: float
    rate: float | None
    late: bool
    late_s: float | None
    cause: Limit | None


@dataclass(frozen=True, slots=True)
class HeadroomView:
    """How long the upstream keeps what the job has not read yet.

    left_s: seconds from now, at the present rate; None where nothing removes it, or that is not known. small: less
    than the job needs to read it. by, of, beside, hint: see `Headroom`.
    """

    kept: Kept
    left_s: float | None
    small: bool
    by: str
    of: str
    beside: str
    hint: Hint


@dataclass(frozen=True, slots=True)
class RefillView:
    """A refill: those that are pending, and the newest that ended.

    where: SQL, empty for none. first, last: bounds of the first key column, None for open ends. since_ms: the
    barrier that took it, epoch: the last commit that applied rows of it; None for none. inserted, replaced,
    removed: rows so far. reason: why it waits or failed, and what to type. doing, share (0 to 1), left_s (least
    seconds): of the comparison that is under way, None without one.
    """

    id: int
    table: str
    where: str
    first: str | None
    last: str | None
    by: str
    state: RefillState
    asked_ms: int
    since_ms: int | None
    ended_ms: int | None
    epoch: int | None
    inserted: int
    replaced: int
    removed: int
    reason: Limit
    doing: str | None = None
    share: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class AsideView:
    """A table that is set aside, or that a refill is putting back.

    since_ms: the barrier at which it was. epoch: the last commit that its rows are at; 0 for none. error: why, and
    what to type. keeps: what the upstream still does for it; empty for nothing. refill: the one that puts it back;
    None before.
    """

    table: str
    since_ms: int
    epoch: int
    error: Limit
    keeps: str
    refill: int | None


@dataclass(frozen=True, slots=True)
class DerivedView:
    """A derived table. filled: whether it equals its SELECT at each commit; otherwise a later commit fills it, and
    until then it does not exist, or has its old rows. filling: how far it is, where that takes several commits.

    waits_for_snapshot: no commit fills it before the snapshot is read. waits_for: derived tables that are being
    filled by several commits, before it. key: empty if it is one row. refresh: "full" if each commit that changes
    what it reads computes all of it; None: what a change reaches. epoch: its last commit, at which it equals its
    SELECT; None if it is not filled. half_written: a commit that some of the job's tables have, and others lack.
    uncomputed: why it is not filled before rows that the SELECT reads are others; None: it waits for none.
    """

    name: str
    target: str
    key: Sequence[str]
    filled: bool
    filling: Filling | None = None
    waits_for_snapshot: bool = False
    waits_for: Sequence[str] = ()
    refresh: str | None = None
    epoch: int | None = None
    half_written: int | None = None
    uncomputed: Limit | None = None


@dataclass(frozen=True, slots=True)
class RefusedView:
    """A command that was to change what the job is, and that its barrier refused: the job is as it was before.

    command: as it was typed. epoch: of that barrier. error: why, with the way on.
    """

    command: str
    by: str
    epoch: int
    error: Limit


@dataclass(frozen=True, slots=True)
class Refilled:
    """A refill that was asked for, cancelled, or waited for. id: of the command in the catalog."""

    job: str
    id: int
    refill: RefillView


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as `status` shows it, also with `--json`.

    What a runner reports is as in `Progress`. share: 0 to 1 of the snapshot, None if not known. eta_s: (least,
    most) seconds to the end of the snapshot. pending_epochs: None if not known, as before a runner has observed
    the upstream: a 0 is true only while a runner observes it, or as of the end of a job that is done. lag_s:
    the present age of the oldest change that the sink lacks, None before it is known; an upper bound if no
    runner is live. as_of_ms: when a runner last observed the upstream, age_s: how long ago that was; None
    before any did. interval_s: between two observations. limited_by: what limits the job now, and the command that
    changes it. quarantined: sink table → rows that could not be read and are kept in it, since the job began.
    verified: what the last verify found, None before one. doing_s: for how long the runner has been doing that.
    created: False for a job that is being created, or whose start died before it was (state `dead`). rows_in_hand,
    changes_in_hand: read and not committed yet, as in `Progress`; 0 without a runner. skipped: records of change
    logs that change no row of the job's tables, by kind, since the job began. headroom: None
    if it has not been asked yet, or the upstream removes nothing by itself. refills: oldest first. written:
    rows inserted, upserted and deleted, by table and by the phase in which they were, since the job began. rate:
    rows/s of all tables together, table_rates: of each table that has a limit of its own. dropping: the sink's
    tables that left the job with their rows, until the first commit after they are dropped. aside:
    tables without which the job goes on after an error of theirs, and those that are being put back. derived: its
    derived tables. refused: the newest command that was to change what the job is, if it was refused.
    transient_failures: of the last run, those after which it tried again, by cause: an SQLSTATE, the name of an
    error of Kafka or of the operating system, or a class; at most 32 of them, and `others`.
    partitions_added: to the topics since the job began, or since their table joined it; None without topics, and
    before a run has looked at them. incomplete: the upstream's newest commit, where it cannot be applied yet, as
    more of it may come; it is one of `pending_epochs`, and counts for `lag_s`. committing: how far the sink is
    with the commit that it is writing, where tables have it one after the other; without a runner, a commit that
    some tables have and others lack, as last reported. pending_said: the commands that wait, as they were typed.
    """

    name: str
    state: JobState | Dead
    phase: Phase
    epoch: int
    rows_read: int
    rows_total: int | None
    rows_per_s: float | None
    lag_s: float | None
    pending_epochs: int | None
    eta_s: tuple[float, float] | None
    limited_by: Limit
    splits: Mapping[SplitStatus, int]
    share: float | None
    bytes_read: int
    bytes_total: int
    reason: str
    strategy: str
    until: str
    rate: float | None
    paused_by: str | None
    paused_since_ms: int | None
    converging: bool
    not_converging: Limit | None
    waiting_for: Limit | None
    created_ms: int
    snapshot_finished_ms: int | None
    log_store_finished_ms: int | None
    caught_up_ms: int | None
    pending_commands: Sequence[Verb]
    runner: RunnerView
    pending_said: Sequence[str] = ()
    groups: Sequence[SplitGroup] = ()
    partitions: Sequence[PartitionProgress] = ()
    tables: Sequence[TablePartitions] = ()
    recent_lag_s: Sequence[float] = field(default=())
    held_bytes: int | None = None
    spool: SpoolView | None = None
    as_of_ms: int | None = None
    age_s: float | None = None
    interval_s: float = 0.0
    quarantined: Mapping[str, int] = field(default_factory=dict)
    verified: VerifiedView | None = None
    changes_per_s: float | None = None
    doing: str | None = None
    doing_s: float | None = None
    written_per_s: Written | None = None
    rows_estimated: bool = False
    created: bool = True
    rows_in_hand: int = 0
    changes_in_hand: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    headroom: HeadroomView | None = None
    deadline: DeadlineView | None = None
    holds: Sequence[Hold] = ()
    overridden: Sequence[str] = ()
    refills: Sequence[RefillView] = ()
    written: Mapping[str, Mapping[Phase, int]] = field(default_factory=dict)
    table_rates: Mapping[str, float] = field(default_factory=dict)
    dropping: Sequence[str] = ()
    transient_failures: Mapping[str, int] = field(default_factory=dict)
    partitions_added: int | None = None
    aside: Sequence[AsideView] = ()
    derived: Sequence[DerivedView] = ()
    refused: RefusedView | None = None
    incomplete: Incomplete | None = None
    committing: Committing | None = None
    ledger: Sequence[EpochRecord] = field(default=(), metadata=UNTOLD)
    taken: Sequence[Taken] = field(default=(), metadata=UNTOLD)


def control_of(view: JobView) -> Control:
    """What people and guards command, as far as it is shown."""
    tables = tuple(sorted(view.table_rates.items()))
    return Control(view.paused_by, view.paused_since_ms, view.rate, holds=tuple(view.holds), tables=tables)


def job_view(
    row: JobRow,
    groups: Sequence[SplitGroup] = (),
    ledger: Sequence[EpochRecord] = (),
    taken: Sequence[Taken] = (),
    *,
    now_ms: int | None = None,
) -> JobView:
    """The read model of one job. ledger: oldest first, taken: the commands in it.

    now_ms: None to treat its numbers as just reported.
    """
    progress = row.progress or Progress(
        row.phase, row.epoch, 0, None, 0, 0, {}, 0, None, None, None, Limit("starting")
    )
    share = _share(progress)
    at_work = row.live and not row.control.paused
    in_snapshot = progress.phase == Phase.SNAPSHOT
    return JobView(
        name=row.name,
        state=shown_state(row),
        phase=progress.phase,
        epoch=committed_epoch(row),
        rows_read=progress.rows_read,
        rows_total=progress.rows_total,
        rows_per_s=_rounded(progress.rows_per_s) if at_work and in_snapshot else None,
        lag_s=_lag_s(row, progress, now_ms),
        pending_epochs=_pending_epochs(row, progress),
        eta_s=progress.eta_s if at_work and share is not None and share >= LEAST_SHARE else None,
        limited_by=limited_by(row, ledger[-1].committed_ms if ledger else 0),
        splits={SplitStatus(status): count for status, count in progress.splits.items()},
        share=share,
        bytes_read=progress.bytes_read,
        bytes_total=progress.bytes_total,
        reason="" if row.dead else row.reason,
        strategy=row.strategy,
        until=row.until,
        rate=row.control.rate,
        paused_by=row.control.paused_by,
        paused_since_ms=row.control.paused_since_ms,
        holds=row.control.holds,
        overridden=row.control.overridden,
        converging=progress.converging,
        not_converging=progress.not_converging if at_work else None,
        waiting_for=progress.waiting_for if row.live else None,
        created_ms=row.created_ms,
        snapshot_finished_ms=progress.snapshot_finished_ms,
        log_store_finished_ms=progress.log_store_finished_ms,
        caught_up_ms=row.caught_up_ms,
        pending_commands=tuple(command.verb for command in row.waiting),
        pending_said=tuple(one.said for one in row.waiting),
        runner=RunnerView(row.lease.host, row.lease.pid, row.lease.renewed_ms, row.live, row.lease.claimed_ms),
        groups=() if progress.partitions else tuple(groups),
        partitions=tuple(sorted(progress.partitions, key=_in_order)),
        tables=progress.tables,
        recent_lag_s=tuple(one.lag_ms / 1000 for one in ledger[-LAGS:] if one.lag_ms is not None),
        held_bytes=progress.held_bytes,
        spool=progress.spool,
        as_of_ms=progress.looked_ms,
        age_s=None if now_ms is None or progress.looked_ms is None else max(0, now_ms - progress.looked_ms) / 1000,
        interval_s=progress.interval_ms / 1000,
        quarantined=dict(progress.quarantined),
        verified=verified_view(row.verified, now_ms),
        changes_per_s=_rounded(progress.changes_per_s) if at_work else None,
        doing=progress.doing if row.live else None,
        doing_s=_doing_s(row, progress, now_ms),
        written_per_s=progress.written_per_s if at_work else None,
        rows_estimated=progress.rows_estimated,
        created=row.created,
        rows_in_hand=progress.rows_in_hand if row.live and row.reported else 0,
        changes_in_hand=progress.changes_in_hand if row.live and row.reported else 0,
        skipped=dict(progress.skipped),
        headroom=headroom_view(row, progress, now_ms),
        deadline=deadline_view(progress, now_ms),
        refills=tuple(refill_view(one, row) for one in row.refills),
        dropping=row.dropping,
        transient_failures=dict(progress.failures),
        partitions_added=progress.partitions_added,
        written={table: {Phase(at): n for at, n in by.items()} for table, by in progress.written.items()},
        table_rates=row.control.rates,
        aside=tuple(aside_view(one, row.name) for one in row.aside),
        derived=derived_views(row, progress),
        refused=refused_view(row),
        incomplete=progress.incomplete,
        committing=committing(row, progress),
        ledger=tuple(ledger),
        taken=tuple(taken),
    )


def aside_view(one: Aside, job: str) -> AsideView:
    """Its error, with what puts it back once the cause is corrected.

    Of what only a new start of the job could correct, the table can start anew: it leaves the job for that.
    """
    first, of = replace(one.cause.hint, retried=False), f"{job} --table {quote(one.table)}"
    back = command(f"refill {of}")
    anew = back + "; if that fails, let it go: " + command(f"remove {of}")
    hint = Hint() if one.refill is not None else anew if first.starts_over else first.also("; then: ", back)
    return AsideView(one.table, one.since, one.epoch, Limit(one.cause.text, hint=hint), one.keeps, one.refill)


def spell_aside(one: AsideView) -> str:
    """`public.orders since 12:00:00, at commit 17…: table 'public.orders' …; to put it back: …`."""
    if one.refill is not None:
        return f"{one.table} is being put back (refill {one.refill}): its rows are not right yet"
    keeps = f"; {one.keeps}" if one.keeps else ""
    at = f"its rows are those of commit {one.epoch}" if one.epoch else "its rows are those of no commit"
    back = f"; to put it back: {one.error.hint}" if one.error.hint else ""
    return f"{one.table} since {spell_moment(one.since_ms)}, {at}{keeps}: {one.error.text}{back}"


def derived_views(row: JobRow, progress: Progress) -> tuple[DerivedView, ...]:
    """Which are filled is known by their markers, as the job's last run has seen them; else by the phase."""
    past = committed_epoch(row) > 0 and (progress.phase != Phase.SNAPSHOT or progress.beside)
    names = {one.name for one in row.derived}
    filled = (names if past else set()) if progress.unfilled is None else names - set(progress.unfilled)
    at = committing(row, progress)
    has = names.intersection(at.has if at is not None else ())
    half_written = at.epoch if at is not None and at.has else None
    filled |= has
    filling = {name: how for name, how in progress.filling.items() if name in names - filled}
    begun = past or (committed_epoch(row) > 0 and (filled or filling))

    def view(one: Derived) -> DerivedView:
        waits = one.name not in filled and one.name not in filling
        return DerivedView(
            one.name,
            one.target,
            one.key,
            one.name in filled,
            filling.get(one.name),
            waits_for_snapshot=waits and not begun,
            waits_for=tuple(other.name for other in row.derived if waits and other.name in filling),
            refresh=one.refresh or None,
            epoch=half_written if one.name in has else committed_epoch(row) if one.name in filled else None,
            half_written=half_written,
            uncomputed=progress.uncomputed if waits else None,
        )

    return tuple(map(view, row.derived))


def committing(row: JobRow, progress: Progress) -> Committing | None:
    """How far the sink is with a commit, or was as the last run ended; None if all tables have it, or none has."""
    at = progress.committing
    return at if at is not None and at.epoch > committed_epoch(row) and (row.live or at.has) else None


def half_written(view: JobView) -> Committing | None:
    """The commit that some tables have and others lack, while nobody writes it."""
    return None if view.runner.alive else view.committing


def spell_half_written(at: Committing) -> str:
    """`commit 17…: orders, items have it; per_land was being written, lands was not; the next run finishes it`.

    As last reported: more may have it.
    """
    has = f"{_listed(at.has)} {'has' if len(at.has) == 1 else 'have'} it"
    writing = "".join(f"; {name} was being written" for name in at.lacks[:1])
    rest = f", {_listed(at.lacks[1:])} {'was' if len(at.lacks) == 2 else 'were'} not" if at.lacks[1:] else ""
    return f"commit {at.epoch}: {has}{writing}{rest}; the next run finishes it"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} others" if more > 0 else "")


def incomplete_beside(view: JobView) -> str:
    """Which commit of the upstream waits for more of it, once the snapshot is read, and where no limit says it."""
    newest = view.incomplete
    if newest is None or waits_for_snapshot(view) or view.limited_by in map(newest.limit, (True, False)):
        return ""
    return newest.text


def refused_view(row: JobRow) -> RefusedView | None:
    last = row.refused
    return None if last is None else RefusedView(last.command.said, last.command.by, last.epoch, last.why)


def spell_refused(one: RefusedView) -> str:
    """`add --derived revenue, requested by me@box, at commit 17…: derived table 'revenue': …`."""
    way_on = f"; {one.error.hint}" if one.error.hint else ""
    return f"{one.command}, requested by {one.by}, at commit {one.epoch}: {one.error.text}{way_on}"


def spell_derived(one: DerivedView, live: bool) -> str:
    """`revenue → main.revenue: equals its SELECT at each commit`. live: a runner sees to that."""
    name = one.name if one.name == one.target else f"{one.name} → {one.target}"
    if one.filled:
        last = f"equalled its SELECT at commit {one.epoch}, the last one"  # it may have been dropped since
        as_of = "equals its SELECT at each commit" if live else last
        if one.half_written is not None:
            still = "is being written" if live else "is half written"
            which = f", which {still}" if one.epoch == one.half_written else f"; commit {one.half_written} {still}"
            as_of = f"{'equals' if live else 'equalled'} its SELECT at commit {one.epoch}{which}"
        return f"{name}: {as_of}" + ", computed whole" * (one.refresh is not None)
    if (how := one.filling) is not None:
        rows = f"about {how.rows * how.done // how.ranges:,} of {how.rows:,} rows of {how.table}"
        return f"{name}: being filled: {how.done} of {how.ranges} ranges, {rows}"
    if (why := one.uncomputed) is not None:
        return f"{name}: not filled: {why.text}" + (f"; {why.hint}" if why.hint else "")
    if one.waits_for:
        verb = "is" if len(one.waits_for) == 1 else "are"
        return f"{name}: not filled yet, it waits for {', '.join(one.waits_for)}, which {verb} being filled"
    when = "the first commit past the snapshot" if one.waits_for_snapshot else "one of the next commits"
    return f"{name}: not filled yet, {when} fills it"


def spell_not_yet(view: JobView) -> str:
    """What the sink lacks before it matches a state of the upstream."""
    back = [one.table for one in view.aside if one.refill is not None]
    lacks = (
        f"{', '.join(back)} is being put back"
        if back
        else "changes from the time of the copy are still to be applied"
    )
    return f"not yet: {lacks}"


def refill_view(one: Refill, row: JobRow) -> RefillView:
    told = None if not row.live or row.reported is None else row.reported.refill
    mine = told if told is not None and told.refill == one.id else RefillProgress(one.id, "")
    waits = one.pending and not row.live
    why = Limit("until a runner has the job", Kind.WAITING, command(f"resume {row.name}")) if waits else one.why
    return RefillView(
        one.id,
        one.table,
        one.extent.where,
        one.extent.first,
        one.extent.last,
        one.by,
        one.state,
        one.asked_ms,
        one.since,
        one.ended_ms,
        one.epoch,
        one.inserted,
        one.replaced,
        one.removed,
        why,
        mine.doing or None,
        mine.share,
        mine.left_s,
    )


def spell_dropping(view: JobView) -> str:
    """The tables that are to be dropped, and when."""
    when = "now" if view.runner.alive else "as the next run begins"
    return f"{', '.join(view.dropping)}: {when}"


def refills_of(view: JobView) -> list[RefillView]:
    """As people look for them: those that are pending, oldest first, then the newest that ended.

    One of which a later refill has done all of the table's rows has nothing to say any more.
    """
    whole = {one.table: one.id for one in view.refills if one.state == RefillState.DONE and _is_whole(one)}
    told = [one for one in view.refills if one.id >= whole.get(one.table, one.id)]
    return sorted(told, key=lambda one: (one.state not in PENDING, -(one.ended_ms or 0)))


def _is_whole(one: RefillView) -> bool:
    return not one.where and one.first is None and one.last is None


def spell_refill(one: RefillView) -> str:
    """`public.orders, keys 1000..2000: comparing, 42.1%, 3 m left`; of one that ended its rows, or why."""
    named = f"{one.table}{Extent(one.where, one.first, one.last)}"
    parts: list[str] = [one.state]
    if one.state is RefillState.COMPARING and one.share is not None:
        parts += [spell_share(one.share), *(() if one.left_s is None else (f"{spell_duration(one.left_s)} left",))]
    if one.epoch is not None or one.state is RefillState.DONE:
        parts.append(f"{one.inserted:,} inserted, {one.replaced:,} replaced, {one.removed:,} removed")
    if one.epoch is not None:
        parts.append(f"commit {one.epoch}")
    reason = f": {replace(one.reason, kind=Kind.LIMITED)}" if one.reason.text else ""  # the state says its kind
    return f"{named}: {', '.join(parts)}{reason}"


def _in_order(one: PartitionProgress) -> tuple[str, int]:
    return partition_table(one.partition) or "", partition_number(one.partition)


def shown_state(row: JobRow) -> JobState | Dead:
    """The state as people see it: a runner that died could not store another one."""
    return DEAD if row.dead else row.shown_state


def _doing_s(row: JobRow, progress: Progress, now_ms: int | None) -> float | None:
    if not row.live or now_ms is None or progress.doing_ms is None:
        return None
    return max(0, now_ms - progress.doing_ms) / 1000


def committed_epoch(row: JobRow) -> int:
    """The newest epoch that the sink has: a runner reports it; the catalog records it with the next epoch."""
    return max(row.epoch, 0 if row.reported is None else row.reported.epoch)


def _pending_epochs(row: JobRow, progress: Progress) -> int | None:
    if progress.pending_epochs:
        return progress.pending_epochs
    observed = row.live and progress.looked_ms is not None
    return 0 if observed or row.state == JobState.DONE else None


def waits_for_snapshot(view: JobView) -> bool:
    """Whether the log is applied once the snapshot is read: until then nobody knows how far the sink is behind."""
    return view.phase == Phase.SNAPSHOT and view.strategy not in _TWO_PHASES


def is_observed(view: JobView) -> bool:
    """Whether the lag is what it is now, not that at most; as of its end, a job that is done has none."""
    return view.runner.alive or view.state == "done"


def _lag_s(row: JobRow, progress: Progress, now_ms: int | None) -> float | None:
    """Seconds since the oldest change that the sink lacks; if no runner is live, since the last observation."""
    if progress.lag_ms is None or now_ms is None or progress.looked_ms is None or row.state == JobState.DONE:
        return None if progress.lag_ms is None else progress.lag_ms / 1000
    since_ms = progress.looked_ms if progress.oldest_ms is None else progress.oldest_ms
    lag_s = max(0, now_ms - since_ms) / 1000
    fresh_s = OLD_S + progress.interval_ms / 1000
    return 0.0 if progress.oldest_ms is None and row.live and lag_s < fresh_s else lag_s


def deadline_view(progress: Progress, now_ms: int | None) -> DeadlineView | None:
    """As its runner judged it last; without one, a moment that has passed is missed, too."""
    told = progress.deadline
    if told is None:
        return None
    at_ms = progress.looked_ms or 0 if now_ms is None else now_ms
    left_s = max(0, told.finish_ms - at_ms) / 1000
    return DeadlineView(told.finish_ms, left_s, told.rate, told.late or not left_s, told.late_s, told.cause)


def headroom_view(row: JobRow, progress: Progress, now_ms: int | None) -> HeadroomView | None:
    """What is left of it now: what an earlier runner heard still holds, as a moment does."""
    told = progress.headroom
    if told is None:
        return None
    at_ms = progress.looked_ms or 0 if now_ms is None else now_ms
    left_s = told.left_s(at_ms)
    needs_s = max((progress.eta_s or (0.0, 0.0))[1], _lag_s(row, progress, now_ms) or 0.0)
    small = left_s is not None and left_s <= needs_s
    return HeadroomView(told.kept, left_s, small, told.by, told.of, told.beside, told.hint)


def limited_by(row: JobRow, committed_ms: int = 0) -> Limit:
    """What limits the job now, and the command that changes it; for a job without a runner, the lack of one.

    committed_ms: when its last commit was made, if known: a runner that died was at work then.
    """
    go_on = command(f"resume {row.name}")
    if row.state == JobState.FAILED:
        why = reason_of(row)
        return replace(why, text=f"failed: {why.text}", kind=Kind.ENDED, hint=why.hint or go_on)
    paused = f", paused by {row.control.pauser}" if row.control.paused else ""
    if row.state == JobState.DONE and row.progress is not None and not row.progress.follows:
        return Limit(f"done: {row.reason}{paused}", Kind.ENDED)
    if row.state == JobState.DONE and not paused:
        follow = command(f"resume {row.name} --until forever")
        return Limit(f"done: {row.reason}", Kind.ENDED, follow, "follow")
    if row.state == JobState.DONE:
        return Limit(f"done: {row.reason}{paused}: the next run will wait", Kind.ENDED, go_on)
    if row.shown_state == JobState.STARTING and row.ended:
        return Limit("starting")
    if row.ended:
        return Limit(f"stopped{paused}", Kind.ENDED, go_on)
    if not row.created and not row.live:
        who = f"pid {row.lease.pid} on {row.lease.host}"
        died = f"the start, {who}, died before the job was created (it was at: {row.reason})"
        again = command("start --config FILE").of_file(from_here(row.config_file))
        return Limit(died, Kind.NO_RUNNER, again)
    if not row.live:
        seen_ms = max(row.lease.renewed_ms or 0, committed_ms)
        seen = f" (last seen {spell_moment(seen_ms)})" if row.dead else ""
        return Limit(f"the last one, {_runner(row)}, is gone{seen}{paused}", Kind.NO_RUNNER, go_on)
    if row.state == JobState.STARTING:
        return row.why
    if row.shown_state == JobState.STOPPING:
        waits = None if row.progress is None else row.progress.waiting_for
        return waits or Limit("the current commit is finished first", Kind.STOPPING)
    if row.control.paused:
        too = ", and its change log is not read either (pause --all)" if row.control.pause_all else ""
        since, ends = spell_moment(row.control.since_ms), row.control.ends
        return Limit(f"by {row.control.pauser} since {since}{too}{ends}", Kind.PAUSED, go_on)
    if row.reported is None:  # what the runner before reported was of a control that was another
        return Limit("starting")
    return row.reported.limited_by


def reason_of(row: JobRow) -> Limit:
    """Why the job is in its state and, after a failure, what to type, with the config file it was started with."""
    return replace(row.why, hint=row.why.hint.of_file(from_here(row.config_file)))


def _runner(row: JobRow) -> str:
    return f"pid {row.lease.pid} on {row.lease.host}" if row.lease.pid else "whose process is not known"


@dataclass(frozen=True, slots=True)
class Jobs:
    """All jobs, or the one that was named."""

    jobs: Sequence[JobView]


def _share(progress: Progress) -> float | None:
    """How much of the snapshot is read: by offsets or rows if metadata gives them, else by bytes. Never over 1."""
    if progress.phase != Phase.SNAPSHOT or progress.snapshot_finished_ms is not None:
        return 1.0
    if progress.share is not None:
        return max(0.0, min(1.0, progress.share))
    for done, total in ((progress.rows_read, progress.rows_total), (progress.bytes_read, progress.bytes_total)):
        if total:
            return max(0.0, min(1.0, done / total))
    return None


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


PHASE_WORDS = {
    Phase.SNAPSHOT.value: "copying",
    Phase.LOG_STORE.value: "catching up",
    Phase.UPSTREAM.value: "live",
}
"""What the phases mean, shown beside their names."""


def spell_phase(phase: str) -> str:
    """`snapshot (copying)`, `log-store (catching up)`, `upstream (live)`."""
    return f"{phase} ({PHASE_WORDS[phase]})" if phase in PHASE_WORDS else phase


_TWO_PHASES = frozenset({"source", "arrangement"})
"""Strategies that take the log while they read the rows: nothing is left to catch up with after that."""


def phases_of(strategy: str) -> tuple[Phase, ...]:
    """Those that a job of this strategy goes through."""
    return tuple(one for one in Phase if one is not Phase.LOG_STORE or strategy not in _TWO_PHASES)


def spell_age(view: JobView) -> str | None:
    """`as of 2026-11-21 04:40:12 UTC, 5 m ago` if the numbers are older than those of a live job; else None."""
    if view.age_s is None or view.age_s < OLD_S + view.interval_s:
        return None
    return f"as of {spell_moment(view.as_of_ms)}, {spell_duration(view.age_s)} ago"


def spell_planned(told: PlannedDeadline) -> str:
    """`2026-11-28 06:00:00 CET, in 2 h: can be met; no more is read than suffices for it`."""
    if not told.left_s:
        return f"{spell_moment(told.at_ms)}, which has passed"
    answers = {True: "can be met", False: "cannot be met", None: "whether it can be met is not known"}
    return f"{spell_moment(told.at_ms)}, in {spell_duration(told.left_s)}: {answers[told.met]}"


def spell_deadline(told: DeadlineView) -> str:
    """`2026-11-28 06:00, in 2 h: in time`; `…: cannot be met, about 40 min late; upstream reads`."""
    when = f"in {spell_duration(told.left_s)}" if told.left_s else "which has passed"
    said = f"{spell_moment(told.at_ms)}, {when}"
    if not told.late:
        return f"{said}: in time"
    late = "" if told.late_s is None else f", about {spell_duration(told.late_s)} late"
    cause = "" if told.cause is None else f"; {told.cause.said}"
    return f"{said}: cannot be met{late}{cause}"


def spell_headroom(told: HeadroomView | Headroom, now_ms: int = 0) -> str:
    """`6 d 23 h, by retention.ms (7 d): partition 3 of topic 'orders'`; `unbounded: …`; `N/A: …`."""
    left_s = told.left_s(now_ms) if isinstance(told, Headroom) else told.left_s
    of = f": {told.of}" if told.of else ""
    if left_s is None:
        return f"{'unbounded' if told.kept is Kept.UNBOUNDED else 'N/A'}: {told.by}{of}"
    small = ", less than the job needs" if isinstance(told, HeadroomView) and told.small else ""
    beside = f"; or less: {told.beside}" if told.beside else ""
    return f"{spell_duration(left_s)}{small}, by {told.by}{of}{beside}"


def spell_eta(eta_s: tuple[float, float] | None) -> str:
    """`6 s to 9 s`; `N/A` if not known."""
    if eta_s is None:
        return "N/A"
    least, most = spell_duration(eta_s[0]), spell_duration(eta_s[1])
    return least if least == most else f"{least} to {most}"


def spell_share(share: float | None) -> str:
    """`42.1%`, `N/A`; 100 % only when everything has been read."""
    if share is None:
        return "N/A"
    return "100%" if share >= 1 else f"{min(share * 100, 99.9):.1f}%"


def verified_view(found: Sequence[Verified], now_ms: int | None) -> VerifiedView | None:
    """What the last verify found; None before one. now_ms: None where its age does not matter."""
    at_ms = max((one.at_ms for one in found if one.epoch), default=None)
    if at_ms is None:
        return None
    tables = [one for one in found if one.at_ms == at_ms]
    others = [one for one in found if one.at_ms != at_ms]
    first = tables[0]
    return VerifiedView(
        all(one.equal for one in tables),
        first.epoch,
        first.at_ms,
        None if now_ms is None else max(0, now_ms - first.at_ms) / 1000,
        first.share,
        tuple(one.table for one in tables),
        sum(one.missing for one in tables),
        sum(one.extra for one in tables),
        sum(one.changed for one in tables),
        sum(one.not_compared for one in tables),
        tuple(one.table for one in others),
        tuple(one.table for one in others if one.epoch and not one.equal),
    )


def spell_verified(found: VerifiedView) -> str:
    """`equal at commit 1795465042722, 2 h ago`; with the numbers of rows that differ, the share of a sample, how
    many keys were not compared, and which tables alone were, if not all."""
    counted = f": {found.missing:,} missing, {found.extra:,} extra, {found.changed:,} changed"
    said = "equal" if found.equal else "different"
    sample = "" if found.share is None else f", in a sample of {found.share * 100:.6g}% of the keys"
    ago = spell_moment(found.at_ms) if found.age_s is None else f"{spell_duration(found.age_s)} ago"
    left_out = spell_not_compared(found.not_compared)
    told = f"{said} at commit {found.epoch}{'' if found.equal else counted}{sample}{left_out}, {ago}"
    told += f"; {_some(found.tables)} alone" if found.left_out else ""
    if found.different_before:
        told += f"; different before, and not compared since: {_some(found.different_before)}"
    return told


def _some(tables: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    named, more = ", ".join(tables[:SOME]), len(tables) - SOME
    return f"{named} and {more} more" if more > 0 else named


def spell_not_compared(keys: int) -> str:
    """What follows a verdict on the other keys; empty if all were compared."""
    noun, verb = ("key", "was") if keys == 1 else ("keys", "were")
    return f", {keys:,} {noun} that changed meanwhile {verb} not compared" if keys else ""


SOME = 3
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def spell_quarantined(quarantined: Mapping[str, int]) -> str:
    """`3 rows in _backfill_quarantine_orders`; empty if there are none."""
    return ", ".join(f"{spell_count(rows, 'row')} in {table}" for table, rows in quarantined.items())


_SKIPPED = {
    Skipped.HEARTBEAT: ("heartbeat", "heartbeats"),
    Skipped.TRANSACTION: ("mark of a transaction", "marks of transactions"),
    Skipped.SCHEMA: ("change of a schema", "changes of schemas"),
    Skipped.MESSAGE: ("message of the source's log", "messages of the source's log"),
    Skipped.TOMBSTONE: ("tombstone after a delete", "tombstones after deletes"),
    Skipped.STATEMENT: ("statement", "statements"),
    Skipped.MARK: ("mark of the writer", "marks of the writer"),
    Skipped.OTHER_TABLE: ("record of another table", "records of other tables"),
    Skipped.UNREAD: ("change of a row not read yet", "changes of rows not read yet"),
}


def spell_skipped(skipped: Mapping[str, int]) -> str:
    """`1,200 heartbeats, 1 tombstone after a delete`; empty if there are none."""
    told = ((count, _SKIPPED[Skipped(kind)]) for kind, count in sorted(skipped.items()))
    return ", ".join(f"{count:,} {one if count == 1 else many}" for count, (one, many) in told)


def spell_added(partitions: int) -> str:
    return f"{spell_count(partitions, 'partition')} since the job began"


def spell_failures(failures: Mapping[str, int]) -> str:
    """`12 tried again: 57P01 (9), ECONNREFUSED (2), others (1)`: the six most frequent causes."""
    named = ((cause, count) for cause, count in failures.items() if cause != OTHERS)
    most = sorted(named, key=lambda one: (-one[1], one[0]))[:CAUSES_SHOWN]
    rest = sum(failures.values()) - sum(count for _, count in most)
    told = ", ".join(f"{cause} ({count:,})" for cause, count in [*most, *([(OTHERS, rest)] if rest else [])])
    return f"{sum(failures.values()):,} tried again: {told}"


def spell_table_rates(rates: Mapping[str, float]) -> str:
    """`public.orders 500 rows/s, public.lines 0 rows/s`."""
    return ", ".join(f"{table} {spell_number(rate)} rows/s" for table, rate in rates.items())


_PHASES = {Phase.SNAPSHOT: "in the snapshot", Phase.LOG_STORE: "in the log store", Phase.UPSTREAM: "live"}


def spell_rows_written(by: Mapping[Phase, int]) -> str:
    """`12,300 rows in the snapshot, 40 live`."""
    told = [(by[phase], words) for phase, words in _PHASES.items() if by.get(phase)]
    return ", ".join(f"{f'{n:,}' if at else spell_count(n, 'row')} {words}" for at, (n, words) in enumerate(told))


def look_at(quarantined: Mapping[str, int]) -> Hint:
    """The SQL that shows them, for the sink's own client."""
    return sql(*(f"SELECT * FROM {_sql_name(table)} LIMIT 20" for table in quarantined))


def _sql_name(table: str) -> str:
    """The table's name as DuckDB and PostgreSQL read it; quoted only if necessary."""
    parts = table.split(".")
    return ".".join(part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"' for part in parts)


LEDGER = 600  # epochs that the curves span at most
GROUPS = 6  # bars of one table's files


def read_jobs(catalog: Catalog, name: str | None) -> list[JobView]:
    """One job in full, or all of them, oldest first. Raises NoSuchJob for an unknown name."""
    now_ms = wall_clock_ms()
    if name is not None:
        return [job_view(*catalog.close_look(name, GROUPS, LEDGER), now_ms=now_ms)]
    return [job_view(row, now_ms=now_ms) for row in catalog.listed()]


def watched_jobs(catalog: Catalog, name: str | None) -> list[JobView]:
    """As `read_jobs`, but a single job is read in full."""
    if name is not None:
        return read_jobs(catalog, name)
    try:
        views = read_jobs(catalog, None)
        return read_jobs(catalog, views[0].name) if len(views) == 1 else views
    except NoSuchJob:  # dropped, or the catalog was moved away, between two reads
        return []
