"""Tables are set aside and put back at random: the others never notice, and a refilled one is as its log says."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_joined_tables import TABLES, Op, Shop, at

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.strategies.arrangement import ArrangementStrategy
from backfill_cli.strategies.snapshot import SnapshotStrategy
from backfill_cli.strategies.source import SourceStrategy


@dataclass
class AsideShop(Shop):
    """aside: tables that are set aside, with their rows. back: those that are put back and not refilled yet.

    of_files: a pin is always that of the beginning, and a log goes on after its last commit. first: these pins.
    at: these commits, with whether all rows of the table had been read by then.
    """

    aside: dict[str, dict[int, int]] = field(default_factory=dict)
    back: set[str] = field(default_factory=set)
    of_files: bool = False
    first: dict[str, Pin] = field(default_factory=dict)
    at: dict[str, tuple[Position, bool]] = field(default_factory=dict)

    def pinned(self, table: str) -> Pin:
        if not self.of_files or table not in self.first:
            self.first[table] = super().pinned(table)
        return self.first[table]

    def set_aside(self, table: str) -> None:
        """It leaves, and its rows stay."""
        kept = dict(self.sink[table])
        position = Position(tuple(one for one in self.state.position if one[0] == table))
        self.at[table] = (position, self.is_read(table) and (table not in self.back or self.at[table][1]))
        self.leave(table)
        self.aside[table], self.back = kept, self.back - {table}

    def put_back(self, table: str) -> None:
        rows, more = self.aside.pop(table), self.pinned(table)
        self.sink[table] = rows
        before = self.state
        self.pin = self.pin.joined(more)
        if self.of_files:
            more = replace(more, position=self.at[table][0])
        self.strategy = SnapshotStrategy(self.pin.splits)
        self.state = self.strategy.put_back(before, more)
        assert (self.state.phase, self.state.beside) == (before.phase, before.beside), "nothing is read for it"
        self.back.add(table)

    def refill(self, table: str) -> None:
        """The difference between its sink and its log, at the position that the job is at."""
        self.sink[table] = at(self.logs[table], int(self.state.position.get(table) or 0))
        self.back.discard(table)

    def judge(self) -> None:
        assert {log for log, _ in self.state.position} == set(self.pin.schema) == set(self.sink)
        exact = {name for name in self.back if self.of_files and self.at[name][1]}
        for name in (set(self.pin.schema) - self.back) | exact:
            rows = at(self.logs[name], int(self.state.position.get(name) or 0))
            assert self.sink[name] == rows if self.is_read(name) else self.sink[name].items() <= rows.items()
        assert all(self.is_read(name) for name in self.back)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_the_others_are_exact_meanwhile_and_a_table_is_once_it_was_refilled(seed: int, of_files: bool) -> None:
    shop = AsideShop(Random(seed), of_files=of_files)
    shop.join("refunds")
    shop.join("audit")
    for _ in range(80):
        act, table = shop.random.random(), shop.random.choice(TABLES)
        kept = {name: dict(rows) for name, rows in shop.aside.items()}
        if act < 0.4:
            shop.write(table, shop.random.randrange(1, 4))
        elif act < 0.47 and table in shop.pin.schema and len(shop.pin.schema) > 1:
            shop.set_aside(table)
        elif act < 0.54 and table in shop.aside:
            shop.put_back(table)
        elif act < 0.6 and table in shop.back and shop.state.phase != Phase.SNAPSHOT:
            shop.refill(table)
        else:
            shop.barrier()
        assert all(shop.aside.get(name, rows) == rows for name, rows in kept.items()), "its rows stay as they were"
        shop.judge()
    for table in list(shop.aside):
        shop.put_back(table)
    for _ in range(400):
        if not shop.barrier() and shop.state.phase == Phase.UPSTREAM:
            break
    for table in list(shop.back):
        shop.refill(table)
    shop.judge()
    assert shop.sink == {name: at(shop.logs[name], len(shop.logs[name])) for name in TABLES}


@dataclass
class Topics:
    """Tables with a topic each, of two partitions, and a job over some of them.

    oldest: retention has removed what is before. out: tables that are set aside: their pin, where they stand, and
    their rows. Positions are offsets, one a change.
    """

    random: Random
    logs: dict[str, list[Op]] = field(default_factory=dict)
    oldest: dict[str, int] = field(default_factory=dict)
    sink: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    out: dict[str, tuple[Pin, Position]] = field(default_factory=dict)
    now_ms: int = 1_000

    def __post_init__(self) -> None:
        self.logs = {f"{table}/{n}": [] for table in TABLES for n in (0, 1)}
        self.oldest = dict.fromkeys(self.logs, 0)
        for _ in range(20):
            self.write()
        pins = [self.pinned(table) for table in TABLES]
        self.pin = pins[0].joined(pins[1]).joined(pins[2])
        self.strategy = SourceStrategy(self.pin.splits)
        self.state = self.strategy.start(self.pin, Control())
        self.sink = {table: {log: {} for log in self.of(table)} for table in TABLES}

    def of(self, table: str) -> list[str]:
        return [log for log in self.logs if log.startswith(f"{table}/")]

    def write(self) -> None:
        log = self.random.choice(list(self.logs))
        self.logs[log].append((self.random.choice("UUD"), self.random.randrange(9), self.random.randrange(10**9)))

    def pinned(self, table: str) -> Pin:
        splits = tuple(Split(table, log, len(self.logs[log]), 0, first=0) for log in self.of(table))
        return Pin(Position.of(dict.fromkeys(self.of(table), 0)), None, None, splits, {table: "{}"})

    def set_aside(self, table: str) -> None:
        at = Position(tuple(one for one in self.state.position if one[0] in self.of(table)))
        self.out[table] = self.pin.only(table), at
        tables = tuple(self.pin.schema)
        self.pin = self.pin.without(table)
        self.strategy = SourceStrategy(self.pin.splits)
        self.state = self.strategy.left(self.state, table, tables)

    def put_back(self, table: str) -> None:
        pin, at = self.out.pop(table)
        self.pin, phase = self.pin.joined(pin), self.state.phase
        self.strategy = SourceStrategy(self.pin.splits)
        self.state = self.strategy.put_back(self.state, replace(pin, position=at))
        assert self.state.phase == phase, "no history is read for it"

    def retain(self) -> None:
        """What everybody has read may go."""
        stands = dict(self.state.position) | {log: at for _, position in self.out.values() for log, at in position}
        log = self.random.choice(list(self.logs))
        self.oldest[log] = self.random.randint(self.oldest[log], int(stands[log]))

    def barrier(self) -> bool:
        if self.random.random() < 0.3:  # a crash before it
            kept = self.strategy.freeze(self.state)
            self.state = self.strategy.thaw(kept, self.state.splits, self.state.control)
        self.now_ms += 1_000
        mine = [log for table in self.pin.schema for log in self.of(table)]
        latest = Position.of({log: len(self.logs[log]) for log in mine})
        oldest = Position.of({log: self.oldest[log] for log in mine})
        budget = Budget(self.now_ms, self.random.randrange(1, 9), 1_000, self.now_ms)
        plan = self.strategy.plan(self.state, UpstreamView("{}", latest, oldest=oldest), budget)
        ranges = [(read.split, int(read.after or 0), int(read.up_to or 0)) for read in plan.reads]
        if plan.window is not None:
            ranges += [(log, int(plan.window.after.get(log) or 0), int(end)) for log, end in plan.window.up_to]
        for log, after, up_to in ranges:
            assert after >= self.oldest[log]
            rows = self.sink[log.partition("/")[0]][log]
            for op, key, value in self.logs[log][after:up_to]:
                rows.pop(key, None)
                if op == "U":
                    rows[key] = value
        reads = tuple((read, int(read.up_to or 0) - int(read.after or 0)) for read in plan.reads)
        staged = Staged("a", {}, reads, 0, plan.window) if plan else None
        self.state = self.strategy.advance(self.state, plan, staged, budget)
        return bool(plan)

    def judge(self) -> None:
        """Each partition is at its offset, also one of a table that is set aside."""
        assert {table for table, _ in self.state.splits} == self.pin.schema.keys() == set(TABLES) - self.out.keys()
        stands = dict(self.state.position) | {log: at for _, position in self.out.values() for log, at in position}
        for rows in self.sink.values():
            for log, held in rows.items():
                assert held == at(self.logs[log], int(stands[log])), log


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_topics_that_are_put_back_go_on_where_their_rows_stand(seed: int) -> None:
    """History that one lacked is read as live: exact at its offsets at each checkpoint, before any refill."""
    topics = Topics(Random(seed))
    for _ in range(80):
        act, table = topics.random.random(), topics.random.choice(TABLES)
        if act < 0.4:
            topics.write()
        elif act < 0.5:
            topics.retain()
        elif act < 0.58 and table not in topics.out and len(topics.pin.schema) > 1:
            topics.set_aside(table)
        elif act < 0.66 and table in topics.out:
            topics.put_back(table)
        else:
            topics.barrier()
        topics.judge()
    for table in list(topics.out):
        topics.put_back(table)
    for _ in range(400):
        if not topics.barrier() and topics.state.phase == Phase.UPSTREAM:
            break
    topics.judge()
    assert all(int(end) == len(topics.logs[log]) for log, end in topics.state.position)


@pytest.mark.parametrize("phase", [Phase.SNAPSHOT, Phase.UPSTREAM])
def test_a_table_that_is_put_back_counts_with_all_its_keys_and_is_not_read(phase: Phase) -> None:
    one, two = (Split(name, "0", 5, 10) for name in ("orders", "refunds"))
    pins = [Pin(Position.of({"wal": 7}), None, None, (split,), {split.table: "{}"}) for split in (one, two)]
    begun = ArrangementStrategy((one,)).start(pins[0], Control())
    if phase is Phase.UPSTREAM:
        begun = ArrangementStrategy(()).start(pins[0], Control())
    strategy = ArrangementStrategy((one, two))
    state = strategy.put_back(begun, pins[1])
    assert (state.phase, state.position) == (phase, begun.position)
    assert strategy._within(state) == {("refunds", "0"): None}, "every change of it counts"
