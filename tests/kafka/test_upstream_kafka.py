"""The Kafka upstream over a real broker: what is in a range of offsets, and what is not."""

import datetime as dt
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from kafka_topics import TABLE, Topic, history, latest, new_topic, offsets, scanned
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from backfill_cli.errors import BackfillError, HistoryGone, StateConflict, Transient, UsageError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.kafka.log.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES = (BackfillError, PySparkException, Py4JError)
BYTES = {"format": "bytes"}


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker)


def read(topic: Topic, spark: "SparkSession", after: int, up_to: int, **options: object) -> list[int]:
    upstream = topic.open(value=BYTES, **options)
    upstream.pin()
    return offsets(scanned(upstream, spark, [SnapshotRead(TABLE, "0", after, up_to)]))


def test_every_record_is_a_row_with_its_partition_offset_and_time(broker: Broker, spark: "SparkSession") -> None:
    topic = new_topic(broker, 2)
    topic.write_json([{"id": i, "name": f"n{i}"} for i in range(5)], 0)
    topic.write_json([{"id": 7, "name": None}], 1)
    upstream = topic.open()
    pin = upstream.pin()
    rows = scanned(upstream, spark, history(upstream))
    assert [(s.id, s.first, s.rows) for s in pin.splits] == [("0", 0, 5), ("1", 0, 1)]
    assert [(r["kafka_partition"], r["kafka_offset"], r["id"], r["name"]) for r in rows] == [
        *((0, i, i, f"n{i}") for i in range(5)),
        (1, 0, 7, None),
    ]
    assert all(abs(r["kafka_timestamp"] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1) for r in rows)
    assert {r["_read"] for r in rows if r["kafka_partition"] == 1} == {1}
    assert {(r["_error"], r["_raw"]) for r in rows} == {(None, None)}


def test_the_frames_columns_are_the_pins(topic: Topic, spark: "SparkSession") -> None:
    import json

    topic.write_json([{"id": 1}])
    upstream = topic.open()
    pin = upstream.pin()
    frame = upstream.scan(spark, TABLE, history(upstream))
    told = [(f["name"], f["type"]) for f in json.loads(pin.schema[TABLE])["fields"]]
    shown = [(f["name"], f["type"]) for f in json.loads(frame.schema.json())["fields"]]
    assert told == [
        ("kafka_partition", "integer"),
        ("kafka_offset", "long"),
        ("kafka_timestamp", "timestamp"),
        ("id", "long"),
        ("name", "string"),
    ]
    assert shown == [("_read", "integer"), ("_error", "string"), ("_raw", "binary"), *told]


def test_many_ranges_of_a_partition_in_one_scan_give_every_offset_once(
    topic: Topic, spark: "SparkSession"
) -> None:
    topic.write([b"%d" % i for i in range(30)])
    upstream = topic.open(value=BYTES)
    upstream.pin()
    reads = [SnapshotRead(TABLE, "0", a, b) for a, b in ((0, 7), (7, 8), (8, 8), (20, 30), (8, 20))]
    rows = scanned(upstream, spark, reads)
    assert offsets(rows) == list(range(30))
    assert [r["value"] for r in rows] == [b"%d" % i for i in range(30)]
    assert [r["_read"] for r in rows] == [*[0] * 7, 1, *[4] * 12, *[3] * 10]


def test_a_large_range_is_read_by_several_tasks(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"x"] * 60_000)
    upstream = topic.open(value=BYTES)
    upstream.pin()
    frame = upstream.scan(spark, TABLE, [SnapshotRead(TABLE, "0", 0, 60_000)])
    per_task = frame.selectExpr("spark_partition_id() p", "kafka_offset o").groupBy("p").count().toArrow()
    assert sorted(per_task["count"].to_pylist()) == [30_000, 30_000]


def test_messages_larger_than_a_batch_come_through(broker: Broker, spark: "SparkSession") -> None:
    topic = new_topic(broker, max_message_bytes="4000000")
    big = [bytes([65 + i]) * 900_000 for i in range(20)]
    topic.write(big)
    upstream = topic.open(value=BYTES)
    rows = scanned(upstream, spark, history(upstream))
    assert [r["value"] for r in rows] == big


def test_case_27_a_partition_that_ends_in_a_control_record_ends(topic: Topic, spark: "SparkSession") -> None:
    topic.transaction([b"%d" % i for i in range(10)])
    assert latest_of(topic) == 11
    began_s = time.monotonic()
    assert read(topic, spark, 0, 11) == list(range(10))
    assert time.monotonic() - began_s < 10


def test_case_27_a_range_of_nothing_but_markers_is_empty_and_ends(topic: Topic, spark: "SparkSession") -> None:
    topic.transaction([b"a"])
    topic.transaction([b"b"])
    assert read(topic, spark, 1, 2) == []
    assert read(topic, spark, 3, 4) == []


def test_case_28_aborted_records_are_left_out_and_their_tail_ends(topic: Topic, spark: "SparkSession") -> None:
    topic.transaction([b"%d" % i for i in range(10)])
    topic.transaction([b"%d" % i for i in range(5)], how="abort")
    assert latest_of(topic) == 17
    assert read(topic, spark, 0, 17) == list(range(10))
    assert read(topic, spark, 11, 17) == []
    assert read(topic, spark, 12, 14) == []
    assert read(topic, spark, 0, 17, isolation="read_uncommitted") == [*range(10), *range(11, 16)]


def test_case_28_gaps_that_compaction_left_are_no_loss(broker: Broker, spark: "SparkSession") -> None:
    topic = new_topic(
        broker,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes="1048576",
    )
    for turn in range(20):
        topic.write([b"%d" % turn] * 10, keys=[b"%d" % key for key in range(10)])
        time.sleep(0.05)
    time.sleep(0.2)
    topic.write([b"last"], keys=[b"last"])  # closes the segment before it
    until_s = time.monotonic() + 60
    while len(left := read(topic, spark, 0, 201)) == 201 and time.monotonic() < until_s:
        time.sleep(0.5)
    assert 10 < len(left) < 201
    assert left[-1] == 200
    gap = next(o for o in range(201) if o not in left)
    assert read(topic, spark, gap, gap + 1) == []
    assert read(topic, spark, 0, gap + 1) == [o for o in left if o <= gap]


def test_an_open_transaction_holds_the_end_back(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"a", b"b", b"c"])
    producer = topic.transaction([b"d", b"e"], how="open")
    topic.write([b"f"])
    assert latest_of(topic) == 3
    assert latest_of(topic, isolation="read_uncommitted") == 6
    producer.commit_transaction(30)
    assert latest_of(topic) == 7
    assert read(topic, spark, 0, 7) == [0, 1, 2, 3, 4, 5]


def test_case_29_an_empty_partition_has_no_history(broker: Broker, spark: "SparkSession") -> None:
    topic = new_topic(broker, 3)
    topic.write([b"only"], 1)
    upstream = topic.open(value=BYTES)
    assert [(s.id, s.first, s.rows) for s in upstream.pin().splits] == [("0", 0, 0), ("1", 0, 1), ("2", 0, 0)]
    assert offsets(scanned(upstream, spark, history(upstream)), 1) == [0]


def test_case_29_the_last_record_alone_is_read(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"a", b"b", b"c"])
    assert read(topic, spark, 2, 3) == [2]


def test_case_29_latest_on_an_idle_topic_has_no_history_and_nothing_pending(topic: Topic) -> None:
    topic.write([b"a", b"b"])
    upstream = topic.open(**{"from": "latest"})
    pin = upstream.pin()
    assert [(s.first, s.rows) for s in pin.splits] == [(2, 0)]
    view = upstream.observe(pin.position, True)
    assert view.pending == ()
    assert view.latest == pin.position


def test_history_from_a_time_begins_at_the_first_record_that_is_not_older(topic: Topic) -> None:
    now = dt.datetime.now(dt.UTC)
    for hours in (3, 2, 1):
        topic.write([b"x"], timestamp=int((now - dt.timedelta(hours=hours)).timestamp() * 1000))
    at = (now - dt.timedelta(hours=2.5)).isoformat()
    assert [(s.first, s.rows) for s in topic.open(**{"from": at}).pin().splits] == [(1, 2)]
    later = (now + dt.timedelta(hours=9)).isoformat()
    assert [(s.first, s.rows) for s in topic.open(**{"from": later}).pin().splits] == [(3, 0)]


def test_case_30_a_new_partition_is_seen_with_its_first_offset(broker: Broker) -> None:
    topic = new_topic(broker, 1)
    topic.write([b"a"])
    upstream = topic.open(**{"from": "latest"})
    pin = upstream.pin()
    topic.grow(2)
    topic.write([b"b", b"c"], 1)
    view = upstream.observe(pin.position, True)
    assert dict(view.latest) == {"0": 1, "1": 2}
    assert view.oldest is not None
    assert dict(view.oldest)["1"] == 0
    assert [(dict(e.cursors)["1"], e.rows) for e in view.pending] == [(2, 2)]


def test_case_31_retention_that_passed_the_position_is_an_error_with_partition_and_offsets(
    topic: Topic, spark: "SparkSession"
) -> None:
    topic.write([b"%d" % i for i in range(100)])
    upstream = topic.open(value=BYTES)
    reads = history(upstream)
    topic.delete_before(40)
    view = upstream.observe(START, True)
    assert view.oldest == Position.of({"0": 40})
    with pytest.raises(FAILURES) as caught:
        scanned(upstream, spark, reads)
    failure = upstream.failure(caught.value)
    assert isinstance(failure, HistoryGone)
    assert "partition 0 no longer has offset 0" in failure.message
    assert scanned(upstream, spark, [SnapshotRead(TABLE, "0", 40, 100)])[0]["kafka_offset"] == 40


def test_case_31_retention_is_noticed_where_anything_is_unread_also_after_idle_looks(topic: Topic) -> None:
    topic.write([b"a"] * 10)
    upstream = topic.open(value=BYTES)
    upstream.pin()
    read = Position.of({"0": 10})
    for _ in range(3):
        assert upstream.observe(read, False).oldest == Position.of({"0": 0})
    topic.write([b"b"] * 10)
    topic.delete_before(15)
    assert upstream.observe(read, False).oldest == Position.of({"0": 15})
    assert upstream.observe(Position.of({"0": 20}), True).oldest == Position.of({"0": 15})


def test_an_idle_look_asks_no_partition_where_it_begins(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(broker, 3)
    for partition in range(3):
        topic.write([b"a"], partition)  # so that each has a leader
    upstream = topic.open(value=BYTES)
    upstream.pin()
    asked: list[list[int]] = []
    real = Cluster._offsets

    def offsets(self: Cluster, wanted: Mapping[int, Any]) -> dict[int, int]:
        asked.append(sorted(wanted))
        return real(self, wanted)

    monkeypatch.setattr(Cluster, "_offsets", offsets)
    upstream.observe(Position.of({"0": 1, "1": 1, "2": 1}), False)
    topic.write([b"a"], 1)
    upstream.observe(Position.of({"0": 1, "1": 1, "2": 1}), False)
    topic.grow(4)
    topic.write([b"a"], 3)
    view = upstream.observe(Position.of({"0": 1, "1": 2, "2": 1}), False)
    assert asked == [[0, 1, 2], [], [0, 1, 2], [1], [0, 1, 2, 3], [3]]
    assert view.oldest == Position.of({"0": 0, "1": 0, "2": 0, "3": 0})


def test_case_32_a_recreated_topic_stops_the_job(topic: Topic) -> None:
    topic.write([b"a"] * 3)
    pin = topic.open().pin()
    topic.recreate()
    topic.write([b"a"] * 10)
    later = topic.open()
    later.restore(pin)
    with pytest.raises(StateConflict, match="recreated"):
        later.observe(pin.position, True)


def test_a_topic_that_is_deleted_may_come_back(topic: Topic) -> None:
    upstream = topic.open()
    pin = upstream.pin()
    topic.delete()
    with pytest.raises(Transient, match="does not exist"):
        upstream.observe(pin.position, False)


def test_a_topic_that_is_not_there_is_told_with_near_names(topic: Topic, broker: Broker) -> None:
    with pytest.raises(UsageError, match="does not exist") as caught:
        Topic(broker, topic.name + "x").open().pin()
    assert topic.name in caught.value.hint


def test_a_broker_that_is_not_there_is_named(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_cli.upstreams.kafka.log.cluster.ANSWER_S", 1.0)
    with pytest.raises(Transient, match=r"127\.0\.0\.1:1.*refused"):
        topic.open(bootstrap_servers="127.0.0.1:1").pin()


def test_growth_is_pending_until_it_is_covered(topic: Topic) -> None:
    topic.write([b"a"] * 3)
    upstream = topic.open()
    pin = upstream.pin()
    upstream.observe(pin.position, True)
    topic.write([b"a"] * 2)
    view = upstream.observe(pin.position, True)
    assert [(e.cursors, e.rows) for e in view.pending] == [((("0", 3),), 3), ((("0", 5),), 2)]
    assert upstream.observe(Position.of({"0": 4}), True).pending[0].rows == 1
    assert upstream.observe(view.latest, True).pending == ()


def test_several_tables_are_refused(topic: Topic) -> None:
    from backfill_cli.contracts import TableSpec
    from backfill_cli.upstreams.kafka import connector

    told = {"bootstrap_servers": "x", "topic": topic.name, "value": BYTES}
    with pytest.raises(UsageError, match="fills one table"):
        connector.open(connector.options.model_validate(told), [TableSpec("a", ()), TableSpec("b", ())])


def latest_of(topic: Topic, **options: str) -> int:
    upstream = topic.open(**options)
    upstream.pin()
    return latest(upstream)["0"]
