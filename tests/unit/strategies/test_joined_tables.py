"""A table joins a job that follows others, and leaves it: at each checkpoint every table is as its log says."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Position, table_of
from backfill_cli.model.split import Split, SplitStatus
from backfill_cli.model.upstream import Pin, UpstreamEpoch, UpstreamView
from backfill_cli.strategies.snapshot import SnapshotStrategy

Op = tuple[str, int, int]
TABLES = ("orders", "refunds", "audit")


def at(log: list[Op], end: int) -> dict[int, int]:
    """The rows of a table once the first `end` changes of its log are applied."""
    rows: dict[int, int] = {}
    for op, key, value in log[:end]:
        rows.pop(key, None)
        if op == "U":
            rows[key] = value
    return rows


@dataclass
class Shop:
    """Tables with a log each, a job over some of them, and what its sink holds."""

    random: Random
    logs: dict[str, list[Op]] = field(default_factory=lambda: {name: [] for name in TABLES})
    splits: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    sink: dict[str, dict[int, int]] = field(default_factory=dict)
    now_ms: int = 1_000

    def __post_init__(self) -> None:
        for name in TABLES:
            self.write(name, 12)
        self.pin = self.pinned("orders")
        self.strategy = SnapshotStrategy(self.pin.splits)
        self.state = self.strategy.start(self.pin, Control())

    def write(self, table: str, changes: int) -> None:
        for _ in range(changes):
            self.logs[table].append(
                (self.random.choice("UUD"), self.random.randrange(9), self.random.randrange(10**9))
            )

    def pinned(self, table: str) -> Pin:
        rows, end = sorted(at(self.logs[table], len(self.logs[table])).items()), len(self.logs[table])
        parts = [rows[0::2], rows[1::2]]
        self.splits |= {(table, str(number)): part for number, part in enumerate(parts)}
        self.sink[table] = {}
        splits = tuple(Split(table, str(number), len(part), 10) for number, part in enumerate(parts))
        return Pin(Position.of({table: end}), None, None, splits, {table: "{}"})

    def view(self) -> UpstreamView:
        pending = [
            UpstreamEpoch(((name, number + 1),), 1_000 + number, 1, 1)
            for name in self.pin.schema
            for number in range(int(self.state.position.get(name) or 0), len(self.logs[name]))
        ]
        pending.sort(key=lambda epoch: epoch.ms)
        latest = Position.of({name: len(self.logs[name]) for name in self.pin.schema})
        return UpstreamView("{}", latest, tuple(pending))

    def barrier(self) -> EpochPlan:
        """One epoch, and what may happen around it: a crash before it, after which it is planned again."""
        if self.random.random() < 0.3:
            kept = self.strategy.freeze(self.state)
            self.state = self.strategy.thaw(kept, self.state.splits, self.state.control)
        self.now_ms += 1_000
        budget = Budget(self.now_ms, self.random.randrange(1, 9), 1_000, self.now_ms)
        plan = self.strategy.plan(self.state, self.view(), budget)
        staged = None if not plan else self.staged(plan)
        self.state = self.strategy.advance(self.state, plan, staged, budget)
        return plan

    def staged(self, plan: EpochPlan) -> Staged:
        reads = []
        for read in plan.reads:
            rows, after = self.splits[read.table, read.split], int(read.after or 0)
            end = len(rows) if read.limit_rows is None else after + read.limit_rows
            for key, value in rows[after:end]:
                assert key not in self.sink[read.table], "a row of the snapshot is inserted: its key is new"
                self.sink[read.table][key] = value
            closed = SnapshotRead(read.table, read.split, read.after, None if end >= len(rows) else end)
            reads.append((closed, len(rows[after:end])))
        for name in self.pin.schema if plan.window is not None else ():
            assert plan.window is not None
            after, up_to = (int(one.get(name) or 0) for one in (plan.window.after, plan.window.up_to))
            for op, key, value in self.logs[name][after:up_to]:
                self.sink[name].pop(key, None)
                if op == "U":
                    self.sink[name][key] = value
        return Staged("a", {}, tuple(reads), 0, plan.window)

    def join(self, table: str) -> None:
        more = self.pinned(table)
        self.pin = self.pin.joined(more)
        self.strategy = SnapshotStrategy(self.pin.splits)
        self.state = self.strategy.joined(self.state, more)

    def leave(self, table: str) -> None:
        tables = tuple(self.pin.schema)
        self.pin = self.pin.without(table)
        self.strategy = SnapshotStrategy(self.pin.splits)
        self.state = self.strategy.left(self.state, table, tables)
        del self.sink[table]

    def is_read(self, table: str) -> bool:
        splits = [one for one in self.pin.splits if one.table == table]
        done = (self.state.splits.get((one.table, one.id)) for one in splits)
        return all(one is not None and one.status == SplitStatus.CONSUMED for one in done)

    def judge(self) -> None:
        assert {log for log, _ in self.state.position} == set(self.pin.schema)
        for name in self.pin.schema:
            rows = at(self.logs[name], int(self.state.position.get(name) or 0))
            if self.is_read(name):
                assert self.sink[name] == rows
            else:
                assert self.state.position.get(name) == self.pin.position.get(name), "its log stands"
                assert self.sink[name].items() <= rows.items()
        unread = [name for name in self.pin.schema if not self.is_read(name)]
        assert (self.state.phase == Phase.SNAPSHOT) == bool(unread)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_at_each_checkpoint_a_table_that_is_read_is_at_its_position_whatever_joins_and_leaves(seed: int) -> None:
    shop = Shop(Random(seed))
    for _ in range(60):
        act, table = shop.random.random(), shop.random.choice(TABLES)
        if act < 0.4:
            shop.write(table, shop.random.randrange(1, 4))
        elif act < 0.47 and table not in shop.pin.schema:
            shop.join(table)
        elif act < 0.5 and table in shop.pin.schema and len(shop.pin.schema) > 1:
            shop.leave(table)
        else:
            shop.barrier()
        shop.judge()
    for _ in range(400):
        if not shop.barrier() and shop.state.phase == Phase.UPSTREAM:
            break
    shop.judge()
    assert all(shop.sink[name] == at(shop.logs[name], len(shop.logs[name])) for name in shop.pin.schema)


def live_with(table: str) -> Shop:
    shop = Shop(Random(1))
    while shop.barrier() or shop.state.phase != Phase.UPSTREAM:
        pass
    shop.join(table)
    return shop


def test_the_others_follow_their_logs_while_a_table_that_joined_is_read() -> None:
    shop = live_with("refunds")
    shop.write("orders", 2)
    shop.write("refunds", 2)
    plan = shop.barrier()
    assert plan.reads
    assert plan.window is not None
    assert {log for log, at in plan.window.up_to if at != plan.window.after.get(log)} == {"orders"}
    assert plan.pending_after >= 2, "its own changes wait until it is read"


def test_a_new_job_takes_nothing_of_any_log_before_all_tables_are_read() -> None:
    shop = Shop(Random(2))
    shop.join("refunds")
    shop.write("orders", 3)
    assert not shop.state.beside
    assert shop.barrier().window is None


def test_what_a_job_knows_of_a_table_goes_with_it() -> None:
    schema, identity = {"a": "{}", "a/b": "{}"}, '{"id": {"a": 1, "a/b": 2}, "x": 7}'
    ours = Pin(Position.of({"a": 1, "a/b": 2}), 5, None, (Split("a", "0", 1, 1),), schema, identity)
    left = ours.without("a")
    assert (left.position, left.splits, dict(left.schema)) == (Position.of({"a/b": 2}), (), {"a/b": "{}"})
    assert left.identity == '{"id": {"a/b": 2}, "x": 7}'
    theirs = '{"id": {"a": 0, "c": 3}, "x": 8}'
    more = Pin(Position.of({"a": 9, "c": 3}), 8, Position.of({"c": 4}), (), {"c": "{}"}, theirs)
    both = ours.joined(more)
    assert both.position == Position.of({"a": 1, "a/b": 2, "c": 3}), "where the job stands is as the job says"
    assert (both.position_ms, both.complete_at) == (8, Position.of({"c": 4}))
    assert both.identity == '{"id": {"a": 1, "a/b": 2, "c": 3}, "x": 7}'


@pytest.mark.parametrize(
    ("log", "table"),
    [("a", "a"), ("a/3", "a"), ("a/b", "a/b"), ("a/b/partition=0", "a/b"), ("ab", None), ("wal", None)],
)
def test_a_log_is_of_the_table_whose_name_it_begins_with(log: str, table: str | None) -> None:
    assert table_of(log, ("a", "a/b")) == table
