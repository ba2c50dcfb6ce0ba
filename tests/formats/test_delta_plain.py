"""Which Delta files workers read by themselves: they give the rows that the table has, or leave them to Spark."""

import datetime as dt
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from test_delta_hostile import KEYS, exact, opened, slices_of

from backfill_cli.contracts import Source
from backfill_cli.engine.staging import workers
from backfill_cli.errors import HistoryGone
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.delta.plain import plain_files
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = {"delta.enableChangeDataFeed": "true"}


def by_workers(upstream: Source, spark: "SparkSession", reads: list[SnapshotRead]) -> dict[int, list[Any]] | None:
    """The rows of each read; None where they are left to Spark."""
    tasks = upstream.batches("t", reads, 2)
    if tasks is None:
        return None
    found: dict[int, list[Any]] = {index: [] for index in range(len(reads))}
    for piece in chain.from_iterable(tasks.parts):
        for batch in tasks.make(piece.what):
            found[piece.read] += batch.to_pylist()
    return found


@pytest.mark.parametrize("kind", KEYS)
def test_slices_of_keys_of_every_type_are_what_spark_reads_or_left_to_it(
    spark: "SparkSession", tmp_path: Path, kind: str
) -> None:
    arrow, value, _ = KEYS[kind]
    rows = [{"k": value(n), "n": n} for n in range(2 if kind == "boolean" else 180)]
    schema = pa.schema([("k", arrow), ("n", pa.int64())])
    for part in range(3):
        table = pa.Table.from_pylist(rows[part::3], schema)
        write_deltalake(str(tmp_path / "t"), table, mode="append", configuration=FEED)
    upstream = opened(tmp_path / "t")
    slices = slices_of(upstream, 20)
    found = by_workers(upstream, spark, slices)
    assert (found is not None) == (kind in ("byte", "integer", "long", "date") or len(slices) == 1)
    spoken = upstream.scan(spark, "t", slices).toArrow().to_pylist()
    for index, held in (found or {}).items():
        expected = {row["n"]: exact(row["k"]) for row in spoken if row["_backfill_read"] == index}
        assert {row["n"]: exact(row["k"]) for row in held} == expected
    if found is not None:
        assert sorted(row["n"] for row in chain.from_iterable(found.values())) == [row["n"] for row in rows]


def test_a_key_that_is_null_somewhere_leaves_ranges_to_spark(spark: "SparkSession", tmp_path: Path) -> None:
    for low in (0, 100):
        keys = pa.array([*range(low, low + 99), None], pa.int64())
        write_deltalake(str(tmp_path / "t"), pa.table({"k": keys}), mode="append", configuration=FEED)
    upstream = opened(tmp_path / "t")
    assert by_workers(upstream, spark, slices_of(upstream, 50)) is None


def test_a_file_with_a_deletion_vector_is_left_to_spark_and_others_are_not(
    spark: "SparkSession", tmp_path: Path
) -> None:
    folder = tmp_path / "a b"  # the library names such files by a URI
    path = f"delta.`{folder}`"
    spark.sql(
        f"CREATE TABLE {path} (k BIGINT, at TIMESTAMP) USING delta TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true, delta.enableDeletionVectors = true)"
    )
    for low in (0, 1000):
        rows = spark.range(low, low + 1000, 1, 1).selectExpr("id AS k", "TIMESTAMP_SECONDS(id) AS at")
        rows.write.format("delta").mode("append").save(str(folder))
    spark.sql(f"DELETE FROM {path} WHERE k = 7")
    upstream = opened(folder)
    (split,) = upstream.pin().splits
    assert split.rows == 1999
    low, high = SnapshotRead("t", split.id, up_to=1000), SnapshotRead("t", split.id, after=1000)
    assert by_workers(upstream, spark, [low, high]) is None
    assert by_workers(upstream, spark, [low]) is None
    found = by_workers(upstream, spark, [high])
    assert found is not None
    at = {row["k"]: row["at"] for row in found[0]}
    assert at == {k: dt.datetime.fromtimestamp(k, dt.UTC) for k in range(1000, 2000)}


@pytest.mark.parametrize(
    "made",
    [
        "(k BIGINT, v CHAR(5)) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "(k BIGINT, v STRING) USING delta PARTITIONED BY (v) TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "(k BIGINT, v STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true, "
        "'delta.columnMapping.mode' = 'name')",
    ],
)
def test_columns_that_files_hold_otherwise_are_left_to_spark(
    spark: "SparkSession", tmp_path: Path, made: str
) -> None:
    path = f"delta.`{tmp_path}/t`"
    spark.sql(f"CREATE TABLE {path} {made}")
    spark.sql(f"INSERT INTO {path} VALUES (1, 'a'), (2, 'b')")
    upstream = opened(tmp_path / "t")
    assert by_workers(upstream, spark, slices_of(upstream, 100)) is None


def test_a_column_added_later_leaves_the_older_files_to_spark(spark: "SparkSession", tmp_path: Path) -> None:
    table = pa.table({"k": pa.array(range(10), pa.int64())})
    write_deltalake(str(tmp_path / "t"), table, configuration=FEED)
    wider = pa.table({"k": pa.array(range(10, 20), pa.int64()), "v": ["x"] * 10})
    write_deltalake(str(tmp_path / "t"), wider, mode="append", schema_mode="merge")
    upstream = opened(tmp_path / "t")
    (split,) = upstream.pin().splits
    assert by_workers(upstream, spark, [SnapshotRead("t", split.id)]) is None
    newer = by_workers(upstream, spark, [SnapshotRead("t", split.id, after=10)])
    assert newer == {0: [{"k": k, "v": "x"} for k in range(10, 20)]}


def test_statistics_of_a_field_are_not_taken_for_those_of_a_key_of_its_name(tmp_path: Path) -> None:
    inside = pa.array([{"b": 1}], pa.struct([("b", pa.int64())]))
    write_deltalake(str(tmp_path / "t"), pa.table({"a": inside, "a.b": pa.array([7], pa.int64())}))
    columns = {"a.b": field("a.b", "long")}
    assert plain_files(Where.of(str(tmp_path / "t"), "t"), None, "a.b", columns) is None


def test_the_files_of_a_clone_are_read_where_they_are(spark: "SparkSession", tmp_path: Path) -> None:
    table = pa.table({"k": pa.array(range(10), pa.int64())})
    write_deltalake(str(tmp_path / "t"), table, configuration=FEED)
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/c` SHALLOW CLONE delta.`{tmp_path}/t`")
    files = plain_files(Where.of(str(tmp_path / "c"), "t"), 0, "k", {"k": field("k", "long")})
    assert files is not None
    assert [Path(path).parent for path in files.paths()] == [tmp_path / "t"]


def test_a_file_that_vacuum_took_while_it_was_to_be_read_is_named(spark: "SparkSession", tmp_path: Path) -> None:
    table = pa.table({"k": pa.array(range(10), pa.int64())})
    write_deltalake(str(tmp_path / "t"), table, configuration=FEED)
    upstream = opened(tmp_path / "t")
    slices = slices_of(upstream, 100)
    tasks = upstream.batches("t", slices, 2)
    assert tasks is not None
    for path in DeltaTable(str(tmp_path / "t")).file_uris():
        Path(path).unlink()
    with pytest.raises(Exception, match="missing while it was read") as failed:
        workers.write(spark, tasks, tmp_path / "staged", tmp_path)
    meant = upstream.failure(failed.value)
    assert isinstance(meant, HistoryGone)
    assert "VACUUM removed a file" in meant.message
