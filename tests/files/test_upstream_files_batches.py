"""Parquet rows that workers make: those that Spark reads, of whole files and slices; else Spark reads them."""

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from pyarrow.fs import LocalFileSystem

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.engine.staging import workers
from backfill_cli.errors import BadData, Fatal
from backfill_cli.formats.group_slices import GroupSlice
from backfill_cli.formats.row_groups import batches
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, 127, None]),
    "u8": (pa.uint8(), [0, 255, None]),
    "i16": (pa.int16(), [-32768, 32767, None]),
    "u16": (pa.uint16(), [0, 65535, None]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "u32": (pa.uint32(), [0, 2**32 - 1, None]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "f32": (pa.float32(), [0.5, float("-inf"), None]),
    "f64": (pa.float64(), [0.1, -0.0, None]),
    "flag": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["", "漢 😀", None]),
    "large text": (pa.large_string(), ["a`b", "null", None]),
    "few": (pa.dictionary(pa.int32(), pa.string()), ["x", "y", None]),
    "raw": (pa.binary(), [b"", b"\x00\xff", None]),
    "fixed": (pa.binary(4), [b"abcd", b"\x00\x00\x00\x00", None]),
    "small": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01"), None]),
    "wide": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), Decimal(0), None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "wall": (pa.timestamp("us"), [dt.datetime(1500, 2, 28), dt.datetime(9999, 1, 1, 1, 1, 1, 999999), None]),
    "ms": (pa.timestamp("ms"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(2026, 1, 1), None]),
    "at": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 31, 23, 59, 59, 999999, UTC), None, None]),
    "zoned": (pa.timestamp("us", "Europe/Vienna"), [dt.datetime(2026, 1, 31, tzinfo=UTC), None, None]),
    "list": (pa.list_(pa.decimal128(5, 2)), [[Decimal("1.50"), None], [], None]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("k", 1), ("l", None)], [], None]),
    "nested": (
        pa.struct([("n", pa.int64()), ("l", pa.list_(pa.struct([("t", pa.string())])))]),
        [{"n": 1, "l": [{"t": "x"}, None]}, {"n": None, "l": None}, None],
    ),
}


def table() -> pa.Table:
    """Each value in turn with its neighbours, 30 rows."""
    held = {name: pa.array([told[i % 3] for i in range(30)], kind) for name, (kind, told) in COLUMNS.items()}
    return pa.table({"id": list(range(30)), **held})


def opened(folder: Path) -> Source:
    options = {"snapshot": {"path": str(folder), "format": "parquet"}}
    return connector.open(connector.options.model_validate(options), [TableSpec("t", ("id",))])


def whole(upstream: Source) -> list[SnapshotRead]:
    return [SnapshotRead("t", split.id, 0, split.rows) for split in upstream.pin().splits]


def made(upstream: Source, spark: "SparkSession", reads: Sequence[SnapshotRead]) -> pa.Table:
    tasks = workers.made_in_workers(upstream, spark, "t", reads)
    assert tasks is not None
    return tasks.frame(spark).toArrow().sort_by("id")


def read(upstream: Source, spark: "SparkSession", reads: Sequence[SnapshotRead]) -> pa.Table:
    return upstream.scan(spark, "t", reads).toArrow().sort_by("id")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_workers_make_of_a_file_what_spark_reads_of_it(
    tmp_path: Path, spark: "SparkSession", version: str
) -> None:
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=7, data_page_version=version)
    upstream = opened(tmp_path)
    assert made(upstream, spark, whole(upstream)).to_pylist() == read(upstream, spark, whole(upstream)).to_pylist()


def test_workers_make_of_sparks_own_files_what_spark_reads(tmp_path: Path, spark: "SparkSession") -> None:
    times = "timestamp'1890-01-01 00:00:00.123456' AS old, timestamp'2026-07-01 12:00:00' AS new"
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        spark.sql(f"SELECT id, {times} FROM range(9)").coalesce(1).write.parquet(str(tmp_path / "t"))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    upstream = opened(tmp_path / "t")
    rows = made(upstream, spark, whole(upstream))
    assert rows.num_rows == 9
    assert rows.to_pylist() == read(upstream, spark, whole(upstream)).to_pylist()


def test_of_any_slice_only_its_rows_are_made_and_each_belongs_to_its_read(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    for name in ("a", "b"):
        pq.write_table(table(), tmp_path / f"{name}.parquet", row_group_size=7)
    upstream = opened(tmp_path)
    upstream.pin()
    slices = [("a.parquet", 3, 8), ("b.parquet", 29, 30), ("a.parquet", 8, 8), ("a.parquet", 20, 30)]
    tasks = workers.made_in_workers(upstream, spark, "t", [SnapshotRead("t", *one) for one in slices])
    assert tasks is not None
    done = workers.write(spark, tasks, tmp_path / "staged", tmp_path)
    assert done.rows == {0: 5, 1: 1, 3: 10}
    ids = [key for f in done.files for key in pq.read_table(tmp_path / f.path)["id"].to_pylist()]
    assert sorted(ids) == sorted([*range(3, 8), 29, *range(20, 30)])


def test_large_files_are_made_by_several_tasks_cut_at_their_row_groups(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_cli.formats.group_slices.TASK_ROWS", 14)
    pq.write_table(table(), tmp_path / "a.parquet", row_group_size=7)
    upstream = opened(tmp_path)
    tasks = workers.made_in_workers(upstream, spark, "t", whole(upstream))
    assert tasks is not None
    cut = [
        [(piece.read, piece.what.slice.after, piece.what.slice.up_to) for piece in part] for part in tasks.parts
    ]
    assert cut == [[(0, 0, 14)], [(0, 14, 28)], [(0, 28, 30)]]


def test_small_files_are_made_together_by_a_few_tasks(tmp_path: Path, spark: "SparkSession") -> None:
    for index in range(40):
        pq.write_table(table().slice(0, 3), tmp_path / f"{index:02}.parquet")
    upstream = opened(tmp_path)
    tasks = workers.made_in_workers(upstream, spark, "t", whole(upstream))
    assert tasks is not None
    assert [len(part) for part in tasks.parts] == [20, 20]
    done = workers.write(spark, tasks, tmp_path / "staged", tmp_path)
    assert (len(done.files), done.rows) == (2, dict.fromkeys(range(40), 3))


def test_files_with_the_calendar_of_before_1582_are_sparks(tmp_path: Path, spark: "SparkSession") -> None:
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        spark.sql("SELECT id, date'1500-02-28' AS day FROM range(3)").write.parquet(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    upstream = opened(tmp_path / "t")
    assert workers.made_in_workers(upstream, spark, "t", whole(upstream)) is None
    assert set(read(upstream, spark, whole(upstream))["day"].to_pylist()) == {dt.date(1500, 2, 28)}


REBASE = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")


@pytest.fixture(params=REBASE)
def rebasing(request: pytest.FixtureRequest, spark: "SparkSession") -> Iterator[None]:
    """As `[spark.conf]` can set it."""
    spark.conf.set(request.param, "LEGACY")
    yield
    spark.conf.unset(request.param)


@pytest.mark.usefixtures("rebasing")
def test_where_the_config_sets_how_old_dates_are_read_files_are_sparks(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """Spark takes the dates of files that do not name their writer for those of the calendar before 1582."""
    days = pa.array([dt.date(1500, 2, 28)] * 12, pa.date32())
    pq.write_table(pa.table({"id": range(12), "day": days}), tmp_path / "a.parquet", row_group_size=2)
    upstream = opened(tmp_path)
    assert workers.made_in_workers(upstream, spark, "t", whole(upstream)) is None
    theirs = spark.read.parquet(str(tmp_path)).orderBy("id").toArrow().to_pylist()
    assert read(upstream, spark, whole(upstream)).to_pylist() == theirs
    slices = [SnapshotRead("t", "a.parquet", 2, 4)]
    assert read(upstream, spark, slices).to_pylist() == theirs[2:4], "a slice of few row groups"


def test_what_spark_cannot_read_is_refused_where_the_config_sets_how_old_dates_are_read(
    tmp_path: Path, spark: "SparkSession", rebasing: None
) -> None:
    days, at = pa.array([dt.date(1500, 2, 28)], pa.date32()), pa.array([0], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": [1], "day": days, "at": at}), tmp_path / "a.parquet")
    upstream = opened(tmp_path)
    with pytest.raises(Fatal, match=r"a.parquet: Spark's own reader cannot read its types") as raised:
        read(upstream, spark, whole(upstream))
    with typed(raised.value) as hint:
        hint.says("from [spark.conf]")
        spark.conf.unset(next(mode for mode in REBASE if mode in hint.hint))
        assert read(upstream, spark, whole(upstream))["day"].to_pylist() == [dt.date(1500, 2, 28)]


def test_text_files_are_sparks(tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    options = {"snapshot": {"path": str(tmp_path), "format": "json", "schema": "id BIGINT"}}
    upstream = connector.open(connector.options.model_validate(options), [TableSpec("t", ("id",))])
    upstream.pin()
    assert upstream.batches("t", [SnapshotRead("t", "a.json", 0, None)], 2) is None


def test_files_without_rows_are_nothing_to_make(tmp_path: Path, spark: "SparkSession") -> None:
    pq.write_table(table().slice(0, 0), tmp_path / "a.parquet")
    upstream = opened(tmp_path)
    assert made(upstream, spark, [SnapshotRead("t", s.id, 0, None) for s in upstream.pin().splits]).num_rows == 0


def test_case_46_a_file_that_breaks_off_is_named(tmp_path: Path, spark: "SparkSession") -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(table(), file, compression="none")
    upstream = opened(tmp_path)
    reads = whole(upstream)
    tasks = workers.made_in_workers(upstream, spark, "t", reads)
    assert tasks is not None
    now = os.stat(file)
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)
    os.utime(file, ns=(now.st_atime_ns, now.st_mtime_ns))
    with pytest.raises(Exception, match="backfill:") as caught:
        workers.write(spark, tasks, tmp_path / "staged", tmp_path)
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert "a.parquet: not a complete parquet file" in error.message


def test_a_file_that_is_not_the_pinned_one_is_not_made(tmp_path: Path, spark: "SparkSession") -> None:
    pq.write_table(table(), tmp_path / "a.parquet")
    upstream = opened(tmp_path)
    reads = whole(upstream)
    pq.write_table(table().slice(1), tmp_path / "a.parquet")
    with pytest.raises(Fatal, match=r"a\.parquet"):
        workers.made_in_workers(upstream, spark, "t", reads)


def test_rows_as_wide_as_a_megabyte_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    held = pa.table({"id": list(range(64)), "wide": [bytes([i]) * 1_000_000 for i in range(64)]})
    pq.write_table(held, tmp_path / "a.parquet", use_dictionary=False, compression="none")
    part = GroupSlice(0, 0, 0, 0, 64)
    sizes = [b.num_rows for b in batches(LocalFileSystem(), str(tmp_path / "a.parquet"), part, held.schema)]
    assert sum(sizes) == 64
    assert max(sizes) <= 17


def test_a_value_that_its_type_cannot_hold_is_named_with_its_column(tmp_path: Path, spark: "SparkSession") -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "at": pa.array([2**62], pa.timestamp("ms"))}), file)
    upstream = opened(tmp_path)
    tasks = workers.made_in_workers(upstream, spark, "t", whole(upstream))
    assert tasks is not None
    with pytest.raises(Exception, match="backfill:") as caught:
        workers.write(spark, tasks, tmp_path / "staged", tmp_path)
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert "a.parquet: row 1 (of id 1): column 'at': a value is not a timestamp[us]" in error.message


def test_a_column_that_comes_twice_is_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["id", "x", "x"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(BadData, match=r"a\.parquet: duplicate column 'x'"):
        opened(tmp_path).pin()
