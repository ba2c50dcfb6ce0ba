"""Each kind of error that a server or its absence gives, by its state or its words."""

import pytest

from backfill_cli.errors import Fatal, Transient, UsageError
from backfill_cli.postgres_says import Said, said
from backfill_cli.spark.failures import from_spark, raising_in_worker

LET_NOBODY_IN = [
    'connection failed: FATAL:  database "nodb" does not exist',
    'connection failed: FATAL:  password authentication failed for user "app"',
    'connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.1"',
]


@pytest.mark.parametrize("words", LET_NOBODY_IN)
def test_who_is_not_let_in_is_told_without_a_state(words: str) -> None:
    assert said("", words) is Said.NO_WAY_IN


@pytest.mark.parametrize(
    ("state", "words", "about"),
    [
        ("", "connection refused", Said.UNREACHED),
        ("", "server closed the connection; column x does not exist", Said.UNREACHED),
        ("42501", "permission denied for table t", Said.FORBIDDEN),
        ("3D000", "database x", Said.NO_WAY_IN),
        ("28P01", "password", Said.NO_WAY_IN),
        ("40001", "could not serialize", Said.PASSES),
        ("55006", "slot is active", Said.PASSES),
        ("57P01", "terminating connection", Said.PASSES),
        ("25P03", "terminating connection due to idle-in-transaction timeout", Said.PASSES),
        ("25P04", "terminating connection due to transaction timeout", Said.PASSES),
        ("22012", "division by zero", Said.OTHER),
    ],
)
def test_a_state_says_what_an_error_is_about(state: str, words: str, about: Said) -> None:
    assert said(state, words) is about


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("NOT_IMPLEMENTED: [libpq] Field #2 has unsupported type", Said.OTHER),
        ("IO: [libpq] Failed to connect: connection refused", Said.UNREACHED),
        ("IO: server closed the connection unexpectedly", Said.UNREACHED),
        ("could not receive data from server: Connection timed out", Said.UNREACHED),
        ("PQconnectdb failed: timeout expired", Said.UNREACHED),
        ("FATAL:  password authentication failed for user", Said.NO_WAY_IN),
    ],
)
def test_an_error_of_the_client_alone_is_no_server_that_is_away(words: str, about: Said) -> None:
    assert said("", words, otherwise=Said.OTHER) is about


@pytest.mark.parametrize("kind", [UsageError, Transient, Fatal])
def test_what_a_worker_raises_is_of_its_kind_here(kind: type[Fatal]) -> None:
    with pytest.raises(RuntimeError) as raised, raising_in_worker():
        raise kind("no right to read", "GRANT it")
    found = from_spark(raised.value)
    assert (type(found), found and found.message, found and str(found.hint)) == (
        kind,
        "no right to read",
        "GRANT it",
    )
