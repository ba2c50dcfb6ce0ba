"""A job in plain lines: for pipes, logs and cron. No colour, no box, nothing cut off."""

from collections.abc import Sequence
from dataclasses import replace

from backfill_cli.catalog import SplitGroup
from backfill_cli.model.checkpoint import PartitionProgress, TablePartitions, Totals, Written
from backfill_cli.model.job import Phase
from backfill_cli.model.limit import Kind
from backfill_cli.model.units import spell_count, spell_duration, spell_epoch, spell_moment, spell_rate, spell_size
from backfill_cli.model.upstream import SpoolView
from backfill_cli.view.console import in_lines, shortened
from backfill_cli.view.model import (
    JobView,
    half_written,
    incomplete_beside,
    phases_of,
    refills_of,
    spell_added,
    spell_age,
    spell_aside,
    spell_deadline,
    spell_derived,
    spell_dropping,
    spell_eta,
    spell_failures,
    spell_half_written,
    spell_headroom,
    spell_not_yet,
    spell_phase,
    spell_quarantined,
    spell_refill,
    spell_refused,
    spell_rows_written,
    spell_share,
    spell_skipped,
    spell_table_rates,
    spell_verified,
    waits_for_snapshot,
)

FOLLOWED, LIVE = "finished", "live"
"""A partition whose history is finished: the catalog's word for it, and the one that people see."""

TABLES_SHOWN = 20
"""The tables furthest behind that are listed."""

PART_WORDS = {"consumed": "read", "consuming": "being read"}
PARTITION_WORDS = {FOLLOWED: LIVE}
UNTIL = {"forever": "stopped", "caught-up": "it is up to date"}

UNKNOWN = "a process that this catalog does not know: just starting, or begun with a catalog that was here before"


def jobs_table(views: Sequence[JobView]) -> str:
    """One line per job, columns aligned, the longest last; a column of quarantined rows if there are any."""
    some = any(view.quarantined for view in views)
    rows = [("JOB", "STATE", "PHASE", "COPIED", "READS", "LAG", *(("QUARANTINED",) if some else ()), "LIMITED BY")]
    rows += [
        (
            view.name,
            view.state,
            spell_phase(view.phase),
            spell_share(view.share),
            spell_reads(view),
            lag_of(view),
            *((f"{sum(view.quarantined.values()):,}",) if some else ()),
            shortened(view.limited_by.said, LIMIT_CELL),
        )
        for view in views
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )


LIMIT_CELL = 60
"""Characters of what limits a job in a table; `below_table` has all of it."""


def below_table(views: Sequence[JobView]) -> str:
    """For each job what does not fit into its line: what limits it, if that is long, and what to type."""
    return "\n".join(line for view in views for line in _more_of(view))


def _more_of(view: JobView) -> list[str]:
    """What does not fit into a line of the table: all of what limits a job, and what to type, on its own lines."""
    limit = view.limited_by
    said = [] if len(limit.said) <= LIMIT_CELL else [f"{view.name}: {limit.said}"]
    if not limit.hint:
        return ["", *said] if said else []
    typed = in_lines(limit.hint, LIMIT_CELL)
    lead = f"{'' if said else f'{view.name}: '}to {limit.to}:"
    return ["", *said, lead, *(f"  {line}" for line in typed)]


def job_details(view: JobView) -> str:
    """One fact per line, `name: value`."""
    facts = _facts(view) if view.created else _facts_of_start(view)
    width = max(len(name) for name, _ in facts) + 1
    return "\n".join(f"{(name + ':').ljust(width)} {value}" for name, value in facts)


def _facts_of_start(view: JobView) -> list[tuple[str, str]]:
    """Of a job that is being created, or whose start died: it has no numbers yet."""
    since = view.runner.claimed_ms or view.created_ms
    return [
        ("job", view.name),
        ("state", f"{view.state} (being created)" if view.runner.alive else f"{view.state} (never created)"),
        ("since", spell_moment(since)),
        (limit_of(view)[0], _with_hint(view)),
        ("runner", spell_runner(view)),
    ]


def _facts(view: JobView) -> list[tuple[str, str]]:
    others = len(view.tables) - TABLES_SHOWN
    return [
        ("job", view.name),
        ("state", f"{view.state} ({view.reason})" if view.reason else view.state),
        ("phase", spell_phase(view.phase)),
        ("last commit", spell_epoch(view.epoch) if view.epoch else "none yet"),
        ("snapshot", f"{spell_share(view.share)}, {spell_read(view)}"),
        *((f"  {group.label}", spell_rows(group, view.rows_estimated)) for group in view.groups),
        *((f"  table {one.table}", spell_table(one)) for one in view.tables[:TABLES_SHOWN]),
        *((("  others", f"{others:,} tables, less behind"),) if others > 0 else ()),
        *((f"  partition {p.partition}", spell_partition(p)) for p in view.partitions if not view.tables),
        ("parts", spell_splits(view)),
        *((("added", spell_added(view.partitions_added)),) if view.partitions_added else ()),
        *((("finished", done),) if (done := spell_finished(view)) else ()),
        ("reads", spell_reads(view)),
        *((("writes", spell_written(view.written_per_s)),) if view.written_per_s is not None else ()),
        *_written_by_table(view),
        *((("rates", spell_table_rates(view.table_rates)),) if view.table_rates else ()),
        ("time left", spell_eta(view.eta_s)),
        *((("finish by", spell_deadline(view.deadline)),) if view.deadline is not None else ()),
        ("lag", spell_lag_in_full(view)),
        ("not applied yet", spell_pending(view)),
        *((("incomplete", newest),) if (newest := incomplete_beside(view)) else ()),
        *((("kept", spell_held(view.held_bytes)),) if view.held_bytes is not None else ()),
        *((("headroom", spell_headroom(view.headroom)),) if view.headroom is not None else ()),
        *((("spool", spell_spool(view.spool)),) if view.spool is not None else ()),
        *((("read up to", view.spool.taken),) if view.spool is not None else ()),
        *((("applied up to", view.spool.applied),) if view.spool is not None else ()),
        *((("quarantined", spell_quarantined(view.quarantined)),) if view.quarantined else ()),
        *((("skipped", spell_skipped(view.skipped)),) if view.skipped else ()),
        *((("failures", spell_failures(view.transient_failures)),) if view.transient_failures else ()),
        *((("consistent", spell_not_yet(view)),) if view.converging and view.phase != "snapshot" else ()),
        (limit_of(view)[0], _with_hint(view)),
        *((("now", spell_doing(view)),) if is_busy(view) else ()),
        *((("half written", spell_half_written(at)),) if (at := half_written(view)) else ()),
        *((("verified", spell_verified(view.verified)),) if view.verified is not None else ()),
        *(("derived", spell_derived(one, view.runner.alive)) for one in view.derived),
        *(("set aside", spell_aside(one)) for one in view.aside),
        *((("refused", spell_refused(view.refused)),) if view.refused is not None else ()),
        *(("refill", spell_refill(one)) for one in refills_of(view)),
        *((("to be dropped", spell_dropping(view)),) if view.dropping else ()),
        *((("pending commands", ", ".join(view.pending_said)),) if view.pending_commands else ()),
        ("runner", spell_runner(view)),
        *((("numbers", age),) if (age := spell_age(view)) is not None else ()),
    ]


def _written_by_table(view: JobView) -> list[tuple[str, str]]:
    """Rows written, of each table that has most of them."""
    rows = sorted(view.written.items(), key=lambda one: -sum(one[1].values()))
    if len(rows) < 2:
        return [("written", spell_rows_written(by)) for _, by in rows]
    shown = [(f"  {table}", spell_rows_written(by)) for table, by in rows[:TABLES_SHOWN]]
    left = len(rows) - len(shown)
    all_of_them = spell_count(sum(n for _, by in rows for n in by.values()), "row")
    return [("written", all_of_them), *shown, *([("  others", f"{left:,} tables, fewer rows")] if left else [])]


def spell_finished(view: JobView) -> str:
    """`snapshot 2025-11-21 02:40:00 UTC, log 2025-11-21 02:41:00 UTC`; the log only where a phase applied it."""
    ended = (
        ("snapshot", view.snapshot_finished_ms),
        ("log", view.log_store_finished_ms if Phase.LOG_STORE in phases_of(view.strategy) else None),
    )
    return ", ".join(f"{what} {spell_moment(at_ms)}" for what, at_ms in ended if at_ms is not None)


def spell_splits(view: JobView) -> str:
    """`8 read, 1 being read, 11 not started`."""
    words = PARTITION_WORDS if view.partitions else PART_WORDS
    told = ((count, words.get(status, status)) for status, count in view.splits.items())
    return ", ".join(f"{count:,} {word}" for count, word in told if count) or "none"


def spell_table(one: TablePartitions) -> str:
    """`4 partitions, 3 live; 1,200 behind, 1,000 of it in partition 2`."""
    held = spell_count(one.partitions, "partition")
    live = LIVE if one.live == one.partitions else f"{one.live:,} {LIVE}"
    lag = "" if one.lag is None else f"; {one.lag:,} behind"
    most = "" if one.furthest is None else f", {one.furthest[1]:,} of it in partition {one.furthest[0]}"
    return f"{held}, {live}{lag}{most}"


def spell_partition(partition: PartitionProgress) -> str:
    """`backfilling, next offset 1,200 of 50,000; 48,800 behind`."""
    target = "" if partition.target is None else f" of {partition.target:,}"
    history = target if partition.state in ("not started", "backfilling") else ""
    lag = "" if partition.lag is None else f"; {partition.lag:,} behind"
    return f"{spell_partition_state(partition)}, next offset {partition.offset:,}{history}{lag}"


def spell_partition_state(partition: PartitionProgress) -> str:
    """A partition whose history is finished is followed: live."""
    return LIVE if partition.state == FOLLOWED else partition.state


def spell_progress(view: JobView, since: Totals | None = None, why: bool = True) -> str:
    """How far a job is and, if `why`, what limits it. since: what was committed since the last report."""
    parts = [f"{view.state}, {spell_phase(view.phase)}"]
    if view.phase == "snapshot":
        parts.append(f"{spell_share(view.share)} ({spell_read(view)})")
        if view.rows_per_s is not None:
            parts.append(spell_reads(view))
        if view.eta_s is not None:
            parts.append(f"{spell_eta(view.eta_s)} left")
    if view.lag_s is not None and not waits_for_snapshot(view):
        parts.append(f"lag {spell_lag(view.lag_s)}")
    if view.pending_epochs:
        parts.append(f"{spell_pending(view)} not applied yet")
    if newest := incomplete_beside(view):
        parts.append(newest)
    if view.quarantined:
        parts.append(f"quarantined {spell_quarantined(view.quarantined)}")
    if since is not None and since.commits:
        parts.append(spell_commits(since))
    parts.append(f"last commit {spell_epoch(view.epoch)}" if view.epoch else "no commit yet")
    if why:
        parts.append(spell_held_up(view))
        if is_busy(view):
            parts.append(spell_doing(view))
    return "; ".join(parts)


def spell_held_up(view: JobView) -> str:
    """`limited by rate 500 rows/s`, `paused by cli`, `waiting: …`, or why it ended."""
    limit = view.limited_by
    if limit.kind is Kind.NOW:
        return limit_of(view)[1]
    return f"{limit.kind} {limit}" if limit.kind is Kind.LIMITED and view.state != "starting" else str(limit)


def limit_of(view: JobView) -> tuple[str, str]:
    """What holds the job up, after the name under which it is shown: a start is limited by nothing yet."""
    limit = view.limited_by
    starts = view.state == "starting" and limit.kind is Kind.LIMITED
    doing = limit.kind is Kind.NOW and view.doing is not None
    return Kind.NOW.value if starts else limit.kind.value, spell_doing(view) if doing else limit.text


def _with_hint(view: JobView) -> str:
    return str(replace(view.limited_by, kind=Kind.LIMITED, text=limit_of(view)[1]))


def spell_terms(view: JobView) -> str:
    """When the job ends."""
    if not view.created:
        return "being created"
    return f"runs until {UNTIL.get(view.until, view.until)}"


def spell_reads(view: JobView) -> str:
    """`12,300 rows/s`, `9.5 changes/s`; `N/A` if not known."""
    if view.phase == "snapshot":
        return "N/A" if view.rows_per_s is None else spell_rate(view.rows_per_s)
    return "N/A" if view.changes_per_s is None else spell_rate(view.changes_per_s, "changes")


def spell_pending(view: JobView) -> str:
    """`1 upstream commit`."""
    return "N/A" if view.pending_epochs is None else spell_count(view.pending_epochs, "upstream commit")


def spell_written(rows_per_s: Written) -> str:
    """`120 rows/s upserted, 9.5 rows/s deleted`; an upsert: insert or update, as the changes do not tell."""
    told = [(rows_per_s.inserted, "inserted"), (rows_per_s.upserted, "upserted"), (rows_per_s.deleted, "deleted")]
    return ", ".join(f"{spell_rate(rate)} {what}" for rate, what in told if rate) or "none"


def spell_commits(done: Totals) -> str:
    """`3 commits: 27,000 rows and 40 changes read, staging 3.9 s, sink 0.4 s`.

    A time that is not known is left out: those of an epoch that a recovery finished.
    """
    read = f"{spell_count(done.snapshot_rows, 'row')} and {spell_count(done.changes_read, 'change')} read"
    times = [("staging", done.stage_ms), ("sink", done.commit_ms)]
    told = [f"{what} {spell_duration(ms / 1000)}" for what, ms in times if ms]
    return f"{spell_count(done.commits, 'commit')}: {', '.join([read, *told])}"


def spell_read(view: JobView) -> str:
    """`84,200 of 200,000 rows`; in bytes if metadata does not give the number of rows.

    `committed` follows where other rows are said to be read already.
    """
    rows = "rows committed" if view.rows_in_hand else "rows"
    if view.rows_total is not None:
        said = spell_group(view.rows_read, view.rows_total, view.rows_estimated)
        return f"{said} committed" if view.rows_in_hand else said
    if view.bytes_total:
        read = min(view.bytes_read, view.bytes_total)
        return f"{view.rows_read:,} {rows}, {spell_size(read)} of {spell_size(view.bytes_total)}"
    return f"{view.rows_read:,} {rows}"


def spell_part(group: SplitGroup, estimated: bool) -> str:
    """How far a group is: in rows if it is a single part, else in parts."""
    if group.splits == 1 and group.rows_total is not None:
        read_whole = group.splits_read == group.splits
        return spell_group(group.rows_read, None if estimated and read_whole else group.rows_total, estimated)
    return f"{group.splits_read:,} of {spell_count(group.splits, 'part')}"


def spell_rows(group: SplitGroup, estimated: bool) -> str:
    """In rows; once a group is read in full, an estimated total no longer matters."""
    read_whole = group.splits_read == group.splits
    return spell_group(group.rows_read, None if read_whole else group.rows_total, estimated)


def spell_group(rows_read: int, rows_total: int | None, estimated: bool) -> str:
    """`4,200 of 9,000 rows`, `of about 9,000 rows`; no total once it is known to be too low."""
    if rows_total is None or (estimated and rows_read >= rows_total):
        return f"{rows_read:,} rows"
    return f"{min(rows_read, rows_total):,} of {'about ' if estimated else ''}{rows_total:,} rows"


def is_busy(view: JobView) -> bool:
    """Whether what the runner is doing is said beside what limits the job."""
    return view.doing is not None and view.limited_by.kind is not Kind.NOW


def spell_doing(view: JobView) -> str:
    """`reading 8 parts of the snapshot for 21 s; 120,000 rows read and not committed yet`."""
    read = [(view.rows_in_hand, "row"), (view.changes_in_hand, "change")]
    told = " and ".join(spell_count(n, what) for n, what in read if n)
    in_hand = f"; {told} read and not committed yet" if told else ""
    return f"{view.doing} for {spell_duration(view.doing_s or 0)}{in_hand}"


def spell_at(epoch: int) -> str:
    """`at commit 1763692800123 (2025-11-21 02:40:00 UTC)`; `before its first commit`, for 0."""
    return f"at commit {spell_epoch(epoch)}" if epoch else "before its first commit"


def spell_held(size_bytes: int) -> str:
    """The log that a server cannot remove because of a replication slot."""
    return f"the upstream keeps {spell_size(size_bytes)} of its log for this job"


def spell_spool(spool: SpoolView) -> str:
    """`1,200 changes in 14 entries, 1.2 MB, read from the change log and not applied yet`."""
    if not spool.entries:
        return "empty: all changes read from the change log have been applied"
    told = f"{spell_count(spool.changes, 'change')} in {spell_count(spool.entries, 'entry')}"
    return f"{told}, {spell_size(spool.size_bytes)}, read from the change log and not applied yet"


def spell_lag(lag_s: float | None) -> str:
    return "N/A" if lag_s is None else spell_duration(lag_s)


def lag_of(view: JobView) -> str:
    """`1.2 s`; `N/A` if it is not known, as before a snapshot is read for which the log waits."""
    return "N/A" if waits_for_snapshot(view) else spell_lag(view.lag_s)


def spell_lag_in_full(view: JobView) -> str:
    """As `lag_of`, with the reason where it is not known yet."""
    if not waits_for_snapshot(view):
        return spell_lag(view.lag_s)
    oldest = f"; the oldest change that waits is {spell_lag(view.lag_s)} old" if view.lag_s else ""
    return f"not known before the snapshot is read{oldest}"


def spell_runner(view: JobView) -> str:
    if view.runner.alive:
        if view.runner.pid:
            return f"pid {view.runner.pid} on {view.runner.host}"
        return UNKNOWN
    return "none"
