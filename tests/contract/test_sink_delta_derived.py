"""Derived tables in the Delta sink: their contract."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delta_sink import epochs, lake, opened, sink
from deltalake import DeltaTable
from derived_contract import Query
from lake_derived_contract import LakeDerivedContract
from lake_query import ran

from backfill_cli.contracts import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["epochs", "lake", "sink"]


@pytest.mark.in_turn
class TestDeltaDerived(LakeDerivedContract):
    @pytest.fixture
    def query(self, lake: Path, spark: "SparkSession") -> Query:
        def run(sql: str) -> list[tuple[object, ...]]:
            if sql.startswith("DROP"):
                shutil.rmtree(lake / sql.split()[-1])
                return []
            there = [one.name for one in lake.iterdir() if (one / "_delta_log").is_dir()]
            tables = {name: DeltaTable(str(lake / name)).to_pyarrow_table() for name in there}
            using = " USING delta" if sql.startswith("CREATE") else ""
            return ran(sql + using, tables, change, lambda name: f"delta.`{lake / name}`")

        def change(sql: str) -> None:
            """By two writers: Spark makes tables and appends; delta-rs rewrites files, for less CPU."""
            if gone := re.fullmatch(r"DELETE FROM delta\.`(.+)` WHERE (.+)", sql):
                DeltaTable(gone[1]).delete(gone[2])
            elif put := re.fullmatch(r"UPDATE delta\.`(.+)` SET (\w+) = (.+) WHERE (.+)", sql):
                DeltaTable(put[1]).update({put[2]: put[3]}, predicate=put[4])
            else:
                spark.sql(sql)

        return run

    @pytest.fixture
    def again(self, lake: Path, spark: "SparkSession") -> Callable[[], Sink]:
        return lambda: opened(lake, spark)

    @pytest.fixture
    def compact(self, lake: Path) -> Callable[[str], None]:
        return lambda name: DeltaTable(str(lake / name)).optimize.compact()

    @pytest.fixture
    def forget(self, lake: Path) -> Callable[[str], None]:
        def vacuumed(name: str) -> None:
            DeltaTable(str(lake / name)).vacuum(0, dry_run=False, enforce_retention_duration=False)

        return vacuumed
