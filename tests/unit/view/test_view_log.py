"""The log file: bounded, private, read over the two files that it is, followed while it is put aside."""

import stat
from itertools import islice
from pathlib import Path

import pytest

from backfill_cli.view import log as log_file
from backfill_cli.view.log import JobLog, follow, kept, newest


def silent(_said: str) -> None:
    raise AssertionError(_said)


def test_a_full_log_is_put_aside_and_only_its_owner_reads_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "LOG_BYTES", 100)
    log = tmp_path / "logs/orders.log"
    written = JobLog(log, silent)
    assert not log.parent.exists()
    for n in range(60):
        written.write(f"line {n:04d}")
    written.close()
    assert sorted(file.name for file in log.parent.iterdir()) == ["orders.log", "orders.log.1"]
    for file in log.parent.iterdir():
        assert file.stat().st_size <= 110
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines, _ = newest(log, 15)
    assert lines == [f"line {n:04d}" for n in range(45, 60)]


def test_the_newest_lines_end_before_one_that_is_being_written(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    log.write_text("a\nb\npart")
    lines, file = newest(log, 5)
    assert lines == ["a", "b"]
    with log.open("a") as more:
        more.write("ly\nc\n")
    assert list(islice(follow(log, file, lambda _s: None), 2)) == ["partly", "c"]


def test_no_line_is_lost_or_told_twice_while_the_log_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "LOG_BYTES", 300)
    log = tmp_path / "orders.log"
    written = JobLog(log, silent)
    numbers = iter(range(200))
    for _ in range(10):
        written.write(f"{next(numbers):04d}")
    lines, file = newest(log, 100)

    def sleep(_s: float) -> None:
        for n in islice(numbers, 7):
            written.write(f"{n:04d}")

    found = [int(line) for line in (*lines, *islice(follow(log, file, sleep), 180))]
    assert found == list(range(190))


def test_a_log_that_comes_later_is_followed_from_its_first_line(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    lines, file = newest(log, 5)
    assert (lines, file) == ([], None)
    assert list(islice(follow(log, file, lambda _s: _append(log, "a\n")), 1)) == ["a"]


def _append(file: Path, text: str) -> None:
    with file.open("a") as more:
        more.write(text)


def test_a_log_that_somebody_cut_off_is_read_from_its_new_beginning(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    log.write_text("a long first line\n")
    _, file = newest(log, 5)
    log.write_text("b\n")
    assert list(islice(follow(log, file, lambda _s: None), 1)) == ["b"]


def test_a_log_that_cannot_be_written_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")
    said: list[str] = []
    written = JobLog(tmp_path / "logs/orders.log", said.append)
    written.write("a")
    written.write("b")
    (one,) = said
    assert "the job continues without a log" in one


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "orders.log").symlink_to(tmp_path / "elsewhere")
    said: list[str] = []
    JobLog(tmp_path / "orders.log", said.append).write("a")
    assert said
    assert (tmp_path / "elsewhere").read_text() == ""


def test_the_older_log_is_beside_it(tmp_path: Path) -> None:
    assert kept(tmp_path / "orders.log").name == "orders.log.1"
