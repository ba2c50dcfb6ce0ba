"""Errors of a transaction: each code of a producer that another one has fenced is said to be that.

By fakes that answer as librdkafka's rdkafka_txnmgr.c does; contract/test_sink_kafka.py has a real broker.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from backfill_cli.errors import RETRIED, BackfillError, BadData, Fatal, Transient
from backfill_cli.kafka.connection import Connection
from backfill_cli.sinks.kafka.transaction import Transaction

FENCES = {
    "epoch": KafkaError.INVALID_PRODUCER_EPOCH,
    "fenced": KafkaError.PRODUCER_FENCED,
    "normalized": KafkaError._FENCED,
    "state of the transaction": KafkaError.INVALID_TXN_STATE,
    "id of another": KafkaError.INVALID_PRODUCER_ID_MAPPING,
    "unknown id": KafkaError.UNKNOWN_PRODUCER_ID,
    "still ending": KafkaError.CONCURRENT_TRANSACTIONS,
    "no transaction": KafkaError._STATE,
}
ACTS: dict[str, Callable[[Transaction], None]] = {
    "begin": lambda one: one.begin(),
    "produce": lambda one: one.send("orders", [b"{}"], [b"1"]),
    "produce in order": lambda one: one.send_in_order("state", [(b"job", b"{}")]),
    "commit": lambda one: one.commit(),
}


class Failed:
    """A producer after an error: sending says only that there was one, the rest says which. full: at first."""

    def __init__(self, code: int, fatal: bool, full: bool = False) -> None:
        self.error = KafkaError(code, fatal=fatal, txn_requires_abort=not fatal)
        self.of_sending = KafkaError(KafkaError._FATAL if fatal else KafkaError._STATE)
        self.full = full

    def begin_transaction(self) -> None:
        raise KafkaException(self.error)

    def commit_transaction(self, _timeout_s: float) -> None:
        raise KafkaException(self.error)

    def produce(self, *_: Any, **__: Any) -> None:
        if self.full:
            self.full = False
            raise BufferError
        raise KafkaException(self.of_sending)

    def poll(self, _timeout_s: float) -> int:
        return 0


def raised(act: str, code: int, fatal: bool, full: bool = False) -> BackfillError:
    reached: Any = SimpleNamespace(at="sink", bootstrap_servers="broker:9092", isolation="", options={})
    one = Transaction(Connection(reached), "_backfill_job_orders", 60.0)
    one._producer = Failed(code, fatal, full)
    with pytest.raises(BackfillError) as refused:
        ACTS[act](one)
    return refused.value


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("fatal", "full"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("code", FENCES.values(), ids=FENCES)
def test_every_code_of_a_fence_is_one_in_every_state(act: str, fatal: bool, full: bool, code: int) -> None:
    error = raised(act, code, fatal, full)
    assert isinstance(error, Transient)
    assert "another process has opened a transaction '_backfill_job_orders'" in str(error)
    assert error.hint == RETRIED


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("fatal", [True, False])
def test_another_error_is_no_fence_whatever_finds_it(act: str, fatal: bool) -> None:
    denied = raised(act, KafkaError.TOPIC_AUTHORIZATION_FAILED, fatal)
    assert isinstance(denied, Fatal)
    assert "another process" not in str(denied)
    large = raised(act, KafkaError.MSG_SIZE_TOO_LARGE, fatal)
    assert isinstance(large, BadData)
    assert "the record with the key" not in str(large), "which one of those that were sent is not known"
