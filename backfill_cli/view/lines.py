"""A job in plain lines: for pipes, logs and cron. No colour, no box, nothing cut off."""

from collections.abc import Sequence
from dataclasses import replace

from backfill_cli.catalog import SplitGroup
from backfill_cli.model.checkpoint import PartitionProgress, Totals, Written
from backfill_cli.model.limit import Kind
from backfill_cli.model.units import spell_count, spell_duration, spell_epoch, spell_moment, spell_size
from backfill_cli.model.upstream import SpoolView
from backfill_cli.view.model import (
    JobView,
    spell_age,
    spell_eta,
    spell_phase,
    spell_quarantined,
    spell_share,
    spell_verified,
)

FOLLOWED, LIVE = "finished", "live"
"""A partition whose history is finished: the catalog's word for it, and the one that people see."""

UNCLAIMED = (
    "a process that has not claimed the job in this catalog: just starting, or of a catalog that was here before"
)


def jobs_table(views: Sequence[JobView]) -> str:
    """One line per job, columns aligned, the longest last; a column of quarantined rows if there are any."""
    some = any(view.quarantined for view in views)
    rows = [("JOB", "STATE", "PHASE", "DONE", "ROWS/S", "LAG", *(("QUARANTINED",) if some else ()), "LIMITED BY")]
    rows += [
        (
            view.name,
            view.state,
            spell_phase(view.phase),
            spell_share(view.share),
            spell_rate(view.rows_per_s),
            spell_lag(view.lag_s),
            *((f"{sum(view.quarantined.values()):,}",) if some else ()),
            str(view.limited_by),
        )
        for view in views
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )


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
        _limit(view),
        ("runner", spell_runner(view)),
    ]


def _facts(view: JobView) -> list[tuple[str, str]]:
    return [
        ("job", view.name),
        ("state", f"{view.state} ({view.reason})" if view.reason else view.state),
        ("phase", spell_phase(view.phase)),
        ("committed epoch", spell_epoch(view.epoch)),
        ("snapshot", f"{spell_share(view.share)}, {spell_read(view)}"),
        *((f"  {group.label}", spell_rows(group, view.rows_estimated)) for group in view.groups),
        *((f"  partition {p.partition}", spell_partition(p)) for p in view.partitions),
        ("splits", spell_splits(view)),
        ("rows/s", spell_rate(view.rows_per_s)),
        *((("changes/s", spell_rate(view.changes_per_s)),) if view.changes_per_s is not None else ()),
        *((("written/s", spell_written(view.written_per_s)),) if view.written_per_s is not None else ()),
        ("eta", spell_eta(view.eta_s)),
        ("lag", spell_lag(view.lag_s)),
        ("pending upstream epochs", "N/A" if view.pending_epochs is None else f"{view.pending_epochs:,}"),
        *((("log held back", spell_held(view.held_bytes)),) if view.held_bytes is not None else ()),
        *((("spool", spell_spool(view.spool)),) if view.spool is not None else ()),
        *((("taken up to", view.spool.taken),) if view.spool is not None else ()),
        *((("applied up to", view.spool.applied),) if view.spool is not None else ()),
        *((("allowed lag", spell_allowed(view)),) if view.allowed is not None else ()),
        *((("quarantined", spell_quarantined(view.quarantined)),) if view.quarantined else ()),
        *((("converging", "until the change log passes the end of the load"),) if view.converging else ()),
        _limit(view),
        *((("now", spell_doing(view)),) if view.doing is not None else ()),
        *((("verified", spell_verified(view.verified)),) if view.verified is not None else ()),
        *((("pending commands", ", ".join(view.pending_commands)),) if view.pending_commands else ()),
        ("runner", spell_runner(view)),
        *((("numbers", age),) if (age := spell_age(view)) is not None else ()),
    ]


def spell_splits(view: JobView) -> str:
    """`8 consumed, 1 consuming, 11 not started`."""
    told = {LIVE if view.partitions and status == FOLLOWED else status: n for status, n in view.splits.items()}
    return ", ".join(f"{count:,} {status}" for status, count in told.items() if count) or "none"


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
            parts.append(f"{spell_rate(view.rows_per_s)} rows/s")
        if view.eta_s is not None:
            parts.append(f"eta {spell_eta(view.eta_s)}")
    if view.lag_s is not None:
        parts.append(f"lag {spell_lag(view.lag_s)}")
    if view.pending_epochs:
        parts.append(f"{spell_pending(view)} pending")
    if view.quarantined:
        parts.append(f"quarantined {spell_quarantined(view.quarantined)}")
    if since is not None and since.commits:
        parts.append(spell_commits(since))
    parts.append(f"epoch {view.epoch}")
    if why:
        parts.append(spell_held_up(view))
    return "; ".join(parts)


def spell_held_up(view: JobView) -> str:
    """`limited by rate 500 rows/s`, `paused by cli`, `waiting: …`, or why it ended."""
    limit = view.limited_by
    return f"{limit.kind} {limit}" if limit.kind is Kind.LIMITED else str(limit)


def _limit(view: JobView) -> tuple[str, str]:
    """What holds the job up, after the name under which it is shown."""
    return view.limited_by.kind.value, str(replace(view.limited_by, kind=Kind.LIMITED))


def spell_pending(view: JobView) -> str:
    """`1 upstream epoch`."""
    return "N/A" if view.pending_epochs is None else spell_count(view.pending_epochs, "upstream epoch")


def spell_written(rows_per_s: Written) -> str:
    """`120 upserted, 9.5 deleted` per second; an upsert is an insert or an update, as the changes do not tell."""
    told = [(rows_per_s.inserted, "inserted"), (rows_per_s.upserted, "upserted"), (rows_per_s.deleted, "deleted")]
    return ", ".join(f"{rate:,.{0 if rate >= 10 else 1}f} {what}" for rate, what in told if rate) or "none"


def spell_commits(done: Totals) -> str:
    """`3 commits: 27,000 rows and 40 changes read, staging 3.9s, sink 0.4s`.

    A time that is not known is left out: those of an epoch that a recovery finished.
    """
    read = f"{spell_count(done.snapshot_rows, 'row')} and {spell_count(done.changes_read, 'change')} read"
    times = [("staging", done.stage_ms), ("sink", done.commit_ms)]
    told = [f"{what} {spell_duration(ms / 1000)}" for what, ms in times if ms]
    return f"{spell_count(done.commits, 'commit')}: {', '.join([read, *told])}"


def spell_read(view: JobView) -> str:
    """`84,200 of 200,000 rows`; in bytes if metadata does not give the number of rows."""
    if view.rows_total is not None:
        return spell_group(view.rows_read, view.rows_total, view.rows_estimated)
    if view.bytes_total:
        read = min(view.bytes_read, view.bytes_total)
        return f"{view.rows_read:,} rows, {spell_size(read)} of {spell_size(view.bytes_total)}"
    return f"{view.rows_read:,} rows"


def spell_part(group: SplitGroup, estimated: bool) -> str:
    """How far a group is: in rows if it is a single split, else in splits."""
    if group.splits == 1 and group.rows_total is not None:
        read_whole = group.splits_read == group.splits
        return spell_group(group.rows_read, None if estimated and read_whole else group.rows_total, estimated)
    return f"{group.splits_read:,} of {group.splits:,} split{'' if group.splits == 1 else 's'}"


def spell_rows(group: SplitGroup, estimated: bool) -> str:
    """In rows; once a group is read in full, an estimated total no longer matters."""
    read_whole = group.splits_read == group.splits
    return spell_group(group.rows_read, None if read_whole else group.rows_total, estimated)


def spell_group(rows_read: int, rows_total: int | None, estimated: bool) -> str:
    """`4,200 of 9,000 rows`, `of about 9,000 rows`; no total once it is known to be too low."""
    if rows_total is None or (estimated and rows_read >= rows_total):
        return f"{rows_read:,} rows"
    return f"{min(rows_read, rows_total):,} of {'about ' if estimated else ''}{rows_total:,} rows"


def spell_rate(rows_per_s: float | None) -> str:
    return "N/A" if rows_per_s is None else f"{rows_per_s:,.0f}"


def spell_doing(view: JobView) -> str:
    """`reading 602 upstream epochs, 21s`."""
    return f"{view.doing}, {spell_duration(view.doing_s or 0)}"


def spell_held(size_bytes: int) -> str:
    """The log that a server cannot remove because of a replication slot."""
    return f"the upstream keeps {spell_size(size_bytes)} of its log for this job"


def spell_spool(spool: SpoolView) -> str:
    """`1,200 changes in 14 entries, 1.2 MB, taken but not yet applied`."""
    if not spool.entries:
        return "empty: all changes taken have been applied"
    entries = f"{spool.entries:,} entr{'y' if spool.entries == 1 else 'ies'}"
    return f"{spool.changes:,} changes in {entries}, {spell_size(spool.size_bytes)}, taken but not yet applied"


def spell_lag(lag_s: float | None) -> str:
    return "N/A" if lag_s is None else spell_duration(lag_s)


def spell_allowed(view: JobView) -> str:
    allowed = view.allowed or 0
    return spell_duration(allowed) if view.measure == "time" else f"{allowed:,.0f} epochs"


def spell_runner(view: JobView) -> str:
    if view.runner.alive:
        return f"pid {view.runner.pid} on {view.runner.host}" if view.runner.pid else UNCLAIMED
    return "none"
