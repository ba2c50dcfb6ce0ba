"""What limits a job now, in words for people, with the command that changes it. It decides nothing."""

from dataclasses import dataclass

from backfill_cli.errors import with_way_on
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.upstream import UpstreamView
from backfill_cli.strategies import StrategyState


@dataclass(frozen=True, slots=True)
class Now:
    """What the loop is doing, as of its last observation.

    plan, view: those of the last barrier. waiting: what holds the loop up. lasting: what it has been doing for a
    while. sink_is_slower: recent commits took longer than staging.
    """

    plan: EpochPlan
    view: UpstreamView
    waiting: str | None
    lasting: str | None
    sink_is_slower: bool


def limit_of(job: str, state: StrategyState, now: Now, interval_ms: int, follows: bool) -> str:
    """follows: whether the upstream has a change log."""
    if state.control.paused:
        return with_way_on(f"paused by {state.control.paused_by}", f"backfill resume {job}")
    if now.waiting is not None:
        return f"waiting: {now.waiting}"
    spool = now.view.spool
    if spool is not None and spool.waits is not None:
        return f"the log is not being taken; waiting: {spool.waits}"
    if spool is not None and spool.full:
        return "the log is not being taken: the spool is at spool.max_size; it resumes as the spool is drained"
    if state.phase == Phase.SNAPSHOT and state.snapshot_finished_ms is not None:
        return "awaiting live: the log's end is before where history ended"
    if state.phase == Phase.SNAPSHOT:
        return _of_snapshot(job, state.control, now.sink_is_slower)
    return _of_log(job, state, now, interval_ms, follows)


def _of_snapshot(job: str, control: Control, sink_is_slower: bool) -> str:
    if control.rate == 0:
        lift = f"backfill throttle {job} --rate none"
        return with_way_on("rate 0: no row of the snapshot is read", lift, "read it")
    if control.rate is not None:
        return with_way_on(f"rate {control.rate:g} rows/s", f"backfill throttle {job} --rate none", "change")
    return "sink (commits take longer than reads)" if sink_is_slower else "upstream reads"


def _of_log(job: str, state: StrategyState, now: Now, interval_ms: int, follows: bool) -> str:
    left = now.plan.pending_after
    if state.phase == Phase.LOG_STORE or left:
        epochs = "upstream epoch" if left == 1 else "upstream epochs"
        return f"catching up: {left:,} {epochs} left" if left else "catching up: the last upstream epochs"
    if state.converging:
        return "following; the sink is converging until the change log passes the end of the load"
    if now.lasting is not None:
        return f"the epoch in hand: {now.lasting}"
    if not follows:
        return with_way_on("nothing to follow: the config names no changes", f"backfill stop {job}", "end it")
    return f"nothing: following, a barrier every {interval_ms / 1000:g} s"
