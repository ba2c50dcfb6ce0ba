"""Tables are set aside and put back at random: the others never notice, and a refilled one is as its log says."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_joined_tables import TABLES, Shop, at

from backfill_cli.model.job import Control, Phase
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin
from backfill_cli.strategies.arrangement import ArrangementStrategy
from backfill_cli.strategies.snapshot import SnapshotStrategy


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
