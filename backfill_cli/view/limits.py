"""What limits a job now, in a sentence that ends with the command that changes it."""

from dataclasses import replace

from backfill_cli.catalog import JobRow
from backfill_cli.errors import command
from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.job import JobState
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.units import spell_epoch, spell_moment
from backfill_cli.view.hints import from_here


def limited_by(row: JobRow, progress: Progress | None) -> Limit:
    """What limits the job now, and the command that changes it; for a job without a runner, the lack of one."""
    go_on = command(f"resume {row.name}")
    if row.state == JobState.FAILED:
        why = reason_of(row)
        return replace(why, text=f"failed: {why.text}", kind=Kind.ENDED, hint=why.hint or go_on)
    paused = f", paused by {row.control.paused_by}" if row.control.paused else ""
    if row.state == JobState.DONE and not paused:
        follow = command(f"resume {row.name} --until forever")
        return Limit(f"done: {row.reason}", Kind.ENDED, follow, "follow")
    if row.state == JobState.DONE:
        return Limit(f"done: {row.reason}{paused}: the next run will wait", Kind.ENDED, go_on)
    if row.shown_state == JobState.STARTING and row.ended:
        return Limit("starting: a new runner has not claimed the job yet")
    if row.ended:
        return Limit(f"stopped{paused}", Kind.ENDED, go_on)
    if not row.created and not row.live:
        who = f"pid {row.lease.pid} on {row.lease.host}"
        died = f"the start, {who}, died before the job was created (it was at: {row.reason})"
        again = command("start --config FILE").of_file(from_here(row.config_file))
        return Limit(died, Kind.NO_RUNNER, again)
    if not row.live:
        seen = f" (last seen {spell_moment(row.lease.renewed_ms)})" if row.dead else ""
        return Limit(f"the last one, {_runner(row)}, is gone{seen}{paused}", Kind.NO_RUNNER, go_on)
    if row.state == JobState.STARTING:
        return row.why
    if progress is None:
        return Limit("starting")
    if row.shown_state == JobState.STOPPING:
        return progress.waiting_for or Limit("the current epoch commits first", Kind.STOPPING)
    if row.control.paused:
        too = ", including the taking of its change log (pause --all)" if row.control.pause_all else ""
        since = spell_epoch(row.control.paused_since_ms or 0)
        return Limit(f"by {row.control.paused_by} since epoch {since}{too}", Kind.PAUSED, go_on)
    if progress.token != row.lease.token:  # reported by the runner before, of a control that was another
        return Limit("starting")
    return progress.not_converging or progress.limited_by


def reason_of(row: JobRow) -> Limit:
    """Why the job is in its state and, after a failure, what to type, with the config file it was started with."""
    return replace(row.why, hint=row.why.hint.of_file(from_here(row.config_file)))


def _runner(row: JobRow) -> str:
    return f"pid {row.lease.pid} on {row.lease.host}" if row.lease.pid else "whose process is not known"
