"""A session is opened once, beside what goes on; whoever needs it waits, until it is open or nobody wants it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from backfill_cli.errors import Transient, UsageError
from backfill_cli.spark import opening
from backfill_cli.spark.opening import STARTING, Opening

PATIENCE_S = 20.0


@dataclass(eq=False)
class Session:
    stopped: int = 0

    def stop(self) -> None:
        self.stopped += 1


class Slow:
    """Opens a session once it may."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.may = threading.Event()
        self.session: Any = Session()
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        assert self.may.wait(PATIENCE_S)
        if self.failures:
            raise self.failures.pop(0)
        return self.session


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sessions that were made active in a thread; none exists before."""
    made: list[Any] = []
    monkeypatch.setattr(opening, "_is_there", lambda: False)
    monkeypatch.setattr(opening, "_make_active", made.append)
    return made


def in_thread(act: Callable[[], Any]) -> Callable[[], list[Any]]:
    """What it returned or raised, once it has ended."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(act())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ended() -> list[Any]:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        return found

    return ended


def test_it_is_opened_once_for_all_who_need_it_and_active_in_each_of_their_threads(active: list[Any]) -> None:
    slow = Slow()
    held, told = Opening(slow), []
    waiting = [in_thread(lambda: held.get(told.append)) for _ in range(3)]
    slow.may.set()
    assert [one() for one in waiting] == [[slow.session]] * 3
    assert held.get(told.append) is held.get(told.append) is slow.session
    assert (slow.calls, len(active)) == (1, 4)
    assert set(told) <= {STARTING}


def test_nothing_is_opened_for_a_command_that_needs_none() -> None:
    slow = Slow()
    Opening(slow).close()
    assert slow.calls == 0


def test_it_is_opened_beside_what_goes_on_which_is_told_once_it_is_open() -> None:
    slow, open_now = Slow(), threading.Event()
    held = Opening(slow)
    held.then = open_now.set
    assert [held.awaited(), held.awaited(), open_now.is_set()] == [STARTING, STARTING, False]
    slow.may.set()
    assert open_now.wait(PATIENCE_S)
    assert held.awaited() is None


def test_a_failure_is_raised_to_whoever_needs_it_and_one_that_may_pass_is_tried_again() -> None:
    slow = Slow(Transient("the cluster does not answer"), UsageError("no Java"))
    slow.may.set()
    held = Opening(slow)
    with pytest.raises(Transient, match="does not answer"):
        held.get(lambda _: None)
    for ask in (lambda: held.get(lambda _: None), held.awaited):
        with pytest.raises(UsageError, match="no Java"):
            ask()
    assert slow.calls == 2


def test_of_several_who_wait_one_hears_of_a_failure_that_may_pass_and_the_others_wait_on() -> None:
    slow = Slow(Transient("the cluster does not answer"))
    held = Opening(slow)
    waiting = [in_thread(lambda: held.get(lambda _: None)) for _ in range(4)]
    slow.may.set()
    found = [one()[0] for one in waiting]
    assert sum(isinstance(one, Transient) for one in found) >= 1
    assert all(isinstance(one, Transient) or one is slow.session for one in found)
    assert held.get(lambda _: None) is slow.session


def test_nobody_waits_for_what_was_given_up_and_what_opens_then_is_stopped() -> None:
    slow = Slow()
    held, over = Opening(slow), threading.Event()
    held.then = over.set
    waiting = in_thread(lambda: held.get(lambda _: None))
    while slow.calls == 0:
        pass
    held.give_up(130)
    (error,) = waiting()
    assert (type(error), error.code) == (SystemExit, 130)
    with pytest.raises(SystemExit):
        held.awaited()
    slow.may.set()
    assert over.wait(PATIENCE_S)
    assert slow.session.stopped == 1


def test_an_open_one_is_not_given_up_but_stopped_once_at_the_end() -> None:
    slow = Slow()
    slow.may.set()
    held = Opening(slow)
    held.get(lambda _: None)
    held.give_up(130)
    assert held.get(lambda _: None) is slow.session
    held.close()
    held.close()
    assert slow.session.stopped == 1


def test_one_that_was_there_before_is_used_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_is_there", lambda: True)
    slow = Slow()
    slow.may.set()
    held = Opening(slow)
    assert held.awaited() is None
    assert held.get(lambda _: pytest.fail("nobody waits")) is slow.session
    held.close()
    assert slow.session.stopped == 0


def test_the_next_one_is_opened_once_one_that_nobody_waits_for_was_stopped() -> None:
    """As when a cell of a notebook is interrupted and run again: one process has one session."""
    first, second = Slow(), Slow()
    given_up, held = Opening(first), Opening(second)
    given_up.begin()
    while first.calls == 0:
        pass
    given_up.close()
    second.may.set()
    waiting = in_thread(lambda: held.get(lambda _: None))
    time.sleep(0.3)
    assert second.calls == 0
    first.may.set()
    assert waiting() == [second.session]
    assert (first.session.stopped, second.session.stopped) == (1, 0)
    held.close()
