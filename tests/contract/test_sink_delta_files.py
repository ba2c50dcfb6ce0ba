"""Staged files that become files of a Delta table as they are, and those that Spark writes anew."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_sink import epochs, lake, read_table, sink
from deltalake import DeltaTable
from sink_contract import ROW, Epochs, Row, rows

from backfill_cli.contracts import EpochCommit
from backfill_cli.errors import Fatal
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.sinks.delta.sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["epochs", "lake", "sink"]


def parts(epochs: Epochs, *pieces: list[Row]) -> EpochCommit:
    """An epoch of plain inserts, staged in a file for each piece."""
    commit = epochs.next(inserts=pieces[0])
    files = []
    for number, piece in enumerate(pieces):
        path = Path(commit.folder, f"orders/inserts/{number}.parquet")
        pq.write_table(pa.Table.from_pylist(piece, ROW), path)
        files.append(StagedFile(f"orders/inserts/{number}.parquet", path.stat().st_size))
    staged = StagedTable(inserts=tuple(files), rows=sum(map(len, pieces)))
    return replace(commit, staged=Staged(commit.attempt, {"orders": staged}))


def added(lake: Path) -> list[dict[str, Any]]:
    """The files that the newest version of the table with any adds, according to its log."""
    log = sorted((lake / "orders" / "_delta_log").glob("*.json"))
    told = [[json.loads(line) for line in file.read_text().splitlines()] for file in log]
    return [
        [one["add"] for one in actions if "add" in one] for actions in told if any("add" in a for a in actions)
    ][-1]


def test_a_staged_file_becomes_the_tables_own_with_what_its_footer_says(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    commit = epochs.next(inserts=[*rows((1, "a"), (5, "é" * 40)), {"id": 7, "name": None}])
    sink.commit(commit)
    (file,) = added(lake)
    staged = Path(commit.folder, "orders/inserts/0.parquet")
    assert (lake / "orders" / file["path"]).samefile(staged)
    assert json.loads(file["stats"]) == {
        "numRecords": 3,
        "minValues": {"id": 1},
        "maxValues": {"id": 7},
        "nullCount": {"id": 0},
    }
    shutil.rmtree(commit.folder)
    table = spark.read.format("delta").load(f"{lake}/orders")
    assert [row["id"] for row in table.where("id >= 5").toArrow().to_pylist()] == [5, 7]
    assert [row["id"] for row in table.where("name IS NULL").toArrow().to_pylist()] == [7]


def test_small_files_are_written_as_one_by_spark(sink: DeltaSink, lake: Path, epochs: Epochs) -> None:
    sink.commit(parts(epochs, rows((1, "a")), rows((2, "b"))))
    assert read_table(lake, "orders") == rows((1, "a"), (2, "b"))
    assert len(added(lake)) == 1


def test_rows_that_a_table_checks_are_written_by_spark(
    sink: DeltaSink, lake: Path, epochs: Epochs, spark: "SparkSession"
) -> None:
    DeltaTable(str(lake / "orders")).alter.add_constraint({"positive": "id > 0"})
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    with pytest.raises(Fatal, match="Delta refuses the commit"):
        sink.commit(epochs.next(inserts=rows((-1, "b"))))
    assert read_table(lake, "orders") == rows((1, "a"))
