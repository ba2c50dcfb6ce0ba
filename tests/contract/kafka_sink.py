"""Topics that the Kafka sink filled, read with the client's own consumer and Python's json."""

import base64
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from sink_contract import Row

if TYPE_CHECKING:
    from broker import Broker

_NUMBERS = itertools.count()


@dataclass
class SinkTopics:
    """The topics below a prefix of its own, and the options of a sink that fills them."""

    broker: "Broker"
    prefix: str = field(default_factory=lambda: f"k{next(_NUMBERS)}")

    def options(self, **more: Any) -> dict[str, Any]:
        told = {"bootstrap_servers": self.broker.bootstrap, "topics": f"{self.prefix}.{{table}}", "partitions": 2}
        return {**told, "state_topic": f"{self.prefix}_state_{{job}}", **more}

    def delete(self) -> None:
        """Those below the prefix are gone."""
        until = time.monotonic() + 30
        while mine := self._mine():
            for answer in self.broker.admin.delete_topics(mine).values():
                with suppress(KafkaException):  # gone already, as the next look will show
                    answer.result(30)
            assert time.monotonic() < until, mine

    def _mine(self) -> list[str]:
        known = self.broker.admin.list_topics(timeout=10).topics
        return [name for name in known if name.startswith((f"{self.prefix}.", f"{self.prefix}_"))]

    def records(self, topic: str, settled: bool = True) -> list[Any]:
        """The committed records of a topic, in the order of its partitions; none if it does not exist.

        settled: once every transaction of it has ended.
        """
        known = self.broker.admin.list_topics(timeout=10).topics
        if topic not in known:
            return []
        places = [TopicPartition(topic, p) for p in known[topic].partitions]
        ends = self._ends(places, settled)
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "oracle",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                # the default, 500 ms, is how long it waits at the end of one partition before it reads the next
                "fetch.wait.max.ms": 10,
            }
        )
        try:
            return [one for place in places for one in _until(consumer, place, ends[place.partition])]
        finally:
            consumer.close()

    def _ends(self, places: list[Any], settled: bool) -> dict[int, int]:
        from confluent_kafka import IsolationLevel

        until = time.monotonic() + 20
        while True:
            told = {}
            for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
                asked = self.broker.admin.list_offsets(
                    {place: OffsetSpec.latest() for place in places}, isolation_level=level
                )
                told[level] = {place.partition: answer.result(30).offset for place, answer in asked.items()}
            if not settled or told[IsolationLevel.READ_COMMITTED] == told[IsolationLevel.READ_UNCOMMITTED]:
                return told[IsolationLevel.READ_COMMITTED]
            assert time.monotonic() < until, "a transaction stays open"
            time.sleep(0.01)

    def rows(self, target: str) -> list[Row]:
        """The newest record of each key, by `id`; a column that it does not have is NULL."""
        newest: dict[bytes, bytes | None] = {}
        for one in self.records(f"{self.prefix}.{target}"):
            newest[one.key()] = one.value()
        kinds = self._kinds(target)
        found = [json.loads(value) for value in newest.values() if value is not None]
        rows = [{name: _value(row.get(name), kind) for name, kind in kinds.items()} for row in found]
        return sorted(rows, key=lambda row: row["id"])

    def _kinds(self, target: str) -> dict[str, str]:
        """The columns of the table, as a job that has it, or had it, keeps them."""
        for topic in sorted(self.broker.admin.list_topics(timeout=10).topics):
            if topic.startswith(f"{self.prefix}_state_"):
                state = {one.key(): one.value() for one in self.records(topic)}
                tables = json.loads(state[b"job"])["tables"] if b"job" in state else {}
                for name, held in tables.items():
                    if held["topic"] == f"{self.prefix}.{target}":
                        fields = json.loads(state[f"schema:{name}".encode()])["fields"]
                        return {one["name"]: one["type"] for one in fields}
        return {"id": "long", "name": "string"}


def _until(consumer: Any, place: Any, end: int) -> Iterator[Any]:
    consumer.assign([TopicPartition(place.topic, place.partition, 0)])
    reached, until = 0, time.monotonic() + 20
    while reached < end:
        assert time.monotonic() < until, f"{place.topic}/{place.partition}: {reached} of {end}"
        one = consumer.poll(0.1)
        if one is None:
            continue
        reached = one.offset() + (one.error() is None)
        if one.error() is None:
            yield one


def _value(value: Any, kind: str) -> Any:
    return base64.b64decode(value) if kind == "binary" and value is not None else value
