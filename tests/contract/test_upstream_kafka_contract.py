"""The Kafka upstream against the suite for upstreams: records that are rows by key, tombstones that delete.

And changes of a table that shares its topic with another one, in a job whose third table has a topic of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from broker import Broker
from kafka_topics import Topic, new_topic
from upstream_contract import UpstreamContract
from upstream_world import TABLE, Row

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.upstreams.kafka import connector

Change = tuple[str, Row | None, Row | None]


@dataclass
class KafkaWorld:
    """A topic of two partitions, a key always in one. An epoch is an observation: each `land` makes one."""

    topic: Topic
    opened: list[Any] = field(default_factory=list)

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        for partition, rows in enumerate(splits):
            self._write(partition, [(row["id"], row) for row in rows])

    def land(self, changes: Sequence[Change]) -> None:
        for op, before, after in changes:
            now = after or before or {}
            self._write(0 if now["id"] < 40 else 1, [(now["id"], None if op == "delete" else now)])
        for upstream in self.opened:
            if upstream._pin is not None:
                upstream.observe(START, False)

    def open(self) -> Source:
        upstream = self.topic.open(["id"])
        self.opened.append(upstream)
        return upstream

    def _write(self, partition: int, rows: Sequence[tuple[int, Row | None]]) -> None:
        values = [None if row is None else json.dumps(row).encode() for _, row in rows]
        self.topic.write(values, partition, [json.dumps({"id": key}).encode() for key, _ in rows])


@dataclass
class TablesWorld(KafkaWorld):
    """`orders` and `people` in one topic, with equal keys, as Debezium writes them; `lines` in another one."""

    other: Topic | None = None

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        for partition, rows in enumerate(splits):
            self._told(partition, [(TABLE, "c", None, row) for row in rows])

    def land(self, changes: Sequence[Change]) -> None:
        assert self.other is not None
        for kind, before, after in changes:
            key = (before or after or {})["id"]
            partition, op = int(key >= 40), {"insert": "c", "update": "u", "delete": "d"}[kind]
            beside = [("people", "c", None, {"id": key, "name": "p"}), ("people", "d", {"id": key}, None)]
            self._told(partition, [(TABLE, op, before, after), *beside, ("nobody", "c", None, {"id": "x"})])
        self.other.write([_envelope("lines", "c", None, {"id": 1, "name": "l"})])
        for upstream in self.opened:
            if upstream._pin is not None:
                upstream.observe(START, False)

    def open(self) -> Source:
        assert self.other is not None
        topics = {TABLE: self.topic.name, "people": self.topic.name, "lines": self.other.name}
        told = {
            "bootstrap_servers": self.topic.broker.bootstrap,
            "topics": topics,
            "value": {"format": "debezium", "schema": "id BIGINT, name STRING"},
        }
        tables = [TableSpec(name, ("id",)) for name in topics]
        upstream = connector.open(connector.options.model_validate(told), tables)
        self.opened.append(upstream)
        return upstream

    def _told(self, partition: int, changes: Sequence[tuple[str, str, Row | None, Row | None]]) -> None:
        """With the tombstone of each delete."""
        values: list[bytes | None] = []
        for change in changes:
            values += [_envelope(*change), *([None] if change[1] == "d" else [])]
        self.topic.write(values, partition, [b'{"id":1}'] * len(values))


def _envelope(table: str, op: str, before: Row | None, after: Row | None) -> bytes:
    source = {"db": "shop", "schema": "public", "table": table, "ts_ms": 5}
    return json.dumps({"before": before, "after": after, "source": source, "op": op}).encode()


class TestKafkaUpserts(UpstreamContract):
    more_columns: ClassVar[dict[str, str]] = {
        "_backfill_error": "string",
        "_backfill_raw": "binary",
        "kafka_partition": "int",
        "kafka_offset": "bigint",
        "kafka_timestamp": "timestamp",
    }

    def log_begin(self, pin: Pin) -> Position:
        return Position.of({s.id: s.first + (s.rows or 0) for s in pin.splits})

    @pytest.fixture
    def world(self, broker: Broker) -> KafkaWorld:
        return KafkaWorld(new_topic(broker, 2))


class TestKafkaTables(TestKafkaUpserts):
    @pytest.fixture
    def world(self, broker: Broker) -> TablesWorld:
        return TablesWorld(new_topic(broker, 2), other=new_topic(broker))
