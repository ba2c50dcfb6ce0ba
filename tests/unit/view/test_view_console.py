"""On a terminal long lines are wrapped at words, below where they began; a pipe gets them whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import START_OVER, BackfillError, Hint, command, joined, shell, sql
from backfill_cli.model.reports import ok, warning
from backfill_cli.view import console
from backfill_cli.view.console import laid_out
from backfill_cli.view.reports import check_text

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
    fix = command("resume orders --catalog /srv/orders/.backfill/catalog.duckdb")
    assert check_text(warning("jobs", "its runner is gone", fix)).endswith(f"\n        Try: {fix}")


def test_a_pipe_gets_a_line_whole() -> None:
    assert check_text(ok("permissions", SAID)) == f"permissions     {SAID}"


THERE = "--catalog /srv/orders/.backfill/catalog.duckdb"
LONG = (
    command(f"resume orders --detach {THERE}", f"wait orders --for caught-up {THERE}") + "; then stop it, and fix"
)


def complained(
    hint: Hint, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setattr(console, "interactive", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    console.complain(BackfillError("it failed", hint))
    return capsys.readouterr().err


def test_on_a_narrow_terminal_each_command_of_a_hint_is_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = complained(LONG, 80, monkeypatch, capsys)
    assert said.splitlines() == [
        "error: it failed",
        "Try: ",
        "backfill resume orders --detach --catalog /srv/orders/.backfill/catalog.duckdb",
        "backfill wait orders --for caught-up --catalog /srv/orders/.backfill/catalog.duckdb",
        "then stop it, and fix",
    ]
    assert complained(LONG, 200, monkeypatch, capsys) == f"error: it failed\nTry: {LONG}\n"
    monkeypatch.undo()
    console.complain(BackfillError("it failed", LONG))
    assert capsys.readouterr().err == f"error: it failed\nTry: {LONG}\n"


def test_the_words_of_a_long_hint_are_wrapped_and_its_statements_are_whole() -> None:
    key = "ALTER TABLE public.orders REPLICA IDENTITY FULL"
    why = "it needs more than the key of the old row, which is all that is sent now: "
    hint = why + sql(key, key) + ", or use the key"
    assert laid_out(hint, 60) == [
        "it needs more than the key of the old row, which is all that",
        "is sent now:",
        key,
        key,
        "or use the key",
    ]


def test_a_setting_and_a_query_in_parentheses_are_not_broken() -> None:
    setting = 'set upstream.changes.tables = ["public.orders", "public.items"]'
    query = "(SELECT slot_name FROM pg_replication_slots)"
    assert laid_out(f"{setting}; " + command("plan"), 20) == [setting, "backfill plan"]
    assert ")" in laid_out(Hint.of(f"drop a slot that nobody reads {query}, or raise a limit"), 60)[1]
    assert not [line for line in laid_out(Hint.of(f"drop a slot {query}"), 50) if line.startswith("SELECT")]
    assert laid_out(Hint.of("much too narrow"), 0) == ["much", "too", "narrow"]


PARTS = (command("resume a"), "check it", shell("pip install 'b[c]'"), sql("SELECT 1"), START_OVER)


@given(st.lists(st.sampled_from(PARTS), min_size=1))
def test_nothing_of_a_hint_is_lost_in_its_layout(parts: list[Hint | str]) -> None:
    told = joined(parts)
    assert " ".join(laid_out(told, 5)).replace(";", "").split() == str(told).replace(";", "").split()
