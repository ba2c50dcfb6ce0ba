"""A runner's signals: what the first one does, what the second. And what a run does while it has to wait."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from backfill_cli.engine.runner import Signals
from backfill_cli.engine.world import Nobody, World
from backfill_cli.errors import Transient


class Loop:
    """Notes that it was asked to stop."""

    asked = 0

    def ask_stop(self) -> None:
        self.asked += 1


class Watcher(Nobody):
    left = 0

    def leave(self) -> None:
        self.left += 1


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes that the process would have ended with at once."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_the_loop_and_the_second_ends_the_process(ends: list[int], number: int) -> None:
    loop: Any = Loop()
    watcher = Watcher()
    signals = Signals(watcher)
    with signals.heard():
        signals.ask(loop)
        signal.raise_signal(number)
        assert (loop.asked, signals.caught, ends) == (1, number, [])
        signal.raise_signal(number)
        assert (watcher.left, ends) == (1, [128 + number])


def test_a_signal_before_there_is_a_loop_unwinds(ends: list[int]) -> None:
    signals = Signals(Nobody())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, signals.heard():
        signal.raise_signal(signal.SIGTERM)
    assert (ended.value.code, ends) == (143, [])
    assert signal.getsignal(signal.SIGTERM) == before


class Retry:
    limit_s = 30.0


class Config:
    retry = Retry()


def flaky(times: int) -> Callable[[], str]:
    left = [Transient("a.duckdb is held by python (PID 7)", "close it")] * times

    def act() -> str:
        if left:
            raise left.pop()
        return "done"

    return act


def test_what_fails_in_passing_is_tried_again_and_what_is_waited_for_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _s: None)
    told: list[str] = []
    config: Any = Config()
    assert World(config, told.append).patiently(flaky(2)) == "done"
    assert told == ["waiting: a.duckdb is held by python (PID 7); to go on: close it"] * 2


def test_a_failure_that_outlasts_the_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retry, "limit_s", 0.0)
    config: Any = Config()
    with pytest.raises(Transient, match="is held"):
        World(config, lambda _doing: None).patiently(flaky(1))
