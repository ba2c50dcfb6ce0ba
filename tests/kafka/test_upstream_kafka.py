"""The Kafka upstream over a real broker: what is in a range of offsets, and what is not."""

import datetime as dt
import time
from typing import TYPE_CHECKING

from broker import Broker
from kafka_topics import BYTES, TABLE, Topic, history, latest_of, new_topic, offsets, read, scanned, topic

from backfill_cli.model.plan import SnapshotRead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["topic"]


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
    assert all(abs(r["kafka_timestamp"] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=10) for r in rows)
    assert {r["_backfill_read"] for r in rows if r["kafka_partition"] == 1} == {1}
    assert {(r["_backfill_error"], r["_backfill_raw"]) for r in rows} == {(None, None)}


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
    assert shown == [
        ("_backfill_read", "integer"),
        ("_backfill_error", "string"),
        ("_backfill_raw", "binary"),
        *told,
    ]


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
    assert [r["_backfill_read"] for r in rows] == [*[0] * 7, 1, *[4] * 12, *[3] * 10]


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


def test_case_74_latest_is_resolved_when_the_job_begins_and_what_comes_after_is_read(
    topic: Topic, spark: "SparkSession"
) -> None:
    topic.write([b"a", b"b"])
    pin = topic.open(**{"from": "latest"}).pin()
    topic.write([b"c"])  # between the pin and the first barrier, or while the job is stopped
    upstream = topic.open(**{"from": "latest"})
    upstream.restore(pin)
    view = upstream.observe(pin.position, False)
    assert (dict(pin.position), dict(view.latest)) == ({"0": 2}, {"0": 3})
    assert len(view.pending) == 1
    assert read(topic, spark, 2, 3) == [2]


def test_case_29_latest_on_an_idle_topic_has_no_history_and_nothing_pending(topic: Topic) -> None:
    topic.write([b"a", b"b"])
    upstream = topic.open(**{"from": "latest"})
    pin = upstream.pin()
    assert [(s.first, s.rows) for s in pin.splits] == [(2, 0)]
    view = upstream.observe(pin.position, True)
    assert view.pending == ()
    assert view.latest == pin.position
