"""Which Iceberg files workers read by themselves: just the snapshot's rows, or they are left to Spark."""

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from iceberg_world import IcebergWorld
from upstream_world import TABLE, Row, row

from backfill_cli.engine.staging import workers
from backfill_cli.errors import Fatal, HistoryGone
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world(spark: "SparkSession", tmp_path: Path) -> IcebergWorld:
    return IcebergWorld(spark, tmp_path)


def by_workers(upstream: IcebergUpstream, spark: "SparkSession", read: SnapshotRead) -> list[Row] | None:
    """The rows of a read; None where they are left to Spark."""
    tasks = upstream.batches(TABLE, [read], 2)
    if tasks is None:
        return None
    pieces = chain.from_iterable(tasks.parts)
    rows = [one for piece in pieces for batch in tasks.make(piece.what) for one in batch.to_pylist()]
    return sorted(rows, key=lambda one: one["id"])


def test_a_part_of_a_range_is_the_rows_of_its_keys(world: IcebergWorld, spark: "SparkSession") -> None:
    world.load([[row(n, f"n{n}") for n in range(low, 40, 3)] for low in range(3)])
    upstream = world.open()
    (split,) = upstream.pin().splits
    found = by_workers(upstream, spark, SnapshotRead(TABLE, split.id, after=7, up_to=31))
    assert found == [row(n, f"n{n}") for n in range(7, 31)]


def test_rows_of_a_later_snapshot_are_not_read(world: IcebergWorld, spark: "SparkSession") -> None:
    world.load([[row(1, "a"), row(2, "b")]])
    upstream = world.open()
    (split,) = upstream.pin().splits
    world.land([("update", row(1, "a"), row(1, "later")), ("insert", None, row(3, "c"))])
    assert by_workers(upstream, spark, SnapshotRead(TABLE, split.id)) == [row(1, "a"), row(2, "b")]


def test_columns_that_exchanged_their_names_are_left_to_spark(world: IcebergWorld, spark: "SparkSession") -> None:
    world.create("id BIGINT, name STRING, other STRING")
    world.sql("INSERT INTO {t} VALUES (1, 'name', 'other')")
    for old, new in (("name", "x"), ("other", "name"), ("x", "other")):
        world.sql(f"ALTER TABLE {{t}} RENAME COLUMN {old} TO {new}")
    world.sql("INSERT INTO {t} VALUES (2, 'two', 'more')")
    upstream = world.open()
    (split,) = upstream.pin().splits
    assert by_workers(upstream, spark, SnapshotRead(TABLE, split.id)) is None
    newer = by_workers(upstream, spark, SnapshotRead(TABLE, split.id, after=2))
    assert newer == [{"id": 2, "other": "two", "name": "more"}]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {t} ADD COLUMN more INT",
        "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        "ALTER TABLE {t} DROP COLUMN n; ALTER TABLE {t} ADD COLUMN n INT",
    ],
)
def test_files_of_before_a_change_of_columns_are_left_to_spark(
    world: IcebergWorld, spark: "SparkSession", statement: str
) -> None:
    world.create("id BIGINT, n INT")
    world.sql("INSERT INTO {t} VALUES (1, 7)")
    for one in statement.split("; "):
        world.sql(one)
    world.sql("INSERT INTO {t} (id) VALUES (2)")  # a snapshot has the columns that were there when it was made
    upstream = world.open()
    (split,) = upstream.pin().splits
    assert by_workers(upstream, spark, SnapshotRead(TABLE, split.id)) is None
    assert by_workers(upstream, spark, SnapshotRead(TABLE, split.id, after=2)) is not None


@pytest.mark.parametrize("expired", [True, False])
def test_a_file_that_is_gone_before_it_is_read_is_told_as_expired_if_its_snapshot_is(
    world: IcebergWorld, spark: "SparkSession", tmp_path: Path, expired: bool
) -> None:
    world.load([[row(1, "a")]])
    upstream = world.open()
    (split,) = upstream.pin().splits
    tasks = upstream.batches(TABLE, [SnapshotRead(TABLE, split.id)], 2)
    assert tasks is not None
    for file in (tmp_path / "orders" / "data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match="missing while it was read") as failed:
        workers.write(spark, tasks, tmp_path / "staged", tmp_path)
    if expired:
        world.sql("CREATE OR REPLACE TABLE {t} (id BIGINT, name STRING) USING iceberg")
        world.sql(
            "CALL {c}.system.expire_snapshots(table => 'orders', older_than => TIMESTAMP '2999-01-01', "
            "retain_last => 1)"
        )
    assert isinstance(upstream.failure(failed.value), HistoryGone if expired else Fatal)


def test_rows_from_before_a_column_with_an_initial_default_are_read_with_it(
    world: IcebergWorld, spark: "SparkSession"
) -> None:
    world.create(format__version="3")
    world.sql("INSERT INTO {t} VALUES (1, 'a')")
    world.sql("ALTER TABLE {t} ADD COLUMN more INT")
    metadata = world.folder / "orders" / "metadata"
    newest = metadata / f"v{(metadata / 'version-hint.text').read_text()}.metadata.json"
    told = json.loads(newest.read_text())  # Spark's SQL gives no column a default
    told["schemas"][-1]["fields"][-1] |= {"initial-default": 7, "write-default": 7}
    newest.write_text(json.dumps(told))
    for hidden in metadata.glob(".v*.crc"):
        hidden.unlink()
    world.sql("INSERT INTO {t} (id, name, more) VALUES (2, 'b', 8)")
    upstream = world.open()
    (split,) = upstream.pin().splits
    assert by_workers(upstream, spark, SnapshotRead(TABLE, split.id)) is None
    found = upstream.scan(spark, TABLE, [SnapshotRead(TABLE, split.id)]).orderBy("id").toArrow().to_pylist()
    assert [(one["id"], one["more"]) for one in found] == [(1, 7), (2, 8)]
