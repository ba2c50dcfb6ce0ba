"""Causes of failures: what the errors of other systems carry as values, never their texts."""

import errno
from urllib.error import HTTPError, URLError

import psycopg
import pytest
from adbc_driver_manager import AdbcStatusCode, OperationalError
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import BadData, LogFirst, Transient
from backfill_cli.kafka.edge import asking
from backfill_cli.model.failures import MOST, OTHERS, cause_of, counted


def of(*causes: BaseException) -> Transient:
    """A transient failure with these along its causes."""
    error: BaseException = Transient("the database does not answer: 57P01 ECONNRESET")
    first = error
    for one in causes:
        error.__cause__ = one
        error = one
    assert isinstance(first, Transient)
    return first


class Broker:
    servers, at, rights = "Kafka broker:9092", "upstream", "read it"

    def scrubbed(self, text: str) -> str:
        return text


def of_adbc(state: str) -> OperationalError:
    return OperationalError("lost", status_code=AdbcStatusCode.IO, sqlstate=state)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (of(psycopg.errors.AdminShutdown("bye")), "57P01"),
        (of(psycopg.OperationalError("connection refused")), "OperationalError"),
        (of(of_adbc("53300")), "53300"),
        (of(of_adbc("\0" * 5)), "OperationalError"),
        (of(BadData("ours between"), OSError(errno.ENOSPC, "full")), "ENOSPC"),
        (of(RuntimeError("wrapped"), ConnectionRefusedError(errno.ECONNREFUSED, "no")), "ECONNREFUSED"),
        (of(OSError("a damaged file has no number")), "OSError"),
        (of(URLError(TimeoutError(errno.ETIMEDOUT, "late"))), "ETIMEDOUT"),
        (of(HTTPError("http://registry", 503, "busy", {}, None)), "HTTPError"),  # type: ignore[arg-type]
        (of(RuntimeError("a client's"), ValueError("another's")), "RuntimeError"),
        (of(), "Transient"),
        (LogFirst("columns changed"), "LogFirst"),
        (Transient("in a worker", code="40001"), "40001"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_cause_is_the_code_of_the_system_that_failed_or_a_class(error: Transient, cause: str) -> None:
    assert cause_of(error) == cause


def test_an_error_of_kafka_is_counted_by_its_name() -> None:
    with pytest.raises(Transient) as told, asking(Broker(), "reading"):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    assert cause_of(told.value) == "_TRANSPORT"


@given(st.lists(st.integers(0, 2 * MOST).map(str)))
def test_no_failure_is_lost_and_the_causes_are_bounded(causes: list[str]) -> None:
    by: dict[str, int] = {}
    for one in causes:
        by = counted(by, one)
    assert sum(by.values()) == len(causes)
    assert set(list(dict.fromkeys(causes))[:MOST]) == set(by) - {OTHERS}
    assert len(by) <= MOST + 1


def test_an_error_that_causes_itself_has_a_cause() -> None:
    error = of()
    error.__cause__ = error
    assert cause_of(error) == "Transient"
