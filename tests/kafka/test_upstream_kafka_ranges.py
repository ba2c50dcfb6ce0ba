"""Ranges of several topics and tables, read at once: each read has exactly its records, in their order."""

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_topics import BYTES, Topic, new_topic

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import HistoryGone
from backfill_cli.kafka import messages
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.ranges import LEAST, Range, Span, Wanted, together
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.upstreams.kafka import KafkaOptions, connector

if TYPE_CHECKING:
    from broker import Broker


def envelope(table: str, number: int) -> bytes:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table}
    return json.dumps({"before": None, "after": {"id": number}, "source": source, "op": "c", "ts_ms": 1}).encode()


class World:
    """Two topics: one of table a, one that b and c share with a stranger. held: by table and partition."""

    def __init__(self, broker: "Broker", random: Random) -> None:
        self.topics = {"a": new_topic(broker, 2), "b": new_topic(broker, 3)}
        self.topics["c"] = self.topics["b"]
        self.held: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        for name, partitions in (("a", 2), ("b", 3)):
            for p in range(partitions):
                self._fill(name, p, random)
        value = {"format": "debezium", "schema": "id INT"}
        told = {"bootstrap_servers": broker.bootstrap, "value": value}
        told["topics"] = {table: topic.name for table, topic in self.topics.items()}
        tables = [TableSpec(table, ("id",)) for table in "abc"]
        self.upstream = connector.open(connector.options.model_validate(told), tables)

    def _fill(self, name: str, p: int, random: Random) -> None:
        topic: Topic = self.topics[name]
        at = 0
        for _ in range(random.randrange(1, 4)):
            tables = random.choices("a" if name == "a" else "bcx", k=random.randrange(1, 30))
            records = [envelope(table, at + n) for n, table in enumerate(tables)]
            how = random.choice(["plain", "commit", "abort"])
            if how == "plain":
                topic.write(records, p)
            else:
                topic.transaction(records, p, how)
            if how != "abort":
                for n, table in enumerate(tables):
                    self.held.setdefault((table, p), []).append((at + n, at + n))
            at += len(records) + (how != "plain")
        self.ends[name, p] = self.ends["c" if name == "b" else name, p] = at

    def read(self, reads: list[SnapshotRead], schemas: Mapping[str, str], cores: int) -> dict[int, list[Any]]:
        tasks = self.upstream.ranges(reads, schemas, cores)
        found: dict[int, list[Any]] = {}
        if tasks is None:
            return found
        found = {at: [] for at, read in enumerate(reads) if read.table in tasks.schemas}
        for part in tasks.parts:
            for read, batch in tasks.make(part):
                assert batch.column("_backfill_error").null_count == batch.num_rows
                columns = (batch.column(name).to_pylist() for name in ("kafka_partition", "kafka_offset", "id"))
                found[read].extend(zip(*columns, strict=True))
        return found


def test_each_read_has_its_records_in_order_whatever_is_read_beside_it(
    broker: "Broker", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overlapping ranges of tables that share a topic, ranges far apart, aborted records, in tasks of any size."""
    seen = set[str]()
    for seed in range(3):
        random = Random(seed)
        world = World(broker, random)
        pin = world.upstream.pin()
        for _ in range(10):
            reads = []
            for (table, p), end in world.ends.items():
                cuts = sorted(random.sample(range(end + 1), min(end + 1, random.choice([2, 2, 3]))))
                reads += [SnapshotRead(table, f"{table}/{p}", *span) for span in pairwise(cuts)]
            random.shuffle(reads)
            monkeypatch.setattr("backfill_cli.kafka.ranges.LEAST", random.choice([1, 5, LEAST]))
            found = world.read(reads, pin.schema, random.choice([1, 3]))
            for at, read in enumerate(reads):
                p = int(read.split.rpartition("/")[2])
                there = world.held.get((read.table, p), [])
                expected = [(p, o, n) for o, n in there if int(read.after or 0) <= o < int(read.up_to or 0)]
                assert found.get(at, expected) == expected, f"seed {seed}, {read}"
            seen |= {reads[at].table for at in found}
    assert seen == {"a", "b", "c"}


class NeverPaused(confluent_kafka.Consumer):
    """A partition that was paused has to be resumed, which races with the assignment that begins it again."""

    def pause(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        raise AssertionError(f"paused: {partitions}")


def test_ranges_of_one_partition_that_one_task_reads_in_turns_wait_for_nothing(
    broker: "Broker", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns that paused what was read took up to a second, and one of two hundred was never sent a message."""
    monkeypatch.setattr(confluent_kafka, "Consumer", NeverPaused)
    topic = new_topic(broker, 5)
    for p in range(5):
        topic.write([b"%d" % n for n in range(400)], p)
    spans = [Span(topic.name, p, at, at + 2, ()) for at in range(0, 400, 4) for p in range(5)]
    options = {"bootstrap_servers": broker.bootstrap, "topics": {"a": topic.name}, "value": BYTES}
    connection = Connection(KafkaOptions.model_validate(options))
    began_s = time.monotonic()
    found: dict[int, list[bytes]] = {}
    for at, part in messages.read(connection, spans):
        found.setdefault(at, []).extend(one.value() for one in part)
    assert found == {at: [b"%d" % span.after, b"%d" % (span.after + 1)] for at, span in enumerate(spans)}
    assert time.monotonic() - began_s < 30, "100 turns"


def test_of_several_partitions_the_one_whose_records_are_gone_is_named(broker: "Broker") -> None:
    world = World(broker, Random(1))
    pin = world.upstream.pin()
    topic = world.topics["b"]
    topic.delete_before(1, 1)
    reads = [SnapshotRead(t, f"{t}/{p}", 0, end) for (t, p), end in world.ends.items()]
    with pytest.raises(HistoryGone, match=f"topic '{topic.name}': partition 1 no longer has offset 0"):
        world.read(reads, pin.schema, 1)


WANTED = st.lists(
    st.builds(
        lambda t, n, p, at, size: Wanted(t, n, Range(0, p, at, at + size)),
        st.sampled_from("ab"),
        st.sampled_from("xy"),
        st.integers(0, 1),
        st.integers(0, 100_000),
        st.integers(0, 100_000),
    ),
    max_size=6,
)


@given(WANTED, st.integers(1, 8))
def test_tasks_hold_for_everybody_what_he_wants_and_read_no_offset_twice(wanted: list[Wanted], cores: int) -> None:
    tasks = together(wanted, cores)
    spans = [span for task in tasks for span in task]
    assert spans == sorted(spans, key=lambda s: (s.topic, s.partition, s.after))
    for one, then in pairwise(spans):
        assert (one.topic, one.partition) != (then.topic, then.partition) or one.up_to <= then.after
    for one in wanted:
        mine = [s for s in spans if one in s.wanted]
        at = one.range.after
        for span in mine:
            assert (span.topic, span.partition) == (one.topic, one.range.partition)
            assert max(span.after, one.range.after) == at
            at = min(span.up_to, one.range.up_to)
        assert at == one.range.up_to or not mine
        assert bool(mine) == (one.range.up_to > one.range.after)
    assert all(span.wanted and span.after < span.up_to for span in spans)
    total = sum(span.up_to - span.after for span in spans)
    assert all(sum(s.up_to - s.after for s in task) <= max(LEAST, -(-total // cores)) for task in tasks)
