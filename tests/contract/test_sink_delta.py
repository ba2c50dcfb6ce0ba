"""The Delta sink under the contract, beside other writers, and what it keeps. Reads rows without Spark."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from delta_sink import epochs, lake, opened, read_table, sink
from deltalake import DeltaTable, write_deltalake
from hint_typed import typed
from sink_contract import Epochs, Read, SinkContract, a_table, rows, schema_json

from backfill_cli.errors import RESTORE, SinkInUse, StateConflict
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.delta import DeltaOptions, connector
from backfill_cli.sinks.delta.sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["epochs", "lake", "sink"]


@pytest.mark.in_turn
class TestDeltaSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path, spark: "SparkSession") -> DeltaSink:
        return opened(tmp_path / "lake", spark)

    @pytest.fixture
    def read(self, tmp_path: Path) -> Read:
        return lambda target: read_table(tmp_path / "lake", target)


# Other writers


def test_commits_of_others_in_between_stay_and_are_no_conflict(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    for key in (100, 101):
        write_deltalake(str(lake / "orders"), pa.table({"id": [key], "name": ["theirs"]}), mode="append")
    DeltaTable(str(lake / "orders")).optimize.compact()
    sink.commit(epochs.next(upserts=rows((1, "new")), deletes=[2]))
    assert read_table(lake, "orders") == rows((1, "new"), (100, "theirs"), (101, "theirs"))


def test_the_partitioning_of_a_table_that_was_there_is_kept(sink: DeltaSink, lake: Path, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    write_deltalake(str(lake / "mine"), schema.empty_table(), partition_by=["name"])
    epochs = Epochs(tmp_path / "staging", job="other", tables=(a_table("mine"),))
    sink.prepare("other", epochs.tables, into_existing=False)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    sink.commit(epochs.next(upserts=rows((1, "c"))))
    assert read_table(lake, "mine") == rows((1, "c"), (2, "b"))
    assert DeltaTable(str(lake / "mine")).metadata().partition_columns == ["name"]


# The sink's state, and where it is kept


def test_what_is_kept_of_a_long_job_does_not_grow(sink: DeltaSink, lake: Path, epochs: Epochs) -> None:
    for _ in range(6):
        sink.commit(epochs.next())
    assert len([path for path in (lake / "_backfill_state").rglob("*") if path.is_file()]) <= 9
    assert sink.committed("orders")["orders"] == Marker(60, 1, "a60")


def test_of_tables_at_two_epochs_nothing_is_rebuilt_and_the_error_says_which(
    sink: DeltaSink, tmp_path: Path
) -> None:
    tables = (a_table("a"), a_table("b"))
    epochs = Epochs(tmp_path / "s", job="two", tables=tables)
    sink.prepare("two", tables, into_existing=False)
    sink.commit(epochs.next())
    second = epochs.next()
    sink.commit(replace(second, only=frozenset({"b"})))
    with pytest.raises(StateConflict, match="table 'a' is at commit 10, others at 20") as behind:
        sink.saved("two")
    with typed(behind.value) as hint:
        assert hint.commands()[0] == ["resume", "two"]
        sink.commit(second)  # what the run of that catalog does
        assert sink.saved("two") is not None


def test_a_stopped_jobs_tables_that_cannot_be_compared_are_refused_at_once(
    sink: DeltaSink, tmp_path: Path
) -> None:
    tables = (a_table("a"), a_table("b"))
    epochs = Epochs(tmp_path / "s", job="two", tables=tables)
    sink.prepare("two", tables, into_existing=False)
    with sink.copied("two", False, tmp_path) as copy:
        assert copy.saved() is None, "nothing is committed yet"
    sink.commit(epochs.next())
    sink.commit(replace(second := epochs.next(), only=frozenset({"b"})))
    began_s = time.monotonic()
    with pytest.raises(StateConflict, match=r"several commits \(a: 10, b: 20\)") as caught:
        sink.copied("two", False, tmp_path).__enter__()
    with typed(caught.value) as hint:
        assert hint.commands() == [["resume", "two"]]
        sink.commit(second)  # what the run does
        with sink.copied("two", False, tmp_path) as copy:
            assert copy.saved() is not None
    shutil.rmtree(tmp_path / "lake" / "a")
    with pytest.raises(StateConflict, match="table 'a' of the sink is gone") as caught:
        sink.copied("two", True, tmp_path).__enter__()
    assert caught.value.hint == RESTORE
    assert time.monotonic() - began_s < 60


def test_a_table_option_without_a_place_for_the_tables_name_is_for_one_table(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{tmp_path}/lake/mine"))
    sink.use(lambda: spark)
    side = a_table("_backfill_bad", side=True)
    sink.prepare("one", (a_table("a"), side), into_existing=False)
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == [
        "_backfill_bad",
        "_backfill_state",
        "mine",
    ]
    with pytest.raises(ValueError, match=r"named by its folder, .* or by catalog"):
        DeltaOptions(table="mine")


def test_check_makes_nothing_and_needs_no_spark(tmp_path: Path) -> None:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{tmp_path}/lake/{{table}}"))
    sink.check("orders", (a_table(),), into_existing=False)
    assert list(tmp_path.iterdir()) == []
    write_deltalake(str(tmp_path / "lake" / "orders"), pa.table({"id": [1], "name": ["x"]}))
    with pytest.raises(SinkInUse, match="with rows that are not this job's"):
        sink.check("orders", (a_table(),), into_existing=False)


def test_a_column_is_added_to_a_table_with_column_mapping(
    sink: DeltaSink, lake: Path, tmp_path: Path, spark: "SparkSession"
) -> None:
    lake.mkdir(exist_ok=True)
    spark.sql(
        f"CREATE TABLE delta.`{lake}/mapped` (id BIGINT, name STRING) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', delta.enableDeletionVectors = true)"
    )
    epochs = Epochs(tmp_path / "staging", job="other", tables=(a_table("mapped"),))
    sink.prepare("other", epochs.tables, into_existing=False)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
    wider = a_table("mapped", schema=schema_json(id="long", name="string", note="string"))
    sink.prepare("other", (wider,), into_existing=False)
    sink.fence("other", 5)
    assert sink.committed("other")["mapped"] == Marker(10, 5, "a10")
    found = spark.read.format("delta").load(f"{lake}/mapped").orderBy("id").toArrow().to_pylist()
    assert found == [{**row, "note": None} for row in rows((1, "a"), (2, "b"))]


def test_case_36_a_table_taken_back_by_restore_is_refused_until_it_is_taken_forth(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    """RESTORE keeps the transaction number: by its marker the table has the epoch, but its rows are gone."""
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    table = DeltaTable(str(lake / "orders"))
    before = table.version()
    sink.commit(second := epochs.next(inserts=rows((2, "b"))))
    table.update_incremental()
    after = table.version()
    table.restore(before)
    third = epochs.next(inserts=rows((3, "c")))
    with pytest.raises(StateConflict, match="set back by RESTORE to before a commit of job 'orders'"):
        sink.commit(third)
    with pytest.raises(StateConflict, match="set back by RESTORE"):
        opened(lake, spark).fence("orders", 2)
    assert sink.committed("orders")["orders"].epoch == second.epoch
    table.update_incremental()
    table.restore(after)
    sink.commit(third)
    assert read_table(lake, "orders") == rows((1, "a"), (2, "b"), (3, "c"))
