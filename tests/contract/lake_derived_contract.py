"""What a lake's derived tables must do beside `DerivedContract`: their tables commit one by one."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from derived_contract import BY_NAME, NAMES, DerivedContract, Query, past
from hint_typed import typed
from sink_contract import Epochs, Row, a_table, rows

from backfill_cli.contracts import Derives, EpochCommit, Sink
from backfill_cli.errors import BadData, UsageError
from backfill_cli.lake.upkeep import Keeping
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
    floats = "DOUBLE"

    @pytest.fixture
    def again(self) -> Callable[[], Sink]:
        raise pytest.UsageError("needs an `again` fixture")

    @pytest.fixture
    def compact(self) -> Callable[[str], None]:
        raise pytest.UsageError("needs a `compact` fixture")

    def test_the_latest_per_key_inside_from_is_kept_over_states_that_others_change(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        """By a window, and by max of a struct, in WITH; beside groups of a derived table."""
        ranked = "SELECT name, id, row_number() OVER (PARTITION BY name ORDER BY id DESC) AS place FROM orders"
        best = "SELECT name, max(struct(id, name)).id AS id FROM orders GROUP BY name"
        sql = f"WITH r AS ({ranked}), b AS ({best}) SELECT r.name, r.id, b.id AS same, m.most FROM r JOIN b "
        sql += "ON b.name = r.name LEFT JOIN (SELECT n, max(name) AS most FROM by_name GROUP BY n) AS m "
        latest = Derived("latest", "latest", ("name",), f"{sql} ON m.n = r.id WHERE r.place = 1")
        derives_of(sink).check("new", (latest, BY_NAME), epochs.tables, {})
        derives_of(sink).prepare(epochs.job, (latest, BY_NAME), epochs.tables)

        def kept(commit: EpochCommit) -> list[tuple[Any, ...]]:
            sink.commit(past(commit, latest, BY_NAME))
            return query("SELECT name, id, same, most FROM latest ORDER BY 1")

        assert kept(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "a")))) == [
            ("a", 3, 3, None),
            ("b", 2, 2, "a"),
        ]
        assert kept(epochs.next(upserts=rows((2, "a")))) == [("a", 3, 3, "a")]
        query("INSERT INTO orders VALUES (9, 'b'), (8, 'a')")
        assert kept(epochs.next(upserts=rows((1, "c")))) == [
            ("a", 8, 8, None),
            ("b", 9, 9, None),
            ("c", 1, 1, "c"),
        ]
        assert kept(epochs.next(deletes=[8, 3, 2])) == [("b", 9, 9, None), ("c", 1, 1, "c")]

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

    @pytest.mark.parametrize("filled", [False, True])
    def test_a_key_that_stands_twice_is_named_as_it_is_filled_and_later(
        self, sink: Sink, epochs: Epochs, query: Query, filled: bool
    ) -> None:
        ids = Derived("ids", "ids", ("name",), "SELECT name, id FROM orders")
        derives_of(sink).prepare(epochs.job, [ids], epochs.tables)
        if filled:
            sink.commit(past(epochs.next(inserts=rows((1, "a"))), ids))
        with pytest.raises(BadData, match=r"'ids': its key \(name\) has duplicates: \(a\) 2") as refused:
            sink.commit(past(epochs.next(upserts=rows((1, "a"), (2, "a"))), ids))
        with typed(refused.value) as hint:
            hint.says("correct the rows that share it, upstream")
            sink.commit(past(epochs.next(upserts=rows((1, "a"), (2, "b"))), ids))
        assert query("SELECT name, id FROM ids ORDER BY id") == [("a", 1), ("b", 2)]

    @pytest.fixture
    def forget(self) -> Callable[[str], None]:
        raise pytest.UsageError("needs a `forget` fixture")

    @pytest.fixture
    def paired(self, sink: Sink, epochs: Epochs) -> tuple[Derived, ...]:
        epochs.tables = (*epochs.tables, a_table("items"))
        sink.prepare(epochs.job, epochs.tables, into_existing=False)
        derived = (ITEMS, PAIRS)
        derives_of(sink).prepare(epochs.job, derived, epochs.tables)
        sink.fence(epochs.job, 1)
        sink.commit(past(both(epochs, rows((1, "a"), (2, "b")), rows((1, "x"), (2, "two"))), *derived))
        return derived

    def test_a_kill_after_any_of_its_commits_is_recovered_from(
        self,
        sink: Sink,
        epochs: Epochs,
        query: Query,
        paired: tuple[Derived, ...],
        again: Callable[[], Sink],
        fills: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        class Killed(BaseException):
            pass

        for at in range(1, 5):
            hits = [0]

            def hit(name: str, at: int = at, hits: list[int] = hits) -> None:
                hits[0] += name.startswith("derived-")
                if hits[0] == at and name.startswith("derived-"):
                    raise Killed

            commit = past(epochs.next(upserts=rows((1, f"n{at}")), deletes=[2] if at == 2 else [], of="orders"))
            commit = replace(commit, derived=paired)
            if at % 2:
                commit = past(both(epochs, rows((10 + at, "new")), rows((1, f"i{at}")), commit), *paired)
            with monkeypatch.context() as patched:
                patched.setattr("backfill_cli.failpoint.handler", hit)
                with pytest.raises(Killed):
                    sink.commit(commit)
            sink = again()
            sink.fence(epochs.job, 1)
            sink.commit(commit)
            assert {one.epoch for one in sink.committed(epochs.job).values()} == {commit.epoch}
            self._agree(query)
        assert not fills

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
        sink.commit(past(epochs.next(upserts=rows((1, "d"))), *paired))
        self._agree(query)
        query("INSERT INTO items VALUES (1, 'theirs'), (5, 'nobody''s')")
        query("INSERT INTO orders VALUES (5, 'theirs')")
        sink.commit(past(epochs.next(upserts=rows((2, "e"))), *paired))
        self._agree(query)
        query("UPDATE items SET name = 'x' WHERE id = 5")
        query("DELETE FROM orders WHERE id = 2")
        compact("items")
        sink.commit(past(epochs.next(deletes=[99]), *paired))
        self._agree(query)
        assert not fills
        sink.commit(past(epochs.next(truncated=True, inserts=rows((7, "z"))), *paired))
        self._agree(query)

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

    def test_a_table_that_was_dropped_by_hand_is_filled_by_the_next_commit(
        self, sink: Sink, epochs: Epochs, query: Query, paired: tuple[Derived, ...], drop: Callable[[str], None]
    ) -> None:
        drop("pairs")
        derives_of(sink).prepare(epochs.job, paired, epochs.tables)
        sink.commit(past(epochs.next(), *paired))
        self._agree(query)

    @pytest.mark.parametrize(
        ("sql", "said", "way_on"),
        [
            ("SELECT name, uuid() AS n FROM orders", "moment", "use a column"),
            ("SELECT name, version() AS n FROM orders", "moment", "use a column"),
            ("SELECT name, first(id) AS n FROM orders GROUP BY name", "order of rows", "use one of"),
            ("SELECT name, collect_list(id) AS n FROM orders GROUP BY name", "order of rows", "use one of"),
            (
                "SELECT name, max(struct(id)) AS n FROM orders GROUP BY name",
                "cannot have in a lake",
                "CAST it to a plain",
            ),
            ("SELECT name COLLATE UTF8_LCASE AS name FROM orders", "has a collation", "use a function"),
            ("SELECT name, DATE 'today' AS n FROM orders", "moment", "use a column"),
            ("SELECT name, CAST(concat('to', 'day') AS DATE) AS n FROM orders", "'today'", "write it as one text"),
            ("SELECT name, CAST('to' 'day' AS DATE) AS n FROM orders", "two pieces", "write it as one text"),
            ("SELECT name, CAST('no' || 'w' AS TIMESTAMP) AS n FROM orders", "'today'", "write it as one text"),
            ("SELECT name, year(CAST(X'6E6F77' AS STRING)) AS n FROM orders", "'today'", "write it as one text"),
            ("SELECT name, hour(lpad('w', 3, 'no')) AS n FROM orders", "'today'", "write it as one text"),
            ("SELECT name, TIMESTAMP '10:00:00' AS n FROM orders", "current day", "write a whole date"),
            ("SELECT name, CAST(name AS TIMESTAMP) AS n FROM orders", "current day", "say its format"),
            (
                "SELECT s.t, CAST(s.t AS TIMESTAMP) AS name FROM (SELECT name AS t FROM orders) AS s",
                "current day",
                "say its format",
            ),
            (
                "SELECT s.t, s.t::timestamp AS name FROM (SELECT name FROM orders) AS s(t)",
                "current day",
                "say its format",
            ),
            (
                "SELECT g.name FROM (SELECT name, avg(id) AS n FROM orders GROUP BY 1) AS g",
                r"avg\(id\), which is bigint: its last digits",
                "make it a",
            ),
            (
                "SELECT g.name FROM (SELECT name, max(struct(id, CAST(id AS float) AS f)) AS m FROM orders "
                "GROUP BY 1) AS g",
                "which is float, of which equal values can differ, inside FROM",
                "make it a",
            ),
            ("SELECT name, max(name)::timestamp AS n FROM orders GROUP BY 1", "current day", "say its format"),
            ("SELECT name, to_timestamp(concat(name, ':00')) AS n FROM orders", "current day", "say its format"),
            ("SELECT name, try_to_timestamp(name) AS n FROM orders", "current day", "say its format"),
            ("SELECT name, 'a\\'b' AS n FROM orders", r"not taken in Spark's SQL", "write the SELECT without it"),
            ("SELECT name, r'a' AS n FROM orders", "a raw string", "write it as a string"),
            ("SELECT CAST(id AS double) AS name FROM orders", "identify no row", "CAST it to a decimal"),
            ("SELECT name, `lower`(name) AS n FROM orders", "lower", "use a column"),
            ("SELECT name, current_user AS n FROM orders", "current_?user", "use a column"),
            (
                "SELECT name, id AS n FROM orders QUALIFY row_number() OVER (PARTITION BY name ORDER BY id) = 1",
                "Syntax error",
                "correct derived.sql",
            ),
        ],
    )
    def test_what_spark_does_not_show_to_be_exact_is_refused_by_name(
        self, sink: Sink, epochs: Epochs, sql: str, said: str, way_on: str
    ) -> None:
        with pytest.raises(UsageError, match=f"derived table 'd'.*{said}") as refused:
            derives_of(sink).check("new", [Derived("d", "d", ("name",), sql)], epochs.tables, {})
        with typed(refused.value) as hint:
            hint.says(way_on)
            derives_of(sink).reads([Derived("d", "d", ("name",), BY_NAME.sql)], epochs.tables)
        assert "d" not in sink.committed(epochs.job)

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
