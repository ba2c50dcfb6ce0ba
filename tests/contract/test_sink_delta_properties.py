"""Properties of the tables that the Delta sink creates. Reads rows without our readers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from sink_contract import Epochs, a_table, rows

from backfill_cli.errors import UsageError
from backfill_cli.sinks.delta.options import DeltaOptions
from backfill_cli.sinks.delta.sink import DeltaSink

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


def test_one_that_delta_does_not_know_is_refused_and_there_is_no_table(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    sink = with_properties(tmp_path / "lake", spark, enableWings="true")
    with pytest.raises(UsageError, match=r"refuses to create the table: .*delta\.enableWings") as caught:
        sink.prepare("orders", (a_table(),), into_existing=False)
    assert "sink.properties" in caught.value.hint
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("delta.setTransactionretentionduration", "forget which epoch"),
        ("delta.enableRowTracking", "cannot write tables with that feature"),
    ],
)
def test_one_that_the_job_could_not_live_with_is_refused_in_the_config(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DeltaOptions(table="lake/t", properties={name: "true"})
