"""What `verify` says while it runs, off a terminal."""

import pytest

from backfill_cli.model.verify import VerifyProgress
from backfill_cli.view.verify import progress_text, shown


def test_a_line_says_what_is_done_how_far_it_is_and_until_when() -> None:
    assert progress_text(VerifyProgress("orders", "starting Spark")) == "orders: starting Spark"
    at = VerifyProgress("orders", "comparing table t", 0.424, 61.0)
    assert progress_text(at) == "orders: 42%, at least 1 m 01 s left: comparing table t"
    alone = VerifyProgress("orders", "comparing table t: it differs", 0.2, alone=True)
    assert progress_text(alone) == "orders: 20% of this step: comparing table t: it differs"


def test_off_a_terminal_a_line_comes_when_something_else_begins_and_every_10_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moments = ((0.0, "a"), (0.5, "a"), (9.9, "a"), (10.0, "a"), (10.5, "b"), (11.0, "b"))
    clock = {"s": 0.0}
    with shown(lambda: clock["s"]) as tell:
        for clock["s"], doing in moments:
            tell(VerifyProgress("j", doing))
    told = capsys.readouterr()
    assert told.err.splitlines() == ["j: a", "j: a, 10 s", "j: b"]
    assert told.out == ""


def test_names_from_outside_reach_no_terminal_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with shown() as tell:
        tell(VerifyProgress("j", "comparing table \x1b[2J"))
    assert "\x1b" not in capsys.readouterr().err


def test_what_waits_for_it_is_said_once_before_anything_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    with shown() as tell:
        tell(VerifyProgress("j", "reading", holds="no runner can write to w.duckdb"))
        tell(VerifyProgress("j", "comparing table t", holds="no runner can write to w.duckdb"))
    first, *more = capsys.readouterr().err.splitlines()
    assert first == "j: until this verify has ended (Ctrl-C ends it): no runner can write to w.duckdb"
    assert more == ["j: reading", "j: comparing table t"]
