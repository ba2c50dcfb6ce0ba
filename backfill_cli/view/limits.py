"""What limits a job now, in a sentence that ends with the command that changes it."""

from backfill_cli.catalog import JobRow
from backfill_cli.errors import parted, with_way_on
from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.job import JobState
from backfill_cli.model.units import spell_epoch, spell_moment
from backfill_cli.view.hints import from_here, of_file


def limited_by(row: JobRow, progress: Progress | None) -> str:
    """What limits the job now, and the command that changes it; for a job without a runner, the lack of one."""
    go_on = f"backfill resume {row.name}"
    if row.state == JobState.FAILED:
        said, _, way_on = parted(reason_of(row))
        return with_way_on(f"failed: {said}", way_on or go_on)
    paused = f", paused by {row.control.paused_by}" if row.control.paused else ""
    if row.state == JobState.DONE and not paused:
        return with_way_on(f"done: {row.reason}", f"{go_on} --until forever", "follow")
    if row.state == JobState.DONE:
        return with_way_on(f"done: {row.reason}{paused}: the next run will wait", go_on)
    if row.shown_state == JobState.STARTING and row.ended:
        return "starting: a new runner has not claimed the job yet"
    if row.ended:
        return with_way_on(f"stopped{paused}", go_on)
    if not row.created and not row.live:
        who = f"pid {row.lease.pid} on {row.lease.host}"
        again = of_file("backfill start --config FILE", from_here(row.config_file))
        return with_way_on(
            f"no runner: the start, {who}, died before the job was created (it was at: {parted(row.reason)[0]})",
            again,
        )
    if not row.live:
        seen = f" (last seen {spell_moment(row.lease.renewed_ms)})" if row.dead else ""
        return with_way_on(f"no runner: the last one, {_runner(row)}, is gone{seen}{paused}", go_on)
    if row.state == JobState.STARTING:
        return row.reason
    if progress is None:
        return "starting"
    if row.shown_state == JobState.STOPPING:
        return progress.waiting_for or "stopping: the current epoch commits first"
    if row.control.paused:
        too = ", including the taking of its change log (pause --all)" if row.control.pause_all else ""
        since = spell_epoch(row.control.paused_since_ms or 0)
        return with_way_on(f"paused by {row.control.paused_by} since epoch {since}{too}", go_on)
    if progress.token != row.lease.token:  # reported by the runner before, of a control that was another
        return "starting"
    if progress.not_converging:
        return progress.not_converging
    return progress.limited_by or "starting"


def reason_of(row: JobRow) -> str:
    """Why the job is in its state and, after a failure, what to type, with the config file it was started with."""
    return of_file(row.reason, from_here(row.config_file))


def _runner(row: JobRow) -> str:
    return f"pid {row.lease.pid} on {row.lease.host}" if row.lease.pid else "whose process is not known"
