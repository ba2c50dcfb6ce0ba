"""What workers count while they read: each row once, whatever is read again."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from backfill_cli.spark import row_counts
from backfill_cli.spark.row_counts import Count, counted, counted_in, place, rows_in


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_counts, "EVERY_S", 0.0)


def batches(*rows: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"n": range(n)}) for n in rows])


def test_the_rows_of_all_parts_of_all_readings_are_counted(tmp_path: Path) -> None:
    with counted_in(tmp_path):
        first, second = place(), place()
    for where, part in ((first, 0), (first, 1), (second, 0)):
        assert [one.num_rows for one in counted(batches(3, 4), Count(where, part))] == [3, 4]
    assert rows_in(tmp_path) == 21
    assert place() is None, "nothing is counted outside"


def test_a_part_that_is_read_again_does_not_count_twice(tmp_path: Path) -> None:
    with counted_in(tmp_path):
        where = place()
    list(counted(batches(5, 5), Count(where, 7)))
    again = counted(batches(5, 5, 1), Count(where, 7))
    seen = [rows_in(tmp_path) for _ in again]
    assert seen == [10, 10, 11], "never less than was told before"


def test_a_folder_that_is_gone_ends_no_task(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with counted_in(gone):
        where = place()
    assert sum(one.num_rows for one in counted(batches(5), Count(where, 0))) == 5
    assert rows_in(gone) == 0
    assert sum(one.num_rows for one in counted(batches(5), Count(None, 0))) == 5


def test_a_number_that_is_being_written_ends_neither_task_nor_display(tmp_path: Path) -> None:
    with counted_in(tmp_path):
        where = place()
    (tmp_path / "0-7").write_bytes(b"")
    assert rows_in(tmp_path) == 0
    list(counted(batches(5), Count(where, 7)))
    assert rows_in(tmp_path) == 5


def test_two_workers_that_read_a_part_at_once_do_not_write_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted_in(tmp_path):
        where = place()
    written: list[str] = []
    monkeypatch.setattr("os.replace", lambda new, _: written.append(new))
    for pid in (1, 2):
        monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
        list(counted(batches(5), Count(where, 7)))
    assert len({*written}) == 2
