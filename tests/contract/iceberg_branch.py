"""An Iceberg table with another writer's rows, and a job that fills a branch of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_contract import Epochs, Row, a_table, rows
from test_sink_iceberg import read_table, refs, strange

from backfill_cli.contracts import Cutover, Swap
from backfill_cli.model.cutover import Live
from backfill_cli.sinks.iceberg import IcebergSinkOptions, connector
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
        assert isinstance(sink, Cutover)
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
