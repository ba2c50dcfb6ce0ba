"""Reader, observation and strategy against a real broker, without Spark: seeded schedules with crashes anywhere.

The world of the simulation, but the log is a topic: transactions that commit and abort, markers, compaction, new
partitions. Law: each offset exactly once, in the order of its partition.
"""

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from kafka_topics import Topic, new_topic

from backfill_cli.contracts import Source, StagedEpoch
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.strategies.source import SourceStrategy
from backfill_cli.upstreams.kafka.options import KafkaOptions

from .memory_sink import MemorySink
from .schedule import Schedule
from .world import MemoryStager, Rows

if TYPE_CHECKING:
    from broker import Broker

SCHEDULES = int(os.environ.get("BACKFILL_HANDOVERS", "28"))
PARTITIONS_AT_MOST = 4
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


def read(connection: Connection, topic: str, partition: int, after: int, up_to: int) -> dict[int, int]:
    """Offset -> value of a range, by the reader that Spark's tasks use."""
    rows: dict[int, int] = {}
    for found in messages(connection, topic, Range(0, partition, after, up_to)):
        read = {one.offset(): int(one.value()) for one in found}
        assert len(read) == len(found)
        assert not rows.keys() & read.keys()
        rows |= read
    return rows


@dataclass
class RealLog(Source):
    """A topic that changes while it is read; the upstream is the real one."""

    topic: Topic
    random: Random
    producer: Any
    acknowledged: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        self.upstream = self.topic.open(value={"format": "bytes"})
        self.capabilities = self.upstream.capabilities
        self.partitions = 1
        self.numbers = itertools.count()

    def change(self) -> None:
        """A few records, alone or in a transaction that commits or aborts; now and then a partition more."""
        if self.partitions < PARTITIONS_AT_MOST and self.random.random() < 0.03:
            self.partitions += 1
            self.topic.grow(self.partitions)
            self.producer.list_topics(self.topic.name)  # it knows the partition now
        partition = self.random.randrange(self.partitions)
        values = [str(next(self.numbers)).encode() for _ in range(self.random.randrange(1, 6))]
        if self.random.random() < 0.5:
            self.topic.write(values, partition, keys=[str(self.random.randrange(3)) for _ in values])
            return
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic.name, value, str(self.random.randrange(3)), partition=partition)
        assert self.producer.flush(30) == 0
        self.producer.commit_transaction(30) if self.random.random() < 0.6 else self.producer.abort_transaction(30)

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        return self.upstream.observe(position, snapshot_open)

    def acknowledge(self, position: Position) -> None:
        self.acknowledged = position

    def pin(self) -> Pin:
        return self.upstream.pin()

    def restore(self, pin: Pin) -> None: ...
    def scan(self, *_: Any) -> Any: ...


@dataclass
class RealStager(MemoryStager):
    """Ranges read from the broker, kept in memory."""

    upstream: Any

    def __post_init__(self) -> None:
        topic: Topic = self.upstream.topic
        self.topic = topic.name
        told = {"bootstrap_servers": topic.broker.bootstrap, "topic": topic.name, "value": {"format": "bytes"}}
        self.connection = Connection(KafkaOptions.model_validate(told))

    def stage(
        self,
        plan: EpochPlan,
        epoch: int,
        schemas: Mapping[str, str],
        unwanted: Callable[[], bool] = lambda: False,
    ) -> StagedEpoch:
        self.made += 1
        attempt = f"a{self.made}"
        inserts: Rows = {}
        reads: list[tuple[SnapshotRead, int]] = []
        for one in plan.reads:
            assert one.up_to is not None
            there = read(self.connection, self.topic, int(one.split), one.after, one.up_to)
            inserts |= {(one.split, offset): value for offset, value in there.items()}
            reads.append((one, len(there)))
        history = len(inserts)
        begun = dict(plan.window.after) if plan.window else {}
        for name, up_to in plan.window.up_to if plan.window else ():
            there = read(self.connection, self.topic, int(name), int(begun[name]), int(up_to))
            inserts |= {(name, offset): value for offset, value in there.items()}
        self._go_on(unwanted)
        self.files[self.folder(epoch, attempt)] = (inserts, {})
        table = StagedTable((StagedFile("f", 1),), (), len(inserts))
        staged = Staged(
            attempt, dict.fromkeys(self.names, table), tuple(reads), len(inserts) - history, plan.window
        )
        return StagedEpoch(staged, schemas, {})


class HandOver(Schedule):
    """History and live log of one real topic."""

    upstream: RealLog
    strategy: SourceStrategy
    most_rows = 25
    busy = 0.1

    def __init__(self, seed: int, topic: Topic, producer: Any, compacted: bool) -> None:
        self._topic, self._producer, self._compacted = topic, producer, compacted
        super().__init__(seed)
        self.runners = min(self.runners, 5)

    def _world(self) -> Pin:
        self.upstream = RealLog(self._topic, self.random, self._producer)
        for _ in range(self.random.randrange(0, 6)):
            self.upstream.change()
        self.stager = RealStager(self.upstream, self.random)
        self.sink = MemorySink(self.stager, self.random)
        pin = self.upstream.pin()
        self.strategy = SourceStrategy(pin.splits)
        return pin

    def _law(self) -> None:
        """Twice is refused by the sink; here: nothing beyond the position, in order."""
        reached = dict(self.sink.checkpoints[-1].position) if self.sink.checkpoints else {}
        last: dict[str, int] = {}
        for partition, offset in self.sink.rows:
            assert last.get(partition, -1) < offset < int(reached[partition])
            last[partition] = offset

    def _lose_history(self) -> None: ...

    def _regain_history(self) -> bool:
        """Nothing was lost; but a commit is known to its producer some time before its marker is in the log."""
        committed, all_of_it = (
            self.upstream.upstream,
            self._topic.open(value={"format": "bytes"}, isolation="read_uncommitted"),
        )
        all_of_it.pin()
        while committed.observe(Position(), False).latest != all_of_it.observe(Position(), False).latest:
            time.sleep(0.01)
        all_of_it.close()
        return False

    def _ended(self) -> None:
        """Every record of the log is there, and what compaction has taken since is all there is more."""
        stager = self.stager
        assert isinstance(stager, RealStager)
        view = self.upstream.observe(Position(), False)
        oldest = dict(view.oldest or Position())
        logged: Rows = {}
        for partition, end in view.latest:
            begun = int(oldest[partition])
            if begun == end:
                continue
            there = read(stager.connection, self._topic.name, int(partition), begun, int(end))
            logged |= {(partition, offset): value for offset, value in there.items()}
        held = dict(self.sink.rows)
        assert {place: held.get(place) for place in logged} == logged
        assert self._compacted or held == logged


@pytest.fixture(scope="module")
def producer(broker: "Broker") -> Any:
    from confluent_kafka import Producer

    made: Any = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "hand-over"})
    made.init_transactions(30)
    return made


def test_each_offset_reaches_the_sink_exactly_once_whatever_crashes(broker: "Broker", producer: Any) -> None:
    crashes = 0
    for seed in range(SCHEDULES):
        compacted = seed % 5 == 0
        topic = new_topic(broker, 1, **(COMPACTED if compacted else {}))
        schedule = HandOver(seed, topic, producer, compacted)
        try:
            schedule.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        crashes += schedule.seen["crash"]
    assert crashes > SCHEDULES / 10
