"""What a sink must do that fills derived tables range by range: beside `SqlDerivedContract`."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from derived_contract import Query, past, there
from sink_epochs import Epochs, Row, a_table

from backfill_cli.contracts import EpochCommit, Sink
from backfill_cli.model.derived import Derived
from backfill_cli.sinks.sql.derived import SqlDerives

COUNTED = "SELECT name, count(*) AS n, sum(id) AS ids FROM orders GROUP BY 1"
JOINED = (
    "SELECT o.id, o.name, i.name AS item FROM orders o LEFT JOIN items i ON i.id = o.id "
    "WHERE o.name <> 'gone' OR FALSE -- both"
)
LATEST = "SELECT id % 3 AS k, max(id) AS last FROM orders GROUP BY 1"
SELECTS = {
    "counted": Derived("counted", "counted", ("name",), COUNTED),
    "all_of_it": Derived("all_of_it", "all_of_it", (), "SELECT count(name) AS n, sum(id) AS ids FROM orders"),
    "joined": Derived("joined", "joined", ("id",), JOINED),
    "pairs": Derived(
        "pairs",
        "pairs",
        ("name",),
        "SELECT i.name, count(*) AS n, sum(o.id) AS ids FROM orders o, items AS i WHERE i.id = o.id GROUP BY 1",
    ),
    "by_id": Derived(
        "by_id", "by_id", ("id",), "SELECT id, max(name) AS name, min(id) AS i FROM orders GROUP BY id"
    ),
    "latest": Derived("latest", "latest", ("k",), LATEST),
}
RANGED = {"counted", "all_of_it", "joined", "pairs", "by_id"}
"""Those that are filled range by range; the others by one SELECT."""
NAMES: tuple[str | None, ...] = ("a", "b", "c", "gone", None)


def expected(name: str, orders: dict[int, str | None], items: dict[int, str | None]) -> list[tuple[Any, ...]]:
    """What the derived table must hold, in plain Python."""
    found: list[tuple[Any, ...]]
    if name == "counted":
        found = [
            (of, len(ids), sum(ids))
            for of in set(orders.values())
            for ids in [[key for key, value in orders.items() if value == of]]
        ]
    elif name == "all_of_it":
        found = [(sum(value is not None for value in orders.values()), sum(orders) if orders else None)]
    elif name == "joined":
        found = [(key, value, items.get(key)) for key, value in orders.items() if value not in ("gone", None)]
    elif name == "pairs":
        found = [
            (of, len(ids), sum(ids))
            for of in set(items.values())
            if (ids := [key for key in orders if key in items and items[key] == of])
        ]
    elif name == "by_id":
        found = [(key, value, key) for key, value in orders.items()]
    else:
        found = [(k, max(ids)) for k in range(3) if (ids := [key for key in orders if key % 3 == k])]
    return sorted(found, key=repr)


class FillingContract:
    """Fixtures to provide: `sink`, `epochs` as of `SinkContract`; `query`."""

    @pytest.fixture
    def world(self, sink: Sink, epochs: Epochs, query: Query) -> "World":
        return World(sink, epochs, query)

    @pytest.mark.parametrize("name", SELECTS)
    def test_a_derived_table_is_filled_range_by_range_while_its_tables_change(
        self, world: "World", monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """Each commit between ranges writes and deletes rows of those that are filled and of those to come."""
        self._small(world.sink, monkeypatch)
        random, derived = Random(name), SELECTS[name]
        world.begin(derived, {key: random.choice(NAMES) for key in range(1, 13)}, {3: "x", 4: "y", 9: None})
        commits = 0
        while not world.filled(name):
            assert not there(world.query, name), "nobody takes a part of it for the whole"
            world.change(random, "items" if commits == 2 else "orders", 3 * commits)
            commits += 1
            assert commits < 9
        assert (commits > 2) == (name in RANGED)
        for _ in range(4):
            assert world.held(derived) == expected(name, world.orders, world.items)
            world.change(random)
        assert world.held(derived) == expected(name, world.orders, world.items)
        assert not world.ours()

    @pytest.mark.parametrize("name", SELECTS)
    def test_whether_a_fill_is_made_of_ranges_is_told_by_the_database(self, world: "World", name: str) -> None:
        random, derived = Random(name), SELECTS[name]
        world.begin(derived, {key: random.choice(NAMES) for key in range(1, 13)}, {3: "x", 4: "y", 9: None})
        commits = 0
        while not world.filled(name):
            world.change(random)
            commits += 1
            assert commits < 99
        assert world.held(derived) == expected(name, world.orders, world.items)

    @pytest.mark.parametrize("name", ["counted", "joined"])
    @pytest.mark.parametrize("meddled", ["DROP TABLE {}", "ALTER TABLE {} ADD COLUMN more int"])
    def test_a_fill_whose_table_somebody_dropped_or_altered_begins_anew(
        self, world: "World", monkeypatch: pytest.MonkeyPatch, name: str, meddled: str
    ) -> None:
        self._small(world.sink, monkeypatch)
        random, derived = Random(name), SELECTS[name]
        world.begin(derived, dict.fromkeys(range(1, 13), "a"), {3: "x"})
        for _ in range(2):
            world.change(random)
        (side,) = world.ours()
        world.query(meddled.format(side))
        while not world.filled(name):
            world.change(random)
        assert world.held(derived) == expected(name, world.orders, world.items)
        assert not world.ours()

    def test_verify_compares_none_that_is_being_filled_or_that_waits_for_it(
        self, world: "World", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        self._small(world.sink, monkeypatch)
        random, derived, copied = Random("verify"), SELECTS["counted"], world.sink.extras.copied
        reader = Derived("reader", "reader", derived.key, f"SELECT name, n FROM {derived.name}")
        world.begin(derived, dict.fromkeys(range(1, 13), "a"), {3: "x"})
        assert copied is not None
        assert world.sink.extras.derives is not None
        world.derived = (derived, reader)
        world.sink.extras.derives.prepare("orders", world.derived, world.epochs.tables)

        def compared(at: int) -> list[bool]:
            (tmp_path / str(at)).mkdir()
            with copied("orders", False, tmp_path / str(at)) as copy:
                found = [copy.compare(one, world.derived, world.epochs.tables, 20) for one in world.derived]
            assert not any(one.missing or one.extra or one.changed for one in found)
            return [one.compared for one in found]

        commits = 0
        while not world.filled("reader"):
            assert compared(commits) == [world.filled("counted"), False]
            world.change(random)
            commits += 1
        assert commits > 2
        assert compared(commits) == [True, True]

    @pytest.mark.parametrize("name", ["counted", "joined"])
    def test_a_fill_is_ended_at_once_waits_or_is_left(
        self, world: "World", monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        self._small(world.sink, monkeypatch)
        random, derived, derives = Random(name), SELECTS[name], world.sink.extras.derives
        assert derives is not None
        world.begin(derived, dict.fromkeys(range(1, 13), "a"), {3: "x"})
        world.change(random)
        before, world.fill_rows = derives.filling("orders")[name], 0
        assert (before.table, before.done, before.rows) == ("orders", 1, 12)
        world.change(random)
        assert derives.filling("orders") == {name: before}, "none now"
        world.fill_rows = 3
        world.change(random)
        assert derives.filling("orders")[name].done == 2
        world.fill_rows = None
        world.change(random)
        assert world.filled(name)
        assert world.held(derived) == expected(name, world.orders, world.items)
        assert not derives.filling("orders")
        derives.renew("orders", [derived])
        world.fill_rows = 3
        held = world.held(derived)
        world.change(random)
        assert world.held(derived) == held, "it has its old rows until the last range"
        assert world.ours()
        world.sink.leave("orders", [name])
        assert not world.ours()
        assert not derives.filling("orders")

    def _small(self, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(sink.extras.derives, SqlDerives)
        monkeypatch.setattr(type(sink.extras.derives), "is_cheap", lambda *_: True)
        monkeypatch.setattr(type(sink.extras.derives), "size", lambda *_: 12)


class World:
    """Two tables, changed at random; each commit fills a range of what it can."""

    def __init__(self, sink: Sink, epochs: Epochs, query: Query) -> None:
        self.sink, self.epochs, self.query = sink, epochs, query
        self.orders: dict[int, str | None] = {}
        self.items: dict[int, str | None] = {}
        self.derived: tuple[Derived, ...] = ()
        self.fill_rows: int | None = 3

    def begin(self, derived: Derived, orders: dict[int, str | None], items: dict[int, str | None]) -> None:
        derives = self.sink.extras.derives
        assert derives is not None
        self.epochs.tables = (*self.epochs.tables, a_table("items"))
        self.sink.prepare(self.epochs.job, self.epochs.tables, into_existing=False)
        self.derived = (derived,)
        derives.prepare(self.epochs.job, self.derived, self.epochs.tables)
        self.orders, self.items = dict(orders), dict(items)
        for of, rows in (("orders", orders), ("items", items)):
            snapshot = self.epochs.next(inserts=_rows(rows), of=of)
            self.sink.commit(replace(snapshot, derived=self.derived, fill_rows=self.fill_rows))

    def change(self, random: Random, of: str | None = None, filled: int = 0) -> None:
        """A row is deleted and two are written; if keys up to `filled` are, of these and of the next ones each."""
        of = of or random.choice(("orders", "items"))
        held = self.orders if of == "orders" else self.items
        gone, upserts = list[int](), dict[int, str | None]()
        for keys in (range(1, filled + 1), range(filled + 1, filled + 4)) if filled else (range(1, 16),):
            gone += random.sample(there := [key for key in keys if key in held], min(1, len(there)))
            written = random.sample([key for key in keys if key not in gone], 2)
            upserts |= {key: random.choice(NAMES) for key in written}
        self.commit(self.epochs.next(upserts=_rows(upserts), deletes=gone, of=of))
        held |= upserts
        for key in gone:
            del held[key]

    def commit(self, commit: EpochCommit) -> None:
        self.sink.commit(replace(past(commit, *self.derived), fill_rows=self.fill_rows))

    def filled(self, name: str) -> bool:
        return self.sink.committed(self.epochs.job)[name].epoch > 0

    def held(self, derived: Derived) -> list[tuple[Any, ...]]:
        found = [tuple(map(_plain, row)) for row in self.query(f"SELECT * FROM {derived.target}")]
        return sorted(found, key=repr)

    def ours(self) -> list[str]:
        """Tables of ours that hold rows of a derived table that is being filled."""
        named = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%backfill_fills_%'"
        return [name for (name,) in self.query(named)]


def _rows(rows: dict[int, str | None]) -> list[Row]:
    return [{"id": key, "name": name} for key, name in rows.items()]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else int(value)
