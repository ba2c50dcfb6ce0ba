"""DMS files, change feeds and epochs: the order of changes, and what is refused."""

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_values import FAILURES, ONE, changes_of, event, failure, opened, read
from hint_typed import typed

from backfill_cli.config import load
from backfill_cli.engine.spool.taker import take
from backfill_cli.errors import Fatal
from backfill_cli.model.plan import ChangeWindow
from backfill_cli.model.position import Position
from backfill_cli.spark.failures import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_case_06_the_order_in_a_file_is_kept_when_many_tasks_read_it(
    tmp_path: Path, spark: "SparkSession", kind: str
) -> None:
    upstream = opened(
        tmp_path, {"id": pa.int64(), "n": pa.int64()}, {"format": "debezium" if kind == "json" else "dms"}
    )
    path = tmp_path / "changes" / f"1.{kind}"
    numbers = range(20_000)
    if kind == "json":
        path.write_text("".join(f"{event('u', None, {'id': 1, 'n': n})}\n" for n in numbers))
    elif kind == "csv":
        path.write_text("".join(f"U,1,{n}\n" for n in numbers))
    else:
        table = pa.table({"Op": ["U"] * len(numbers), "id": [1] * len(numbers), "n": list(numbers)})
        pq.write_table(table, path, row_group_size=500)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        frame = changes_of(upstream, spark)
        assert [r["n"] for r in frame.select("n").toArrow().to_pylist()] == list(numbers)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_case_81_changes_of_a_key_are_in_the_order_of_the_numbers_in_names(
    tmp_path: Path, spark: "SparkSession", kind: str
) -> None:
    columns = {"id": pa.int64(), "n": pa.int64()}
    upstream = opened(tmp_path, columns, {"format": "debezium" if kind == "json" else "dms"})
    for n in range(8, 12):
        path = tmp_path / "changes" / f"c-{n}.{kind}"
        if kind == "json":
            path.write_text(event("u", None, {"id": 1, "n": n}))
        elif kind == "csv":
            path.write_text(f"U,1,{n}\n")
        else:
            pq.write_table(pa.table({"Op": ["U"], "id": [1], "n": [n]}), path)
    assert [r["n"] for r in changes_of(upstream, spark).select("n").toArrow().to_pylist()] == [8, 9, 10, 11]
    pin = upstream.pin()
    latest = upstream.observe(pin.position, False).latest
    found = upstream.change_batches("t", pin.position, latest, pin.schema["t"], 4)
    if found is not None:
        rows = [
            row for task in found.parts for piece in task for b in found.make(piece.what) for row in b.to_pylist()
        ]
        assert [row["n"] for row in sorted(rows, key=place)] == [8, 9, 10, 11]


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    at = row["_backfill_seq"]["at"]
    return at["file"], at["row"]


def test_a_window_may_begin_and_end_inside_a_file_of_several_epochs(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, ONE, {"format": "change-feed", "epoch": "_commit_version"})
    for name, versions in (("1", [1, 2, 3, 3]), ("2", [4, 5, 6])):
        rows = {"id": versions, "v": [f"v{v}" for v in versions], "_commit_version": versions}
        pq.write_table(
            pa.table({**rows, "_change_type": ["insert"] * len(versions)}),
            tmp_path / "changes" / f"{name}.parquet",
        )
    pin = upstream.pin()
    pending = upstream.observe(pin.position, False).pending
    assert [(e.cursors[0], e.rows) for e in pending] == [(("epoch", v), 2 if v == 3 else 1) for v in range(1, 7)]
    at = [Position.of(dict(e.cursors)) for e in pending]
    frame = upstream.changes(spark, "t", at[1], at[4], pin.schema["t"])
    assert sorted(r["id"] for r in frame.collect()) == [3, 3, 4, 5]


CHAIN = """
[job]
name = "orders"
strategy = "chain"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "HERE/{table}/snapshot", format = "csv", schema = "id BIGINT, v INT" }
changes = { path = "HERE/{table}/changes", format = "FORM" }
[[tables]]
name = "a"
key = ["id"]
immutable_key = true
[[tables]]
name = "b"
key = ["id"]
immutable_key = true
[sink]
type = "duckdb"
path = "HERE/sink.duckdb"
"""


@pytest.mark.parametrize("form", ["debezium", "dms"])
def test_a_spool_takes_what_one_table_alone_has(tmp_path: Path, spark: "SparkSession", form: str) -> None:
    (tmp_path / "job.toml").write_text(CHAIN.replace("HERE", str(tmp_path)).replace("FORM", form))
    config = load(tmp_path / "job.toml")
    for table in "ab":
        for name in ("snapshot", "changes"):
            (tmp_path / table / name).mkdir(parents=True)
        (tmp_path / table / "snapshot" / "0.csv").write_text("id,v\n1,1\n")
    if form == "debezium":
        (tmp_path / "a" / "changes" / "1.json").write_text(event("u", None, {"id": 1, "v": 2}))
        (tmp_path / "b" / "changes" / "1.json").write_text("null\n")
    else:
        (tmp_path / "a" / "changes" / "1.csv").write_text("U,1,2\n")
    upstream = config.open_upstream()
    pin = upstream.pin()
    latest = upstream.observe(pin.position, False).latest
    taken = take(spark, upstream, config, ChangeWindow(pin.position, latest, 0, 0, 1), pin.schema, tmp_path / "s")
    assert {name: (one.changes, one.changed) for name, one in taken.tables.items()} == {"a": (1, 1)}


def test_a_file_that_vanishes_before_it_is_read_is_named(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = opened(tmp_path, ONE, {"format": "debezium"})
    path = tmp_path / "changes" / "1.json"
    path.write_text(event("c", None, {"id": 1, "v": "a"}))
    frame = changes_of(upstream, spark)
    path.unlink()
    with pytest.raises(FAILURES) as caught:
        frame.collect()
    error = from_spark(caught.value)
    assert isinstance(error, Fatal)
    assert "1.json" in error.message


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_unknown_op_of_dms_is_named(tmp_path: Path, spark: "SparkSession", kind: str) -> None:
    upstream = opened(tmp_path, ONE, {"format": "dms"})
    rows = pa.table({"Op": ["I", "Q", "U"], "id": [1, 2, 3], "v": ["a", "b", "c"]})
    if kind == "csv":
        (tmp_path / "changes" / "1.csv").write_text("I,1,a\nQ,2,b\nU,3,c\n")
    else:
        pq.write_table(rows, tmp_path / "changes" / "1.parquet")
    error = failure(upstream, spark)
    assert error.message.startswith(f"1.{kind}: ")
    assert "unknown Op: Q" in error.message
    with typed(error) as hint:
        hint.says("correct the change file; it may be replaced as long as it is not applied")
        if kind == "csv":
            (tmp_path / "changes" / "1.csv").write_text("I,1,a\nU,2,b\nU,3,c\n")
        else:
            pq.write_table(rows.set_column(0, "Op", [["I", "U", "U"]]), tmp_path / "changes" / "1.parquet")
        assert [row["id"] for row in read(upstream, spark, "id")] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_time_column_that_the_load_has_too_stays_a_column(
    tmp_path: Path, spark: "SparkSession", kind: str
) -> None:
    columns = {"ts": pa.timestamp("us"), "id": pa.int64()}
    upstream = opened(tmp_path, columns, {"format": "dms", "time_column": "ts"})
    at = dt.datetime(2026, 1, 1, 0, 0, 0, 7000)
    if kind == "csv":
        (tmp_path / "changes" / "1.csv").write_text("I,2026-01-01 00:00:00.007000,1\n")
    else:
        table = pa.table({"Op": ["I"], "ts": pa.array([at], pa.timestamp("us")), "id": [1]})
        pq.write_table(table, tmp_path / "changes" / "1.parquet")
    pin = upstream.pin()
    assert [epoch.schema for epoch in upstream.observe(pin.position, False).pending] == [()]
    assert read(upstream, spark, "_backfill_op", "_backfill_ms", "ts", "id") == [
        {"_backfill_op": "U", "_backfill_ms": 1_767_225_600_007, "ts": at, "id": 1}
    ]


def test_a_change_feed_of_several_versions_keeps_the_newest_row_of_each(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    upstream = opened(tmp_path, ONE, {"format": "change-feed"})
    rows = [
        ("insert", 2, 1, "v2"),
        ("update_postimage", 3, 1, "v3"),
        ("update_preimage", 3, 1, "v2"),
        ("delete", 4, 2, "x"),
        ("insert", 4, 2, "y"),
        ("update_preimage", 5, 3, "old key"),
        ("update_postimage", 5, 4, "new key"),
    ]
    names = ["_change_type", "_commit_version", "id", "v"]
    pq.write_table(
        pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), tmp_path / "changes" / "1.parquet"
    )
    table: dict[int, str] = {3: "old key"}
    for change in read(upstream, spark, "_backfill_op", "id", "v"):
        table.pop(change["id"], None)
        if change["_backfill_op"] == "U":
            table[change["id"]] = change["v"]
    assert table == {1: "v3", 2: "y", 4: "new key"}
