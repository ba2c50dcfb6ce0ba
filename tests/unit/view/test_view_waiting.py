"""On a terminal, a command that takes long says what it is doing, and for how long; then the line is gone."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backfill_cli.catalog import Catalog
from backfill_cli.commands._running import run_detached
from backfill_cli.view import waiting as view
from backfill_cli.view.answers import Detached
from backfill_cli.view.waiting import each, waiting

CLEARED = "\r\x1b[K"


class Terminal:
    """What was written to it so far."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured, self._said = captured, ""

    @property
    def said(self) -> str:
        self._said += self._captured.readouterr().err
        return self._said

    def until_said(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(view, "interactive", lambda _stream: True)
    monkeypatch.setattr(view, "SILENT_S", 0.01)
    monkeypatch.setenv("COLUMNS", "30")
    return Terminal(capsys)


def test_the_line_says_what_is_done_and_is_gone_at_the_end(terminal: Terminal) -> None:
    with waiting("looking at the upstream") as tell:
        terminal.until_said("looking at the upstream")
        tell("starting Spark\x1b[31m")
        terminal.until_said("starting Spark[31m, 1 s")
        tell("x" * 100)
        terminal.until_said("x" * 29)
    assert terminal.said.endswith(CLEARED)
    assert "\n" not in terminal.said
    assert max(map(len, terminal.said.split(CLEARED))) == 29


def test_off_a_terminal_a_line_says_for_each_10_s_what_is_done(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "interactive", lambda _stream: False)
    with waiting("looking") as tell:
        tell("starting Spark")
        time.sleep(0.05)
    assert terminal.said == ""
    monkeypatch.setattr(view, "LINE_S", 1.05)
    with waiting("looking") as tell:
        tell("starting Spark")
        terminal.until_said("starting Spark, 1 s\n")
    assert CLEARED not in terminal.said, "it stays: a log says what took long"


def test_the_line_is_gone_before_each_of_what_is_waited_for(terminal: Terminal) -> None:
    for _ in each([1, 2], "checking"):
        assert terminal.said.endswith(CLEARED)


def test_a_start_in_the_background_says_what_is_waited_for_and_then_what_was_said(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def started(
        job: str, _catalog: object, _words: object, _within_s: object, told: Callable[[str], None]
    ) -> Detached:
        terminal.until_said("waiting until job o has start")
        told("a line of the runner")
        return Detached(job, 7, "o.log")

    monkeypatch.setattr("backfill_cli.commands._running.start_detached", started)
    run_detached("o", Catalog(tmp_path / "catalog.duckdb"), [], as_json=False)
    said = terminal.said.split(CLEARED)[-1].splitlines()
    assert said == ["a line of the runner", "job o: started in the background, pid 7, log o.log"]
