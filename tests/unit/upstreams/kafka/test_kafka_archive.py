"""The files of an archive: which of them changed after they were indexed."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

from backfill_cli.errors import BackfillError, BadData, Fatal, UsageError
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.schema import field
from backfill_cli.upstreams.kafka.archive import index
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.options import ArchiveOptions, KafkaOptions


def store(path: Path, first: int, count: int = 10) -> None:
    told = {"kafka_partition": [0] * count, "kafka_offset": list(range(first, first + count))}
    pq.write_table(pa.table(told), path)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Offsets 0 to 29 in 0.parquet, 1.parquet and 2.parquet, indexed."""
    for number in range(3):
        store(tmp_path / f"{number}.parquet", 10 * number)
    options = KafkaOptions.model_validate(
        {"bootstrap_servers": "nowhere:1", "topic": "t", "archive": {"path": str(tmp_path)}}
    )
    found = Archive(options, ArchiveOptions(path=str(tmp_path)), "t")
    found.begin()
    return found


@pytest.mark.parametrize("name", ["1.parquet", "2.parquet"])
def test_the_file_that_was_written_again_is_named(archive: Archive, tmp_path: Path, name: str) -> None:
    first = 10 * int(name[0])
    wanted = [Range(0, 0, first, first + 5)]
    assert [file.name for file in archive._files_of(wanted)[0]] == [name]
    store(tmp_path / name, first, 11)
    with pytest.raises(Fatal, match=f"{name} was written again since the archive was pinned"):
        archive._files_of(wanted)
    with pytest.raises(Fatal, match=f"{name} was written again since the archive was pinned") as refused:
        archive.check()
    with typed(refused.value) as hint:
        store(tmp_path / name, first)
        hint.run_in_shell("touch")
        archive.check()
        assert [file.name for file in archive._files_of(wanted)[0]] == [name]


def test_the_file_that_is_gone_is_named(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "2.parquet").unlink()
    assert [file.name for file in archive._files_of([Range(0, 0, 5, 15)])[0]] == ["0.parquet", "1.parquet"]
    with pytest.raises(Fatal, match=r"2\.parquet is gone since the archive was pinned"):
        archive._files_of([Range(0, 0, 20, 25)])


def opened(folder: Path, **options: Any) -> Archive:
    archive = ArchiveOptions.model_validate({"path": str(folder), **options})
    told = {"bootstrap_servers": "nowhere:1", "topic": "t", "archive": archive.model_dump(exclude_unset=True)}
    rows = {"value": {"format": "rows", "schema": "id BIGINT"}} if archive.format == "json" else {}
    topic = KafkaOptions.model_validate(told | rows)
    return Archive(topic, archive, "t")


def refused(archive: Archive) -> BackfillError:
    with pytest.raises((BadData, Fatal, UsageError)) as caught:
        archive.begin()
    return caught.value


JSON = {"format": "json"}
WHOLE = pa.table({"kafka_partition": [0], "kafka_offset": [0]})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pa.table({"kafka_partition": [0], "kafka_offset": ["0"]}), "as whole numbers"),
        (pa.table({"kafka_partition": [0, 0], "kafka_offset": [0, None]}), "of every record"),
    ],
)
def test_an_archive_that_lacks_the_place_of_a_record_is_written_again(
    tmp_path: Path, table: pa.Table, says: str
) -> None:
    pq.write_table(table, tmp_path / "0.parquet")
    with typed(refused(opened(tmp_path))) as hint:
        hint.says(f"write partition and offset {says}")
        pq.write_table(WHOLE, tmp_path / "0.parquet")
        opened(tmp_path).begin()


def test_other_names_for_the_place_of_a_record_are_options(tmp_path: Path) -> None:
    pq.write_table(WHOLE.rename_columns(["p", "o"]), tmp_path / "0.parquet")
    with typed(refused(opened(tmp_path))) as hint:
        hint.says("upstream.archive.partition and upstream.archive.offset")
        archive = opened(tmp_path, partition="p", offset="o")
        archive.begin()
        assert archive.spans() == {0: (0, 1)}


def test_a_line_that_is_null_is_removed(tmp_path: Path) -> None:
    line = json.dumps({"kafka_partition": 0, "kafka_offset": 0, "id": 1})
    (tmp_path / "0.json").write_text(f"{line}\nnull\n")
    with typed(refused(opened(tmp_path, **JSON))) as hint:
        hint.says("remove such lines")
        (tmp_path / "0.json").write_text(f"{line}\n")
        opened(tmp_path, **JSON).begin()


def test_files_where_the_option_points_are_found(tmp_path: Path) -> None:
    store(tmp_path / "_0.parquet", 0)
    with typed(refused(opened(tmp_path))) as hint:
        hint.says("upstream.archive.path; names that begin with '_' or '.'")
        (tmp_path / "_0.parquet").rename(tmp_path / "0.parquet")
        opened(tmp_path).begin()


def test_folders_as_kafka_connect_writes_them_are_left(tmp_path: Path) -> None:
    (tmp_path / "partition=0").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "partition=0" / "0.parquet")
    with typed(refused(opened(tmp_path))) as hint:
        hint.says("put the files into a folder without such folders")
        (tmp_path / "flat").mkdir()
        store(tmp_path / "flat" / "0.parquet", 0)
        opened(tmp_path / "flat").begin()


def test_a_column_with_two_types_is_written_with_one(tmp_path: Path) -> None:
    store(tmp_path / "0.parquet", 0, 1)
    other = pa.table({"kafka_partition": pa.array([0], pa.int32()), "kafka_offset": [1]})
    pq.write_table(other, tmp_path / "1.parquet")
    archive = opened(tmp_path)
    archive.begin()
    with pytest.raises(BadData, match="in earlier files") as caught:
        archive.columns()
    with typed(caught.value) as hint:
        hint.says("write that file again")
        store(tmp_path / "1.parquet", 1, 1)
        again = opened(tmp_path)
        again.begin()
        assert "kafka_offset" in again.columns()


def test_a_declared_type_is_the_one_of_the_files(tmp_path: Path) -> None:
    pq.write_table(WHOLE.append_column("n", pa.array([2**40])), tmp_path / "0.parquet")
    archive = opened(tmp_path)
    archive.begin()
    archive.columns()
    with pytest.raises(BadData, match="column 'n' is bigint") as caught:
        archive.read_as({"n": field("n", "integer")})
    with typed(caught.value) as hint:
        hint.says("declare it as bigint")
        assert archive.read_as({"n": field("n", "long")})["n"]["type"] == "long"


def test_offsets_full_of_gaps_are_those_of_a_compacted_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MOST_GAPS", 2)
    pq.write_table(pa.table({"kafka_partition": [0] * 5, "kafka_offset": range(0, 10, 2)}), tmp_path / "0.parquet")
    with typed(refused(opened(tmp_path))) as hint:
        hint.says("set upstream.compacted or upstream.transactional")
        for option in ("compacted", "transactional"):
            topic = KafkaOptions.model_validate(
                {"bootstrap_servers": "b:1", "topic": "t", option: True, "archive": {"path": str(tmp_path)}}
            )
            assert topic.archive is not None
            archive = Archive(topic, topic.archive, "t")
            archive.begin()
            assert archive.gaps(0) == ()
