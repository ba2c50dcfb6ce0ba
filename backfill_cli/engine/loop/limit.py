"""What limits a job now, with the command that changes it. It decides nothing."""

from dataclasses import dataclass, replace

from backfill_cli.errors import command
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.limit import Kind, Limit
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
    waiting: Limit | None
    lasting: str | None
    sink_is_slower: bool


def limit_of(job: str, state: StrategyState, now: Now, interval_ms: int, follows: bool) -> Limit:
    """follows: whether the upstream has a change log."""
    if state.control.paused:
        return Limit(f"by {state.control.paused_by}", Kind.PAUSED, command(f"resume {job}"))
    if now.waiting is not None:
        return replace(now.waiting, kind=Kind.WAITING)
    spool = now.view.spool
    if spool is not None and spool.waits is not None:
        return replace(spool.waits, text=f"the log is not being taken; waiting: {spool.waits.text}")
    if spool is not None and spool.full:
        return Limit(
            "the log is not being taken: the spool is at spool.max_size; it resumes as the spool is drained"
        )
    if state.phase == Phase.SNAPSHOT and state.snapshot_finished_ms is not None:
        return Limit("the log's end is before where history ended", Kind.AWAITING_LIVE)
    if state.phase == Phase.SNAPSHOT:
        return _of_snapshot(job, state.control, now.sink_is_slower)
    return _of_log(job, state, now, interval_ms, follows)


def _of_snapshot(job: str, control: Control, sink_is_slower: bool) -> Limit:
    lift = command(f"throttle {job} --rate none")
    if control.rate == 0:
        return Limit("rate 0: no row of the snapshot is read", hint=lift, to="read it")
    if control.rate is not None:
        return Limit(f"rate {control.rate:g} rows/s", hint=lift, to="change")
    return Limit("sink (commits take longer than reads)" if sink_is_slower else "upstream reads")


def _of_log(job: str, state: StrategyState, now: Now, interval_ms: int, follows: bool) -> Limit:
    left = now.plan.pending_after
    if state.phase == Phase.LOG_STORE or left:
        epochs = "upstream epoch" if left == 1 else "upstream epochs"
        return Limit(f"{left:,} {epochs} left" if left else "the last upstream epochs", Kind.CATCHING_UP)
    if state.converging:
        return Limit("following; the sink is converging until the change log passes the end of the load")
    if now.lasting is not None:
        return Limit(f"the epoch in hand: {now.lasting}")
    if not follows:
        return Limit("nothing to follow: the config names no changes", hint=command(f"stop {job}"), to="end it")
    return Limit(f"nothing: following, a barrier every {interval_ms / 1000:g} s")
