"""Each kind of error that a server or its absence gives, by its state or its words."""

import pytest

from backfill_cli.errors import Fatal, Transient, UsageError
from backfill_cli.postgres_errors import ErrorKind, classify
from backfill_cli.spark.failures import from_spark, raising_in_worker

LET_NOBODY_IN = [
    'connection failed: FATAL:  database "nodb" does not exist',
    'connection failed: FATAL:  password authentication failed for user "app"',
    'connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.1"',
]


@pytest.mark.parametrize("words", LET_NOBODY_IN)
def test_who_is_not_let_in_is_told_without_a_state(words: str) -> None:
    assert classify("", words) is ErrorKind.NO_WAY_IN


@pytest.mark.parametrize(
    ("state", "words", "about"),
    [
        ("", "connection refused", ErrorKind.UNREACHED),
        ("", "server closed the connection; column x does not exist", ErrorKind.UNREACHED),
        ("42501", "permission denied for table t", ErrorKind.FORBIDDEN),
        ("3D000", "database x", ErrorKind.NO_WAY_IN),
        ("28P01", "password", ErrorKind.NO_WAY_IN),
        ("40001", "could not serialize", ErrorKind.PASSES),
        ("55006", "slot is active", ErrorKind.PASSES),
        ("57P01", "terminating connection", ErrorKind.PASSES),
        ("25P03", "terminating connection due to idle-in-transaction timeout", ErrorKind.PASSES),
        ("25P04", "terminating connection due to transaction timeout", ErrorKind.PASSES),
        ("22012", "division by zero", ErrorKind.OTHER),
    ],
)
def test_a_state_says_what_an_error_is_about(state: str, words: str, about: ErrorKind) -> None:
    assert classify(state, words) is about


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("NOT_IMPLEMENTED: [libpq] Field #2 has unsupported type", ErrorKind.OTHER),
        ("IO: [libpq] Failed to connect: connection refused", ErrorKind.UNREACHED),
        ("IO: server closed the connection unexpectedly", ErrorKind.UNREACHED),
        ("could not receive data from server: Connection timed out", ErrorKind.UNREACHED),
        ("PQconnectdb failed: timeout expired", ErrorKind.UNREACHED),
        ("FATAL:  password authentication failed for user", ErrorKind.NO_WAY_IN),
    ],
)
def test_an_error_of_the_client_alone_is_no_server_that_is_away(words: str, about: ErrorKind) -> None:
    assert classify("", words, otherwise=ErrorKind.OTHER) is about


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
