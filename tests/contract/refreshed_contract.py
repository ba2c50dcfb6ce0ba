"""What a sink must do that refreshes derived tables as a whole: beside `SqlDerivedContract`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from derived_contract import Query, past
from hint_typed import typed
from sink_epochs import Epochs, rows

from backfill_cli.contracts import ComparedDerived, Sink
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.derived import Derived
from backfill_cli.model.reports import CostKind

REFRESHED: dict[str, tuple[tuple[str, ...], str]] = {
    "IN": (("id",), "SELECT id, name FROM orders WHERE name IN (SELECT p.name FROM orders AS p WHERE p.id > 1)"),
    "FULL JOIN": (
        ("a", "b"),
        "SELECT o.id AS a, p.id AS b, o.name FROM orders AS o FULL JOIN orders AS p ON p.id = o.id + 1",
    ),
    "UNION": (("name",), "SELECT name FROM orders UNION SELECT CAST(id AS text) FROM orders"),
    "EXCEPT": (("name",), "SELECT name FROM orders EXCEPT (SELECT p.name FROM orders AS p WHERE p.id < 2)"),
    "WITH RECURSIVE": (
        ("n",),
        "WITH RECURSIVE r(n, top) AS (SELECT id, name FROM orders "
        "UNION SELECT o.id, r.top FROM r JOIN orders AS o ON o.id = r.n + 1) "
        "SELECT r.n, count(*) AS c FROM r GROUP BY r.n",
    ),
    "a bounded recursion": (
        ("n", "depth"),
        "WITH RECURSIVE r AS (SELECT id AS n, 0 AS depth FROM orders "
        "UNION SELECT r.n, r.depth + 1 FROM r WHERE r.depth < 2) SELECT r.n, r.depth FROM r",
    ),
    "EXISTS": (
        ("id",),
        "SELECT o.id, o.name FROM orders AS o WHERE NOT EXISTS "
        "(SELECT * FROM orders AS p WHERE p.name = o.name AND p.id > o.id)",
    ),
    "GROUPING SETS": (
        ("name", "part"),
        "SELECT o.name, grouping(o.name) AS part, count(*) AS n FROM orders AS o "
        "GROUP BY GROUPING SETS ((o.name), ())",
    ),
    "LIMIT": (
        ("id",),
        "SELECT o.id, o.name FROM orders AS o ORDER BY o.name DESC NULLS LAST, o.id LIMIT 2 OFFSET 1",
    ),
    "row_number": (("n",), "SELECT row_number() OVER (ORDER BY o.name, o.id) AS n, o.id FROM orders AS o"),
    "one row": ((), "SELECT (SELECT max(o.id) FROM orders AS o) AS last"),
}
"""SELECTs with their keys of which no changed rows can be told."""


class RefreshedContract:
    """Fixtures as of `DerivedContract`. place: SQL, of a row in a table."""

    place: str

    def test_those_that_are_refreshed_whole_equal_their_selects_and_only_what_differs_is_written(
        self, sink: Sink, epochs: Epochs, query: Query, tmp_path: Path
    ) -> None:
        """All of them in one job: a commit refreshes each by statements of its own."""
        derives, copied = sink.extras.derives, sink.extras.copied
        assert derives is not None
        assert copied is not None
        whole = {
            case: Derived(f"whole_{at}", f"whole_{at}", key, sql, "full")
            for at, (case, (key, sql)) in enumerate(REFRESHED.items())
        }
        for case, one in whole.items():
            if case != "row_number":  # which groups could keep, by a key of its own
                with pytest.raises(UsageError) as refused:
                    derives.check("new", [replace(one, refresh="")], epochs.tables, {})
                with typed(refused.value) as hint:
                    hint.says('set derived.refresh = "full"')
                    assert derives.check("new", [one], epochs.tables, {})
        readers = [
            Derived(f"reader_{one.name}", f"reader_{one.name}", (), f"SELECT count(*) AS n FROM {one.target}")
            for one in whole.values()
        ]
        kept = (*readers, *whole.values())
        planned = derives.check("new", kept, epochs.tables, {})
        for told in planned[: len(readers)]:
            assert told.refresh is None
        for told in planned[len(readers) :]:
            assert [read.table for read in told.reads] == ["orders"]
            assert told.refresh == "full"
            assert any("runs its whole SELECT" in note for note in told.notes)
        derives.prepare(epochs.job, kept, epochs.tables)
        columns = ", ".join(f"(SELECT n FROM {one.target})" for one in readers)
        seen: dict[str, dict[tuple[Any, ...], Any]] = {}
        for at, commit in enumerate(
            [
                epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "a"))),
                epochs.next(inserts=[{"id": 4, "name": None}, *rows((5, "b"))]),
                epochs.next(upserts=rows((1, "c")), deletes=[2]),
                epochs.next(upserts=rows((1, "c"))),
                epochs.next(),
                epochs.next(truncated=True, inserts=rows((7, "z"), (1, "a"))),
                epochs.next(deletes=[1, 7]),
            ]
        ):
            sink.commit(past(commit, *kept))
            places: dict[str, dict[tuple[Any, ...], Any]] = {}
            counts: list[int] = []
            for case, one in whole.items():
                found = query(f"SELECT CAST({self.place} AS text), * FROM {one.target}")
                held = [tuple(row) for _, *row in found]
                assert sorted(held, key=str) == sorted(query(one.sql), key=str), (case, at)
                places[case] = {tuple(row): place for place, *row in found}
                counts.append(len(held))
            assert query(f"SELECT {columns}") == [tuple(counts)], at
            if at in (3, 4):
                assert places == seen, "rows that are the same stay where they are"
            seen = places
            (folder := tmp_path / f"c{at}").mkdir()
            with copied(epochs.job, False, folder) as copy:
                for (case, one), count in zip(whole.items(), counts, strict=True):
                    compared = copy.compare(one, kept, epochs.tables, 9)
                    assert compared == ComparedDerived(count, count), (case, at)
        for one in whole.values():
            query(f"DROP TABLE {one.target}")
        derives.prepare(epochs.job, kept, epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((8, "a"), (9, "b"))), *kept))
        for case, one in whole.items():
            assert sorted(query(f"SELECT * FROM {one.target}"), key=str) == sorted(query(one.sql), key=str), case

    def test_what_a_table_was_kept_by_is_gone_once_it_is_refreshed_whole(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        named = "table_name LIKE '%backfill!_partials!_%' ESCAPE '!'"
        held = f"SELECT count(*) FROM information_schema.tables WHERE {named}"
        by_name = Derived("whole", "whole", ("name",), "SELECT name, count(*) AS n FROM orders GROUP BY name")
        derives.prepare(epochs.job, [by_name], epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "a"))), by_name))
        assert query(held) == [(1,)]
        for one, tables in ((replace(by_name, refresh="full"), 0), (by_name, 1)):
            derives.renew(epochs.job, [one])
            sink.commit(past(epochs.next(inserts=rows((3 + tables, "b"))), one))
            assert query(held) == [(tables,)]
            sink.commit(past(epochs.next(inserts=rows((5 + tables, "b"))), one))
            assert sorted(query("SELECT name, n FROM whole")) == [("a", 2), ("b", 2 + 2 * tables)]

    def test_plan_tells_how_many_rows_each_commit_reads_of_derived_tables_too(
        self, sink: Sink, epochs: Epochs
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        read = Derived("copied", "copied", ("id",), "SELECT id, name FROM orders")
        sql = "SELECT o.id AS a, c.id AS b FROM orders AS o FULL JOIN copied AS c ON c.id = o.id"
        one = Derived("whole", "whole", ("a", "b"), sql, "full")
        derives.prepare(epochs.job, (read, one), epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "a"), (3, "b"))), read, one))
        _, planned = derives.check(epochs.job, (read, one), epochs.tables, {})
        (note,) = [each for each in planned.notes if "which each such commit reads" in each]
        assert note.startswith("orders, copied: about ")
        if self.place == "rowid":  # exactly, of the file's metadata
            assert note.startswith("orders, copied: about 6 rows")
            assert [one.rows for one in planned.costs] == [3, 3]
        assert [(one.kind, one.table, one.text) for one in planned.costs] == [
            (CostKind.READ_WHOLE, name, note) for name in ("orders", "copied")
        ]

    def test_a_select_of_which_the_database_reads_other_tables_than_are_known_is_refused(
        self, sink: Sink, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        one = Derived("whole", "whole", ("name",), REFRESHED["UNION"][1], "full")
        with monkeypatch.context() as patched:
            patched.setattr(type(derives), "scanned", lambda *_: {"others"})
            with pytest.raises(UsageError, match="others: it is not certain that the SELECT reads it") as refused:
                derives.check("new", [one], epochs.tables, {})
        with typed(refused.value) as hint:
            hint.says("read the tables of the job in FROM alone")
            assert derives.check("new", [one], epochs.tables, {})

    def test_floating_point_sums_decide_about_no_row(self, sink: Sink, epochs: Epochs) -> None:
        derives = sink.extras.derives
        assert derives is not None

        def check(sql: str) -> None:
            derives.check("new", [Derived("whole", "whole", ("id",), sql, "full")], epochs.tables, {})

        text = (
            "SELECT o.id, {} AS n FROM orders AS o WHERE o.id > (SELECT avg(CAST(p.id AS {})) FROM orders AS p) "
            "GROUP BY o.id"
        )
        for number in ("1", "sum(CAST(o.id AS double precision))"):
            with pytest.raises(UsageError, match="last digits depend on the order of rows") as refused:
                check(text.format(number, "double precision"))
            with typed(refused.value) as hint:
                hint.says("make decimals of them")
                check(text.format("1", "decimal(10, 2)"))
        summed = "SELECT o.id, sum(CAST(o.id AS double precision)) AS n FROM orders AS o GROUP BY "
        check(summed + "ROLLUP (o.id)")
        for decides in ("o.id ORDER BY 2, o.id LIMIT 1", "o.id HAVING count(*) > 1"):
            with pytest.raises(UsageError, match="last digits depend on the order of rows"):
                check(summed + decides)
        with pytest.raises(UsageError, match="last digits depend on the order of rows"):
            check(
                summed.replace("o.id, sum", "max(o.id) AS last, sum").replace("AS n", "AS id") + "ROLLUP (o.name)"
            )

    def test_one_that_is_refreshed_whole_and_has_a_duplicate_refuses_the_commit(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sql = "SELECT o.name FROM orders AS o WHERE o.id IN (SELECT p.id FROM orders AS p)"
        named = Derived("named", "named", ("name",), sql, "full")
        single = Derived("single", "single", (), sql, "full")
        derives.prepare(epochs.job, (named, single), epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"))), named, single))
        held = epochs.epoch
        with pytest.raises(BadData, match=r"its key \(name\) has duplicates: \(a\) 2 times"):
            sink.commit(past(epochs.next(inserts=rows((2, "a"))), named))
        with pytest.raises(BadData, match=r"'single': its SELECT has 2 rows") as refused:
            sink.commit(replace(past(epochs.next(inserts=rows((2, "b"))), single), prev_epoch=held))
        with typed(refused.value) as hint:
            hint.says("name a derived.key that tells them apart")
        assert query("SELECT name FROM single") == [("a",)]
        sink.commit(replace(past(epochs.next(inserts=rows((2, "b"))), named), prev_epoch=held))
        assert query("SELECT name FROM named ORDER BY 1") == [("a",), ("b",)]

    def test_a_name_alone_in_order_by_is_an_outputs_also_once_its_table_has_a_column_called_so(
        self, sink: Sink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sql = "SELECT o.id, 10 - o.id AS v FROM orders AS o ORDER BY v DESC, o.id LIMIT 2"
        first = Derived("first", "first_two", ("id",), sql, "full")
        derives.check("new", (first,), epochs.tables, {})
        derives.prepare(epochs.job, (first,), epochs.tables)
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"))), first))
        held = [(1, 9), (2, 8)]
        assert query("SELECT id, v FROM first_two ORDER BY id") == held
        gained = sql.replace("orders AS", "(SELECT id, name, id AS v FROM orders) AS")
        assert sorted(query(gained)) == held
        assert sorted(query(gained.replace("BY v", "BY o.v"))) == [(2, 8), (3, 7)], "that column has another order"
        sink.commit(past(epochs.next(deletes=[1]), first))
        assert query("SELECT id, v FROM first_two ORDER BY id") == [(2, 8), (3, 7)]
