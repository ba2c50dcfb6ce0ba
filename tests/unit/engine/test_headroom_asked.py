"""What an upstream is asked beside the loop, and what a plan says of its answer."""

import threading
from typing import Any

import pytest

from backfill_cli.engine.job.headroom import answer, too_short
from backfill_cli.engine.loop import headroom
from backfill_cli.errors import Transient
from backfill_cli.model.headroom import Headroom, Kept, Unread
from backfill_cli.model.position import START

UNREAD = Unread(START, True, 0)
HOUR = Headroom.of_age(
    UNREAD, None, 3_600_000, "retention.ms (1 h)", "topic 't'", "raise retention.ms of topic 't'"
)


def test_an_upstream_that_does_not_answer_is_not_known_and_ends_nothing() -> None:
    def silent(_unread: Unread) -> Headroom:
        raise Transient("no answer", "look at the network")

    found = answer(silent, UNREAD)
    assert found is not None
    assert (found.kept, found.by, str(found.hint)) == (Kept.UNKNOWN, "no answer", "look at the network")


def test_it_is_asked_in_a_thread_of_its_own_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headroom, "FIRST_S", 0.001)
    told, heard = list[Headroom | None](), threading.Event()

    def tell(found: Headroom | None) -> None:
        told.append(found)
        heard.set()

    def ask(_unread: Unread) -> Headroom:
        assert threading.current_thread() is not threading.main_thread()
        return HOUR

    with headroom.asked(ask, lambda: UNREAD, tell):
        assert heard.wait(10)
    assert told == [HOUR]
    assert not any(thread.name == "headroom" for thread in threading.enumerate())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_asking_leaves_no_answer_that_looks_like_the_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headroom, "FIRST_S", 0.001)
    monkeypatch.setattr(headroom, "EVERY_S", 0.001)
    told, answers, over = list[Headroom | None](), [HOUR], threading.Event()

    def tell(found: Headroom | None) -> None:
        told.append(found)
        if found is not HOUR:
            over.set()

    def ask(_unread: Unread) -> Headroom:
        return answers.pop()

    with headroom.asked(ask, lambda: UNREAD, tell):
        assert over.wait(10)
    assert [one and one.kept for one in told] == [Kept.UNTIL, Kept.UNKNOWN]


def test_a_run_that_ends_at_once_asks_nothing() -> None:
    def ask(_unread: Unread) -> Headroom:
        raise AssertionError

    with headroom.asked(ask, lambda: UNREAD, lambda _found: None):
        pass
    with headroom.asked(None, lambda: UNREAD, lambda _found: None):
        pass


@pytest.mark.parametrize(
    ("changes", "warns"),
    [
        ({}, True),
        ({"snapshot_s": (60.0, 3600.0)}, True),
        ({"snapshot_s": (60.0, 3599.0)}, False),
        ({"snapshot_s": None}, False),
        ({"strategy": "chain"}, False),
        ({"strategy": "arrangement"}, False),
        ({"strategy": "source"}, True),
        ({"told": None}, False),
        ({"told": Headroom.unbounded("no limit")}, False),
        ({"told": Headroom.unknown("not told")}, False),
    ],
)
def test_a_plan_warns_where_something_may_be_gone_before_the_snapshot_is_read(
    changes: dict[str, Any], warns: bool
) -> None:
    given = {"told": HOUR, "strategy": "snapshot", "snapshot_s": (60.0, 7200.0), "now_ms": 0, **changes}
    said = too_short(**given)
    assert (said is not None) is warns
    if said is not None:
        assert said.startswith(
            "topic 't' may be gone after 1 h, by retention.ms (1 h), before the snapshot is read"
        )
        assert said.endswith("raise retention.ms of topic 't'")
