"""What to type next is a value: whatever the words from outside say, its commands stay what they are."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import (
    RESTORE,
    RETRIED,
    START_OVER,
    BackfillError,
    Command,
    Foreign,
    Hint,
    StartOver,
    Transient,
    command,
    in_config,
    retried,
    sql,
)
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.limit import Kind, Limit

WORDS = st.text(st.sampled_from("a; ,'\"\\{}:`\n\x1fé"), max_size=9)
COMMANDS = st.lists(WORDS, min_size=1, max_size=4).map(lambda words: Command(tuple(words)))
PARTS = st.one_of(
    WORDS,
    COMMANDS,
    WORDS.map(Foreign),
    st.builds(StartOver, st.none() | COMMANDS, st.booleans()),
)
HINTS = st.builds(Hint, st.lists(PARTS, max_size=5).map(tuple), st.booleans(), st.booleans())


@given(HINTS)
def test_a_hint_crosses_processes_as_it_is(hint: Hint) -> None:
    assert Hint.read(json.loads(json.dumps(asdict(hint)))) == hint == decode(Hint, encode(hint))


@given(st.builds(Limit, WORDS, st.sampled_from(Kind), HINTS, st.sampled_from(["continue", "change"])))
def test_a_limit_is_stored_as_it_is(limit: Limit) -> None:
    assert Limit.stored(*limit.columns) == limit == decode(Limit, encode(limit))


@given(HINTS, HINTS, WORDS)
def test_hints_are_joined_as_their_words_are(one: Hint, other: Hint, by: str) -> None:
    told = Hint(one.parts), Hint(other.parts)
    assert str(told[0] + by + told[1]) == f"{told[0]}{by}{told[1]}" == str(str(told[0]) + (by + told[1]))
    assert (one + other).config == (one.config or other.config)
    assert one.also(by, other) == (one + by + other if one.parts else one + other)


def test_a_limit_reads_as_a_sentence() -> None:
    limit = Limit("by cli", Kind.PAUSED, command("resume orders"))
    assert (limit.said, str(limit)) == ("paused by cli", "paused by cli; to continue: backfill resume orders")
    assert str(Limit("read a; to b.json; to continue: x")) == "read a; to b.json; to continue: x"
    assert (
        str(Limit("the sink", Kind.WAITING, Hint.of("close it"), "go on"))
        == "waiting: the sink; to go on: close it"
    )


def test_words_of_a_command_are_quoted_for_a_shell() -> None:
    assert str(command("drop a --sink 'my job.toml'", "status a")) == (
        "backfill drop a --sink 'my job.toml'; backfill status a"
    )
    assert [one.words for one in command("drop a --sink 'my job.toml'").commands] == [
        ("drop", "a", "--sink", "my job.toml")
    ]


@pytest.mark.parametrize(
    ("hint", "ended", "failed"),
    [
        (
            retried("check the network"),
            "check the network; then type the command again",
            "check the network; then: backfill resume orders",
        ),
        (RETRIED, "type the command again", "backfill resume orders"),
        ("free disk space", "free disk space", "free disk space; then: backfill resume orders"),
        (in_config("raise a.b"), "raise a.b", "raise a.b; then: backfill start --config FILE"),
        (sql("GRANT a"), "GRANT a", "GRANT a; then: backfill resume orders"),
        (command("stop b"), "backfill stop b", "backfill stop b"),
    ],
)
def test_what_ends_a_command_or_a_job_is_not_said_to_be_retried(hint: Hint | str, ended: str, failed: str) -> None:
    assert str(Transient("m", hint).given_up().hint) == ended
    assert str(Transient("m", hint).way_on("orders")) == failed


def test_what_is_only_retried_is_said_after_what_else_may_be_done() -> None:
    error = Transient("m", RETRIED.also("; ", "if the sink is gone: " + command("drop b")))
    assert str(error.hint) == "if the sink is gone: backfill drop b; it is retried automatically"
    assert str(error.given_up().hint) == "if the sink is gone: backfill drop b; then type the command again"


def test_to_start_over_is_one_value_that_the_error_puts_into_words() -> None:
    """Names and paths from outside may have any words: only the value counts."""
    error = BackfillError("a.json is gone", RESTORE)
    assert (str(error.hint), error.hint.starts_over) == ("restore it, or drop the job and start over", True)
    drop = "backfill drop orders --with-rows --confirm orders, and start over"
    assert str(error.naming("orders", True).hint) == f"restore it, or {drop}" == str(error.way_on("orders"))
    assert str(error.naming("orders", False).hint) == f"restore it, or {drop.replace(' --with-rows', '')}"
    assert str(error.without_job().hint) == "restore it, or start again"
    assert str(BackfillError("b", error.hint).naming("orders", True).hint) == f"restore it, or {drop}"
    named = BackfillError("m", "correct 'drop the job and start over.csv'")
    assert not named.hint.starts_over
    assert str(named.naming("orders", True).way_on("orders")) == f"{named.hint}; then: backfill resume orders"
    assert str(START_OVER) == "drop the job and start over"
