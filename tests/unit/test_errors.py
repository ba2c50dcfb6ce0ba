"""What went wrong and what to type next travel as one line, and are always split where they were joined."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import Transient, parted, with_way_on

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
