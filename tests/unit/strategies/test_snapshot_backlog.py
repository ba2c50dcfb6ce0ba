"""A log that grew unobserved, drained by the snapshot strategy: what it takes, and what it reports."""

import pytest

from backfill_cli.model.backlog import Backlog, Trend
from backfill_cli.model.checkpoint import PartitionProgress
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.strategies.snapshot import SnapshotStrategy
from backfill_cli.upstreams.kafka.log.growth import Growth

HOUR_MS = 3_600_000
BEGUN_MS = 1_700_000_000_000


@pytest.mark.parametrize("partitions", [1, 40, 400])
def test_a_backlog_that_drains_ten_times_as_fast_as_it_grows_converges(partitions: int) -> None:
    """5 million records from one hour, 15,000 more per barrier; an epoch has room for 150,000."""
    growth, at = Growth(50_000), dict.fromkeys(map(str, range(partitions)), 0)
    strategy = SnapshotStrategy((Split("t", "0", 10, 100),))
    position = Position.of({str(p): 0 for p in range(partitions)})
    state = strategy.start(Pin(position, BEGUN_MS, None, strategy.splits), Control())
    ends, now_ms, begun_ms = dict.fromkeys(at, 5000000 // partitions), BEGUN_MS + HOUR_MS, BEGUN_MS
    widest, backlog, said = 0, Backlog(), []
    for epoch in range(1, 60):
        growth.observe(at, ends, now_ms, at, begun_ms)
        pending = growth.pending(state.position)
        view = UpstreamView("{}", Position.of({str(p): end for p, end in ends.items()}), pending)
        plan = strategy.plan(state, view, Budget(epoch, 150_000, 1_000, now_ms))
        if plan.window is not None:
            taken = pending[: plan.window.epochs]
            widest = max(widest, sum(one.rows or 0 for one in taken))
        reads = tuple((read, 10) for read in plan.reads)
        staged = Staged("a", reads=reads, window=plan.window) if plan else None
        state = strategy.advance(state, plan, staged, Budget(epoch, 150_000, 1_000, now_ms))
        if state.phase == Phase.LOG_STORE and plan.window is not None:
            backlog = backlog.after(plan.left)
            said.append(backlog.trend)
        ends = {p: end + 15_000 // partitions for p, end in ends.items()}
        now_ms += 7_500
    assert Trend.STAYS not in said
    assert widest <= 10 * 150_000 + 250_000
    assert state.log_store_finished_ms is not None
    assert strategy.partitions(state, position) == tuple[PartitionProgress, ...]()
