"""The Kafka upstream against the suite for upstreams: records that are rows by key, tombstones that delete."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from broker import Broker
from kafka_topics import Topic, new_topic
from upstream_contract import UpstreamContract
from upstream_world import Row

from backfill_cli.contracts import Source
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin

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
