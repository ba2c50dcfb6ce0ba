"""Tables that an Iceberg sink makes, fills beside others and drops, some by a branch."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed
from iceberg_branch import SWAPS, THEIRS, Place, place
from sink_contract import Epochs, a_table, rows
from test_sink_iceberg import at_point, dies, read_table, refs, strange

from backfill_cli.errors import Fatal, SinkInUse, StateConflict, UsageError
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.cutover import Found, Live
from backfill_cli.sinks.iceberg import IcebergSinkOptions, connector, live
from backfill_cli.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["place"]


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


def test_what_is_dropped_is_the_branch_and_one_that_others_removed_is_told(place: Place, tmp_path: Path) -> None:
    place.stranger("ALTER TABLE {t} DROP BRANCH backfill")
    second = place.epochs.next(upserts=rows((1, "b")))
    with pytest.raises(StateConflict, match="branch 'backfill', which the job fills, is gone") as lost:
        place.opened().commit(second)
    assert place.live() == THEIRS
    with typed(lost.value) as hint:
        (statement,) = hint.statements()
        place.stranger(statement.replace("`lake`.`orders`", "{t}"))
        place.opened().commit(second)
        assert place.beside() == rows((1, "b"), (2, "b"))
    place.stranger("ALTER TABLE {t} DROP BRANCH backfill")
    place.opened().forget("orders")

    again = Epochs(tmp_path / "again")
    place.opened().prepare("orders", again.tables, into_existing=False)
    place.opened().fence("orders", 1)
    place.opened().commit(again.next(inserts=rows((3, "c"))))
    assert place.beside() == rows((3, "c"))
    place.opened().forget("orders")  # like a drop without rows
    with pytest.raises(SinkInUse, match=r"branch 'backfill' of table .* has rows that are not") as told:
        place.opened().prepare("orders", again.tables, into_existing=False)
    third = Epochs(tmp_path / "third")
    with typed(told.value) as hint:
        (statement,) = hint.statements()
        assert statement == "ALTER TABLE `lake`.`orders` DROP BRANCH backfill"
        place.stranger("ALTER TABLE {t} DROP BRANCH backfill")
        place.opened().prepare("orders", third.tables, into_existing=False)
    place.opened().fence("orders", 1)
    place.opened().commit(third.next(inserts=rows((3, "c"))))
    place.opened().drop(again.tables)
    assert place.opened().committed("orders") == {"orders": Marker(10, 1, "a10")}
    place.opened().forget("orders")
    assert (place.live(), set(refs(place.lake, "orders"))) == (THEIRS, {"main"})

    with pytest.raises(StateConflict, match="the sink has no record of job 'orders'") as none:
        place.now()
    with typed(none.value) as hint:
        assert hint.commands() == [["drop", "orders", "--without-sink", "--confirm", "orders"]]
        place.opened().prepare("orders", third.tables, into_existing=False)  # to start over
        place.opened().fence("orders", 1)
        assert place.now() == Live(Found.TABLE)
        place.opened().drop(third.tables)
        place.opened().forget("orders")

    with pytest.raises(UsageError, match="begins empty") as keeps:
        place.opened().check("orders", again.tables, into_existing=True)
    with typed(keeps.value) as hint:
        hint.says("omit --into-existing")
        place.opened().check("orders", again.tables, into_existing=False)


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
    with pytest.raises(UsageError, match="already see its rows") as seen:
        plain.live("orders", SWAPS)
    with typed(seen.value) as hint:
        assert hint.settings() == {"sink.branch": "backfill"}
        assert place.now().found is Found.OURS


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
    with pytest.raises(Fatal, match="was empty when the job took it") as others:
        sink.commit(first)
    assert [row["id"] for row in read_table(tmp_path / "lake", "orders")] == [9]
    with typed(others.value) as hint:
        hint.says("remove their rows, and let them use another table")
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
