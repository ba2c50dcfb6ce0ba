"""Key ranges read from a lake table's Parquet files directly: each row once, by its own read; or left to Spark."""

import itertools
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs as pafs

from backfill_cli.errors import BadData
from backfill_cli.lake.key_ranges import KeyRange, KeyRead
from backfill_cli.lake.plain_files import DataFile, PlainFiles, is_plain
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import field

EPOCH = date(1970, 1, 1)
COLUMNS = {"id": field("id", "long"), "name": field("name", "string")}


def read(low: int | None, high: int | None) -> KeyRead:
    return KeyRead(SnapshotRead("t", "0"), KeyRange(low, high))


def rows_by_read(files: PlainFiles, reads: Sequence[KeyRead]) -> dict[int, list[Any]] | None:
    """The keys that each read's tasks give."""
    tasks = files.tasks(reads, 2)
    if tasks is None:
        return None
    found: dict[int, list[Any]] = {index: [] for index in range(len(reads))}
    for piece in itertools.chain.from_iterable(tasks.parts):
        for batch in tasks.make(piece.what):
            found[piece.read] += batch.column("id").to_pylist()
    return found


def written(folder: Path, parts: Sequence[Sequence[Any]], kind: pa.DataType, group_rows: int = 1000) -> list[str]:
    paths = []
    for number, keys in enumerate(parts):
        names = [f"n{key}" for key in keys]
        table = pa.table({"id": pa.array(keys, kind), "name": pa.array(names, pa.string())})
        paths.append(str(folder / f"{number}.parquet"))
        pq.write_table(table, paths[-1], row_group_size=group_rows)
    return paths


parts = st.lists(st.lists(st.integers(-20, 20), min_size=1, max_size=8), min_size=1, max_size=5)
cuts = st.lists(st.integers(-25, 25), max_size=4, unique=True).map(sorted)


@given(parts=parts, cuts=cuts, as_dates=st.booleans(), group_rows=st.integers(1, 8))
def test_each_row_is_given_once_by_the_read_that_its_key_is_in(
    parts: list[list[int]], cuts: list[int], as_dates: bool, group_rows: int, tmp_path_factory: Any
) -> None:
    def as_key(number: int) -> Any:
        return EPOCH + timedelta(days=number) if as_dates else number

    folder = tmp_path_factory.mktemp("lake")
    keys = [[as_key(one) for one in part] for part in parts]
    paths = written(folder, keys, pa.date32() if as_dates else pa.int64(), group_rows)
    files = [DataFile(path, min(part), max(part)) for path, part in zip(paths, parts, strict=True)]
    columns = {**COLUMNS, "id": field("id", "date" if as_dates else "long")}
    plain = PlainFiles(pafs.LocalFileSystem(), files, "id", columns)
    bounds = [None, *cuts, None]
    found = rows_by_read(plain, [read(low, high) for low, high in itertools.pairwise(bounds)])
    assert found is not None
    for index, (low, high) in enumerate(itertools.pairwise(bounds)):
        expected = [
            as_key(one)
            for part in parts
            for one in part
            if (low is None or one >= low) and (high is None or one < high)
        ]
        assert sorted(found[index]) == sorted(expected)


def test_a_read_of_part_of_the_keys_touches_only_the_files_that_have_some(tmp_path: Path) -> None:
    paths = written(tmp_path, [[0, 9], [10, 19], [15, 40], [50, 60]], pa.int64())
    files = [
        DataFile(path, *bounds) for path, bounds in zip(paths, [(0, 9), (10, 19), (15, 40), (50, 60)], strict=True)
    ]
    tasks = PlainFiles(pafs.LocalFileSystem(), files, "id", COLUMNS).tasks([read(19, 50)], 1)
    assert tasks is not None
    assert {Path(piece.what.path).name for part in tasks.parts for piece in part} == {"1.parquet", "2.parquet"}


def test_a_read_of_part_of_a_file_opens_its_row_groups_alone(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [list(range(100))], pa.int64(), group_rows=10)
    plain = PlainFiles(pafs.LocalFileSystem(), [DataFile(path, 0, 99)], "id", COLUMNS)
    tasks = plain.tasks([read(25, 41)], 1)
    assert tasks is not None
    (piece,) = [piece for part in tasks.parts for piece in part]
    assert (piece.what.slice.after, piece.what.slice.up_to) == (20, 50)
    assert rows_by_read(plain, [read(25, 41), read(200, 300)]) == {0: list(range(25, 41)), 1: []}


def test_a_null_key_that_statistics_deny_is_refused(tmp_path: Path) -> None:
    (path,) = written(tmp_path, [[1, 2]], pa.int64())
    pq.write_table(pa.table({"id": pa.array([1, None], pa.int64()), "name": ["a", "b"]}), path)
    plain = PlainFiles(pafs.LocalFileSystem(), [DataFile(path, 1, 9)], "id", COLUMNS)
    with pytest.raises(BadData, match=r"0.parquet: column 'id' is NULL in some rows") as refused:
        rows_by_read(plain, [read(None, 5)])
    with typed(refused.value) as hint:
        hint.says("write the table's rows again, with a value in each")
        assert refused.value.hint.starts_over
        (path,) = written(tmp_path, [[1, 9]], pa.int64())
        again = PlainFiles(pafs.LocalFileSystem(), [DataFile(path, 1, 9)], "id", COLUMNS)
        assert rows_by_read(again, [read(None, 5), read(5, None)]) == {0: [1], 1: [9]}


def test_a_file_that_is_apart_leaves_only_the_reads_that_need_it_to_spark(tmp_path: Path) -> None:
    paths = written(tmp_path, [[0, 9], [10, 19]], pa.int64())
    files = [DataFile(paths[0], 0, 9), DataFile(paths[1], 10, 19)]
    plain = PlainFiles(pafs.LocalFileSystem(), files, "id", COLUMNS, frozenset({paths[1]}))
    assert rows_by_read(plain, [read(None, 10)]) == {0: [0, 9]}
    assert plain.tasks([read(None, 10), read(10, None)], 2) is None


def test_bounds_that_are_not_known_leave_ranges_to_spark_and_the_whole_to_workers(tmp_path: Path) -> None:
    paths = written(tmp_path, [[0, 9], [3, 19]], pa.int64())
    plain = PlainFiles(
        pafs.LocalFileSystem(),
        [DataFile(paths[0], 0, 9), DataFile(paths[1], None, None)],
        "id",
        COLUMNS,
        frozenset(),
    )
    assert plain.tasks([read(None, 10)], 2) is None
    assert rows_by_read(plain, [read(None, None)]) == {0: [0, 9, 3, 19]}


def test_keys_whose_statistics_are_not_exact_are_not_compared(tmp_path: Path) -> None:
    columns = {**COLUMNS, "id": field("id", "decimal(9,2)")}
    paths = written(tmp_path, [[Decimal("0.10"), Decimal("9.00")]], pa.decimal128(9, 2))
    plain = PlainFiles(pafs.LocalFileSystem(), [DataFile(paths[0], 10, 900)], "id", columns)
    assert plain.tasks([read(None, 500)], 2) is None
    assert rows_by_read(plain, [read(None, None)]) == {0: [Decimal("0.10"), Decimal("9.00")]}


def test_a_file_that_cannot_be_opened_is_left_to_spark(tmp_path: Path) -> None:
    gone, broken = tmp_path / "gone.parquet", tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing more")
    for path in (gone, broken):
        plain = PlainFiles(pafs.LocalFileSystem(), [DataFile(str(path), 0, 1)], "id", COLUMNS)
        assert plain.tasks([read(None, None)], 2) is None


WANTED = pa.schema(
    [("i", pa.int32()), ("t", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")), ("s", pa.string())]
)
AS_WANTED: dict[str, pa.DataType] = {one.name: one.type for one in WANTED}
OTHER: dict[str, Any] = {
    "a column is missing": {**AS_WANTED, "s": None},
    "a column was widened": {**AS_WANTED, "i": pa.int16()},
    "an instant is written without a zone": {**AS_WANTED, "t": pa.timestamp("us")},
    "a time without a zone is written with one": {**AS_WANTED, "n": pa.timestamp("us", "UTC")},
    "microseconds would be cut": {**AS_WANTED, "n": pa.timestamp("ns")},
    "a text is a dictionary": {**AS_WANTED, "s": pa.dictionary(pa.int32(), pa.string())},
    "a text is binary": {**AS_WANTED, "s": pa.binary()},
}


def footer_of(path: Path, types: dict[str, Any], **options: Any) -> Any:
    names = {name: kind for name, kind in types.items() if kind is not None}
    metadata = options.pop("metadata", None)
    table = pa.table({name: pa.nulls(1, kind) for name, kind in names.items()}).replace_schema_metadata(metadata)
    pq.write_table(table, path, **options)
    return pq.read_metadata(path)


@pytest.mark.parametrize("what", OTHER)
def test_files_whose_columns_are_not_the_tables_own_are_not_plain(what: str, tmp_path: Path) -> None:
    assert not is_plain(footer_of(tmp_path / "f", OTHER[what]), WANTED)


def test_files_with_just_the_tables_types_are_plain(tmp_path: Path) -> None:
    assert is_plain(footer_of(tmp_path / "f", AS_WANTED), WANTED)
    assert is_plain(footer_of(tmp_path / "g", {**AS_WANTED, "more": pa.list_(pa.int8())}), WANTED)
    assert is_plain(footer_of(tmp_path / "h", {**AS_WANTED, "s": pa.large_string()}), WANTED)


def test_nested_columns_are_left_to_spark(tmp_path: Path) -> None:
    kinds = {"v": pa.list_(pa.int32())}
    assert not is_plain(footer_of(tmp_path / "f", kinds), pa.schema(list(kinds.items())))


def test_int96_counts_instants_where_spark_wrote_it_and_its_calendar_is_todays(tmp_path: Path) -> None:
    kinds = {"t": pa.timestamp("us")}
    instant = pa.schema([("t", pa.timestamp("us", "UTC"))])
    of_spark = {"org.apache.spark.version": "4.1.4"}
    old = {**of_spark, "org.apache.spark.legacyINT96": ""}
    int96: dict[str, Any] = {"use_deprecated_int96_timestamps": True}
    assert is_plain(footer_of(tmp_path / "a", kinds, metadata=of_spark, **int96), instant)
    assert not is_plain(footer_of(tmp_path / "b", kinds, **int96), instant)
    assert not is_plain(footer_of(tmp_path / "c", kinds, metadata=old, **int96), instant)
    assert not is_plain(
        footer_of(tmp_path / "d", kinds, metadata=of_spark, **int96), pa.schema(list(kinds.items()))
    )


def test_columns_with_ids_are_the_tables_only_where_their_ids_are(tmp_path: Path) -> None:
    fields = [pa.field("a", pa.int32(), metadata={b"PARQUET:field_id": b"1"}), pa.field("b", pa.int32())]
    pq.write_table(pa.table([pa.nulls(1, pa.int32())] * 2, schema=pa.schema(fields)), tmp_path / "f")
    footer, wanted = pq.read_metadata(tmp_path / "f"), pa.schema([("a", pa.int32())])
    assert is_plain(footer, wanted, {"a": 1})
    assert not is_plain(footer, wanted, {"a": 2})  # the column was dropped, and added again
    assert not is_plain(footer, pa.schema([("b", pa.int32())]), {"b": 2})
