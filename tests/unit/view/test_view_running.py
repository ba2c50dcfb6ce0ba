"""What a run shows of itself on a terminal: from its first word on, however late that comes."""

import threading
import time

import pytest
from view_builders import row

from backfill_cli.model.checkpoint import Totals
from backfill_cli.model.limit import Limit
from backfill_cli.view import running
from backfill_cli.view.journal import NOTHING, Journal, News
from backfill_cli.view.model import JobView, job_view


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "REFRESH_S", 0.01)


def drawn(begins_after_s: float | None) -> int:
    """How often a run was drawn that said its first word so late; None: never, as it was refused."""
    looks = 0
    enough = threading.Event()

    def look() -> list[JobView]:
        nonlocal looks
        looks += 1
        if looks > 3:
            enough.set()
        return [job_view(row())]

    def news(_after: int) -> News:
        return News(job_view(row()), Totals(), (), 1, caught_up=False, told=True)

    viewer = running.Viewer("orders", news, Journal(NOTHING, 10, time.monotonic), lambda _entry: None, look)
    with viewer.shown():
        if begins_after_s is not None:
            time.sleep(begins_after_s)
            viewer.progressed()
            assert enough.wait(60), "it stood still"
    return looks


def test_a_run_that_says_its_first_word_late_is_drawn_and_never_stands_still() -> None:
    assert drawn(0.1) > 3


def test_a_run_that_was_refused_is_not_drawn() -> None:
    assert drawn(None) == 0


def test_what_a_start_waits_for_is_told_with_its_seconds() -> None:
    now_s = 100.0
    timed = running._Timed(lambda: now_s)
    assert timed(Limit("starting Spark")).text == "starting Spark"
    now_s = 103.2
    assert timed(Limit("starting Spark")).text == "starting Spark, 3 s"
    assert timed(Limit("the sink is held")).text == "the sink is held"
