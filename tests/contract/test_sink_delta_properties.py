"""Properties of the tables that the Delta sink creates. Reads rows without our readers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, Schema
from hint_typed import typed
from sink_contract import Epochs, a_table, rows, schema_json

from backfill_cli.errors import Fatal, Transient, UsageError
from backfill_cli.lake.delta.edge import Where
from backfill_cli.model.schema import columns_of
from backfill_cli.sinks.delta import DeltaOptions
from backfill_cli.sinks.delta.sink import DeltaSink
from backfill_cli.sinks.delta.tables import Lacking, create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_properties(lake: Path, spark: "SparkSession", **told: str) -> DeltaSink:
    made = DeltaSink(
        DeltaOptions(table=f"{lake}/{{table}}", properties={f"delta.{k}": v for k, v in told.items()})
    )
    made.use(lambda: spark)
    return made


def test_a_new_table_has_them_and_a_merge_marks_rows_instead_of_rewriting_files(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    lake, epochs = tmp_path / "lake", Epochs(tmp_path / "staging")
    sink = with_properties(lake, spark, enableDeletionVectors="true", enableChangeDataFeed="true")
    sink.prepare("orders", epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    sink.commit(epochs.next(inserts=rows(*((n, "old") for n in range(100)))))
    sink.commit(epochs.next(upserts=rows((1, "new"), (200, "added")), deletes=[2]))

    table = DeltaTable(str(lake / "orders"))
    newest = (lake / "orders" / "_delta_log" / f"{table.version():020d}.json").read_text()
    added = [one["add"] for one in map(json.loads, newest.splitlines()) if "add" in one]
    assert [one["deletionVector"]["cardinality"] for one in added if one.get("deletionVector")] == [2]
    assert table.metadata().configuration["delta.enableChangeDataFeed"] == "true"
    found = spark.read.format("delta").load(f"{lake}/orders").where("id < 4 OR id > 99").orderBy("id").toArrow()
    assert found.to_pylist() == rows((0, "old"), (1, "new"), (3, "old"), (200, "added"))


def test_side_tables_have_none(tmp_path: Path, spark: "SparkSession") -> None:
    sink = with_properties(tmp_path / "lake", spark, enableChangeDataFeed="true")
    sink.prepare("orders", (a_table(), a_table("_backfill_bad", side=True)), into_existing=False)
    assert DeltaTable(str(tmp_path / "lake" / "_backfill_bad")).metadata().configuration == {}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"enableWings": "true"}, r"refuses to create the table: .*delta\.enableWings"),
        (
            {"enableDeletionVectors": "maybe"},
            'refuses to create the table: For input string: "maybe" .*enableDeletionVectors"',
        ),
        ({"enableRowTracking": "true"}, "commits cannot be written without Spark: .*RowTracking"),
        ({"dataSkippingStatsColumns": "name"}, "refuses to create the table: .*DELTA_COLUMN_NOT_FOUND"),
    ],
)
def test_where_one_is_refused_none_of_the_tables_is_there(
    told: dict[str, str], said: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    sink = with_properties(tmp_path / "lake", spark, **told)
    tables = (a_table("a"), a_table("b", schema=schema_json(id="long", other="string")))
    with pytest.raises(UsageError, match=said) as caught:
        sink.prepare("orders", tables, into_existing=False)
    assert not [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    with typed(caught.value) as hint:
        hint.says("sink.properties")
        with_properties(tmp_path / "lake", spark).prepare("orders", tables, into_existing=False)


def test_a_folder_with_files_that_are_no_table_is_refused_and_keeps_them(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    there = tmp_path / "lake" / "orders" / "notes.txt"
    there.parent.mkdir(parents=True)
    there.touch()
    sink = with_properties(tmp_path / "lake", spark, enableChangeDataFeed="true")
    with pytest.raises(UsageError, match="the folder has files, but no Delta table") as refused:
        sink.prepare("orders", (a_table(),), into_existing=False)
    assert list((tmp_path / "lake").rglob("*")) == [there.parent, there]
    with typed(refused.value) as hint:
        hint.says("or remove the files")
        there.unlink()
        sink.prepare("orders", (a_table(),), into_existing=False)


def test_a_table_that_another_process_created_meanwhile_is_taken(tmp_path: Path, spark: "SparkSession") -> None:
    where = Where.of(str(tmp_path / "orders"), "orders")
    lacking = Lacking(a_table(), where, columns_of(a_table().schema), create=True)
    for _ in range(2):
        create([lacking], {"delta.enableChangeDataFeed": "true"}, lambda: spark)
    assert where.open().version() == 1


def test_one_that_is_set_later_and_forbids_what_the_job_does_is_changed_back(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    lake, epochs = tmp_path / "lake", Epochs(tmp_path / "staging")
    sink = with_properties(lake, spark)
    sink.prepare("orders", epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    properties = DeltaTable(str(lake / "orders")).alter.set_table_properties
    properties({"delta.appendOnly": "true"})
    second = epochs.next(upserts=rows((1, "b")))
    with pytest.raises(Fatal, match=r"Delta refuses the commit: .*delta\.appendOnly") as refused:
        sink.commit(second)
    with typed(refused.value) as hint:
        hint.says("change the table's properties that the message names")
        properties({"delta.appendOnly": "false"})
        sink.commit(second)
    assert DeltaTable(str(lake / "orders")).to_pyarrow_table().to_pylist() == rows((1, "b"))


def test_a_table_that_another_process_is_creating_is_taken_by_the_next_command(
    tmp_path: Path,
    spark: "SparkSession",  # whose types are written as DDL
) -> None:
    where = Where.of(str(tmp_path / "orders"), "orders")
    lacking = Lacking(a_table(), where, columns_of(a_table().schema), create=True)

    class Busy:
        def sql(self, _: str) -> None:
            raise RuntimeError("[DELTA_CONCURRENT_WRITE] a concurrent transaction wrote the table's first version")

    busy: Any = Busy()
    with pytest.raises(Transient, match="another process is creating the table") as refused:
        create([lacking], {"delta.enableChangeDataFeed": "true"}, lambda: busy)
    with typed(refused.value) as hint:
        hint.says("type the command again")
        DeltaTable.create(where.library_uri, Schema.from_json(a_table().schema))
        create([lacking], {"delta.enableChangeDataFeed": "true"}, lambda: busy)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("delta.setTransactionretentionduration", "forget which commit"),
        ("delta.appendOnly", "a job changes and deletes them, too"),
    ],
)
def test_one_that_the_job_could_not_live_with_is_refused_in_the_config(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DeltaOptions(table="lake/t", properties={name: "true"})
