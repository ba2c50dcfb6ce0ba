"""What a lake's derived tables must do beside `DerivedContract`: their tables commit one by one."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from derived_contract import BY_NAME, NAMES, DerivedContract, Query, past
from hint_typed import typed
from sink_contract import Epochs, Row, a_table, rows

from backfill_cli.contracts import ComparedDerived, Derives, EpochCommit, Sink
from backfill_cli.errors import BadData, UsageError
from backfill_cli.lake.upkeep import Keeping
from backfill_cli.model.committing import Committing
from backfill_cli.model.derived import Derived
from backfill_cli.model.plan import Staged

PAIRS = Derived(
    "pairs",
    "pairs",
    ("id",),
    "SELECT o.id, o.name, i.name AS item FROM orders o LEFT JOIN items i ON i.id = o.id AND i.name <> 'x'",
)
ITEMS = Derived("by_item", "by_item", ("item",), "SELECT item, count(*) AS n FROM pairs GROUP BY item")


def derives_of(sink: Sink) -> Derives:
    assert sink.extras.derives is not None
    return sink.extras.derives


class LakeDerivedContract(DerivedContract):
    """Fixtures to provide, too: `again`, a second process with the sink; `compact` rewrites a table's files.

    `forget` removes all versions of a table but its last, and their files.
    """

    volatile = "spark_partition_id()"

    @pytest.fixture
    def again(self) -> Callable[[], Sink]:
        raise pytest.UsageError("needs an `again` fixture")

    @pytest.fixture
    def compact(self) -> Callable[[str], None]:
        raise pytest.UsageError("needs a `compact` fixture")

    def test_a_group_inside_from_is_kept(self, sink: Sink, epochs: Epochs, query: Query, tmp_path: Path) -> None:
        """And the latest per key, by a window and by max of a struct, in WITH, beside a group of a derived table;
        over a state that others change, too."""
        grouped = (
            "WITH g AS (SELECT name, count(*) AS n FROM orders GROUP BY name) SELECT g.n, count(*) AS names, "
        )
        grouped += "max(m.last) AS last FROM g, (SELECT max(id) AS last FROM orders) AS m GROUP BY g.n"
        ranked = "SELECT name, id, row_number() OVER (PARTITION BY name ORDER BY id DESC) AS place FROM orders"
        best = "SELECT name, max(struct(id, name)).id AS id FROM orders GROUP BY name"
        sql = f"WITH r AS ({ranked}), b AS ({best}) SELECT r.name, r.id, b.id AS same, m.most FROM r JOIN b ON "
        sql += "b.name = r.name LEFT JOIN (SELECT names, max(n) AS most FROM nested GROUP BY names) AS m "
        latest = Derived("latest", "latest", ("name",), f"{sql} ON m.names = r.id WHERE r.place = 1")
        nested = Derived("nested", "nested", ("n",), grouped)
        derives, copied = derives_of(sink), sink.extras.copied
        assert copied is not None
        planned = derives.check("new", (latest, nested), epochs.tables, {})
        assert [one.by for one in planned[1].reads] == [("name",), ()]
        derives.prepare(epochs.job, (latest, nested), epochs.tables)

        def kept(commit: EpochCommit) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
            sink.commit(past(commit, latest, nested))
            groups = query("SELECT n, names, last FROM nested ORDER BY 1")
            return groups, query("SELECT name, id, same, most FROM latest ORDER BY 1")

        assert kept(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "a"), (4, "d")))) == (
            [(1, 2, 4), (2, 1, 4)],
            [("a", 3, 3, None), ("b", 2, 2, 1), ("d", 4, 4, None)],
        )
        assert kept(epochs.next(upserts=rows((2, "c"), (3, "b")), deletes=[4])) == (
            [(1, 3, 3)],
            [("a", 1, 1, None), ("b", 3, 3, 1), ("c", 2, 2, None)],
        )
        query("INSERT INTO orders VALUES (9, 'b'), (8, 'a')")
        assert kept(epochs.next(upserts=rows((1, "d")))) == (
            [(1, 3, 9), (2, 1, 9)],
            [("a", 8, 8, None), ("b", 9, 9, None), ("c", 2, 2, None), ("d", 1, 1, 2)],
        )
        with copied(epochs.job, False, tmp_path) as copy:
            assert copy.compare(nested, (nested,), epochs.tables, 9) == ComparedDerived(2, 2)

    def test_rows_that_the_engine_cannot_compute_refuse_the_commit_and_nothing_of_it_stays(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        """Of the derived table; the tables have the epoch, so that what corrects the rows can follow."""
        sql = "SELECT name, sum(CAST(name AS int)) AS n FROM orders GROUP BY name"
        numbers = Derived("numbers", "numbers", ("name",), sql)
        derives_of(sink).prepare(epochs.job, [numbers], epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "1"))), numbers))
        with pytest.raises(BadData, match=r"derived table 'numbers' cannot be computed: .*x") as refused:
            sink.commit(past(epochs.next(upserts=rows((2, "x"))), numbers))
        assert query("SELECT sum(n) FROM numbers") == [(1,)]
        assert sink.committed(epochs.job)["numbers"].epoch == 0
        with typed(refused.value) as hint:
            hint.says("correct the rows that it reads")
            sink.commit(past(epochs.next(upserts=rows((2, "3"))), numbers))
        assert query("SELECT sum(n) FROM numbers") == [(4,)]

    def test_a_key_that_stands_twice_is_named_as_it_is_filled_and_later(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        ids = Derived("ids", "ids", ("name",), "SELECT name, id FROM orders")
        derives_of(sink).prepare(epochs.job, [ids], epochs.tables)
        for other, found in (("b", [("a", 1), ("b", 2)]), ("c", [("a", 1), ("c", 2)])):
            with pytest.raises(BadData, match=r"'ids': its key \(name\) has duplicates: \(a\) 2") as refused:
                sink.commit(past(epochs.next(upserts=rows((1, "a"), (2, "a"))), ids))
            with typed(refused.value) as hint:
                hint.says("correct the rows that share it, upstream")
                sink.commit(past(epochs.next(upserts=rows((1, "a"), (2, other))), ids))
            assert query("SELECT name, id FROM ids ORDER BY id") == found

    @pytest.fixture
    def forget(self) -> Callable[[str], None]:
        raise pytest.UsageError("needs a `forget` fixture")

    @pytest.fixture
    def told(self) -> list[Committing]:
        """How far commits said that they are."""
        return []

    @pytest.fixture
    def paired(self, sink: Sink, epochs: Epochs, told: list[Committing]) -> tuple[Derived, ...]:
        epochs.tables = (*epochs.tables, a_table("items"))
        sink.prepare(epochs.job, epochs.tables, into_existing=False)
        derived = (ITEMS, PAIRS)
        derives_of(sink).prepare(epochs.job, derived, epochs.tables)
        sink.fence(epochs.job, 1)
        first = past(both(epochs, rows((1, "a"), (2, "b")), rows((1, "x"), (2, "two"))), *derived)
        sink.commit(replace(first, tell=told.append))
        return derived

    def test_a_kill_after_any_of_its_commits_is_recovered_from(
        self,
        sink: Sink,
        epochs: Epochs,
        query: Query,
        paired: tuple[Derived, ...],
        again: Callable[[], Sink],
        fills: list[str],
        told: list[Committing],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """One epoch is killed before and after each, by the process that goes on each time.

        Each says how far it is.
        """
        assert [one.said for one in told] == [
            "0 of 4 tables have it, now orders",
            "1 of 4 tables have it, now items",
            "filling pairs: 1 of 2 derived tables",
            "filling by_item: 2 of 2 derived tables",
        ]
        told.clear()

        class Killed(BaseException):
            pass

        first = past(epochs.next(upserts=rows((1, "n")), deletes=[2], of="orders"))
        commit = past(both(epochs, rows((11, "new")), rows((1, "i"), (3, "more")), first), *paired)
        commit = replace(commit, tell=told.append)
        ends = ((1, set(), "pairs"), (2, {"pairs"}, "pairs"), (1, {"pairs"}, "by_item"))
        for at, done, now in (*ends, (2, {"pairs", "by_item"}, "by_item")):
            hits = [0]

            def hit(name: str, at: int = at, hits: list[int] = hits) -> None:
                hits[0] += name.startswith("derived-")
                if hits[0] == at and name.startswith("derived-"):
                    raise Killed

            with monkeypatch.context() as patched:
                patched.setattr("backfill_cli.failpoint.handler", hit)
                with pytest.raises(Killed):
                    sink.commit(commit)
            sink = again()
            sink.fence(epochs.job, 1)
            found = {name for name, one in sink.committed(epochs.job).items() if one.epoch == commit.epoch}
            assert found == {"orders", "items", *done}
            assert (told[-1].lacks[0], found - set(told[-1].has) <= {now}, told[-1].filling) == (now, True, None)
        for following in (commit, past(epochs.next(upserts=rows((1, "o")), deletes=[11], of="orders"), *paired)):
            sink.commit(following)
            assert {one.epoch for one in sink.committed(epochs.job).values()} == {following.epoch}
            self._agree(query)
        assert not fills

    def test_a_fill_stops_between_two_derived_tables_and_goes_on_with_those_that_are_not_filled(
        self,
        sink: Sink,
        epochs: Epochs,
        query: Query,
        paired: tuple[Derived, ...],
        again: Callable[[], Sink],
        fills: list[str],
    ) -> None:
        """By a command, and by a kill. Changes go on meanwhile; one that a filled one reads does not wait."""

        class Killed(BaseException):
            pass

        def unfilled() -> set[str]:
            return {name for name, one in sink.committed(epochs.job).items() if not one.epoch}

        derives_of(sink).renew(epochs.job, [PAIRS])
        sink.commit(replace(past(epochs.next(upserts=rows((4, "d")), of="orders"), *paired), fill_rows=0))
        assert (fills, unfilled()) == (["pairs", "by_item"], set()), "by_item is to equal its SELECT"
        fills.clear()
        derives_of(sink).renew(epochs.job, paired)
        held = past(epochs.next(upserts=rows((2, "c")), of="orders"), *paired)
        sink.commit(replace(held, holds=lambda: bool(fills)))
        assert (fills, unfilled()) == (["pairs"], {"by_item"})
        sink.commit(replace(past(epochs.next(upserts=rows((5, "e")), of="orders"), *paired), fill_rows=0))
        assert (fills, unfilled()) == (["pairs"], {"by_item"})
        derives_of(sink).renew(epochs.job, [PAIRS])

        def dies() -> bool:
            if "pairs" in fills[1:]:
                raise Killed
            return False

        killed = past(epochs.next(deletes=[1], of="orders"), *paired)
        with pytest.raises(Killed):
            sink.commit(replace(killed, holds=dies))
        sink = again()
        sink.fence(epochs.job, 1)
        assert (fills, unfilled()) == (["pairs", "pairs"], {"by_item"})
        sink.commit(past(epochs.next(), *paired))
        assert (fills, unfilled()) == (["pairs", "pairs", "by_item"], set())
        self._agree(query)

    @pytest.fixture
    def fills(self, paired: tuple[Derived, ...], monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The derived tables that were computed whole since they were first."""
        found, fill = list[str](), Keeping._fill

        def told(keeping: Keeping, one: Any, *rest: Any) -> None:
            found.append(one.derived.name)
            fill(keeping, one, *rest)

        monkeypatch.setattr(Keeping, "_fill", told)
        return found

    def test_files_that_others_rewrite_are_harmless_and_rows_that_they_change_are_found(
        self,
        sink: Sink,
        epochs: Epochs,
        query: Query,
        paired: tuple[Derived, ...],
        compact: Callable[[str], None],
        fills: list[str],
    ) -> None:
        compact("orders")
        compact("items")
        sink.commit(past(epochs.next(upserts=rows((1, "c"))), *paired))
        self._agree(query)
        assert not fills
        query("DELETE FROM items WHERE id = 2")
        query("INSERT INTO items VALUES (1, 'theirs'), (5, 'nobody''s')")
        query("INSERT INTO orders VALUES (5, 'theirs'), (6, 'theirs')")
        sink.commit(past(epochs.next(upserts=rows((2, "e")), deletes=[6]), *paired))
        self._agree(query)
        query("UPDATE items SET name = 'x' WHERE id = 5")
        query("DELETE FROM orders WHERE id = 2")
        compact("items")
        sink.commit(past(epochs.next(deletes=[99]), *paired))
        self._agree(query)
        assert not fills

    def test_a_version_that_is_removed_before_it_is_read_has_the_derived_table_filled(
        self,
        sink: Sink,
        epochs: Epochs,
        query: Query,
        paired: tuple[Derived, ...],
        forget: Callable[[str], None],
        fills: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        upkeep = Keeping._upkeep

        def late(keeping: Keeping, one: Any, *rest: Any) -> None:
            forget("orders")
            upkeep(keeping, one, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(Keeping, "_upkeep", late)
            sink.commit(past(epochs.next(upserts=rows((1, "c")), deletes=[2]), *paired))
        self._agree(query)
        assert fills == ["pairs", "by_item"]
        sink.commit(past(epochs.next(upserts=rows((1, "d"))), *paired))
        self._agree(query)
        assert fills == ["pairs", "by_item"]

    @staticmethod
    def _agree(query: Query) -> None:
        joined = "orders o LEFT JOIN items i ON i.id = o.id AND i.name <> 'x'"
        wanted = query(f"SELECT o.id, o.name, i.name FROM {joined} ORDER BY 1")
        assert query("SELECT id, name, item FROM pairs ORDER BY 1") == wanted
        items = [item for _, _, item in wanted]
        counted = sorted(((item, items.count(item)) for item in set(items)), key=str)
        assert sorted(query("SELECT item, n FROM by_item"), key=str) == counted

    def test_a_table_stays_where_it_is(self, sink: Sink, epochs: Epochs, kept: tuple[Derived, ...]) -> None:
        moved = replace(BY_NAME, target="elsewhere")
        with pytest.raises(UsageError, match=r"'by_name': it is in .*, and a lake moves no table") as refused:
            derives_of(sink).check(epochs.job, (moved,), epochs.tables, {})
        with typed(refused.value) as hint:
            hint.says("leave derived.target as it was")
            derives_of(sink).check(epochs.job, (BY_NAME,), epochs.tables, {})


def both(
    epochs: Epochs, orders: list[Row], items: list[Row], instead_of: EpochCommit | None = None
) -> EpochCommit:
    """A commit with rows of both tables, which follows the last one or replaces another."""
    first = epochs.next(inserts=orders, of="orders")
    second = (
        epochs.next(inserts=items, of="items") if instead_of is None else epochs.next(upserts=items, of="items")
    )
    staged = {**first.staged.tables, **second.staged.tables}
    shutil.copytree(first.folder, second.folder, dirs_exist_ok=True)
    before = first.prev_epoch if instead_of is None else instead_of.prev_epoch
    return replace(second, staged=Staged(second.attempt, staged), prev_epoch=before)


__all__ = ["BY_NAME", "NAMES"]
