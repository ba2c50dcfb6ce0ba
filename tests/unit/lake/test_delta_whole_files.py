"""Which versions of a Delta table Spark can read by their files alone, with what the log says of them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.delta.plain import MOST_FILES, whole_files
from backfill_cli.model.schema import field

COLUMNS = {"id": field("id", "long"), "name": field("name", "string")}


def written(folder: Path, *ids: int, **how: Any) -> Where:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [str(one) for one in ids]})
    write_deltalake(str(folder), rows, mode="append", **how)
    return Where.of(str(folder), "t")


def test_files_of_the_version_hold_its_rows(tmp_path: Path) -> None:
    where = written(tmp_path / "t", 1, 2)
    DeltaTable(str(tmp_path / "t")).delete("id = 1")
    written(tmp_path / "t", 3)
    for version, expected in ((0, {1, 2}), (1, {2}), (2, {2, 3})):
        found = whole_files(where, version, COLUMNS)
        assert found is not None
        paths, there = found
        read = [pq.read_table(path.removeprefix("file://"), columns=["id"], partitioning=None) for path in paths]
        assert set(pa.concat_tables(read)["id"].to_pylist()) == expected
        assert there == {"id", "name"}


def test_a_column_that_came_later_is_not_of_an_earlier_version(tmp_path: Path) -> None:
    where = written(tmp_path / "t", 1)
    found = whole_files(where, 0, {**COLUMNS, "more": field("more", "long")})
    assert found is not None
    assert found[1] == {"id", "name"}


@pytest.mark.parametrize(
    "how",
    [
        {"partition_by": ["name"]},
        {"configuration": {"delta.enableDeletionVectors": "true"}},
        {"configuration": {"delta.columnMapping.mode": "name"}},
    ],
)
def test_a_table_whose_files_need_not_show_its_rows_is_left_to_delta(tmp_path: Path, how: dict[str, Any]) -> None:
    written(tmp_path / "plain", 1)
    assert whole_files(Where.of(str(tmp_path / "plain"), "t"), 0, COLUMNS) is not None
    assert whole_files(written(tmp_path / "t", 1, **how), 0, COLUMNS) is None


def test_another_type_or_spelling_of_a_column_is_left_to_delta(tmp_path: Path) -> None:
    where = written(tmp_path / "t", 1)
    assert whole_files(where, 0, {**COLUMNS, "id": field("id", "integer")}) is None
    assert whole_files(where, 0, {"Id": field("Id", "long")}) is None


def test_a_file_that_is_gone_and_a_table_without_files_are_left_to_delta(tmp_path: Path) -> None:
    where = written(tmp_path / "t", 1)
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.rename(tmp_path / "elsewhere")
    assert whole_files(where, 0, COLUMNS) is None
    (tmp_path / "elsewhere").rename(file)
    assert whole_files(where, 0, COLUMNS) is not None
    DeltaTable(str(tmp_path / "t")).delete()
    assert whole_files(where, 1, COLUMNS) is None


def test_many_files_and_a_path_that_is_spelled_otherwise_are_left_to_delta(tmp_path: Path) -> None:
    assert whole_files(written(tmp_path / "a b", 1), 0, COLUMNS) is None
    where = Where.of(str(tmp_path / "t"), "t")
    for at in range(4):
        written(tmp_path / "t", at)
    assert whole_files(where, 3, COLUMNS) is not None
    assert MOST_FILES > 3
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("backfill_cli.lake.delta.plain.MOST_FILES", 3)
        assert whole_files(where, 3, COLUMNS) is None


@pytest.mark.parametrize("name", ["_part.parquet", ".part.parquet", "a/_part.parquet", "part.parquet._COPYING_"])
def test_a_file_that_spark_leaves_out_by_its_name_is_left_to_delta(tmp_path: Path, name: str) -> None:
    """An add action may name any path: another writer's, whose rows Delta's own reader has."""
    where = written(tmp_path / "t", 1)
    (file,) = (tmp_path / "t").glob("*.parquet")
    (log,) = (tmp_path / "t/_delta_log").glob("*.json")
    (tmp_path / "t" / name).parent.mkdir(exist_ok=True)
    file.rename(tmp_path / "t" / name)
    log.write_text(log.read_text().replace(file.name, name))
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table()["id"].to_pylist() == [1]
    assert whole_files(where, 0, COLUMNS) is None
