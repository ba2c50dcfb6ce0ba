"""A Delta sink in a folder, fenced for a job's first epoch, and its rows read without Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from one_task import in_one_task
from sink_contract import Epochs, Row

from backfill_cli.sinks.delta import DeltaOptions, connector
from backfill_cli.sinks.delta.sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_table(folder: Path, target: str) -> list[Row]:
    found: list[Row] = DeltaTable(str(folder / target)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def opened(folder: Path, spark: "SparkSession") -> DeltaSink:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{folder}/{{table}}"))
    sink.use(lambda: spark)
    return in_one_task(sink)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sink(lake: Path, spark: "SparkSession") -> DeltaSink:
    return opened(lake, spark)


@pytest.fixture
def epochs(sink: DeltaSink, tmp_path: Path) -> Epochs:
    made = Epochs(tmp_path / "staging")
    sink.prepare("orders", made.tables, into_existing=False)
    sink.fence("orders", 1)
    return made
