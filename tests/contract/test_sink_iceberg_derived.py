"""Derived tables in the Iceberg sink: their contract, and why a branch has none."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from derived_contract import BY_NAME, NAMES, Query, past
from hint_typed import typed
from lake_derived_contract import LakeDerivedContract, derives_of
from lake_query import ran
from one_task import in_one_task
from sink_contract import Epochs, a_table, rows

from backfill_cli.contracts import Sink
from backfill_cli.errors import SinkInUse, UsageError
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.model.derived import Derived
from backfill_cli.sinks.iceberg import IcebergSinkOptions, connector
from backfill_cli.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(spark: "SparkSession", folder: Path, branch: str | None = None) -> IcebergSink:
    sink: IcebergSink = connector.open(IcebergSinkOptions(table=f"{folder}/{{table}}", branch=branch))
    sink.use(lambda: spark)
    return in_one_task(sink)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def sink(lake: Path, spark: "SparkSession") -> IcebergSink:
    return opened(spark, lake)


@pytest.fixture
def epochs(sink: IcebergSink, tmp_path: Path) -> Epochs:
    made = Epochs(tmp_path / "staging")
    sink.prepare("orders", made.tables, into_existing=False)
    sink.fence("orders", 1)
    return made


@pytest.mark.in_turn
class TestIcebergDerived(LakeDerivedContract):
    @pytest.fixture
    def query(self, lake: Path, spark: "SparkSession") -> Query:
        from pyiceberg.table import StaticTable

        session = spark.newSession()

        def name(table: str) -> str:
            place = Place.of(f"{lake}/{table}")
            place.register(session)
            return place.sql

        def run(sql: str) -> list[tuple[object, ...]]:
            if sql.startswith("DROP"):
                shutil.rmtree(lake / sql.split()[-1])
                return []
            there = [one.name for one in lake.iterdir() if (one / "metadata").is_dir()]
            tables = {
                one: StaticTable.from_metadata(str(lake / one)).scan().to_arrow()
                for one in there
                if re.search(rf"\b{one}\b", sql)
            }
            using = " USING iceberg" if sql.startswith("CREATE") else ""
            return ran(sql + using, tables, session.sql, name)

        return run

    def test_another_select_takes_the_place_of_the_old_one_in_one_commit_with_other_types_and_those_that_read_it(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        """Here columns are the table's, whatever its snapshot: it keeps those that it has."""
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"))), *kept))
        other = (NAMES, replace(BY_NAME, sql="SELECT name, max(id) AS n FROM orders GROUP BY 1"))
        with pytest.raises(SinkInUse, match="by_name exists, with other columns") as refused:
            derives_of(sink).check(epochs.job, other, epochs.tables, {})
        with typed(refused.value) as hint:
            hint.says("name another target: derived.target")
            derives_of(sink).check("new", [replace(other[1], target="x")], (a_table(target="y"),), {})
        same = (NAMES, replace(BY_NAME, sql="SELECT name, count(*) AS n, max(id) AS ids FROM orders GROUP BY 1"))
        derives_of(sink).check(epochs.job, same, epochs.tables, {})
        derives_of(sink).renew(epochs.job, same[1:])
        sink.commit(past(epochs.next(inserts=rows((3, "b"))), *same))
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 1, 1), ("b", 2, 3)]

    def test_a_table_with_rows_is_taken_over_in_one_commit_if_that_is_asked_for(
        self, sink: Sink, epochs: Epochs, query: Query, kept: tuple[Derived, ...]
    ) -> None:
        """With its columns, as above."""
        derives, names = derives_of(sink), ["by_name", "names"]
        sink.commit(past(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "b"))), *kept))
        sink.leave(epochs.job, names)
        other = (NAMES, replace(BY_NAME, sql="SELECT name, max(id) AS n FROM orders GROUP BY 1"))
        with pytest.raises(SinkInUse, match="rows that are not this job's") as refused:
            derives.check(epochs.job, other, epochs.tables, {})
        assert not refused.value.replaceable
        with pytest.raises(SinkInUse, match="with other columns"):
            derives.check(epochs.job, other, epochs.tables, {}, names)
        same = (NAMES, replace(BY_NAME, sql="SELECT name, count(*) AS n, max(id) AS ids FROM orders GROUP BY 1"))
        with pytest.raises(SinkInUse, match="rows that are not this job's") as refused:
            derives.check(epochs.job, same, epochs.tables, {})
        assert refused.value.replaceable
        derives.check(epochs.job, same, epochs.tables, {}, names)
        derives.rehearse(epochs.job, same, epochs.tables, names, names)
        derives.prepare(epochs.job, same, epochs.tables, names)
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 1, 1), ("b", 2, 5)]
        sink.commit(past(epochs.next(inserts=rows((4, "c"))), *same))
        assert query("SELECT name, n, ids FROM by_name ORDER BY 1") == [("a", 1, 1), ("b", 2, 3), ("c", 1, 4)]
        assert query("SELECT names, n FROM names") == [(3, 4)]

    @pytest.fixture
    def again(self, lake: Path, spark: "SparkSession") -> Callable[[], Sink]:
        return lambda: opened(spark, lake)

    @pytest.fixture
    def compact(self, lake: Path, spark: "SparkSession") -> Callable[[str], None]:
        def rewritten(table: str) -> None:
            place, session = Place.of(f"{lake}/{table}"), spark.newSession()
            place.register(session)
            session.sql(place.procedure("rewrite_data_files", "options => map('rewrite-all', 'true')"))

        return rewritten

    @pytest.fixture
    def forget(self, lake: Path, spark: "SparkSession") -> Callable[[str], None]:
        def expired(table: str) -> None:
            place, session = Place.of(f"{lake}/{table}"), spark.newSession()
            place.register(session)
            told = "older_than => TIMESTAMP '2999-01-01', retain_last => 1"
            session.sql(place.procedure("expire_snapshots", told))

        return expired


def test_a_job_that_fills_a_branch_has_no_derived_table(tmp_path: Path, spark: "SparkSession") -> None:
    tables = (a_table(),)
    with pytest.raises(UsageError, match=r"derived table 'by_name': sink\.branch is set") as refused:
        derives_of(opened(spark, tmp_path, "backfill")).check("new", [BY_NAME], tables, {})
    with typed(refused.value) as hint:
        hint.says("leave sink.branch out")
        derives_of(opened(spark, tmp_path)).check("new", [BY_NAME], tables, {})
