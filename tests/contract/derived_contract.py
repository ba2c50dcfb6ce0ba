"""What a sink that keeps derived tables must do: beside `SinkContract`, for the SQL sinks."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hint_typed import typed
from sink_epochs import Epochs, Row, a_table, rows

from backfill_cli.contracts import ComparedDerived, EpochCommit, Sink, derived_table, own
from backfill_cli.errors import BadData, SinkInUse, UsageError
from backfill_cli.model.derived import Derived
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan
from backfill_cli.model.refill import RefillPart
from backfill_cli.model.verify import DifferentRow

BY_NAME = Derived(
    "by_name", "by_name", ("name",), "SELECT name, count(*) AS n, sum(id) AS ids FROM orders GROUP BY 1"
)
NAMES = Derived("names", "names", (), "SELECT count(*) AS names, sum(n) AS n FROM by_name")
LARGEST = Derived("largest", "largest", ("name",), "SELECT name, max(id) AS id FROM orders GROUP BY 1")
PAIRS = Derived(
    "pairs",
    "pairs",
    ("name",),
    "SELECT o.name, count(*) AS n FROM orders o JOIN orders p ON p.name = o.name GROUP BY o.name",
)
_ODD = ((1, "NaN"), (2, "Infinity"), (3, "-Infinity"))
Query = Callable[[str], list[tuple[Any, ...]]]
"""SQL → rows, by the system's own client."""


def there(query: Query, table: str) -> bool:
    """Whether the database has a table of this name."""
    named = f"SELECT count(*) FROM information_schema.tables WHERE table_name = '{table}'"
    return query(named)[0][0] > 0


def past(commit: EpochCommit, *derived: Derived) -> EpochCommit:
    """The commit once the snapshot is read."""
    checkpoint = replace(commit.saved.checkpoint, phase=Phase.UPSTREAM)
    return replace(commit, derived=derived, saved=replace(commit.saved, checkpoint=checkpoint))


class DerivedContract:
    """Fixtures to provide: `sink`, `epochs` as of `SinkContract`; `query`. volatile: a call of no fixed value."""

    volatile: str

    @pytest.fixture
    def query(self) -> Query:
        raise pytest.UsageError("a DerivedContract needs a `query` fixture")

    @pytest.fixture
    def kept(self, sink: Sink, epochs: Epochs) -> tuple[Derived, ...]:
        derives = sink.extras.derives
        assert derives is not None
        derived = (NAMES, BY_NAME)  # the one that reads the other first
        derives.prepare(epochs.job, derived, epochs.tables)
        return derived

    def test_a_derived_table_is_filled_past_the_snapshot_and_kept_from_then_on(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None

        def timed(commit: EpochCommit) -> None:
            """It tells how long it took for each derived table."""
            began_ns = time.monotonic_ns()
            sink.commit(commit)
            whole_ms = (time.monotonic_ns() - began_ns) // 1_000_000
            assert set(derives.took_ms) == {"by_name", "names"}
            assert 0 < sum(derives.took_ms.values()) <= whole_ms

        sink.commit(replace(epochs.next(inserts=rows((1, "a"), (2, "b"))), derived=kept))
        assert not there(query, "by_name"), "nobody sees it before it is whole"
        assert sink.committed(epochs.job)["by_name"].epoch == 0
        timed(past(epochs.next(inserts=rows((3, "a"))), *kept))
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 2, 4), ("b", 1, 2)]
        assert query("SELECT names, n FROM names") == [(2, 3)]
        null: list[Row] = [{"id": 1, "name": None}, {"id": 4, "name": None}]
        last = past(epochs.next(upserts=[*null, *rows((3, "c"))], deletes=[2]), *kept)
        timed(last)
        sink.commit(last)  # a repeat changes nothing, and keeps nothing
        assert not derives.took_ms
        assert query("SELECT name, n, ids FROM by_name ORDER BY name NULLS LAST") == [("c", 1, 3), (None, 2, 5)]
        assert query("SELECT names, n FROM names") == [(2, 3)]
        assert {one.epoch for one in sink.committed(epochs.job).values()} == {last.epoch}
        sink.commit(past(epochs.next(truncated=True, inserts=rows((7, "z"))), *kept))
        assert query("SELECT name, n, ids FROM by_name") == [("z", 1, 7)]

    def test_another_select_takes_the_place_of_the_old_one_in_one_commit_with_other_types_and_those_that_read_it(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "b"))), *kept))
        sql = "SELECT name, CAST(count(*) AS integer) * 1.5 AS n, max(id) AS last FROM orders GROUP BY 1"
        changed = (NAMES, replace(BY_NAME, sql=sql))
        derives.check(epochs.job, changed, epochs.tables, {})
        derives.prepare(epochs.job, changed, epochs.tables)
        derives.renew(epochs.job, changed[1:])
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 1, 1), ("b", 2, 5)]
        snapshot = replace(epochs.next(inserts=rows((4, "c"))), derived=changed)  # of a table that has joined
        sink.commit(snapshot)
        assert query("SELECT name, n, last FROM by_name ORDER BY 1") == [("a", 1.5, 1), ("b", 3, 3), ("c", 1.5, 4)]
        assert query("SELECT names, n FROM names") == [(3, 6)]
        assert {one.epoch for one in sink.committed(epochs.job).values()} == {snapshot.epoch}
        sink.commit(past(epochs.next(deletes=[4]), *changed))
        assert query("SELECT name, n, last FROM by_name ORDER BY 1") == [("a", 1.5, 1), ("b", 3, 3)]
        assert not there(query, own.ANEW)

    def test_a_table_with_rows_is_taken_over_in_one_commit_if_that_is_asked_for(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "b"))), *kept))
        sink.leave(epochs.job, ["by_name", "names"])
        sql = "SELECT name, CAST(count(*) AS integer) * 1.5 AS n, max(id) AS last FROM orders GROUP BY 1"
        changed, names = (NAMES, replace(BY_NAME, sql=sql)), ["by_name", "names"]
        with pytest.raises(SinkInUse, match="rows that are not this job's") as refused:
            derives.check(epochs.job, changed, epochs.tables, {})
        assert refused.value.replaceable
        derives.check(epochs.job, changed, epochs.tables, {}, names)
        derives.rehearse(epochs.job, changed, epochs.tables, names, names)
        derives.prepare(epochs.job, changed, epochs.tables, names)
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 1, 1), ("b", 2, 5)]
        sink.commit(past(epochs.next(inserts=rows((4, "c"))), *changed))
        assert query("SELECT name, n, last FROM by_name ORDER BY 1") == [("a", 1.5, 1), ("b", 3, 3), ("c", 1.5, 4)]
        assert query("SELECT names, n FROM names") == [(3, 6)]
        sink.commit(past(epochs.next(deletes=[4]), *changed))
        assert query("SELECT names, n FROM names") == [(2, 4.5)]

    def test_a_fill_is_tried_and_leaves_nothing(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sink.commit(past(epochs.next(inserts=rows((1, "1"), (2, "b"), (3, "b"))), *kept))
        twice = Derived("d", "d", ("name",), "SELECT name, id FROM orders")
        number = replace(twice, sql="SELECT name, sum(CAST(name AS integer)) AS n FROM orders GROUP BY 1")
        for one, said in ((twice, r"key \(name\) has duplicates: \(b\) 2"), (number, "'d' cannot be computed")):
            with pytest.raises(BadData, match=said):
                derives.rehearse(epochs.job, (*kept, one), epochs.tables, ["d"])
        reads = replace(number, name="by_name", target="by_name")
        fails = replace(NAMES, sql="SELECT sum(CAST(name AS integer)) AS n FROM by_name")
        with pytest.raises(BadData, match="'names' cannot be computed"):
            derives.rehearse(epochs.job, (replace(BY_NAME, sql=BY_NAME.sql), fails), epochs.tables, ["by_name"])
        with pytest.raises(BadData, match="'by_name' cannot be computed"):
            derives.rehearse(epochs.job, (reads,), epochs.tables, ["by_name"])
        derives.rehearse(epochs.job, (*kept, replace(twice, key=("id",))), epochs.tables, ["d"])
        derives.rehearse(epochs.job, (*kept, replace(twice, key=("id",))), epochs.tables, ["d"])
        assert not there(query, "d")
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("1", 1, 1), ("b", 2, 5)]

    def test_a_table_that_others_make_before_the_fill_is_not_taken(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        query("CREATE TABLE by_name (a int)")
        query("INSERT INTO by_name VALUES (1)")
        held, taken = epochs.epoch, past(epochs.next(inserts=rows((1, "a"))), *kept)
        with pytest.raises(SinkInUse, match="by_name exists, with rows that are not this job's"):
            sink.commit(taken)
        assert query("SELECT a FROM by_name") == [(1,)]
        query("DROP TABLE by_name")
        sink.commit(replace(past(epochs.next(inserts=rows((1, "a"))), *kept), prev_epoch=held))
        assert query("SELECT name, n FROM by_name") == [("a", 1)]

    def test_verify_tells_of_one_that_somebody_dropped_and_the_next_commit_fills_it(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...], tmp_path: Path
    ) -> None:
        assert sink.extras.copied is not None
        found = []
        for at, commit in enumerate((epochs.next(inserts=rows((1, "a"))), epochs.next(inserts=rows((2, "b"))))):
            sink.commit(past(commit, *kept) if at else replace(commit, derived=kept))
            if at:
                query("DROP TABLE by_name")
            (tmp_path / str(at)).mkdir()
            with sink.extras.copied(epochs.job, False, tmp_path / str(at)) as copy:
                found += [copy.compare(one, kept, epochs.tables, 20) for one in (BY_NAME, NAMES)]
        not_filled, gone = ComparedDerived(filled=False, compared=False), ComparedDerived(2, missing=2, gone=True)
        assert found == [not_filled, not_filled, gone, ComparedDerived(compared=False)], "NAMES reads BY_NAME"
        assert sink.extras.derives is not None
        for drop in (lambda: None, lambda: sink.drop([derived_table(BY_NAME)])):  # by them, and by us
            drop()
            sink.extras.derives.prepare(epochs.job, kept, epochs.tables)
            sink.commit(past(epochs.next(), *kept))
            assert query("SELECT name, n FROM by_name ORDER BY 1") == [("a", 1), ("b", 1)]
            assert query("SELECT names, n FROM names") == [(2, 2)]

    def test_verify_tells_what_differs_from_its_select_and_a_renewed_one_is_filled_anew(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...], tmp_path: Path
    ) -> None:
        null: Row = {"id": 4, "name": None}
        sink.commit(past(epochs.next(inserts=[*rows((1, "a"), (2, "b"), (3, "c")), null]), *kept))

        def compared() -> ComparedDerived:
            assert sink.extras.copied is not None
            (folder := tmp_path / str(len(list(tmp_path.iterdir())))).mkdir()
            with sink.extras.copied(epochs.job, False, folder) as copy:
                return copy.compare(BY_NAME, kept, epochs.tables, 20)

        assert compared() == ComparedDerived(4, 4)
        for change in (
            "DELETE FROM by_name WHERE name = 'a'",
            "UPDATE by_name SET n = 9 WHERE name IS NULL",
            "INSERT INTO by_name VALUES ('x', 1, 1), ('b', 1, 2)",
        ):
            query(change)
        found = compared()
        assert (found.rows, found.held, found.missing, found.extra, found.changed) == (4, 5, 1, 2, 1)
        assert list(found.different) == [
            DifferentRow((("name", "a"),), None, "1 row", "0 rows"),
            DifferentRow((("name", "x"),), None, "0 rows", "1 row"),
            DifferentRow((("name", None),), "n", "1", "9"),
        ]
        query("INSERT INTO by_name VALUES " + ", ".join(f"('y{n * 7 % 30:02}', 1, 1)" for n in range(30)))
        found = compared()
        names = [name for row in found.different for _, name in row.key]
        assert names == ["a", "x", *(f"y{n:02}" for n in range(18))], "the first by key"
        assert sink.extras.derives is not None
        sink.extras.derives.renew(epochs.job, [BY_NAME])
        assert compared() == replace(found, filled=False), "until then it holds what it held"
        sink.extras.derives.prepare(epochs.job, kept, epochs.tables)
        sink.commit(past(epochs.next(), *kept))
        assert compared() == ComparedDerived(4, 4)

    def test_one_row_is_read_by_others(self, sink: Sink, epochs: Epochs, query: Query) -> None:
        derives = sink.extras.derives
        assert derives is not None
        one = Derived("one", "one", (), "SELECT count(*) AS n, max(id) AS last FROM orders")
        readers = (
            Derived(
                "ahead", "ahead", ("id",), "SELECT o.id, one.last - o.id AS behind FROM orders AS o CROSS JOIN one"
            ),
            Derived("doubled", "doubled", (), "SELECT sum(n) * 2 AS n FROM one"),
        )
        derives.check("new", (*readers, one), epochs.tables, {})
        derives.prepare(epochs.job, (*readers, one), epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"))), *readers, one))
        sink.commit(past(epochs.next(inserts=rows((5, "c")), deletes=[2]), *readers, one))
        assert query("SELECT id, behind FROM ahead ORDER BY 1") == [(1, 4), (5, 0)]
        assert query("SELECT n FROM doubled") == [(4,)]

    def test_plan_is_told_columns_and_reach_and_creates_nothing(self, sink: Sink, epochs: Epochs) -> None:
        derives = sink.extras.derives
        assert derives is not None
        by_name, names = derives.check("new", (BY_NAME, NAMES), epochs.tables, {})
        assert [name for name, _ in by_name.columns] == ["name", "n", "ids"]
        assert [(one.table, one.named, one.by) for one in by_name.reads] == [("orders", "orders", ("name",))]
        assert (by_name.found_by, names.found_by) == (("name",), ())
        assert set(sink.committed(epochs.job)) == {"orders"}
        assert derives.reads((BY_NAME, NAMES), epochs.tables) == {"by_name": ("orders",), "names": ("by_name",)}

    @pytest.mark.parametrize(
        ("sql", "said", "way_on"),
        [
            ("SELECT name, nonesuch(id) AS n FROM orders", "nonesuch", "correct derived.sql"),
            ("SELECT name, VOLATILE AS n FROM orders", "its value is not of its", "use a column of the rows"),
            ("SELECT * FROM orders", r"SELECT \*: the result would change", "name each column"),
            ("SELECT name, id AS n FROM d", "it reads itself", "let each read tables"),
        ],
    )
    def test_a_select_that_the_engine_refuses_is_refused_by_name(
        self, sink: Sink, epochs: Epochs, sql: str, said: str, way_on: str
    ) -> None:
        self.require_refused(sink, epochs, sql.replace("VOLATILE", self.volatile), said, way_on)

    def require_refused(self, sink: Sink, epochs: Epochs, sql: str, said: str, way_on: str) -> None:
        derives = sink.extras.derives
        assert derives is not None
        with pytest.raises(UsageError, match=f"derived table 'd'.*{said}") as refused:
            derives.check("new", [Derived("d", "d", ("name",), sql)], epochs.tables, {})
        with typed(refused.value) as hint:
            hint.says(way_on)
            derives.check("new", [Derived("d", "d", ("name",), BY_NAME.sql)], epochs.tables, {})

    @pytest.mark.parametrize("made", ["(a int)", "(name text, n bigint, ids bigint, more int)"])
    def test_a_table_of_others_is_refused_whatever_it_holds(
        self, sink: Sink, epochs: Epochs, query: Query, made: str
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        query(f"CREATE TABLE by_name {made}")
        if made == "(a int)":
            query("INSERT INTO by_name VALUES (1)")
        with pytest.raises(SinkInUse, match=r"by_name exists, with (rows|other columns)") as refused:
            derives.prepare(epochs.job, [BY_NAME], epochs.tables)
        with pytest.raises(SinkInUse, match=r"by_name exists, with (rows|other columns)"):
            derives.check(epochs.job, [BY_NAME], epochs.tables, {})
        with pytest.raises(UsageError, match=r"'orders' and 'by_name' have the same target"):
            derives.check(epochs.job, [replace(BY_NAME, target="orders")], epochs.tables, {})
        assert "by_name" not in sink.committed(epochs.job)
        with typed(refused.value) as hint:
            hint.says("name another target: derived.target")
            derives.prepare(epochs.job, [replace(BY_NAME, target="another")], epochs.tables)

    def test_rows_that_the_engine_cannot_compute_refuse_the_commit_and_nothing_of_it_stays(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sql = "SELECT name, sum(CAST(name AS integer)) AS n FROM orders GROUP BY name"
        numbers = Derived("numbers", "numbers", ("name",), sql)
        derives.prepare(epochs.job, [numbers], epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "1"))), numbers))
        held, bad = epochs.epoch, past(epochs.next(upserts=rows((2, "x"))), numbers)
        with pytest.raises(BadData, match=r"derived table 'numbers' cannot be computed: .*x") as refused:
            sink.commit(bad)
        assert query("SELECT count(*) FROM orders") == [(1,)]
        with typed(refused.value) as hint:
            hint.says("correct the rows that it reads")
            sink.commit(replace(past(epochs.next(upserts=rows((3, "3"))), numbers), prev_epoch=held))
        assert query("SELECT sum(n) FROM numbers") == [(4,)]

    def test_a_key_that_stands_twice_is_named_as_it_is_filled_and_later(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        ids = Derived("ids", "ids", ("name",), "SELECT name, id FROM orders")
        derives.prepare(epochs.job, [ids], epochs.tables)
        for other, found in (("b", [("a", 1), ("b", 2)]), ("c", [("a", 1), ("c", 2)])):
            held, twice = epochs.epoch, past(epochs.next(upserts=rows((1, "a"), (2, "a"))), ids)
            with pytest.raises(
                BadData, match=r"derived table 'ids': its key \(name\) has duplicates: \(a\) 2"
            ) as refused:
                sink.commit(twice)
            with typed(refused.value) as hint:
                hint.says("correct the rows that share it, upstream")
                commit = past(epochs.next(upserts=rows((1, "a"), (2, other))), ids)
                sink.commit(replace(commit, prev_epoch=held))
            assert query("SELECT name, id FROM ids ORDER BY id") == found

    def test_a_table_that_is_set_aside_is_still_read(self, sink: Sink, epochs: Epochs, query: Query) -> None:
        derives, other = sink.extras.derives, a_table("items")
        assert derives is not None
        both = (*epochs.tables, other)
        pairs = Derived("pairs", "pairs", ("id",), "SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.id")
        sink.prepare(epochs.job, both, into_existing=False)
        derives.prepare(epochs.job, [pairs], both)
        epochs.tables = both
        sink.commit(past(epochs.next(inserts=rows((1, "one"), (2, "two")), of="items"), pairs))
        epochs.tables = both[:1]
        sink.leave(epochs.job, ["items"])
        sink.commit(replace(past(epochs.next(inserts=rows((2, "x"))), pairs), aside=(other,)))
        assert query("SELECT id, name FROM pairs") == [(2, "two")]

    def test_a_group_inside_from_is_kept(self, sink: Sink, epochs: Epochs, query: Query, tmp_path: Path) -> None:
        sql = (
            "WITH g AS (SELECT name, count(*) AS n FROM orders GROUP BY name) SELECT g.n, count(*) AS names, "
            "max(m.last) AS last FROM g, (SELECT max(id) AS last FROM orders) AS m GROUP BY g.n"
        )
        nested = Derived("nested", "nested", ("n",), sql)
        derives, copied = sink.extras.derives, sink.extras.copied
        assert derives is not None
        assert copied is not None
        (planned,) = derives.check("new", (nested,), epochs.tables, {})
        assert [one.by for one in planned.reads] == [("name",), ()]
        derives.prepare(epochs.job, (nested,), epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "a"))), nested))
        assert query("SELECT n, names, last FROM nested ORDER BY 1") == [(1, 1, 3), (2, 1, 3)]
        sink.commit(past(epochs.next(inserts=rows((4, "b"))), nested))
        assert query("SELECT n, names, last FROM nested ORDER BY 1") == [(2, 2, 4)]
        sink.commit(past(epochs.next(upserts=rows((1, "c")), deletes=[4]), nested))
        assert query("SELECT n, names, last FROM nested ORDER BY 1") == [(1, 3, 3)]
        sink.commit(past(epochs.next(truncated=True, inserts=rows((7, "z"))), nested))
        assert query("SELECT n, names, last FROM nested ORDER BY 1") == [(1, 1, 7)]
        with copied(epochs.job, False, tmp_path) as copy:
            assert copy.compare(nested, (nested,), epochs.tables, 9) == ComparedDerived(1, 1)


class SqlDerivedContract(DerivedContract):
    """What a database has beside: constraints, columns that somebody alters, contributions."""

    @pytest.mark.parametrize(
        ("sql", "said", "way_on"),
        [
            (
                "SELECT g.name, g.s FROM (SELECT name, sum(CAST(id AS FLOAT8)) AS s FROM orders GROUP BY 1) AS g",
                "its last digits depend on the order of rows, inside FROM",
                "make it a [[derived]] of its own",
            ),
            (
                "SELECT g.name, g.f FROM (SELECT DISTINCT name, CAST(id AS FLOAT8) AS f FROM orders) AS g",
                "of which equal values can differ, inside FROM",
                "make it a [[derived]] of its own",
            ),
            (
                "SELECT g.name FROM (SELECT name, min(CAST(id AS FLOAT8)) OVER () AS f FROM orders) AS g",
                "of which equal values can differ, inside FROM",
                "make it a [[derived]] of its own",
            ),
        ],
    )
    def test_what_has_no_single_value_inside_from_is_refused(
        self, sink: Sink, epochs: Epochs, sql: str, said: str, way_on: str
    ) -> None:
        self.require_refused(sink, epochs, sql, said, way_on)

    def test_rows_that_others_have_changed_are_right_once_they_are_written_again(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "a"), (3, "b"))), *kept))
        query("UPDATE orders SET name = 'b' WHERE id = 1")
        query("DELETE FROM orders WHERE id = 2")
        sink.commit(past(epochs.next(upserts=rows((1, "a"), (2, "a"))), *kept))  # group b: 0 rows, sum 2
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 2, 3), ("b", 1, 3)]
        assert query("SELECT names, n FROM names") == [(2, 3)]
        sink.commit(past(epochs.next(deletes=[1]), *kept))  # what was counted anew is kept from then on
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 1, 2), ("b", 1, 3)]
        assert query("SELECT names, n FROM names") == [(2, 2)]

    @pytest.mark.parametrize("seed", range(3))
    def test_random_epochs_leave_each_derived_table_equal_to_its_select(
        self, sink: Sink, epochs: Epochs, query: Query, seed: int
    ) -> None:
        """Rows that come, go, change and stay as they are, keys in both parts of an epoch, truncates."""
        kept = (BY_NAME, NAMES, LARGEST, PAIRS)
        derives, pick = sink.extras.derives, random.Random(seed)
        assert derives is not None
        derives.check("new", kept, epochs.tables, {})  # every statement of a commit runs over empty tables
        derives.prepare(epochs.job, kept, epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"))), *kept))
        held = {1: "a", 2: "b"}
        for _ in range(8):
            keys = pick.sample(range(1, 9), 4)
            upserts = [(key, pick.choice("abc")) for key in keys[:3]]
            upserts += [(key, name) for key, name in held.items() if key not in keys][:1]  # one as it is
            truncated = pick.random() < 0.1
            held = {} if truncated else held
            new = [key for key in (21, 22) if key not in held] if pick.random() < 0.2 else []
            deletes = [*keys[3:], *pick.sample(new, min(1, len(new)))]
            commit = epochs.next(rows(*((key, "n") for key in new)), rows(*upserts), deletes, truncated=truncated)
            sink.commit(past(commit, *kept))
            held |= {**dict.fromkeys(new, "n"), **dict(upserts)}
            held = {key: name for key, name in held.items() if key not in deletes}
            assert dict(query("SELECT id, name FROM orders")) == held
            for one in kept:
                columns = ", ".join(
                    str(at) for at in range(1, len(query(f"SELECT * FROM ({one.sql}) AS s")[0]) + 1)
                )
                assert query(f"SELECT * FROM {one.target} ORDER BY {columns}") == query(
                    f"SELECT * FROM ({one.sql}) AS s ORDER BY {columns}"
                ), one.name

    def test_a_refill_and_a_truncate_fill_what_is_kept_by_contributions_anew(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "a"), (3, "b"), (4, "b"))), *kept))
        query("DELETE FROM orders WHERE id = 2")  # no group is impossible once it is back
        commit = past(epochs.next(upserts=rows((2, "a"))), *kept)
        plan = EpochPlan(refill=RefillPart(1, 0, 1, 0, True))
        saved = replace(commit.saved, checkpoint=replace(commit.saved.checkpoint, plan=plan))
        sink.commit(replace(commit, saved=saved))
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 2, 3), ("b", 2, 7)]
        assert query("SELECT names, n FROM names") == [(2, 4)]
        query("DELETE FROM orders WHERE id = 3")
        sink.commit(past(epochs.next(truncated=True, inserts=rows((7, "z"))), *kept))
        assert query("SELECT name, n, ids FROM by_name") == [("z", 1, 7)]
        assert query("SELECT names, n FROM names") == [(1, 1)]

    @pytest.mark.parametrize(
        ("made", "more"),
        [
            ("(name text NOT NULL, n bigint, ids SUM)", "NOT NULL"),
            ("(name text, n bigint CHECK (n < 9), ids SUM)", "CHECK"),
            ("(name text, n bigint, ids SUM, UNIQUE (n, ids))", "UNIQUE"),
        ],
    )
    def test_an_empty_table_of_others_that_could_refuse_rows_is_refused(
        self, sink: Sink, epochs: Epochs, query: Query, made: str, more: str
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        (planned,) = derives.check("new", [BY_NAME], epochs.tables, {})
        sum_type = dict(planned.columns)["ids"]
        query(f"CREATE TABLE by_name {made.replace('SUM', sum_type)}")
        for attempt in (
            lambda: derives.check(epochs.job, [BY_NAME], epochs.tables, {}),
            lambda: derives.prepare(epochs.job, [BY_NAME], epochs.tables),
        ):
            with pytest.raises(SinkInUse, match=f"by_name exists, with more than the columns.*{more}") as refused:
                attempt()
        assert "by_name" not in sink.committed(epochs.job)
        with typed(refused.value) as hint:
            hint.says("name another target: derived.target")
            derives.prepare(epochs.job, [replace(BY_NAME, target="another")], epochs.tables)
            (drop,) = hint.statements()
            query(drop)
            query(f"CREATE TABLE by_name (name text, n bigint, ids {sum_type})")
            derives.prepare(epochs.job, [BY_NAME], epochs.tables)

    def test_the_derived_table_that_fails_is_named_not_another(self, sink: Sink, epochs: Epochs) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sql = "SELECT name, max(CAST(name AS integer)) AS n FROM orders GROUP BY name"
        kept = (Derived("fails", "fails", ("name",), sql), replace(BY_NAME, name="well", target="well"))
        for each in (kept, kept[::-1]):
            derives.prepare(epochs.job, each, epochs.tables)
            sink.commit(past(epochs.next(inserts=rows((epochs.epoch + 10, "1"))), *each))
            held = epochs.epoch
            with pytest.raises(BadData, match="derived table 'fails' cannot be computed") as refused:
                sink.commit(past(epochs.next(upserts=rows((2, "x"))), *each))
            assert refused.value.table == "fails"
            epochs.epoch = held

    def test_an_altered_table_differs_and_is_filled_anew_by_the_next_run(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...], tmp_path: Path
    ) -> None:
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"))), *kept))
        derives = sink.extras.derives
        assert derives is not None

        def compared(at: int) -> ComparedDerived:
            assert sink.extras.copied is not None
            (tmp_path / str(at)).mkdir()
            with sink.extras.copied(epochs.job, False, tmp_path / str(at)) as copy:
                return copy.compare(BY_NAME, kept, epochs.tables, 20)

        for at, (change, fails) in enumerate(
            (
                ("DROP COLUMN ids", True),
                ("RENAME COLUMN n TO m", True),
                ("RENAME TO elsewhere", True),
                ("ADD COLUMN more int", False),
            )
        ):
            query(f"ALTER TABLE by_name {change}")
            if "TO elsewhere" not in change:
                assert compared(2 * at) == ComparedDerived(2, 2, missing=2, extra=2)
            if fails:
                held = epochs.epoch
                with pytest.raises(
                    BadData, match=r"'(by_name|names)', or a table that it reads, was altered"
                ) as refused:
                    sink.commit(past(epochs.next(upserts=rows((1, "b"))), *kept))
                epochs.epoch = held
                with typed(refused.value) as hint:
                    assert [one[:1] for one in hint.commands()] == [["resume"]]
                    derives.prepare(epochs.job, kept, epochs.tables)  # as the next run does
            else:
                derives.prepare(epochs.job, kept, epochs.tables)
            sink.commit(past(epochs.next(), *kept))
            assert compared(2 * at + 1) == ComparedDerived(2, 2)

    def test_a_number_that_is_not_finite_equals_itself_alone(
        self, sink: Sink, epochs: Epochs, query: Query, tmp_path: Path
    ) -> None:
        real = Derived("real", "real", ("id",), "SELECT id, CAST(id AS DOUBLE PRECISION) / 3 AS f FROM orders")
        derives, copied = sink.extras.derives, sink.extras.copied
        assert derives is not None
        assert copied is not None
        derives.prepare(epochs.job, (real,), epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"), (4, "d"))), real))
        near = "UPDATE real SET f = f + 1e-16 WHERE id = 4"
        for change in (near, *(f"UPDATE real SET f = '{odd}' WHERE id = {at}" for at, odd in _ODD)):
            query(change)
        with copied(epochs.job, False, tmp_path) as copy:
            found = copy.compare(real, (real,), epochs.tables, 9)
        assert (found.missing, found.extra, found.changed) == (0, 0, 3)
