"""Topics of the shared broker for tests: made with names of their own, written to, read through the upstream."""

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.upstreams.kafka import connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "orders"
BYTES = {"format": "bytes"}
EVENTS = ("kafka_partition", "kafka_offset")
_NUMBERS = itertools.count()


def new_topic(broker: Broker, partitions: int = 1, **config: str) -> "Topic":
    name = f"t{next(_NUMBERS)}"
    broker.create(name, partitions, **config)
    return Topic(broker, name)


@dataclass
class Topic:
    """One topic of the broker."""

    broker: Broker
    name: str
    _producer: Any = field(default=None, repr=False)

    def write(
        self, values: Sequence[bytes | None], partition: int = 0, keys: Sequence[Any] = (), **more: Any
    ) -> None:
        """Records in this order, all acknowledged when it returns."""
        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0})
        _produce(self._producer, self.name, values, partition, keys, **more)
        assert self._producer.flush(30) == 0

    def write_json(self, rows: Sequence[dict[str, Any]], partition: int = 0) -> None:
        self.write([json.dumps(row).encode() for row in rows], partition)

    def transaction(self, values: Sequence[bytes], partition: int = 0, how: str = "commit") -> Any:
        """Records in a transaction of their own; how: commit, abort, or open: its producer is returned.

        One that ends has its marker in the log: the broker writes it after it has answered.
        """
        end = self._end(partition) + len(values) + (how != "open")
        producer: Any = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": f"{self.name}-{next(_NUMBERS)}"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        _produce(producer, self.name, values, partition)
        assert producer.flush(30) == 0
        if how == "commit":
            producer.commit_transaction(30)
        elif how == "abort":
            producer.abort_transaction(30)
        deadline = time.monotonic() + 30
        while self._end(partition) < end:
            assert time.monotonic() < deadline, f"no marker at {end - 1}"
            time.sleep(0.01)
        return producer

    def _end(self, partition: int) -> int:
        where = TopicPartition(self.name, partition)
        (found,) = self.broker.admin.list_offsets({where: OffsetSpec.latest()}).values()
        return int(found.result(30).offset)

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """As retention does: the log begins at `offset`."""
        where = TopicPartition(self.name, partition, offset)
        admin = self.broker.admin
        for future in admin.delete_records([where]).values():
            future.result(30)

    def grow(self, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        admin = self.broker.admin
        made = admin.create_partitions([NewPartitions(self.name, partitions)])
        made[self.name].result(30)
        self._producer = None
        self.broker.until_led(self.name, partitions)

    def recreate(self, partitions: int = 1) -> None:
        self.delete()
        self.broker.create(self.name, partitions)
        self._producer = None

    def delete(self) -> None:
        admin = self.broker.admin
        admin.delete_topics([self.name])[self.name].result(30)
        until_s = time.monotonic() + 30
        while self.name in admin.list_topics(timeout=10).topics:
            assert time.monotonic() < until_s
            time.sleep(0.05)

    def open(self, key: Sequence[str] = EVENTS, keys: str = "json", **options: Any) -> Source:
        """key: the table's. keys: the format of the records' keys."""
        told = {"bootstrap_servers": self.broker.bootstrap, "topic": self.name, **options}
        told |= {"key": {"format": keys}}
        told.setdefault("value", {"format": "rows", "schema": "id BIGINT, name STRING"})
        return connector.open(connector.options.model_validate(told), [TableSpec(TABLE, tuple(key))])


def _produce(
    producer: Any,
    topic: str,
    values: Sequence[bytes | None],
    partition: int,
    keys: Sequence[Any] = (),
    **more: Any,
) -> None:
    for index, value in enumerate(values):
        key = keys[index] if keys else None
        producer.produce(topic, value, key, partition=partition, **more)
        if index % 10_000 == 0:
            producer.poll(0)


def latest(upstream: Source) -> dict[str, int]:
    """Where the partitions end."""
    return {p: int(end) for p, end in upstream.observe(Position(), True).latest}


def history(upstream: Source) -> list[SnapshotRead]:
    """All of the pin, a read a partition."""
    return [SnapshotRead(TABLE, s.id, s.first, s.first + (s.rows or 0)) for s in upstream.pin().splits]


def scanned(
    upstream: Source, spark: "SparkSession", reads: Sequence[SnapshotRead], *columns: str
) -> list[dict[str, Any]]:
    """The rows of these reads in order of partition and offset."""
    frame: DataFrame = upstream.scan(spark, TABLE, reads).orderBy(*EVENTS)
    rows: list[dict[str, Any]] = frame.select(*(columns or ("*",))).toArrow().to_pylist()
    return rows


def offsets(rows: Sequence[dict[str, Any]], partition: int = 0) -> list[int]:
    return [row["kafka_offset"] for row in rows if row["kafka_partition"] == partition]


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker)


def read(topic: Topic, spark: "SparkSession", after: int, up_to: int, **options: object) -> list[int]:
    """The offsets that a range of partition 0 gives."""
    upstream = topic.open(value=BYTES, **options)
    upstream.pin()
    return offsets(scanned(upstream, spark, [SnapshotRead(TABLE, "0", after, up_to)]))


def latest_of(topic: Topic, **options: str) -> int:
    upstream = topic.open(**options)
    upstream.pin()
    return latest(upstream)["0"]
