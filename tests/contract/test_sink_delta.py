"""The Delta sink under the contract, and what only a Delta table can do wrong. Rows are read without Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from sink_contract import Read, Row, SinkContract

from backfill_cli.sinks.delta import connector
from backfill_cli.sinks.delta.options import DeltaOptions
from backfill_cli.sinks.delta.sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_table(folder: Path, target: str) -> list[Row]:
    found: list[Row] = DeltaTable(str(folder / target)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def opened(folder: Path, spark: "SparkSession") -> DeltaSink:
    sink: DeltaSink = connector.open(DeltaOptions(table=f"{folder}/{{table}}"))
    sink.use(lambda: spark)
    return sink


class TestDeltaSink(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path, spark: "SparkSession") -> DeltaSink:
        return opened(tmp_path / "lake", spark)

    @pytest.fixture
    def read(self, tmp_path: Path) -> Read:
        return lambda target: read_table(tmp_path / "lake", target)
