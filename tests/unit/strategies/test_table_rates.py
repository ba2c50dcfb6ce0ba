"""Rates of single tables, beside that of all together: both hold, and no table waits for the rate of another."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from snapshot_run import Beat, Run, part

from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Allowed, Budget
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitStatus, partition_id
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.strategies import Strategy
from backfill_cli.strategies.arrangement import ArrangementStrategy
from backfill_cli.strategies.reading import Reading
from backfill_cli.strategies.snapshot import SnapshotStrategy
from backfill_cli.strategies.source import SourceStrategy

INTERVAL_S = 1.0
TABLES = "abc"
ANN = Control("ann", 1)
RATES = st.none() | st.sampled_from((0.3, 4.0, 60.0, 900.0))
Sizes = Mapping[str, list[int]]
sizes = st.dictionaries(st.sampled_from(TABLES), st.lists(st.integers(1, 120), min_size=1, max_size=3), min_size=1)


def snapshot(held: Sizes) -> Strategy[Any]:
    return SnapshotStrategy(_splits(held))


def arrangement(held: Sizes) -> Strategy[Any]:
    return ArrangementStrategy(_splits(held))


def topics(held: Sizes) -> Strategy[Any]:
    return SourceStrategy(
        tuple(
            Split(table, partition_id(table, number), rows, rows, first=0)
            for table, parts in held.items()
            for number, rows in enumerate(parts)
        )
    )


def _splits(held: Sizes) -> tuple[Split, ...]:
    parts = ((table, str(at), rows) for table, all_rows in held.items() for at, rows in enumerate(all_rows))
    return tuple(Split(table, name, rows, 100 * rows) for table, name, rows in parts)


strategies = st.sampled_from((snapshot, arrangement, topics))


@dataclass
class Job:
    """Any strategy over tables of which every row is there, as its metadata says."""

    strategy: Strategy[Any]
    held: Sizes
    now_ms: int = 10_000
    read: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        splits = self.strategy.splits  # type: ignore[attr-defined]
        self.state = self.strategy.start(Pin(Position(), None, None, splits), Control())

    def barrier(self, control: Control, passes_ms: int, rows: int = 10**6) -> EpochPlan:
        self.now_ms += passes_ms
        budget = Budget(self.now_ms, rows, int(INTERVAL_S * 1000), self.now_ms)
        self.state = self.strategy.apply(self.state, Mutations(control))
        whole = {partition_id(t, n): rows for t, all_rows in self.held.items() for n, rows in enumerate(all_rows)}
        view = UpstreamView("{}", Position.of(whole if self.strategy.name == "source" else {"log": 0}))
        plan = self.strategy.plan(self.state, view, budget)
        staged = None
        if plan:
            reads = tuple(map(self._closed, plan.reads))
            for one, count in reads:
                self.read[one.table] += count
            staged = Staged("a", {}, reads, 0, plan.window)
        self.state = self.strategy.advance(self.state, plan, staged, budget)
        return plan

    def _closed(self, read: SnapshotRead) -> tuple[SnapshotRead, int]:
        if self.strategy.name == "source":
            return read, int(read.up_to or 0) - int(read.after or 0)
        after, size = int(read.after or 0), self.held[read.table][int(read.split)]
        end = size if read.limit_rows is None else min(size, after + read.limit_rows)
        # as many as were asked for: only the next read finds the end
        over = end == size and (read.limit_rows is None or size < after + read.limit_rows)
        return replace(read, up_to=None if over else end, limit_rows=None), end - after

    def resume(self) -> None:
        self.state = self.strategy.thaw(self.strategy.freeze(self.state), self.state.splits, self.state.control)

    @property
    def is_read(self) -> bool:
        return not self.strategy.unread(self.state)


def controlled(job_rate: float | None, rates: Mapping[str, float | None]) -> Control:
    control = Control(rate=job_rate)
    for table, rate in rates.items():
        control = control.with_rate(table, rate)
    return control


@given(strategies, sizes, RATES, st.fixed_dictionaries(dict.fromkeys(TABLES, RATES)), st.data())
def test_no_table_is_read_faster_than_its_rate_nor_all_together_faster_than_the_jobs(
    kind: Any, held: Sizes, job_rate: float | None, rates: dict[str, float | None], data: st.DataObject
) -> None:
    job = Job(kind(held), held)
    control, began_ms, runners = controlled(job_rate, rates), job.now_ms, 1
    for _ in range(data.draw(st.integers(1, 25))):
        paused = replace(control, paused_by="ann")
        now = data.draw(st.sampled_from((control, control, control, paused)))
        job.barrier(
            now, data.draw(st.sampled_from((0, 300, 1_000, 4_000))), data.draw(st.sampled_from((50, 10**6)))
        )
        if data.draw(st.integers(0, 7)) == 0:
            job.resume()
            runners += 1
        past_s = (job.now_ms - began_ms) / 1000
        for table, rate in rates.items():
            if rate is not None:  # a new runner begins with one burst
                assert job.read[table] <= rate * (past_s + runners * INTERVAL_S) + 1e-6
        if job_rate is not None:
            assert job.read.total() <= job_rate * (past_s + runners * INTERVAL_S) + 1e-6


@given(
    strategies, sizes, st.fixed_dictionaries(dict.fromkeys(TABLES, st.none() | st.sampled_from((0.0, 4.0, 60.0))))
)
def test_no_table_waits_for_the_rate_of_another(kind: Any, held: Sizes, rates: dict[str, float | None]) -> None:
    """Each is read after its own rows ÷ its own rate; one without a rate in the first epochs; one at 0 never."""
    job, control = Job(kind(held), held), controlled(None, rates)
    for seconds in range(1, 4 + max(sum(rows) // 4 + 2 * len(rows) for rows in held.values())):
        job.barrier(control, 1_000)
        for table in held:
            rate = rates[table]
            if rate == 0:
                assert not job.read[table]
            elif seconds > 3 + sum(held[table]) / (rate or 10**6) + 2 * len(held[table]):
                assert job.read[table] == sum(held[table])
    stopped = {table for table in held if rates[table] == 0}
    assert job.strategy.unread(job.state) == stopped
    for table in stopped:  # lifted, or the rest would never be followed
        control = control.with_rate(table, None)
    for _ in range(20):
        job.barrier(control, 1_000)
    assert job.is_read
    assert job.read == Counter({table: sum(rows) for table, rows in held.items()})


@given(
    strategies,
    sizes,
    st.sampled_from((4.0, 60.0)),
    st.fixed_dictionaries(dict.fromkeys(TABLES, st.sampled_from((None, 4.0, 900.0)))),
)
def test_under_the_rate_of_the_job_too_every_table_is_read_in_the_end(
    kind: Any, held: Sizes, job_rate: float, rates: dict[str, float | None]
) -> None:
    job, control = Job(kind(held), held), controlled(job_rate, rates)
    for _ in range(30 + sum(int(sum(rows) / min(job_rate, rates[t] or job_rate)) + 9 for t, rows in held.items())):
        job.barrier(control, 4_000)
        job.barrier(control, 1_000)
    assert job.is_read


def test_a_table_whose_rate_is_used_up_leaves_the_epoch_to_those_behind_it() -> None:
    splits = (Split("slow", "0", 1_000, 1), Split("slow", "1", 1_000, 1), Split("quick", "0", 1_000, 1))
    allowed = Allowed(None, {"slow": 10.0})
    reads = [
        (read.table, read.split, read.limit_rows) for read in Reading(splits).reads({}, allowed, budget(5_000))
    ]
    assert reads == [("slow", "0", 10), ("quick", "0", None)]


def test_the_rate_of_all_tables_is_shared_in_their_order() -> None:
    splits = (Split("slow", "0", 1_000, 1), Split("quick", "0", 1_000, 1))
    allowed = Allowed(100.0, {"slow": 10.0})
    reads = [(read.table, read.limit_rows) for read in Reading(splits).reads({}, allowed, budget(5_000))]
    assert reads == [("slow", 10), ("quick", 90)]


def test_a_file_that_is_read_whole_leaves_its_own_table_a_debt_and_none_to_the_others() -> None:
    run = Run((part("0", 500, cuttable=False, table="a"), part("1", 40, table="a"), part("0", 900, table="b")))
    control = Control().with_rate("a", 100.0)
    run.barrier(Beat(rows=600, control=control))
    assert (run.state.allowances["a"].tokens, run.state.allowance.tokens) == (-400.0, 0.0)
    run.resume()
    assert run.state.allowances["a"].tokens == -400.0
    for _ in range(4):
        assert not [read for read in run.barrier(Beat(rows=600, control=control)).reads if read.table == "a"]
    run.until(Phase.UPSTREAM, Beat(rows=600, control=control), 4)


def test_what_was_kept_before_there_were_rates_of_tables_is_read() -> None:
    run = Run((part("0", 50),))
    kept = run.strategy.freeze(run.state)
    assert "allowances" not in kept
    assert run.strategy.thaw(kept, {}, Control()).allowances == {}


def test_a_table_whose_rate_is_lifted_has_no_bucket_any_more() -> None:
    run = Run((part("0", 50_000, table="a"),))
    run.barrier(Beat(control=Control().with_rate("a", 5.0)))
    assert run.state.splits["a", "0"].status == SplitStatus.CONSUMING
    run.barrier(Beat(control=Control()))
    assert run.state.allowances == {}


def test_the_tables_that_are_still_read_tell_how_long_their_rates_make_that_take() -> None:
    run = Run((part("0", 1_000, table="a"), part("0", 1_000, table="b"), part("0", 10, table="c")))
    control = Control().with_rate("a", 100.0).with_rate("c", 100.0)
    run.barrier(Beat(rows=200, control=control))
    run.barrier(Beat(rows=10, control=control))
    (one, other) = run.strategy.own_paces(run.state)
    assert (one.table, other.table) == ("a", "c")
    assert one.left_s * 100 + sum(end - begin for begin, end in run.delivered["a", "0"]) == 1_000


def budget(rows: int) -> Budget:
    return Budget(0, rows, 1_000, 0)
