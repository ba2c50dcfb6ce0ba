"""The Iceberg sink under the contract, and what only a table of a lake can do wrong."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_contract import Read, Row, SinkContract

from backfill_cli.sinks.iceberg import connector
from backfill_cli.sinks.iceberg.options import IcebergSinkOptions
from backfill_cli.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(spark: "SparkSession", folder: Path) -> IcebergSink:
    sink = connector.open(IcebergSinkOptions(table=f"{folder}/{{table}}"))
    assert isinstance(sink, IcebergSink)
    sink.use(lambda: spark)
    return sink


def read_table(folder: Path, target: str) -> list[Row]:
    """By pyiceberg, which shares no code with what wrote it."""
    from pyiceberg.table import StaticTable

    found: list[Row] = StaticTable.from_metadata(str(folder / target)).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


class TestIcebergSink(SinkContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Path:
        return tmp_path / "lake"

    @pytest.fixture
    def sink(self, spark: "SparkSession", lake: Path) -> IcebergSink:
        return opened(spark, lake)

    @pytest.fixture
    def read(self, lake: Path) -> Read:
        return lambda target: read_table(lake, target)
