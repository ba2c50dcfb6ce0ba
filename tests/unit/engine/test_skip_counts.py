"""What workers skip is counted once, whatever is read again."""

from pathlib import Path

import pytest

from backfill_cli.errors import Transient
from backfill_cli.formats.skip_counts import Place, place, skipped_in, told_in


def begun(folder: Path, *tables: str) -> list[Place]:
    """Readings of these tables, which begin in this order."""
    with told_in(folder):
        found = [place(table) for table in tables]
    return [one for one in found if one is not None]


def test_what_all_parts_of_all_tables_skip_is_counted_by_kind(tmp_path: Path) -> None:
    orders, lines = begun(tmp_path, "orders", "lines")
    orders.tell("0-0", {"heartbeats": 2, "tombstones": 0})
    orders.tell("0-50", {"heartbeats": 1})
    lines.tell("0-0", {"tombstones": 4})
    lines.tell("0-50", {"tombstones": 0})
    assert skipped_in(tmp_path) == {"heartbeats": 3, "tombstones": 4}
    assert len(list(tmp_path.iterdir())) == 3, "a part that skips nothing writes nothing"
    assert place("orders") is None, "nothing is counted outside"


def test_a_part_that_is_read_again_does_not_count_twice(tmp_path: Path) -> None:
    (orders,) = begun(tmp_path, "orders")
    for _ in range(3):
        orders.tell("2-7", {"heartbeats": 2})
    (tmp_path / f"{orders.number}-2-7.killed.new").write_text("")
    assert skipped_in(tmp_path) == {"heartbeats": 2}


def test_of_a_table_that_is_read_anew_in_other_parts_the_newest_reading_counts(tmp_path: Path) -> None:
    first, lines, again = begun(tmp_path, "orders", "lines", "orders")
    first.tell("0-0", {"heartbeats": 1})
    first.tell("0-60", {"heartbeats": 2})
    lines.tell("0-0", {"tombstones": 1})
    again.tell("0-0", {"heartbeats": 3})
    assert skipped_in(tmp_path) == {"heartbeats": 3, "tombstones": 1}


def test_a_count_that_cannot_be_written_fails_its_task_as_rows_would(tmp_path: Path) -> None:
    (orders,) = begun(tmp_path / "gone", "orders")
    with pytest.raises(Transient, match="staging file"):
        orders.tell("0-0", {"heartbeats": 1})
    orders.tell("0-0", {})
