"""A DuckDB file is copied completely while commits continue; without Spark."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from hint_typed import typed

from backfill_cli.errors import Transient
from backfill_cli.sinks.duckdb import verify
from backfill_cli.sinks.duckdb.file import Limits, opened
from backfill_cli.sinks.duckdb.verify import FREE_TRIES, copy_file

ROWS = 60_000


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a few chunks, on a file system that cannot share blocks."""
    monkeypatch.setattr(verify, "_cloned", lambda path, copy: False)
    monkeypatch.setattr(verify, "CHUNK", 1 << 18)
    with duckdb.connect(str(tmp_path / "w.duckdb")) as db:
        db.execute(f"CREATE TABLE t AS SELECT i AS id, 0 AS epoch, md5(i::VARCHAR) AS x FROM range({ROWS}) r(i)")
    return tmp_path / "w.duckdb"


def commit(path: Path, epoch: int) -> None:
    """Every row of the table: a copy that mixes two moments would hold two epochs."""
    with duckdb.connect(str(path)) as db:
        db.execute(f"UPDATE t SET epoch = {epoch}, x = md5(x)")


def held_in(copy: Path) -> list[tuple[int, int]]:
    with duckdb.connect(str(copy), read_only=True) as db:
        return db.execute("SELECT epoch, count(*) FROM t GROUP BY ALL").fetchall()


@contextmanager
def between(path: Path) -> Iterator[None]:
    with opened(path, Limits(), read_only=True):
        yield


def committing(times: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Commits in the middle of each of the first passes over the file. Returns the epochs."""
    done: list[int] = []
    update: Callable[..., None] = verify._update

    def pass_over(held: object, copy: object) -> None:
        if len(done) < times:
            done.append(len(done) + 1)
            commit(path, len(done))
        update(held, copy)

    monkeypatch.setattr(verify, "_update", pass_over)
    return done


@pytest.mark.parametrize("commits", range(FREE_TRIES))
def test_commits_are_not_held_up_and_the_copy_is_of_one_time(
    path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    done = committing(commits, path, monkeypatch)
    copy_file(path, path.parent / "copy", lambda: between(path))
    assert len(done) == commits
    assert held_in(path.parent / "copy") == [(commits, ROWS)]


def test_a_job_that_commits_all_the_time_is_held_up_at_the_end_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = committing(FREE_TRIES, path, monkeypatch)
    holds: list[int] = []

    @contextmanager
    def counted() -> Iterator[None]:
        holds.append(len(done))
        with between(path):
            yield

    copy_file(path, path.parent / "copy", counted)
    assert holds[-1] == FREE_TRIES
    assert held_in(path.parent / "copy") == [(FREE_TRIES, ROWS)]


def test_a_file_that_shrinks_and_a_log_that_comes_and_goes_are_followed(path: Path) -> None:
    copy = path.parent / "copy"
    Path(f"{copy}.wal").write_bytes(b"of an earlier pass")
    copy.write_bytes(b"x" * (2 * path.stat().st_size))
    copy_file(path, copy, lambda: between(path))
    assert copy.read_bytes() == path.read_bytes()
    assert not Path(f"{copy}.wal").exists()


def test_what_a_crash_left_in_the_log_is_in_the_copy(path: Path) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute("SET wal_autocheckpoint = '1TB'")
        db.execute("INSERT INTO t VALUES (-1, 7, 'from the log')")
        for name in ("", ".wal"):
            shutil.copy(f"{path}{name}", f"{path.parent}/crashed{name}")
    crashed, copy = path.parent / "crashed", path.parent / "copy"
    assert Path(f"{crashed}.wal").stat().st_size > 0
    copy_file(crashed, copy, lambda: between(crashed))
    assert (7, 1) in held_in(copy)


def test_a_copy_without_room_may_pass(path: Path) -> None:
    room = path.parent / "room"
    with pytest.raises(Transient, match="cannot be copied to") as caught:
        copy_file(path, room / "copy", lambda: between(path))
    with typed(caught.value) as hint:
        room.mkdir()  # a disk that is full is not at hand
        hint.run_in_shell("df")
        copy_file(path, room / "copy", lambda: between(path))
        assert held_in(room / "copy") == [(0, ROWS)]


@pytest.mark.seconds
def test_commits_of_another_thread_leave_no_mixed_copy(path: Path) -> None:
    """The copy is right whenever a commit comes."""
    turn, stop = threading.Lock(), threading.Event()

    def commits() -> None:
        for epoch in range(1, 100):
            if stop.is_set():
                return
            with turn:
                commit(path, epoch)

    @contextmanager
    def waiting() -> Iterator[None]:
        with turn, between(path):
            yield

    runner = threading.Thread(target=commits)
    runner.start()
    try:
        for number in range(5):
            copy_file(path, path.parent / f"copy{number}", waiting)
            ((_, rows),) = held_in(path.parent / f"copy{number}")
            assert rows == ROWS
    finally:
        stop.set()
        runner.join()
