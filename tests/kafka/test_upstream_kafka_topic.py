"""A Kafka topic that changes meanwhile: growth, new partitions, retention, and one that is made anew or gone."""

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from hint_typed import typed
from kafka_topics import BYTES, TABLE, Topic, history, new_topic, scanned, topic
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from backfill_cli.errors import BackfillError, HistoryGone, StateConflict, Transient, UsageError
from backfill_cli.kafka.admin import Admin
from backfill_cli.model.headroom import Kept, Unread
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["topic"]

FAILURES = (BackfillError, PySparkException, Py4JError)


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
    real = Admin.offsets

    def offsets(self: Admin, wanted: Mapping[tuple[str, int], Any], *more: Any) -> dict[tuple[str, int], int]:
        asked.append(sorted(p for _, p in wanted))
        return real(self, wanted, *more)

    monkeypatch.setattr(Admin, "offsets", offsets)
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
    with pytest.raises(StateConflict, match="recreated") as refused:
        later.observe(pin.position, True)
    with typed(refused.value) as hint:
        hint.says("drop the job and start over")
        over = topic.open()
        over.observe(over.pin().position, True)


def test_the_same_topic_of_another_cluster_is_not_followed(topic: Topic) -> None:
    pin = topic.open().pin()
    elsewhere = topic.open()
    elsewhere.restore(replace(pin, identity=json.dumps({**json.loads(pin.identity), "cluster": "other"})))
    with pytest.raises(StateConflict, match="but the job began with cluster other") as refused:
        elsewhere.observe(pin.position, True)
    with typed(refused.value) as hint:
        hint.says("correct upstream.bootstrap_servers")
        ours = topic.open()
        ours.restore(pin)
        ours.observe(pin.position, True)


def test_a_topic_that_is_deleted_may_come_back(topic: Topic) -> None:
    upstream = topic.open()
    pin = upstream.pin()
    topic.delete()
    with pytest.raises(Transient, match="does not exist") as refused:
        upstream.observe(pin.position, False)
    with typed(refused.value) as hint:
        hint.says("create it")
        topic.broker.create(topic.name, 1)
        over = topic.open()
        over.observe(over.pin().position, False)


def test_a_topic_that_is_not_there_is_told_with_near_names(topic: Topic, broker: Broker) -> None:
    with pytest.raises(UsageError, match="does not exist") as caught:
        Topic(broker, topic.name + "x").open().pin()
    with typed(caught.value) as hint:
        hint.says(f"name one of: {topic.name}")
        topic.open().pin()


def test_a_broker_that_is_not_there_is_named(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_cli.kafka.admin.ANSWER_S", 1.0)
    with pytest.raises(Transient, match=r"127\.0\.0\.1:1.*refused") as refused:
        topic.open(bootstrap_servers="127.0.0.1:1").pin()
    monkeypatch.undo()
    with typed(refused.value) as hint:
        hint.says("correct upstream.bootstrap_servers")
        topic.open(bootstrap_servers=topic.broker.bootstrap).pin()


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


def test_the_headroom_is_what_retention_leaves_of_the_oldest_record_that_is_not_read(broker: Broker) -> None:
    """Asked of a broker, and the hint is typed: a longer retention leaves more."""
    topic = new_topic(broker, 2, **{"retention.ms": str(10 * HOUR_MS), "segment.ms": str(100 * HOUR_MS)})
    now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    topic.write([b"a"], 0, timestamp=now_ms - HOUR_MS)
    topic.write([b"b"], 1, timestamp=now_ms - 4 * HOUR_MS)
    upstream = topic.open(value=BYTES)
    asked = upstream.extras.headroom
    assert asked is not None

    def left_h(position: Position) -> float:
        told = asked(Unread(position, False, now_ms))
        assert told is not None
        return (told.left_s(now_ms) or 0) / 3600

    unread = Position.of({"0": 0, "1": 0})
    told = asked(Unread(unread, False, now_ms))
    assert (told.of, told.by) == (f"partition 1 of topic '{topic.name}'", "retention.ms (10 h)")
    assert 5.9 < left_h(unread) <= 6
    assert 8.9 < left_h(Position.of({"0": 0, "1": 1})) <= 9
    assert left_h(Position.of({"0": 1, "1": 1})) == 10
    assert str(told.hint) == f"raise retention.ms of topic '{topic.name}'"
    _set(broker, topic.name, "retention.ms", str(20 * HOUR_MS))
    assert 15.9 < left_h(unread) <= 16
    _set(broker, topic.name, "retention.ms", "-1")
    assert asked(Unread(unread, False, now_ms)).kept is Kept.UNBOUNDED
    upstream.close()


HOUR_MS = 3_600_000


def _set(broker: Broker, topic: str, name: str, value: str) -> None:
    """The topic's setting is this one, as the broker tells it."""
    kind = ConfigResource.Type.TOPIC
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    asked = broker.admin.incremental_alter_configs([ConfigResource(kind, topic, incremental_configs=[entry])])
    for one in asked.values():
        one.result(30)
    for _ in range(100):
        (told,) = broker.admin.describe_configs([ConfigResource(kind, topic)]).values()
        if told.result(30)[name].value == value:
            return
