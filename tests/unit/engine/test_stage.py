"""An epoch plan becomes files: what is in them, and what is counted."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stage_world import (
    JOB,
    SCHEMAS,
    WINDOW,
    Upstream,
    WorkersUpstream,
    config,
    held,
    read,
    stager,
    struct,
    upstream,
)

from backfill_cli.config import JobConfig, load
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.engine.staging.values import storable
from backfill_cli.model.plan import ChangeWindow, EpochPlan, Staged
from backfill_cli.model.position import START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["config", "stager", "upstream"]


def test_a_recovery_needs_no_spark(upstream: Upstream, config: JobConfig) -> None:
    def opened() -> Any:
        raise AssertionError("Spark was opened")

    stager = SparkStager(opened, upstream, config)  # type: ignore[arg-type]
    assert stager.intact(7, Staged("a"))
    assert stager.folder(7, "a")
    stager.discard(7, "a")
    stager.sweep([])
    with pytest.raises(AssertionError, match="opened"):
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)


def test_snapshot_rows_are_filtered_selected_and_counted_by_read_before_the_filter(stager: SparkStager) -> None:
    reads = (read("orders", 0, 1, 2), read("orders", 1, 0, None), read("orders", 2, 0, 0), read("items", 0, 0, 3))
    staged = stager.stage(EpochPlan(reads), 7, SCHEMAS).staged
    assert sorted(staged.reads, key=str) == sorted(zip(reads, (1, 1, 0, 3), strict=True), key=str)
    orders, items = staged.tables["orders"], staged.tables["items"]
    assert held(stager, staged, orders.inserts) == [(2, 20), (3, 30)]
    assert held(stager, staged, items.inserts) == [(1, 1, "A"), (1, 2, "B")]
    assert (orders.rows, items.rows, staged.rows) == (2, 2, 4)
    assert orders.changes == items.changes == ()


def test_open_ended_reads_are_counted_each_by_itself(stager: SparkStager, upstream: Upstream) -> None:
    upstream.rows["orders"] = [[(i, i) for i in range(n)] for n in (3, 0, 5)]
    reads = tuple(read("orders", n, 0, None) for n in range(3))
    staged = stager.stage(EpochPlan(reads), 7, SCHEMAS).staged
    assert [rows for _, rows in staged.reads] == [3, 0, 5]


def test_counts_of_many_reads_are_asked_of_the_driver_together(
    stager: SparkStager, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query returns the counts of all reads: one query per read took half the time for 127 files."""
    from pyspark.sql import Observation

    asked: list[Observation] = []
    answer = Observation.get.fget
    monkeypatch.setattr(Observation, "get", property(lambda seen: (asked.append(seen), answer(seen))[1]))
    upstream.rows["orders"] = [[(i, i) for i in range(n)] for n in range(12)]
    staged = stager.stage(EpochPlan(tuple(read("orders", n, 0, None) for n in range(12))), 7, SCHEMAS).staged
    assert [rows for _, rows in staged.reads] == list(range(12))
    assert len(asked) == len(set(map(id, asked)))


def test_splits_without_a_row_write_no_file(stager: SparkStager) -> None:
    staged = stager.stage(EpochPlan((read("orders", 2, 0, 0),)), 7, SCHEMAS).staged
    assert staged.reads == ((read("orders", 2, 0, 0), 0),)
    assert staged.rows == 0
    assert stager.intact(7, staged)


def test_changes_are_net_by_key_and_counted_before_and_after(stager: SparkStager) -> None:
    staged = stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
    orders, items = staged.tables["orders"], staged.tables["items"]
    assert held(stager, staged, orders.changes) == [("D", 3, None), ("U", 1, 12)]
    assert (orders.changed, orders.deleted) == (1, 1)
    assert [row[:3] for row in held(stager, staged, items.changes)] == [("D", 1, 1), ("U", 5, 5)]
    assert (items.changed, items.deleted) == (1, 1)
    assert (staged.changes_read, staged.images) == (5, 0)
    assert orders.inserts == items.inserts == ()


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_changes_that_workers_net_are_net_whatever_their_parts(
    spark: "SparkSession", config: JobConfig, parts: int
) -> None:
    upstream = WorkersUpstream(parts=parts)
    upstream.log["orders"] = [
        (op, n, 7, key, n) for n, (op, key) in enumerate(zip("UUDUUD", "121132", strict=True))
    ]
    upstream.log["orders"] = [(op, n, ms, int(key), v) for op, n, ms, key, v in upstream.log["orders"]]
    stager = SparkStager(lambda: spark, upstream, config)
    staged = stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
    found = held(stager, staged, staged.tables["orders"].changes)
    assert [row[:2] for row in found] == [("D", 2), ("U", 1), ("U", 3)]
    assert (staged.tables["orders"].changed, staged.tables["orders"].deleted) == (2, 1)
    assert staged.changes_read == 8


def test_a_row_that_says_what_was_there_before_an_update_is_no_change_of_its_own(
    stager: SparkStager, upstream: Upstream
) -> None:
    upstream.place = "STRUCT<at INT, image BOOLEAN>"
    of = [("D", (1, True), 7, 1, 10), ("U", (2, False), 7, 1, 11), ("D", (3, False), 8, 3, None)]
    upstream.log = {"orders": of, "items": [("U", (1, False), None, 5, 5, "new")]}
    staged = stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
    assert held(stager, staged, staged.tables["orders"].changes) == [("D", 3, None), ("U", 1, 11)]
    assert (staged.changes_read, staged.images) == (3, 1)


def test_a_window_without_a_change_is_staged_as_nothing(stager: SparkStager, upstream: Upstream) -> None:
    upstream.log = {"orders": [], "items": []}
    staged = stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged
    assert (staged.rows, staged.changes_read) == (0, 0)
    assert stager.intact(7, staged)


def test_case_26_changes_are_read_with_the_columns_that_came_with_them(
    stager: SparkStager, upstream: Upstream
) -> None:
    wider = {"items": struct(order="integer", line="integer", note="string", price="double")}
    upstream.log["items"] = [("U", 1, None, 5, 5, "new", 1.5)]
    window = ChangeWindow(START, WINDOW.up_to, 5, 6, 1, tuple(wider.items()))
    done = stager.stage(EpochPlan(window=window), 7, SCHEMAS)
    assert "price" in upstream.asked[1]
    assert json.loads(done.schemas["items"])["fields"][-1]["name"] == "price"
    assert done.schemas["orders"] == SCHEMAS["orders"]
    assert [f["name"] for f in json.loads(done.sink_schemas["items"])["fields"]] == ["line", "order id", "note"]
    assert done.sink_schemas["orders"] == SCHEMAS["orders"]


def test_values_without_bad_text_pass_whatever_is_null(spark: "SparkSession", tmp_path: Path) -> None:
    values = (
        "map('k', CAST(NULL AS STRING)) AS m, array(NULL, 'ü') AS a, CAST(NULL AS ARRAY<STRING>) AS n, "
        "named_struct('x', CAST(NULL AS STRUCT<y: STRING>)) AS s, CAST(NULL AS STRING) AS t, "
        "'\\u0000' AS z, 1 AS i"
    )
    frame = spark.sql(f"SELECT {values}")
    assert storable(frame).toArrow().to_pylist() == frame.toArrow().to_pylist()
    assert storable(frame).schema.simpleString() == frame.schema.simpleString()


def test_spark_is_asked_for_a_sinks_columns_once_per_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    asked: list[str] = []

    def shape(_spark: object, source: str, _transform: object) -> str:
        asked.append(source)
        return f"{source} "

    monkeypatch.setattr("backfill_cli.engine.staging.stage.sink_schema", shape)
    stager = SparkStager(SimpleNamespace, SimpleNamespace(), load(tmp_path / "job.toml"))  # type: ignore[arg-type]
    stager.__dict__["_spark"] = None
    first = [
        stager._sink_schema(table, SCHEMAS[table], SCHEMAS[table])
        for table in ("items", "orders", "items", "orders")
    ]
    wider = stager._sink_schema("items", SCHEMAS["orders"], SCHEMAS["items"])
    assert first[0] == first[2] == SCHEMAS["items"] + " "
    assert (wider, len(asked)) == (SCHEMAS["orders"] + " ", 3)
