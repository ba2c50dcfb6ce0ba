"""On a terminal long lines are wrapped at words, below where they began; a pipe gets them whole."""

import pytest

from backfill_cli.model.checkup import ok, warning
from backfill_cli.view import console
from backfill_cli.view.checkup import check_text

SAID = "/srv/orders/.backfill/catalog.duckdb is accessible only to its owner, and to nobody else"


@pytest.mark.parametrize("columns", [40, 80])
def test_a_check_is_wrapped_at_words_below_what_it_says(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(console, "interactive", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    first, *rest = check_text(ok("permissions", SAID)).splitlines()
    assert rest
    assert all(line.startswith(" " * 24) for line in rest)
    assert " ".join(" ".join([first.removeprefix("permissions"), *rest]).split()) == SAID


def test_the_command_of_a_fix_is_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "interactive", lambda _: True)
    monkeypatch.setenv("COLUMNS", "40")
    fix = "backfill resume orders --catalog /srv/orders/.backfill/catalog.duckdb"
    assert check_text(warning("jobs", "its runner is gone", fix)).endswith(f"\n        Try: {fix}")


def test_a_pipe_gets_a_line_whole() -> None:
    assert check_text(ok("permissions", SAID)) == f"permissions     {SAID}"
