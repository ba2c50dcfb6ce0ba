"""What a run says last: its own numbers, and the job's where they are others."""

from contextlib import closing
from pathlib import Path

import pytest

from backfill_cli.api.running import Telling, Voice
from backfill_cli.config.sections import Hooks
from backfill_cli.model.checkpoint import Totals
from backfill_cli.view import console
from backfill_cli.view.journal import Entry, Weight
from backfill_cli.view.running import RunView, Tally, closing_lines

SIDE = "_backfill_quarantine_orders"
BEFORE = Tally.of(Totals(9, 1_000, 10, 1_010, 8), {SIDE: 5})
AFTER = Tally.of(Totals(13, 6_000, 60, 6_060, 11), {SIDE: 7})


def test_a_first_run_says_each_number_once() -> None:
    assert closing_lines(RunView(AFTER, AFTER, 12.0)) == [
        "rows:     6,000 read from the snapshot, 6,060 written",
        "changes:  60 read",
        "rejected: 7 rows in _backfill_quarantine_orders",
        "time:     12 s, 11 commits",
        "rate:     505 rows and changes/s read, since the command was given",
    ]


def test_a_later_run_says_its_own_numbers_and_those_of_all() -> None:
    told = closing_lines(RunView(AFTER.since(BEFORE), AFTER, 10.0))
    all_runs = "(this run; all runs:"
    assert told == [
        f"rows:     5,000 read from the snapshot, 5,050 written {all_runs} 6,000 read from the snapshot, "
        "6,060 written)",
        f"changes:  50 read {all_runs} 60 read)",
        "rejected: 2 rows in _backfill_quarantine_orders (this run; all runs: 7 rows in "
        "_backfill_quarantine_orders)",
        f"time:     10 s, 3 commits {all_runs} 11 commits)",
        "rate:     505 rows and changes/s read, since the command was given",
    ]


def test_on_a_narrow_terminal_no_number_or_name_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    monkeypatch.setattr(console, "interactive", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", "40")
    lines = closing_lines(RunView(AFTER.since(BEFORE), AFTER, 10.0))
    voice = Voice("orders", tmp_path / "catalog.duckdb", Telling(say=said.append, drawn=lambda: ()), Hooks())
    with closing(voice):
        voice.tell(Entry("\n".join(lines), Weight.END))
    assert max(map(len, said[0].splitlines())) <= 40
    assert said[0].split() == " ".join(lines).split()


def test_a_run_without_anything_to_read_has_no_rate() -> None:
    told = closing_lines(RunView(BEFORE.since(BEFORE), BEFORE, 3.0))
    assert told[-1] == "rate:     N/A: nothing was read"
    assert told[2].startswith("rejected: none (this run; ")


def test_a_slow_run_has_a_rate_above_zero() -> None:
    told = closing_lines(RunView(Tally.of(Totals(2, 4, 0, 4, 1), {}), AFTER, 14.0))
    assert told[-1].startswith("rate:     0.3 rows and changes/s read")


def test_rejected_rows_are_counted_apart() -> None:
    assert AFTER.since(BEFORE) == Tally(5_000, 5_050, 50, 3, {SIDE: 2})
