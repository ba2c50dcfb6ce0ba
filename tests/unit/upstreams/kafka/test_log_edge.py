"""What the Kafka client says becomes an error that tries again only where that can help."""

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from backfill_cli.errors import Fatal, Transient
from backfill_cli.kafka.edge import Complaints, ours


@dataclass
class Servers:
    servers: str = "broker:9093"
    at: str = "upstream"

    def scrubbed(self, text: str) -> str:
        return text


UNTRUSTED = "sasl_ssl://broker:9093/bootstrap: error:0A000086:SSL routines::certificate verify failed (after 11ms)"


@pytest.mark.parametrize("code", [KafkaError._SSL, KafkaError._TRANSPORT])
def test_a_certificate_that_is_not_trusted_is_fatal_whichever_side_hung_up_first(code: int) -> None:
    complaints = Complaints()
    complaints(KafkaError(code, UNTRUSTED))
    error = ours(KafkaError(KafkaError._TRANSPORT, "broker transport failure"), Servers(), "listing", complaints)
    assert isinstance(error, Fatal)
    assert "no TLS connection" in error.message


def test_a_lost_connection_is_tried_again() -> None:
    complaints = Complaints()
    complaints(KafkaError(KafkaError._TRANSPORT, "sasl_ssl://broker:9093/bootstrap: Disconnected (after 11ms)"))
    error = ours(KafkaError(KafkaError._TRANSPORT, "broker transport failure"), Servers(), "listing", complaints)
    assert isinstance(error, Transient)


def test_what_was_wrong_before_an_answer_is_not_why_a_later_call_fails() -> None:
    complaints = Complaints()
    complaints(KafkaError(KafkaError._SSL, UNTRUSTED))
    complaints.forget()
    error = ours(KafkaError(KafkaError._TIMED_OUT, "timed out"), Servers(), "listing", complaints)
    assert isinstance(error, Transient)
