"""Events that workers write: the same rows as those that pass through Spark."""

from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from kafka_topics import EVENTS, TABLE, Topic, history, new_topic, scanned

from backfill_cli.contracts import RangeTasks, Source
from backfill_cli.errors import HistoryGone
from backfill_cli.model.plan import SnapshotRead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES = {"format": "bytes"}
DDL = (
    "s STRING, d DECIMAL(10,2), w DECIMAL(38,10), b TINYINT, i INT, l BIGINT, f DOUBLE, g FLOAT, o BOOLEAN, "
    "day DATE, at TIMESTAMP_LTZ, wall TIMESTAMP_NTZ"
)
PLAIN = (
    b'{"s":"\xc3\xbc","d":-99999999.99,"w":0.0123456789,"b":-128,"i":2147483647,"l":-9223372036854775808,"f":-0.0}',
    b'{"g":0.5,"o":false,"day":"1500-02-28","at":"2026-01-31T12:00:00+02:00","wall":"2026-01-31T23:59:59.999999"}',
    b"{}",
    None,
)


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker)


def tasks_of(upstream: Source, reads: list[SnapshotRead]) -> RangeTasks:
    found = upstream.ranges(reads, upstream.pin().schema, 2)
    assert found is not None
    return found


def made(upstream: Source, reads: list[SnapshotRead]) -> list[dict[str, Any]]:
    """What the workers make of these reads, in order of partition and offset."""
    tasks = tasks_of(upstream, reads)
    rows = [row for part in tasks.parts for _, batch in tasks.make(part) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: [row[name] for name in EVENTS])


@pytest.mark.parametrize("value", [{"format": "rows", "schema": DDL}, BYTES], ids=["json", "bytes"])
def test_workers_make_the_rows_that_spark_makes(
    topic: Topic, spark: "SparkSession", value: dict[str, str]
) -> None:
    topic.write(PLAIN)
    upstream = topic.open(value=value)
    reads = history(upstream)
    rows = made(upstream, reads)
    assert rows == scanned(upstream, spark, reads)
    assert [row["_backfill_error"] for row in rows] == [None] * len(PLAIN)


def test_the_rows_of_each_part_belong_to_its_read(broker: Broker) -> None:
    topic = new_topic(broker, 2)
    topic.write([b"x"] * 60_000)
    topic.write([b"y"] * 3, 1)
    reads = [SnapshotRead(TABLE, "1", 0, 3), SnapshotRead(TABLE, "0", 10, 60_000)]
    tasks = tasks_of(topic.open(value=BYTES), reads)
    told = [
        (one.range.read, span.partition, span.after, span.up_to)
        for part in tasks.parts
        for span in part
        for one in span.wanted
    ]
    assert told == [(1, 0, 10, 30_005), (1, 0, 30_005, 60_000), (0, 1, 0, 3)]


def test_a_record_that_cannot_be_read_is_beside_the_others(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b'{"id": 1}', b'{"id": "one"}'])
    upstream = topic.open()
    reads = history(upstream)
    rows = made(upstream, reads)
    assert rows == scanned(upstream, spark, reads)
    assert [row["_backfill_raw"] for row in rows] == [None, b'{"id": "one"}']


def test_with_sparks_own_reader_nothing_is_made_in_workers(topic: Topic) -> None:
    topic.write([b"x"])
    upstream = topic.open(value=BYTES, reader="spark")
    assert upstream.ranges(history(upstream), upstream.pin().schema, 2) is None


def test_case_31_offsets_that_are_gone_are_named(topic: Topic) -> None:
    topic.write([b"x"] * 10)
    upstream = topic.open(value=BYTES)
    reads = history(upstream)
    topic.delete_before(4)
    with pytest.raises(HistoryGone, match=f"topic '{topic.name}': partition 0 no longer has offset 0"):
        made(upstream, reads)
