"""A transaction of the job's own producer. Who opens one ends all others of the job: it fences their producers.

So what a process reads of the job's state once it has opened one stays true, or its transaction cannot commit.
"""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from backfill_cli.errors import RETRIED, START_OVER, BackfillError, BadData, Fatal, Transient, in_config
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import Complaints, client, ours
from backfill_cli.model.units import spell_duration

Headers = Sequence[tuple[str, bytes]]

OPEN_S = 60.0
"""A broker that restarts is back within seconds; so is a coordinator that moves."""


def not_allowed(what: str, timeout_s: float) -> Fatal:
    return Fatal(
        f"{what}: the brokers allow less than {spell_duration(timeout_s)}",
        in_config("lower sink.transaction_timeout, or raise the brokers' transaction.max.timeout.ms"),
    )


def _fences(K: Any) -> set[int]:
    """The codes of a producer whose transaction another one has ended: see librdkafka's rdkafka_txnmgr.c.

    In all of its states: a broker answers with an older epoch, or the transaction that it is asked about is no
    longer this producer's (its state, its producer id).
    """
    return {
        K._FENCED,
        K.PRODUCER_FENCED,
        K.INVALID_PRODUCER_EPOCH,
        # of an id whose epochs are used up, the next producer has another one
        K.INVALID_PRODUCER_ID_MAPPING,
        K.UNKNOWN_PRODUCER_ID,
        # the other one has ended it, or begun its own
        K.INVALID_TXN_STATE,
        K.CONCURRENT_TRANSACTIONS,
        # no transaction is open, as it was lost with one of these
        K._STATE,
    }


class Transaction:
    """A producer of the job, opened: no other one can commit. Left without a commit, it is aborted.

    name: its transactional id. timeout_s: after which the broker aborts what was begun.
    """

    def __init__(self, connection: Connection, name: str, timeout_s: float) -> None:
        self._connection, self._name, self._timeout_s = connection, name, timeout_s
        self._complaints = Complaints()
        self._begun_s: float | None = None

    def __enter__(self) -> Self:
        kafka = client()
        try:
            self._producer = kafka.Producer(self._settings())
            self._producer.init_transactions(OPEN_S)
        except kafka.KafkaException as exc:
            raise self._failed(exc.args[0], "opening a transaction") from exc
        return self

    def _settings(self) -> dict[str, Any]:
        return {
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 128 * 1024,
            "compression.type": "lz4",
            **self._connection.settings("producer"),
            **self._complaints.settings(),
            "transactional.id": self._name,
            "transaction.timeout.ms": round(self._timeout_s * 1000),
            # no less than the time that the transaction has: only it decides when to give up
            "delivery.timeout.ms": round(self._timeout_s * 1000),
            "delivery.report.only.error": True,
            # as Java's clients: a key's partition is that of other producers of the topic
            "partitioner": "murmur2_random",
        }

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except client().KafkaException as exc:
            raise self._failed(exc.args[0], "beginning a transaction") from exc
        self._begun_s = time.monotonic()

    def send(
        self, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes], headers: Headers = ()
    ) -> None:
        """These records are on their way, in this order.

        A `partial` with the headers, or a partition that is given, would cost 0.8 µs a record, a quarter of all.
        """
        kafka, produce, told = client(), self._producer.produce, list(headers)
        for value, key in zip(values, keys, strict=True):
            try:
                produce(topic, value, key, headers=told)
            except (BufferError, kafka.KafkaException):
                self._send(topic, value, key, headers=told)
        self._calling(lambda: self._producer.poll(0))

    def send_in_order(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        """These (key, value) are on their way to the topic's first partition."""
        for key, value in records:
            self._send(topic, value, key, partition=0)

    def _send(self, topic: str, value: bytes | None, key: bytes, **told: Any) -> None:
        """The record is on its way, once there is room for it."""
        while True:
            try:
                self._producer.produce(topic, value, key, **told)
                return
            except BufferError:
                self._wait()
            except client().KafkaException as exc:
                raise self._failed(exc.args[0], f"writing to topic '{topic}'", key) from exc

    def flush(self) -> None:
        """All that was sent is in the topics, not yet visible."""
        while self._calling(lambda: self._producer.flush(0.5)):
            if self._is_late():
                raise self._late()

    def _wait(self) -> None:
        """There is room for more, perhaps."""
        self._calling(lambda: self._producer.poll(0.05))
        if self._is_late():
            raise self._late()

    def _calling(self, call: Callable[[], int]) -> int:
        """What the call returns. In it the client also raises an error that its threads met since the last one."""
        try:
            return call()
        except client().KafkaException as exc:
            raise self._failed(exc.args[0], "writing in a transaction") from exc

    def commit(self) -> None:
        """All that was sent is in the topics, and visible to who reads what is committed."""
        while True:
            try:
                self._producer.commit_transaction(self._timeout_s)
                self._begun_s = None
                return
            except client().KafkaException as exc:
                error = exc.args[0]
                if not error.retriable() or error.txn_requires_abort() or self._is_late():
                    raise self._failed(error, "committing a transaction") from exc

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._begun_s is not None:
            try:
                self._producer.purge()
                self._producer.abort_transaction(5)
            except client().KafkaException:
                pass  # the next one to open a transaction of the job aborts this one
        del self._producer

    def _is_late(self) -> bool:
        return self._begun_s is not None and time.monotonic() - self._begun_s > self._timeout_s

    def _failed(self, error: Any, doing: str, key: bytes | None = None) -> BackfillError:
        """The BackfillError for an error of the client. key: the record's that was being sent."""
        K, servers = client().KafkaError, self._connection.servers
        if self._is_late():
            return self._late()
        if (reason := self._reason(error)) is not error:
            error, key = reason, None  # of an earlier record
        what = f"{servers}: {doing}: {self._connection.scrubbed(error.str())}"
        match error.code():
            case code if code in _fences(K):
                return Transient(f"{what}: another process has opened a transaction {self._name!r}", RETRIED)
            case K.INVALID_TRANSACTION_TIMEOUT:
                return not_allowed(what, self._timeout_s)
            case K.MSG_SIZE_TOO_LARGE | K.RECORD_LIST_TOO_LARGE:
                of = "" if key is None else f": the record with the key {key.decode(errors='replace')[:200]}"
                return BadData(
                    f"{what}{of}",
                    in_config("raise max.message.bytes of the topic and sink.options.'message.max.bytes'; or ")
                    + START_OVER
                    + ", with the large column left out in the transform's select",
                )
        return ours(error, self._connection, doing, self._complaints)

    def _reason(self, error: Any) -> Any:
        """Why the transaction cannot go on: sending after an error says no more than that there was one."""
        kafka = client()
        if error.code() in (kafka.KafkaError._FATAL, kafka.KafkaError._STATE):
            try:
                self._producer.begin_transaction()  # raises the error that there was, and begins nothing then
            except kafka.KafkaException as exc:
                return exc.args[0]
        return error

    def _late(self) -> BackfillError:
        return Transient(
            f"{self._connection.servers}: a commit takes longer than {spell_duration(self._timeout_s)}, and was "
            "aborted",
            in_config("raise sink.transaction_timeout, or lower barrier.target for smaller commits"),
        )
