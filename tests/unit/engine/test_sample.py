"""What a new job will read is tried first: the oldest changes and the newest, or both ends of a topic."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

from backfill_cli.config import JobConfig, load
from backfill_cli.engine.staging import sample
from backfill_cli.engine.staging.sample import require_readable
from backfill_cli.errors import BadData
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
[job]
name = "shop"
staging = "HERE/staging"
[upstream]
type = "files"
snapshot = { path = "HERE/{table}/snapshot", format = "parquet" }
changes = { path = "HERE/{table}/changes", format = "debezium", decimals = "string" }
[[tables]]
name = "orders"
key = ["id"]
[[tables]]
name = "items"
key = ["id"]
[tables.transform]
select = ["id", "1 / n AS part"]
[sink]
type = "duckdb"
path = "w.duckdb"
"""
Land = Callable[..., None]


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    for table, columns in (("orders", {"price": pa.decimal128(5, 2)}), ("items", {"n": pa.int32()})):
        (tmp_path / table / "snapshot").mkdir(parents=True)
        (tmp_path / table / "changes").mkdir()
        empty = pa.schema([("id", pa.int64()), *columns.items()]).empty_table()
        pq.write_table(empty, tmp_path / table / "snapshot" / "0.parquet")
    (tmp_path / "job.toml").write_text(JOB.replace("HERE", str(tmp_path)))
    return load(tmp_path / "job.toml")


@pytest.fixture
def land(tmp_path: Path) -> Land:
    """A file with one change per row."""

    def landed(table: str, name: str, *rows: dict[str, Any]) -> None:
        lines = [json.dumps({"op": "u", "before": None, "after": row, "source": {"ts_ms": 5}}) for row in rows]
        (tmp_path / table / "changes" / f"{name}.json").write_text("\n".join(lines))

    return landed


def tried(config: JobConfig, spark: "SparkSession") -> None:
    upstream = config.open_upstream()
    require_readable(lambda: spark, upstream, config, upstream.pin())


@pytest.mark.parametrize("broken", ["1", "3"])
def test_a_value_that_cannot_be_read_is_found_in_the_oldest_file_and_in_the_newest(
    config: JobConfig, land: Land, spark: "SparkSession", tmp_path: Path, broken: str
) -> None:
    for name in ("1", "2", "3"):
        land("orders", name, {"id": 1, "price": "1.005" if name == broken else "1.50"})
        land("items", name, {"id": 1, "n": 2})
    with pytest.raises(BadData, match=rf"{broken}\.json: line 1 \(of id 1\): column 'price'"):
        tried(config, spark)
    assert not (tmp_path / "staging").exists()


def test_a_transform_that_fails_for_a_sampled_change_is_found(
    config: JobConfig, land: Land, spark: "SparkSession"
) -> None:
    land("orders", "1", {"id": 1, "price": "1.50"})
    land("items", "1", {"id": 1, "n": 1})
    land("items", "2", {"id": 1, "n": 0})
    with pytest.raises(BadData, match=r"in '1 / n AS part': \[DIVIDE_BY_ZERO\] Division by zero\. Use") as caught:
        tried(config, spark)
    with typed(caught.value.without_job()) as hint:
        hint.says("correct [transform]: use try_divide")
        hint.says("then start again")
        file = Path(config.file)
        file.write_text(file.read_text().replace("1 / n", "try_divide(1, n)"))
        tried(load(file), spark)


def test_what_can_be_read_leaves_nothing_and_what_is_large_is_not_read(
    config: JobConfig, land: Land, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land("orders", "1", {"id": 1, "price": "1.50"})
    land("items", "1", {"id": 1, "n": 1})
    tried(config, spark)
    assert not (tmp_path / "staging").exists()
    land("orders", "2", {"id": 1, "price": "1.005"})
    monkeypatch.setattr(sample, "_BYTES", 10)
    tried(config, spark)


def test_of_a_topic_both_ends_of_its_fullest_partitions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_PARTITIONS", 2)
    ends, oldest = {"0": 5, "1": 1000, "2": 150, "3": 40}, {"0": 0, "1": 300, "2": 0, "3": 40}
    splits = tuple(Split("t", p, None, 0, first=10 if p == "2" else 0) for p in ends)
    pin = Pin(Position.of(oldest), None, None, splits, {"t": "{}"})
    view = UpstreamView("{}", Position.of(ends), oldest=Position.of(oldest))
    reads = [plan.reads for plan, _ in sample._of_partitions(pin, view)]
    assert reads == [
        (SnapshotRead("t", "1", 300, 400), SnapshotRead("t", "2", 10, 110)),
        (SnapshotRead("t", "1", 900, 1000), SnapshotRead("t", "2", 110, 150)),
    ]
