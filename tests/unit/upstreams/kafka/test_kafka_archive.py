"""The files of an archive: which of them changed after they were indexed."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

from backfill_cli.errors import Fatal
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.options import ArchiveOptions, KafkaOptions
from backfill_cli.upstreams.kafka.tasks import Range


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
