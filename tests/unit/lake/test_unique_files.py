"""Keys compared in files: unique if and only if they are, whatever the files and however they overlap."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs as pafs

from backfill_cli.formats import row_groups
from backfill_cli.lake import merge
from backfill_cli.lake.plain_files import DataFile, PlainFiles, bounded
from backfill_cli.model.schema import field
from backfill_cli.spark import arrow_tasks

KEYS = {"id": field("id", "long"), "line": field("line", "string")}


def files_of(folder: Path, parts: Sequence[Sequence[tuple[int, str]]], key: Sequence[str]) -> PlainFiles:
    files = []
    for number, rows in enumerate(parts):
        path = str(folder / f"{number}.parquet")
        ids, lines = pa.array([one[0] for one in rows], pa.int64()), pa.array([one[1] for one in rows])
        pq.write_table(pa.table({"more": lines, "id": ids, "line": lines}), path, row_group_size=3)
        files.append(bounded(path, "id", "long"))
    return PlainFiles(pafs.LocalFileSystem(), files, "id", {name: KEYS[name] for name in key})


class Told:
    """Stands for a session: `frame` runs the parts in this process."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(arrow_tasks, "workers_know_us", lambda _: True)
        patch.setattr(row_groups, "rebased_by", lambda _: None)
        patch.setattr(arrow_tasks, "cores", lambda _: 2)
        patch.setattr(arrow_tasks, "frame", self.frame)
        self.parts = 0

    def frame(self, _spark: Any, make: Any, parts: Sequence[Any], _schema: str) -> Any:
        self.parts = len(parts)
        made = pa.Table.from_batches([batch for part in parts for batch in make(part)])
        return type("Frame", (), {"toArrow": lambda _: made})()


rows = st.tuples(st.integers(0, 30), st.sampled_from(["a", "b"]))


@given(parts=st.lists(st.lists(rows, min_size=1, max_size=8), min_size=1, max_size=5), whole=st.booleans())
def test_keys_are_unique_if_no_two_rows_share_one(
    parts: list[list[tuple[int, str]]], whole: bool, tmp_path_factory: Any
) -> None:
    key = ("id", "line") if whole else ("id",)
    every = [one if whole else one[0] for part in parts for one in part]
    with pytest.MonkeyPatch.context() as patch:
        Told(patch)
        files = files_of(tmp_path_factory.mktemp("lake"), parts, key)
        spark: Any = None
        found = merge.unique_in_files(spark, files, key, {name: KEYS[name] for name in key})
    assert found == (len(set(every)) == len(every))


def test_files_that_do_not_overlap_are_compared_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    parts = [[(n, "a") for n in range(low, low + 10)] for low in (0, 10, 20, 30)]
    files = files_of(tmp_path, parts, ("id",))
    groups = files.overlapping()
    assert groups is not None
    assert [len(paths) for paths, _ in groups] == [1, 1, 1, 1]
    spark: Any = None
    assert merge.unique_in_files(spark, files, ("id",), {"id": KEYS["id"]})
    assert told.parts == 2


def test_a_file_that_another_one_contains_is_compared_with_it_and_with_what_follows(tmp_path: Path) -> None:
    parts = [[(0, "a"), (100, "a")], [(3, "a"), (5, "a")], [(100, "b"), (200, "a")], [(201, "a")]]
    groups = files_of(tmp_path, parts, ("id",)).overlapping()
    assert groups is not None
    assert [(len(paths), count) for paths, count in groups] == [(3, 6), (1, 1)]


def test_bounds_that_a_log_gives_wrong_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Told(monkeypatch)
    paths = files_of(tmp_path, [[(0, "a"), (9, "a")], [(9, "a"), (20, "a")]], ("id",)).paths()
    narrow = [DataFile(paths[0], 0, 5), DataFile(paths[1], 9, 20)]
    files = PlainFiles(pafs.LocalFileSystem(), narrow, "id", {"id": KEYS["id"]})
    spark: Any = None
    assert not merge.unique_in_files(spark, files, ("id",), {"id": KEYS["id"]})


def test_the_footer_of_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of(tmp_path, [[(0, "a"), (9, "a")], [(5, "a"), (20, "a")], [(30, "a")]], ("id",))
    read: list[str] = []
    footer = pq.read_metadata

    def counted(path: str, **more: Any) -> Any:
        read.append(path)
        return footer(path, **more)

    monkeypatch.setattr(pq, "read_metadata", counted)
    groups = files.overlapping()
    assert groups is not None
    assert [count for _, count in groups] == [4, 1]
    assert sorted(read) == sorted(files.paths())


def test_where_the_config_sets_how_old_dates_are_read_keys_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Told(monkeypatch)
    monkeypatch.setattr(row_groups, "rebased_by", lambda _: "spark.sql.parquet.datetimeRebaseModeInRead")
    spark: Any = None
    files = files_of(tmp_path, [[(0, "a")]], ("id",))
    assert not merge.unique_in_files(spark, files, ("id",), {"id": KEYS["id"]})


def test_too_many_rows_for_one_task_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Told(monkeypatch)
    monkeypatch.setattr(merge, "MOST_ROWS", 3)
    files = files_of(tmp_path, [[(0, "a"), (9, "a")], [(5, "a"), (7, "a")]], ("id",))
    spark: Any = None
    assert not merge.unique_in_files(spark, files, ("id",), {"id": KEYS["id"]})


@pytest.mark.parametrize(
    "kind", ["double", "float", {"type": "array", "elementType": "long", "containsNull": True}]
)
def test_keys_whose_equal_values_can_differ_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    Told(monkeypatch)
    files = files_of(tmp_path, [[(0, "a")]], ("id",))
    spark: Any = None
    columns = {"id": KEYS["id"], "line": field("line", kind)}
    assert not merge.unique_in_files(spark, files, ("id", "line"), columns)


def test_a_file_that_goes_before_it_is_read_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Told(monkeypatch)
    files = files_of(tmp_path, [[(0, "a")], [(1, "a")]], ("id",))
    assert files.overlapping() is not None
    (tmp_path / "1.parquet").unlink()
    spark: Any = None
    assert not merge.unique_in_files(spark, files, ("id",), {"id": KEYS["id"]})
    assert bounded(str(tmp_path / "1.parquet"), "id", "long").low is None


def test_bounds_are_those_of_all_row_groups_or_unknown(tmp_path: Path) -> None:
    path = str(tmp_path / "f.parquet")
    pq.write_table(pa.table({"id": pa.array([5, 9, 1, 3], pa.int64())}), path, row_group_size=2)
    assert bounded(path, "id", "long") == DataFile(path, 1, 9)
    pq.write_table(pa.table({"id": pa.array([5, None], pa.int64())}), path)
    assert bounded(path, "id", "long") == DataFile(path, None, None)
    pq.write_table(pa.table({"id": pa.array([5], pa.int64())}), path, write_statistics=False)
    assert bounded(path, "id", "long") == DataFile(path, None, None)
    pq.write_table(pa.table({"id": pa.array([5], pa.int64())}), path)
    assert bounded(path, "other", "long") == DataFile(path, None, None)


def test_dates_that_python_does_not_have_are_bounds_too(tmp_path: Path) -> None:
    path, far = str(tmp_path / "f.parquet"), 4_000_000  # in the year 12921
    pq.write_table(pa.table({"id": pa.array([-800_000, far], pa.int32()).cast(pa.date32())}), path)
    assert bounded(path, "id", "date") == DataFile(path, -800_000, far)
    assert bounded(path, "id", "string") == DataFile(path, None, None)
