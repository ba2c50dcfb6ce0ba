"""An Iceberg sink that fills a branch of a table that people query, and what a cutover does with it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sink_contract import Epochs, Row, a_table, rows
from sink_epochs import schema_json
from test_sink_iceberg import at_point, dies, read_table, refs, strange

from backfill_cli.contracts.cutover import CutoverSink, Swap
from backfill_cli.errors import Fatal, Held, SinkInUse, StateConflict, UsageError
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.cutover import Found, Live
from backfill_cli.sinks.iceberg import connector, live, writing
from backfill_cli.sinks.iceberg.options import IcebergSinkOptions
from backfill_cli.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THEIRS = [{"id": 7, "name": "theirs"}, {"id": 8, "name": "theirs"}]
SWAPS = (Swap(a_table(), "orders"),)


@dataclass
class Place:
    """A table with another writer's rows, and a job that was prepared to fill a branch of it."""

    spark: "SparkSession"
    lake: Path
    epochs: Epochs
    stranger: Callable[[str], None]

    def opened(self) -> IcebergSink:
        sink = connector.open(IcebergSinkOptions(table=f"{self.lake}/{{table}}", branch="backfill"))
        assert isinstance(sink, IcebergSink)
        assert isinstance(sink, CutoverSink)
        sink.use(lambda: self.spark)
        return sink

    def live(self) -> list[Row]:
        return read_table(self.lake, "orders")

    def beside(self) -> list[Row]:
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(str(self.lake / "orders"))
        found: list[Row] = table.scan(snapshot_id=refs(self.lake, "orders")["backfill"]).to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def now(self) -> Live:
        return self.opened().live("orders", SWAPS)["orders"]

    def cut_over(self) -> None:
        self.opened().cut_over("orders", SWAPS, self.epochs.epoch, 1_000, 9_000)

    def reverse(self) -> None:
        self.opened().reverse("orders", SWAPS)


@pytest.fixture
def place(spark: "SparkSession", tmp_path: Path) -> Place:
    stranger = strange(spark, tmp_path / "lake")
    stranger("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg")
    stranger("INSERT INTO {t} VALUES (7, 'theirs'), (8, 'theirs')")
    made = Place(spark, tmp_path / "lake", Epochs(tmp_path / "staging"), stranger)
    sink = made.opened()
    sink.prepare("orders", made.epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    sink.commit(made.epochs.next(inserts=rows((1, "a"), (2, "b"))))
    return made


def test_a_branch_is_filled_beside_is_the_tables_own_at_one_moment_and_is_put_back(place: Place) -> None:
    assert (place.live(), place.beside()) == (THEIRS, rows((1, "a"), (2, "b")))
    assert place.now() == Live(Found.TABLE)
    with place.opened().copied("orders", False, place.lake) as copy:
        assert copy.frame(place.spark, a_table(), ["id"], None).count() == 2, "verify reads the branch"
    place.cut_over()
    kept = f"backfill_before_{place.epochs.epoch}"
    assert place.live() == rows((1, "a"), (2, "b"))
    assert place.now() == Live(Found.OURS, kept, 1_000, 9_000, made="at the job's branch backfill")
    assert set(refs(place.lake, "orders")) == {"main", "backfill_branch_1", "backfill_tag_1", kept}

    place.cut_over()  # a second time nothing changes
    place.opened().fence("orders", 2)
    place.opened().commit(replace(place.epochs.next(upserts=rows((2, "B"))), token=2))
    assert place.live() == rows((1, "a"), (2, "B")), "the job goes on in the table itself"
    with pytest.raises(UsageError, match="was cut over"):
        place.opened().drop(place.epochs.tables)

    place.opened().prepare("orders", place.epochs.tables, into_existing=True)
    place.reverse()
    assert (place.live(), place.beside()) == (THEIRS, rows((1, "a"), (2, "B")))
    assert place.now() == Live(Found.TABLE)
    place.opened().commit(replace(place.epochs.next(deletes=[1]), token=2))
    assert (place.live(), place.beside()) == (THEIRS, rows((2, "B")))
    place.cut_over()
    assert place.live() == rows((2, "B"))


def test_a_death_at_any_step_leaves_the_old_rows_or_the_new_and_the_same_command_ends_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = rows((1, "a"), (2, "b"))
    steps = (
        ("sink-before-cutover", place.cut_over, THEIRS, ours),
        ("sink-after-cutover", place.cut_over, ours, ours),
        ("sink-before-reverse", place.reverse, ours, THEIRS),
        ("sink-after-reverse", place.reverse, THEIRS, THEIRS),
    )
    for point, act, seen, wanted in steps:
        if wanted == ours and place.now().found is Found.OURS:
            place.reverse()
        elif wanted == THEIRS and place.now().found is Found.TABLE:
            place.cut_over()
        with monkeypatch.context() as patch:
            patch.setattr(live, "hit", at_point(point, dies))
            with pytest.raises(KeyboardInterrupt):
                act()
        assert place.live() == seen, point
        assert (place.now().found is Found.OURS) == (seen == ours)
        told = Marker(place.epochs.epoch, 1, f"a{place.epochs.epoch}")
        assert place.opened().committed("orders") == {"orders": told}
        one = place.epochs.next(upserts=rows((1, "a")))  # a runner continues in between
        place.opened().commit(one)
        act()
        assert place.live() == wanted, point


def test_a_job_is_taken_up_again_before_its_cut_over_and_its_table_gets_a_column(place: Place) -> None:
    place.opened().check("orders", place.epochs.tables, into_existing=True)
    place.opened().prepare("orders", place.epochs.tables, into_existing=True)
    place.opened().fence("orders", 2)
    more = a_table(schema=schema_json(id="long", name="string", more="string"))
    wider = Epochs(place.epochs.folder, tables=(more,), epoch=place.epochs.epoch)
    place.opened().prepare("orders", wider.tables, into_existing=True)
    commit = replace(wider.next(upserts=rows((2, "b"))), token=2)
    staged = Path(commit.folder) / commit.staged.tables["orders"].changes[0].path
    pq.write_table(pq.read_table(staged).append_column("more", pa.array(["m"])), staged)
    place.opened().commit(commit)
    assert place.beside() == [{"id": 1, "name": "a", "more": None}, {"id": 2, "name": "b", "more": "m"}]
    assert [(row["id"], row["name"]) for row in place.live()] == [(7, "theirs"), (8, "theirs")]


def test_a_table_that_others_wrote_to_meanwhile_is_not_cut_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = refs(place.lake, "orders")["main"]
    race = at_point("sink-before-cutover", lambda: place.stranger("INSERT INTO {t} VALUES (9, 'theirs')"))
    monkeypatch.setattr(live, "hit", race)
    with pytest.raises(UsageError, match="another writer has just written to it"):
        place.cut_over()
    assert [row["id"] for row in place.live()] == [7, 8, 9]
    assert not [name for name in refs(place.lake, "orders") if name.startswith("backfill_before")]
    with pytest.raises(UsageError, match=r"others committed 1 snapshot\(s\) to it since"):
        place.cut_over()
    moved = place.now().moved
    assert moved is not None
    assert f"rollback_to_snapshot(table => '`orders`', snapshot_id => {before})" in moved[1]
    place.stranger(f"CALL {{c}}.system.rollback_to_snapshot('orders', {before})")
    place.cut_over()
    assert place.live() == rows((1, "a"), (2, "b"))


def test_a_reverse_takes_nothing_of_others_off_the_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.cut_over()
    place.opened().commit(place.epochs.next(upserts=rows((2, "B"))))
    before, insert = refs(place.lake, "orders")["main"], "INSERT INTO {t} VALUES (9, 'theirs')"
    place.stranger(insert)
    moved = place.now().moved
    assert moved is not None
    assert "others committed 1 snapshot(s) to it since it was cut over" in moved[0]
    with pytest.raises(UsageError, match="the table would lose them"):
        place.reverse()
    assert [row["id"] for row in place.live()] == [1, 2, 9]

    place.stranger(f"CALL {{c}}.system.rollback_to_snapshot('orders', {before})")
    call = live.Cutting._call

    def late(cutting: live.Cutting, where: Any, procedure: str, arguments: str) -> None:
        if procedure == "set_current_snapshot":
            place.stranger(insert)
        call(cutting, where, procedure, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(live.Cutting, "_call", late)
        with pytest.raises(UsageError, match="it stays cut over, with their rows"):
            place.reverse()
    assert [row["id"] for row in place.live()] == [1, 2, 9]
    assert place.now().found is Found.OURS
    assert "backfill" not in refs(place.lake, "orders")


def test_a_job_with_a_side_table_is_dropped_and_a_runner_notes_where_its_rows_are(place: Place) -> None:
    side = replace(a_table(), name="aside", target="aside", side=True)
    tables = (*place.epochs.tables, side)
    place.opened().prepare("orders", tables, into_existing=True)
    sink = place.opened()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "hit", at_point("sink-after-cutover", dies))
        with pytest.raises(KeyboardInterrupt):
            place.cut_over()
    assert (record := sink._state("orders").record()) is not None
    assert record.claims["orders"].branch == "backfill"
    sink.fence("orders", 2)  # a runner, not the same command once more
    assert (record := sink._state("orders").record()) is not None
    assert record.claims["orders"].branch is None
    place.reverse()
    place.opened().drop(tables)
    assert place.live() == THEIRS
    assert not (place.lake / "aside").exists()


def test_a_stalled_runner_that_wakes_after_the_cut_over_writes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_over() -> None:
        place.opened().fence("orders", 2)
        place.opened().cut_over("orders", SWAPS, 10, 1_000, 9_000)

    late = place.epochs.next(upserts=rows((1, "late")))
    monkeypatch.setattr(writing, "hit", at_point("sink-before-commit", cut_over))
    with pytest.raises(Held, match="took job 'orders' over"):
        place.opened().commit(late)
    assert place.live() == rows((1, "a"), (2, "b"))
    assert "backfill" not in refs(place.lake, "orders")


def test_what_is_dropped_is_the_branch_and_one_that_others_removed_is_told(place: Place, tmp_path: Path) -> None:
    place.stranger("ALTER TABLE {t} DROP BRANCH backfill")
    with pytest.raises(StateConflict, match="branch 'backfill', which the job fills, is gone"):
        place.opened().commit(place.epochs.next(upserts=rows((1, "b"))))
    assert place.live() == THEIRS
    place.opened().forget("orders")

    again = Epochs(tmp_path / "again")
    place.opened().prepare("orders", again.tables, into_existing=False)
    place.opened().fence("orders", 1)
    place.opened().commit(again.next(inserts=rows((3, "c"))))
    assert place.beside() == rows((3, "c"))
    place.opened().forget("orders")  # like a drop without rows
    with pytest.raises(SinkInUse, match=r"branch 'backfill' of table .* has rows that are not") as told:
        place.opened().prepare("orders", again.tables, into_existing=False)
    assert told.value.hint.startswith("if they are not needed: ALTER TABLE `orders` DROP BRANCH backfill; or ")
    place.stranger("ALTER TABLE {t} DROP BRANCH backfill")
    third = Epochs(tmp_path / "third")
    place.opened().prepare("orders", third.tables, into_existing=False)
    place.opened().fence("orders", 1)
    place.opened().commit(third.next(inserts=rows((3, "c"))))
    place.opened().drop(again.tables)
    assert place.opened().committed("orders") == {"orders": Marker(10, 1, "a10")}
    place.opened().forget("orders")
    assert (place.live(), set(refs(place.lake, "orders"))) == (THEIRS, {"main"})

    with pytest.raises(UsageError, match="begins empty"):
        place.opened().check("orders", again.tables, into_existing=True)


def test_a_table_that_is_not_there_is_made_and_its_rows_are_in_the_branch(
    spark: "SparkSession", tmp_path: Path
) -> None:
    place = Place(spark, tmp_path / "lake", Epochs(tmp_path / "staging"), strange(spark, tmp_path / "lake"))
    place.opened().prepare("orders", place.epochs.tables, into_existing=False)
    place.opened().fence("orders", 1)
    place.opened().commit(place.epochs.next(inserts=rows((1, "a"))))
    assert (place.live(), place.beside()) == ([], rows((1, "a")))
    place.cut_over()
    assert place.live() == rows((1, "a"))
    plain = connector.open(IcebergSinkOptions(table=f"{place.lake}/{{table}}"))
    assert isinstance(plain, IcebergSink)
    plain.use(lambda: spark)
    with pytest.raises(UsageError, match="already see its rows"):
        plain.live("orders", SWAPS)


@pytest.fixture
def plain(spark: "SparkSession", tmp_path: Path) -> tuple[IcebergSink, Epochs, Callable[[str], None]]:
    """A job that writes to a table's own branch, which was empty when the job claimed it."""
    stranger = strange(spark, tmp_path / "lake")
    stranger("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING, other STRING) USING iceberg")
    sink, epochs = connector.open(IcebergSinkOptions(table=f"{tmp_path}/lake/{{table}}")), Epochs(tmp_path / "s")
    assert isinstance(sink, IcebergSink)
    sink.use(lambda: spark)
    sink.prepare("orders", epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    return sink, epochs, stranger


def test_rows_that_others_wrote_before_the_first_epoch_are_not_taken_for_the_jobs(
    plain: tuple[IcebergSink, Epochs, Callable[[str], None]], tmp_path: Path
) -> None:
    sink, epochs, stranger = plain
    stranger("INSERT INTO {t} VALUES (9, 'theirs', '')")
    first = epochs.next(inserts=rows((1, "a")))
    with pytest.raises(Fatal, match="was empty when the job claimed it"):
        sink.commit(first)
    assert [row["id"] for row in read_table(tmp_path / "lake", "orders")] == [9]
    stranger("DELETE FROM {t}")
    sink.commit(first)
    stranger("INSERT INTO {t} VALUES (9, 'theirs', '')")  # later they concern only their writers
    sink.commit(epochs.next(inserts=rows((2, "b"))))
    assert [row["id"] for row in read_table(tmp_path / "lake", "orders")] == [1, 2, 9]


def test_a_column_that_was_dropped_and_is_there_again_is_told_by_verify_resume_and_commit(
    plain: tuple[IcebergSink, Epochs, Callable[[str], None]], spark: "SparkSession", tmp_path: Path
) -> None:
    sink, epochs, stranger = plain
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    stranger("ALTER TABLE {t} DROP COLUMN other")  # not the job's
    stranger("ALTER TABLE {t} ADD COLUMN more STRING")
    with sink.copied("orders", False, tmp_path) as copy:
        assert copy.frame(spark, a_table(), ["id"], None).count() == 1
        stranger("ALTER TABLE {t} DROP COLUMN name")
        stranger("ALTER TABLE {t} ADD COLUMN name STRING")
        with pytest.raises(StateConflict, match="column 'name', which the job filled, was dropped"):
            copy.frame(spark, a_table(), ["id"], None)
    with pytest.raises(StateConflict, match="column 'name'"):
        sink.check("orders", epochs.tables, into_existing=False)
    with pytest.raises(StateConflict, match="column 'name'"):
        sink.commit(epochs.next(upserts=rows((1, "b"))))
