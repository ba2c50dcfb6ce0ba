"""What went wrong and what to type next travel as one line, and are always split where they were joined."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import RESTORE, BackfillError, Transient, parted, with_way_on

TO = st.sampled_from(["continue", "change", "follow", "end it"])
TEXT = st.lists(
    st.sampled_from(["; ", ";", "\\", " ", "to continue: ", "to change: ", "to end it: ", "to ", "a", ": "]),
    max_size=9,
).map("".join)


@given(TEXT, TEXT.filter(bool), TO)
def test_a_line_is_split_where_it_was_joined(said: str, way_on: str, to: str) -> None:
    assert parted(with_way_on(said, way_on, to)) == (said, f"to {to}", way_on)


@given(TEXT)
def test_a_line_without_a_way_on_is_not_split(said: str) -> None:
    assert parted(with_way_on(said)) == (said, "", "")


def test_a_line_reads_as_a_sentence() -> None:
    assert with_way_on("a.json is gone", "put it back") == "a.json is gone; to continue: put it back"
    assert parted("read a; to b.json; to change: x") == ("read a; to b.json", "to change", "x")


@pytest.mark.parametrize(
    ("hint", "ended", "failed"),
    [
        (
            "check the network; it is retried automatically",
            "check the network; then type the command again",
            "check the network; then: backfill resume orders",
        ),
        ("it is retried automatically", "type the command again", "backfill resume orders"),
        ("free disk space", "free disk space", "free disk space; then: backfill resume orders"),
    ],
)
def test_what_ends_a_command_or_a_job_is_not_said_to_be_retried(hint: str, ended: str, failed: str) -> None:
    assert Transient("m", hint).given_up().hint == ended
    assert Transient("m", hint).way_on("orders") == failed


def test_to_start_over_is_one_value_that_the_error_puts_into_words() -> None:
    """Names and paths from outside may have any words: only the value counts."""
    error = BackfillError("a.json is gone", RESTORE)
    assert (error.hint, error.starts_over) == ("restore it, or drop the job and start over", True)
    drop = "backfill drop orders --with-rows --confirm orders, and start over"
    assert error.naming("orders", True).hint == f"restore it, or {drop}" == error.way_on("orders")
    assert error.naming("orders", False).hint == f"restore it, or {drop.replace(' --with-rows', '')}"
    assert error.without_job().hint == "restore it, or start again"
    assert BackfillError("b", error.template).naming("orders", True).hint == f"restore it, or {drop}"
    named = BackfillError("m", "correct 'drop the job and start over.csv'")
    assert not named.starts_over
    assert named.naming("orders", True).way_on("orders") == f"{named.hint}; then: backfill resume orders"
