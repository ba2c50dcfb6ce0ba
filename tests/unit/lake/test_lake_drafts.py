"""Files that a death left half-written beside a lake's tables."""

import os
import threading
import time
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from backfill_cli.lake.blobs import OLD_S, Announced, Blobs


@pytest.fixture
def store(tmp_path: Path) -> Blobs:
    """Files that are not known to be on a disk, as those of an object store."""
    (tmp_path / "state").mkdir()
    return Blobs(SubTreeFileSystem(str(tmp_path), LocalFileSystem()), "state")


def test_drafts_of_a_death_go_with_the_next_file_and_those_of_others_at_work_stay(tmp_path: Path) -> None:
    dead, young, other = (tmp_path / name for name in (f".{'a' * 32}", f".{'b' * 32}", ".gitignore"))
    for path in (dead, young, other):
        path.touch()
    for path in (dead, other):
        os.utime(path, (time.time() - OLD_S - 1,) * 2)
    Blobs(LocalFileSystem(), str(tmp_path)).create("one.json", b"{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([young.name, other.name, "one.json"])


def test_of_writers_at_once_no_more_than_one_creates_a_file_of_an_object_store(store: Blobs) -> None:
    def create(by: int) -> None:
        start.wait()
        try:
            store.create_alone(f"{name}.json", str(by).encode())
            won.append(by)
        except FileExistsError:
            return

    for name in range(40):
        start, won = threading.Barrier(4), list[int]()
        writers = [threading.Thread(target=create, args=(by,)) for by in range(4)]
        for one in writers:
            one.start()
        for one in writers:
            one.join()
        assert len(won) <= 1
        assert [store.read(f"{name}.json")] == [str(by).encode() for by in won] if won else True
    assert all(not one.startswith(".") for one in store.names())


def test_who_announced_itself_and_died_is_named_and_in_the_way_for_an_hour(store: Blobs, tmp_path: Path) -> None:
    left = tmp_path / "state" / f".job-1.json.{'a' * 32}"
    left.touch()
    with pytest.raises(Announced, match=left.name):
        store.create_alone("job-1.json", b"")
    assert [one.name for one in (tmp_path / "state").iterdir()] == [left.name]
    store.create_alone("job-2.json", b"")
    os.utime(left, (time.time() - OLD_S - 1,) * 2)
    store.create_alone("job-1.json", b"")
    with pytest.raises(FileExistsError):
        store.create_alone("job-1.json", b"")
