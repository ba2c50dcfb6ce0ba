"""The Kafka upstream where things go wrong: a broker that goes down, a log that ends early, secrets, options."""

import io
import subprocess
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from hint_typed import typed
from kafka_topics import EVENTS, TABLE, Topic, history, new_topic, offsets, scanned
from pydantic import ValidationError

from backfill_cli.errors import Fatal, HistoryGone, Transient, UsageError
from backfill_cli.kafka.client_properties import CLIENT_PROPERTIES
from backfill_cli.kafka.cluster import Cluster
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.upstreams.kafka import connector
from backfill_cli.upstreams.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANARY = "canary-3f9a51"
BYTES = {"format": "bytes"}


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return new_topic(broker)


def connection(topic: Topic, **options: str) -> Connection:
    told = {"bootstrap_servers": topic.broker.bootstrap, "topic": topic.name, "value": BYTES, "options": options}
    return Connection(KafkaOptions.model_validate(told))


def test_a_broker_that_is_down_for_a_while_is_transient_and_reading_goes_on(
    topic: Topic, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_cli.kafka.admin.ANSWER_S", 2.0)
    topic.write([b"a", b"b"])
    upstream = topic.open(value=BYTES)
    pin = upstream.pin()
    large = new_topic(topic.broker)
    large.write([b"x" * 10_000] * 2_000)
    not_ahead = {"queued.max.messages.kbytes": "1000"}  # what is fetched already, is read without the broker
    reading = messages(connection(large, **not_ahead), large.name, Range(0, 0, 0, 2_000))
    assert next(reading)
    monkeypatch.setattr("backfill_cli.kafka.messages.SILENCE_S", 2.0)
    topic.broker.stop()
    try:
        with pytest.raises(Transient, match=topic.broker.bootstrap) as silent:
            list(reading)
        with pytest.raises(Transient, match=topic.broker.bootstrap):
            upstream.observe(pin.position, True)
    finally:
        topic.broker.start()
    topic.write([b"c"])
    monkeypatch.setattr("backfill_cli.kafka.messages.SILENCE_S", 30.0)
    monkeypatch.setattr("backfill_cli.kafka.admin.ANSWER_S", 20.0)
    assert dict(upstream.observe(pin.position, True).latest) == {"0": 3}
    with typed(silent.value) as hint:
        hint.says("start the broker")
        assert offsets(scanned(upstream, spark, [SnapshotRead(TABLE, "0", 0, 3)])) == [0, 1, 2]


def test_case_32_a_log_that_ends_before_its_range_is_transient(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_cli.kafka.messages.SILENCE_S", 0.5)
    topic.write([b"a", b"b"])
    with pytest.raises(Transient, match="partition 0 ends at offset 2, but reached 5") as refused:
        list(messages(connection(topic), topic.name, Range(0, 0, 0, 5)))
    with typed(refused.value) as hint:
        hint.says("wait for it")
        topic.write([b"c", b"d", b"e"])
        found = messages(connection(topic), topic.name, Range(0, 0, 0, 5))
        assert sum(len(part) for part in found) == 5


def test_case_31_records_deleted_while_they_are_read_are_noticed(topic: Topic) -> None:
    """Of a log without gaps, all that came is all that was there: only missing offsets are asked about."""
    topic.transaction([b"x" * 1000] * 2)
    topic.write([b"x" * 1000] * 2997)
    reading = messages(connection(topic), topic.name, Range(0, 0, 0, 3000))
    assert next(reading)
    topic.delete_before(2500)
    with pytest.raises(HistoryGone, match="partition 0 no longer has offset 0: its log begins at 2500") as gone:
        list(reading)
    with typed(gone.value) as hint:
        hint.says("drop the job and start over")
        over = topic.open(value=BYTES)
        assert over.observe(over.pin().position, True).oldest == Position.of({"0": 2500})


def test_a_secret_is_in_no_plan_no_error_and_no_text(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"a"])
    secret = {"sasl.username": "me", "sasl.password": CANARY, "sasl.mechanism": "PLAIN"}
    upstream = topic.open(value=BYTES, options=secret)  # no security.protocol: the broker is not asked for it
    frame = upstream.scan(spark, TABLE, history(upstream))
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain("extended")
        frame.explain("formatted")
    assert "UDTF" in shown.getvalue()
    assert offsets(frame.toArrow().to_pylist()) == [0]
    texts = [
        shown.getvalue(),
        repr(connection(topic, **secret)),
        str(connector.fingerprint(_options(topic, secret))),
    ]
    assert not any(CANARY in text for text in texts)


def test_a_secret_is_in_no_error_of_a_refused_login(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_cli.kafka.admin.ANSWER_S", 1.0)
    secret = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": CANARY,
    }
    with pytest.raises(Exception, match=topic.broker.bootstrap) as caught:
        Cluster(connection(topic, **secret), [topic.name]).look()
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in f"{error}{error!r}"
        error = error.__cause__ or error.__context__


def _options(topic: Topic, options: dict[str, str]) -> Any:
    told = {"bootstrap_servers": "x", "topic": topic.name, "value": BYTES, "options": options}
    return connector.options.model_validate(told)


@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "plugin.library.paths", "enable.ssl.certificate.verification", "group.id"]
)
def test_a_property_that_may_not_be_set_is_refused(topic: Topic, name: str) -> None:
    assert name not in CLIENT_PROPERTIES
    with pytest.raises(ValidationError, match="not a client property that can be set"):
        _options(topic, {name: "x"})


def test_a_property_the_client_refuses_is_told(topic: Topic) -> None:
    with pytest.raises(Fatal, match=r"socket\.timeout\.ms") as refused:
        Cluster(connection(topic, **{"socket.timeout.ms": "soon"}), [topic.name]).look()
    with typed(refused.value) as hint:
        hint.says("check upstream.options")
        Cluster(connection(topic, **{"socket.timeout.ms": "10000"}), [topic.name]).look()


def test_every_property_is_known_to_the_client(topic: Topic) -> None:
    from confluent_kafka import Consumer, KafkaException

    unknown = []
    for name in sorted(CLIENT_PROPERTIES):
        try:
            Consumer({"group.id": "x", name: "\x01"})
        except KafkaException as error:
            unknown += [name] if "No such configuration property" in str(error) else []
    assert unknown == []


def test_events_are_told_apart_from_changes(topic: Topic) -> None:
    assert topic.open().capabilities.partitions.appends
    assert topic.open(EVENTS).capabilities.partitions is not None
    assert not topic.open(["id"]).capabilities.partitions.appends
    assert topic.open(on_error="quarantine").capabilities.quarantines


def test_sparks_own_reader_without_its_jars_is_told(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"a"])
    upstream = topic.open(value=BYTES, reader="spark")
    with pytest.raises(UsageError, match="this Spark has no Kafka source") as caught:
        upstream.scan(spark, TABLE, history(upstream))
    with typed(caught.value) as hint:
        hint.says("'spark.jars', or leave upstream.reader out")
        own = topic.open(value=BYTES)
        assert offsets(scanned(own, spark, history(own))) == [0]


ANSWERS_THAT_COLLECT = """
import gc, sys
from backfill_cli.kafka.cluster import Cluster
from backfill_cli.kafka.connection import Connection
from backfill_cli.upstreams.kafka.options import KafkaOptions

options = KafkaOptions(type="kafka", bootstrap_servers=sys.argv[1], topic=sys.argv[2], value={"format": "bytes"})
gc.disable()
for _ in range(20):
    cluster = Cluster(Connection(options), [sys.argv[2]])
    cluster.look()
    cluster.itself = cluster  # as a traceback makes it
    asked = cluster.admin._client.describe_cluster(request_timeout=10)
    asked.add_done_callback(lambda answer: gc.collect())
    del cluster
    asked.result()
print("alive")
"""


def test_a_client_that_nobody_holds_is_not_ended_by_a_thread_of_its_own(topic: Topic) -> None:
    """librdkafka aborts the process then, and Python collects garbage in any thread that hands over an answer."""
    told = [sys.executable, "-c", ANSWERS_THAT_COLLECT, topic.broker.bootstrap, topic.name]
    done = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
