"""The DuckDB sink under the contract, and what can only go wrong with a DuckDB file."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from derived_contract import Query, SqlDerivedContract
from duckdb_processes import (
    commit_in_a_child,
    commit_until_full,
    held_by_another_process,
    in_another_process,
    prepare_then_die,
)
from filling_contract import FillingContract
from hint_typed import typed
from refreshed_contract import RefreshedContract
from sink_contract import Epochs, Read, Row, SinkContract, a_table, rows, schema_json

from backfill_cli.errors import BadData, Fatal, Held, SinkInUse, StateConflict, Transient, UsageError
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.derived import Derived
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.reports import CostKind
from backfill_cli.model.split import SplitProgress, SplitStatus
from backfill_cli.sinks.duckdb import DuckDBOptions, connector
from backfill_cli.sinks.duckdb.derived import DuckDBDerives
from backfill_cli.sinks.duckdb.sink import DuckDBSink


@cache
def instance() -> duckdb.DuckDBPyConnection:
    """One of our own, of no file: to start one costs 13 ms of CPU, ten times what a file costs in it."""
    return duckdb.connect(":memory:")


@contextmanager
def opened(path: Path, how: str = "READ_WRITE") -> Iterator[duckdb.DuckDBPyConnection]:
    """The file, which nothing holds afterwards."""
    with instance().cursor() as con:
        con.execute(f"ATTACH '{path}' AS w ({how})")
        con.execute("USE w")
        try:
            yield con
        finally:
            con.execute("USE memory")
            con.execute("DETACH w")


def read_file(path: Path, target: str) -> list[Row]:
    with opened(path, "READ_ONLY") as con:
        return con.sql(f"SELECT * FROM {target} ORDER BY id").to_arrow_table().to_pylist()


class TestDuckDBSink(SinkContract, SqlDerivedContract, FillingContract, RefreshedContract):
    volatile = "current_transaction_id()"
    place = "rowid"

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "w.duckdb"

    @pytest.fixture
    def sink(self, path: Path) -> DuckDBSink:
        return connector.open(DuckDBOptions(path=str(path)))

    @pytest.fixture
    def read(self, path: Path) -> Read:
        return lambda target: read_file(path, target)

    @pytest.fixture
    def query(self, path: Path) -> Query:
        def ask(sql: str) -> list[tuple[Any, ...]]:
            with opened(path) as con:
                return con.execute(sql).fetchall()

        return ask

    def test_plan_of_a_job_that_exists_tells_how_large_groups_are(self, sink: DuckDBSink, epochs: Epochs) -> None:
        derives = sink.extras.derives
        assert derives is not None
        select = "SELECT o.name, {} AS n FROM orders o{} GROUP BY 1"
        added = Derived("added", "added", ("name",), select.format("count(*)", ""))
        again = Derived("again", "again", ("name",), select.format("max(o.id)", ""))
        pairs = Derived(
            "pairs", "pairs", ("name",), select.format("max(p.id)", " JOIN orders p ON p.name = o.name")
        )

        def notes() -> list[set[str]]:
            assert derives is not None
            return [set(one.notes) for one in derives.check(epochs.job, [added, again, pairs], epochs.tables, {})]

        before = notes()
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "a"), (3, "b"))))
        sizes, by = "(groups of name: 1.5 rows; the largest has 2)", "by all of its rows"
        computed = f"1,000 changes of orders compute about 3 of its rows again {sizes}, {by}"
        assert [after - ago for after, ago in zip(notes(), before, strict=True)] == [
            {f"1,000 changes of orders change about 2 groups of name, whose other rows are not read, {by}"},
            {computed},
            {computed, f"1,000 changes of orders reach about 3 rows of orders {sizes}, {by}"},
        ]
        found = derives.check(epochs.job, [added, again, pairs], epochs.tables, {})
        assert [{(one.kind, one.groups, one.rows) for one in each.costs} for each in found] == [
            {(CostKind.CHANGED, 2, None)},
            {(CostKind.COMPUTED_AGAIN, None, 3)},
            {(CostKind.COMPUTED_AGAIN, None, 3), (CostKind.REACHED, None, 3)},
        ]
        costs = [one for each in found for one in each.costs]
        assert {(one.table, one.of, one.by, one.changes) for one in costs} == {
            ("orders", "orders", ("name",), 1000)
        }
        assert {(one.average, one.largest) for one in costs} == {(1.5, 2)}
        assert all(one.text in each.notes for each in found for one in each.costs)

    def test_estimates_are_those_of_changes_drawn_at_random(
        self, sink: DuckDBSink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert isinstance(derives, DuckDBDerives)
        # 1 group of 4,000, 100 of 30, 3,000 of 1, and 500 rows of NULL
        groups = [*["large"] * 4000, *(f"m{n % 100}" for n in range(3000)), *(f"s{n}" for n in range(3000))]
        drawn: list[str | None] = [*groups, *[None] * 500]
        sink.commit(epochs.next(inserts=rows(*enumerate(drawn))))
        target = derives.dialect.target_of(epochs.tables[0], "main")
        with derives.known("test") as state:
            assert state is not None
            every, joined = (derives.groups(state, target, ["name"], nulls=one) for one in (True, False))
        assert every is not None
        assert joined is not None
        held, random = Counter(drawn), Random(7)
        trials = [{drawn[at] for at in random.sample(range(len(drawn)), 1000)} for _ in range(30)]
        assert every.groups == len(held)
        assert every.rows == len(drawn)
        assert max(every.sizes)[0] == 4000
        assert every.of_rows() == (
            pytest.approx(sum(map(len, trials)) / 30, rel=0.02),
            pytest.approx(sum(held[one] for trial in trials for one in trial) / 30, rel=0.02),
        )
        assert joined.of_groups() == pytest.approx(1000 * len(groups) / len(set(groups)), abs=1)

    def test_plan_names_what_a_commit_computes_whole(self, sink: DuckDBSink, epochs: Epochs) -> None:
        derives = sink.extras.derives
        assert derives is not None
        inner = "(SELECT name, max(id) AS most FROM orders GROUP BY 1) AS g"
        sql = "SELECT o.id, g.most FROM orders AS o JOIN {} ON {}"
        whole = Derived("whole", "whole", ("id",), sql.format(inner, "g.most >= o.id"))
        limited = Derived("limited", "limited", ("id",), sql.format(inner, "g.name = o.name"))
        told = derives.check(epochs.job, [whole, limited], epochs.tables, {})
        assert [[note for note in one.notes if note.startswith("g: all rows of this")] != [] for one in told] == [
            True,
            False,
        ]

    def test_a_macro_that_hides_a_function_is_refused_where_a_derived_table_calls_it(
        self, sink: DuckDBSink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        upper = Derived("d", "d", ("name",), "SELECT upper(name) AS name, count(*) AS n FROM orders GROUP BY 1")
        query("CREATE MACRO lower(x) AS random()")
        derives.check(epochs.job, [upper], epochs.tables, {})
        query("CREATE MACRO UPPER(x) AS random()")
        for refusing in (
            lambda: derives.check(epochs.job, [upper], epochs.tables, {}),
            lambda: derives.prepare(epochs.job, [upper], epochs.tables),
        ):
            with pytest.raises(UsageError, match="derived table 'd': upper: a macro of the file's") as refused:
                refusing()
            with typed(refused.value) as hint:
                hint.says('by DROP MACRO "upper", and create it anew')
        query('DROP MACRO "upper"')
        derives.prepare(epochs.job, [upper], epochs.tables)

    def test_a_column_with_a_collation_is_refused_in_the_select_and_in_a_table_made_beforehand(
        self, sink: DuckDBSink, epochs: Epochs, query: Query
    ) -> None:
        derives = sink.extras.derives
        assert derives is not None
        sql = "SELECT {} AS k, count(*) AS n FROM orders GROUP BY 1"
        folded = Derived("d", "d", ("k",), sql.format("name COLLATE NOCASE"))
        plain = Derived("d", "d", ("k",), sql.format("lower(name)"))
        with pytest.raises(UsageError, match=r"derived table 'd'.*COLLATE (nocase|NOCASE)") as refused:
            derives.check(epochs.job, [folded], epochs.tables, {})
        with typed(refused.value) as hint:
            hint.says("lower(name)")
            derives.check(epochs.job, [plain], epochs.tables, {})
        for make in (
            "CREATE TABLE d (k VARCHAR COLLATE NOCASE, n BIGINT)",
            "CREATE TABLE d (k VARCHAR, n BIGINT); CREATE UNIQUE INDEX u ON d (n)",
        ):
            query(make)
            with pytest.raises(SinkInUse, match="d exists, with more than the columns"):
                derives.prepare(epochs.job, [plain], epochs.tables)
            query("DROP TABLE d")
        derives.prepare(epochs.job, [plain], epochs.tables)

    def test_the_file_is_closed_between_calls(self, sink: DuckDBSink, path: Path, epochs: Epochs) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        assert in_another_process(path, "print(con.execute('SELECT count(*) FROM orders').fetchone()[0])") == "1"

    def test_a_file_held_by_another_program_is_transient_and_says_who(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        with held_by_another_process(path) as pid, pytest.raises(Transient, match=rf"PID {pid}") as refused:
            sink.commit(commit)
        with typed(refused.value) as hint:
            hint.says(f"close the program that holds it: lsof {path}")
            sink.commit(commit)
            assert read_file(path, "orders") == rows((1, "a"))

    def test_the_last_job_takes_the_side_tables_with_it(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        def tables() -> set[str]:
            with duckdb.connect(str(path), read_only=True) as con:
                return {name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}

        sink.prepare("other", (a_table("items"),), into_existing=False)
        sink.own("other", Owner("c", "h", "p"), None)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        before = tables()
        sink.forget("orders")
        assert tables() == before >= {"_backfill_markers", "_backfill_owners"}
        assert sink.owner("other") == Owner("c", "h", "p")
        sink.forget("other")
        assert tables() == {"orders", "items"}
        sink.forget("other")
        sink.prepare("new", (a_table("fresh"),), into_existing=False)
        assert set(sink.committed("new")) == {"fresh"}

    def test_a_start_into_rows_of_others_that_never_made_its_job_leaves_them_protected(
        self, sink: DuckDBSink, path: Path
    ) -> None:
        with duckdb.connect(str(path)) as con:
            con.execute("CREATE TABLE orders (id BIGINT, name VARCHAR); INSERT INTO orders VALUES (1, 'theirs')")
        sink.prepare("orders", (a_table(plain_inserts=False),), into_existing=True)
        with pytest.raises(SinkInUse, match="--into-existing"):
            sink.prepare("orders", (a_table(),), into_existing=False)
        sink.prepare("orders", (a_table(plain_inserts=False),), into_existing=True)
        assert read_file(path, "orders") == rows((1, "theirs"))

    def test_splits_of_the_first_layout_are_read_and_brought_up_by_prepare(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        moved = SplitProgress(SplitStatus.CONSUMING, 7, 7, 10)
        sink.commit(epochs.next(splits={("orders", "f"): moved}))
        with duckdb.connect(str(path)) as con:
            con.execute("ALTER TABLE _backfill_splits ALTER cursor TYPE BIGINT")
            con.execute("ALTER TABLE _backfill_splits ALTER cursor SET NOT NULL")
            con.execute(
                'ALTER TABLE _backfill_splits RENAME cursor TO "after"; UPDATE _backfill_jobs SET layout = 1'
            )
        for _ in range(2):
            saved = sink.saved("orders")
            assert saved is not None
            assert saved.checkpoint.splits == {("orders", "f"): moved}
            sink.prepare("orders", epochs.tables, into_existing=True)
        ended = {("orders", "f"): SplitProgress(SplitStatus.CONSUMED, None, 9, 20)}
        sink.commit(epochs.next(splits=ended))
        saved = sink.saved("orders")
        assert saved is not None
        assert saved.checkpoint.splits == ended

    def test_a_check_raises_what_prepare_would_and_writes_nothing(
        self, sink: DuckDBSink, path: Path, tmp_path: Path
    ) -> None:
        sink.check("orders", (a_table(),), into_existing=False)
        assert not path.exists()
        with duckdb.connect(str(path)) as con:
            con.execute("CREATE TABLE orders (id BIGINT, name VARCHAR); INSERT INTO orders VALUES (1, 'theirs')")
        before = path.read_bytes()
        with pytest.raises(SinkInUse, match="with rows that are not this job's"):
            sink.check("orders", (a_table(),), into_existing=False)
        sink.check("orders", (a_table(),), into_existing=True)
        assert path.read_bytes() == before
        nowhere = DuckDBSink(DuckDBOptions(path=str(tmp_path / "none" / "w.duckdb")))
        with pytest.raises(UsageError, match="none does not exist") as refused:
            nowhere.check("orders", (a_table(),), into_existing=False)
        with typed(refused.value) as hint:
            hint.run_in_shell("mkdir")
            nowhere.check("orders", (a_table(),), into_existing=False)

    def test_case_44_the_log_that_a_crash_leaves_never_mixes_ddl_and_rows(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        wider = (a_table(schema=schema_json(id="long", name="string", note="string")),)
        wal = prepare_then_die(path, wider)
        assert wal == 0
        sink.commit(epochs.next(inserts=rows((2, "b"))))
        assert [row["id"] for row in read_file(path, "orders")] == [1, 2]

    @pytest.mark.parametrize(("point", "epoch"), [("sink-before-commit", 10), ("sink-before-close", 20)])
    def test_an_epoch_is_there_whole_or_not_at_all_after_a_kill(
        self, sink: DuckDBSink, path: Path, epochs: Epochs, point: str, epoch: int
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        second = epochs.next(upserts=rows((1, "A"), (2, "b")))
        assert commit_in_a_child(path, second, {"BACKFILL_FAILPOINT": point}) == -signal.SIGKILL
        assert sink.committed("orders")["orders"].epoch == epoch
        assert read_file(path, "orders") == (rows((1, "a")) if epoch == 10 else rows((1, "A"), (2, "b")))
        with sink.copied("orders", True, path.parent) as copy:
            saved = copy.saved()
        assert saved is not None
        assert saved.checkpoint.epoch == epoch
        sink.commit(second)
        assert read_file(path, "orders") == rows((1, "A"), (2, "b"))

    def test_case_13_a_second_unique_key_bears_a_passing_clash_and_loses_no_row(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        with duckdb.connect(str(path)) as con:
            con.execute("CREATE UNIQUE INDEX by_name ON orders (name)")
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"))))
        sink.commit(epochs.next(upserts=rows((1, "b"), (2, "a"))))
        assert read_file(path, "orders") == rows((1, "b"), (2, "a"), (3, "c"))
        with pytest.raises(BadData, match="uplicate key"):
            sink.commit(epochs.next(upserts=rows((1, "c"))))
        assert read_file(path, "orders") == rows((1, "b"), (2, "a"), (3, "c"))

    def test_case_43_a_full_disk_keeps_exactly_the_acknowledged_epochs(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        commits = [
            epochs.next(inserts=rows(*((i, "x" * 40 + str(i)) for i in range(n * 9000, n * 9000 + 9000))))
            for n in range(1, 9)
        ]
        kept, way_on = commit_until_full(path, commits, limit_bytes=1_500_000)
        assert 0 < kept < len(commits)
        assert len(read_file(path, "orders")) == kept * 9000
        assert sink.committed("orders")["orders"].epoch == kept * 10
        with typed(way_on) as hint:
            hint.says("free disk space")
            hint.run_in_shell("df")
            for commit in commits[kept:]:
                sink.commit(commit)
            assert len(read_file(path, "orders")) == len(commits) * 9000

    def test_case_47_a_table_dropped_by_a_stranger_stops_the_job(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        with duckdb.connect(str(path)) as con:
            con.execute("DROP TABLE orders")
        with pytest.raises(StateConflict, match="gone"):
            sink.prepare("orders", epochs.tables, into_existing=True)

    def test_case_36_a_replaced_file_is_not_created_anew(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next())
        path.unlink()
        with pytest.raises(StateConflict, match="no record of commits to table 'orders'"):
            sink.commit(epochs.next())
        assert not path.exists()

    def test_permissions_of_an_existing_file_stay(self, sink: DuckDBSink, path: Path, epochs: Epochs) -> None:
        path.chmod(0o640)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        assert path.stat().st_mode & 0o777 == 0o640

    def test_a_staging_path_is_no_pattern_and_names_no_partition(
        self, sink: DuckDBSink, path: Path, tmp_path: Path, epochs: Epochs
    ) -> None:
        odd = Epochs(tmp_path / "it's [a] *" / "name=wrong")
        sink.commit(odd.next(inserts=rows((1, "a"))))
        assert read_file(path, "orders") == rows((1, "a"))

    def test_files_outside_the_attempts_folder_cannot_be_read(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        stranger = epochs.folder / "stranger.parquet"
        stranger.write_bytes((Path(commit.folder) / commit.staged.tables["orders"].inserts[0].path).read_bytes())
        for path in ("../../stranger.parquet", "orders/../../../stranger.parquet"):
            staged = StagedTable(inserts=(StagedFile(path, 1),), rows=1)
            with pytest.raises(Fatal, match="disabled by configuration"):
                sink.commit(replace(commit, staged=Staged("a10", {"orders": staged})))

    @pytest.mark.parametrize("target", ["a.b.c", ".b", "a.", "_backfill_jobs", "x._BACKFILL_y"])
    def test_a_target_that_cannot_be_named_is_refused(self, sink: DuckDBSink, target: str) -> None:
        with pytest.raises(UsageError, match="target") as refused:
            sink.prepare("orders", (a_table(target=target),), into_existing=False)
        with typed(refused.value) as hint:
            named = str(hint.settings()["tables.target"])
            sink.prepare("orders", (a_table(target=named),), into_existing=False)

    def test_a_view_is_no_target(self, sink: DuckDBSink, path: Path) -> None:
        with duckdb.connect(str(path)) as con:
            con.execute("CREATE VIEW orders AS SELECT 1 AS id")
        with pytest.raises(UsageError, match="view") as refused:
            sink.prepare("orders", (a_table(),), into_existing=True)
        with typed(refused.value) as hint:
            hint.says("name another target")
            sink.prepare("orders", (a_table(target="others"),), into_existing=True)

    def test_a_schema_is_created_and_spellings_of_a_target_are_one(
        self, sink: DuckDBSink, path: Path, tmp_path: Path
    ) -> None:
        epochs = Epochs(tmp_path / "s", tables=(a_table(target="Mart.Orders"),))
        sink.prepare("orders", epochs.tables, into_existing=False)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        assert read_file(path, "mart.orders") == rows((1, "a"))
        with pytest.raises(Held, match="belongs to job 'orders'"):
            sink.prepare("other", (a_table(target="mart.ORDERS"),), into_existing=True)

    def test_a_table_that_joins_a_fenced_job_is_fenced_too(self, sink: DuckDBSink, epochs: Epochs) -> None:
        sink.fence("orders", 4)
        sink.prepare("orders", (*epochs.tables, a_table("items")), into_existing=False)
        assert sink.committed("orders")["items"] == Marker(0, 4, "")

    def test_side_tables_of_a_newer_backfill_are_left_alone(
        self, sink: DuckDBSink, path: Path, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next())
        with duckdb.connect(str(path)) as con:
            con.execute("UPDATE _backfill_jobs SET layout = 99")
        with pytest.raises(Fatal, match="a newer backfill"):
            sink.commit(epochs.next())

    def test_two_tables_of_a_job_may_not_share_a_target(self, sink: DuckDBSink) -> None:
        with pytest.raises(UsageError, match="the same target") as refused:
            sink.prepare("orders", (a_table("a", "t"), a_table("b", "main.T")), into_existing=False)
        with typed(refused.value) as hint:
            hint.says("give one of them another target: tables.target")
            sink.prepare("orders", (a_table("a", "t"), a_table("b", "main.b")), into_existing=False)

    def test_side_tables_are_commented(self, sink: DuckDBSink, path: Path, epochs: Epochs) -> None:
        bare = in_another_process(
            path,
            """
            where = "WHERE starts_with(table_name, '_backfill_')"
            print(con.execute("SELECT count(*), count(comment) FROM duckdb_columns() " + where).fetchall())
            """,
        )
        assert bare == "[(20, 20)]"

    @pytest.mark.parametrize("keys", [[5, -3, 5], [1, 2**62, -(2**62), 1], [0, 0]])
    def test_duplicates_are_found_among_dense_and_sparse_keys(
        self, sink: DuckDBSink, epochs: Epochs, keys: list[int]
    ) -> None:
        with pytest.raises(BadData, match="2 times") as refused:
            sink.commit(epochs.next(inserts=rows(*((key, "x") for key in keys)), unique=("orders",)))
        with typed(refused.value) as hint:
            hint.says("drop the job and start over, either with columns in the table's key")
            sink.drop(epochs.tables)
            sink.forget("orders")
            again = Epochs(epochs.folder / "again", tables=(a_table(key=("id", "name")),))
            sink.prepare("orders", again.tables, into_existing=False)
            apart = rows(*((key, f"{at}") for at, key in enumerate(keys)))
            sink.commit(again.next(inserts=apart, unique=("orders",)))

    def test_a_row_that_somebody_deleted_and_a_change_fills_in_part_is_restored_and_the_change_applied(
        self, sink: DuckDBSink, epochs: Epochs, path: Path
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        commit = epochs.next(upserts=[{"id": 1, "name": None, "_backfill_unsent": ["name"]}])
        with duckdb.connect(str(path)) as con:
            con.execute("DELETE FROM orders")
        with pytest.raises(BadData, match=r"no row with the key \(id\).*: \(1\)") as refused:
            sink.commit(commit)
        with typed(refused.value) as hint:
            hint.says("rows were deleted from the sink: restore them")
            with duckdb.connect(str(path)) as con:
                con.execute("INSERT INTO orders VALUES (1, 'a')")
            sink.commit(commit)
            assert read_file(path, "orders") == rows((1, "a"))

    def test_a_row_that_came_before_its_topic_began_is_inserted_and_the_change_applied(
        self, sink: DuckDBSink, tmp_path: Path, path: Path
    ) -> None:
        epochs = Epochs(tmp_path / "topic", tables=(a_table(place=()),))
        sink.prepare(epochs.job, epochs.tables, into_existing=False)
        commit = epochs.next(upserts=[{"id": 3, "name": None, "_backfill_unsent": ["name"]}])
        with pytest.raises(BadData, match=r"no row with the key \(id\).*: \(3\), without name") as refused:
            sink.commit(commit)
        with typed(refused.value) as hint:
            hint.says("insert it into orders, with the values that these columns have in the source, and resume")
            with duckdb.connect(str(path)) as con:
                con.execute("INSERT INTO orders VALUES (3, 'a')")
            sink.commit(commit)
            assert read_file(path, "orders") == rows((3, "a"))

    @pytest.mark.parametrize("keys", [[], [5], [-3, 5, 4], [1, 2**62, -(2**62)], [-(2**63), 2**63 - 1]])
    def test_unique_keys_pass(self, sink: DuckDBSink, epochs: Epochs, keys: list[int]) -> None:
        sink.commit(epochs.next(inserts=rows(*((key, "x") for key in keys)), unique=("orders",)))
