"""The table of commits and commands keeps to the terminal, and says what it left out."""

import json

import pytest
from view_builders import ledger, progress, row

from backfill_cli.view.model import job_view
from backfill_cli.view.reports import HISTORY, history_table, show_history

RECORDS = ledger([1000, 3000, 90_000])


def test_a_pipe_gets_every_column() -> None:
    assert all(name in history_table(RECORDS, 0).splitlines()[0] for name in HISTORY)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_table_keeps_to_the_width_and_names_what_is_left_out(width: int) -> None:
    *lines, last = history_table(RECORDS, 0, width).splitlines()
    left_out = [name for name in HISTORY if name not in lines[0]]
    assert max(map(len, lines)) <= width
    assert len(lines) == len(RECORDS) + bool(left_out)
    assert all(name in last for name in left_out)
    assert {"TIME", "PHASE", "ROWS", "CHANGES", "LAG", "COMMAND"}.isdisjoint(left_out)


def test_what_was_skipped_is_told_below_the_commits(capsys: pytest.CaptureFixture[str]) -> None:
    view = job_view(row(progress=progress(skipped={"heartbeats": 3, "tombstones": 1})))
    show_history(view, RECORDS, False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "skipped: 3 heartbeats, 1 tombstone after a delete, since the job began"
    show_history(view, RECORDS, True)
    assert json.loads(capsys.readouterr().out)["skipped"] == {"heartbeats": 3, "tombstones": 1}
