"""A cluster that requires TLS and a password: with both a job reads, without one an error says why not."""

from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from hint_typed import typed
from kafka_secured import PASSWORD, USER, properties
from kafka_topics import Topic, history, new_topic, offsets, scanned

from backfill_cli.contracts import Source
from backfill_cli.errors import BackfillError, Fatal, Transient
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range
from backfill_cli.upstreams.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES = {"format": "bytes"}


@pytest.fixture
def topic(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Topic:
    monkeypatch.setattr("backfill_cli.kafka.admin.ANSWER_S", 3.0)
    return new_topic(broker)


def opened(topic: Topic, options: dict[str, str]) -> Source:
    return topic.open(bootstrap_servers=topic.broker.secured, value=BYTES, options=options)


def refused(topic: Topic, **other: str) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        opened(topic, properties(topic.broker, **other)).pin()
    assert PASSWORD not in f"{caught.value}{caught.value.__cause__!r}"
    assert str(topic.broker.secured) in caught.value.message
    return caught.value


def test_with_certificate_and_password_the_topic_is_read(topic: Topic, spark: "SparkSession") -> None:
    topic.write([b"a", b"b"])
    upstream = opened(topic, properties(topic.broker))
    reads = history(upstream)
    rows: list[dict[str, Any]] = scanned(upstream, spark, reads)
    assert offsets(rows) == [0, 1]
    assert dict(upstream.observe(upstream.pin().position, True).latest) == {"0": 2}


def test_a_wrong_password_is_fatal_and_names_the_options(topic: Topic) -> None:
    error = refused(topic, sasl_password="wrong")
    assert isinstance(error, Fatal)
    assert "access denied" in error.message
    with typed(error) as hint:
        hint.says("check upstream.options: sasl.*")
        opened(topic, properties(topic.broker)).pin()


def test_a_certificate_that_nobody_vouches_for_is_fatal(topic: Topic, tmp_path: Any) -> None:
    error = refused(topic, ssl_ca_location="/etc/ssl/certs/ca-certificates.crt")
    assert isinstance(error, Fatal)
    assert "no TLS connection" in error.message
    with typed(error) as hint:
        hint.says("check upstream.options: ssl.*")
        opened(topic, properties(topic.broker)).pin()


@pytest.mark.parametrize("has", [AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS])
def test_a_user_without_a_right_is_told_which_to_give(topic: Topic, has: AclOperation) -> None:
    """Without Describe a list of topics leaves this one out, which does not mean that it does not exist."""
    topic.write([b"a"])

    def give(*rights: AclOperation) -> None:
        user = (topic.name, ResourcePatternType.LITERAL, f"User:{USER}", "*")
        for right in rights:  # with the first, those that were not given are denied
            one = AclBinding(ResourceType.TOPIC, *user, right, AclPermissionType.ALLOW)
            topic.broker.admin.create_acls([one])[one].result(30)

    give(has)
    with pytest.raises(Fatal, match=r"reading (partition 0|its metadata): .*uthoriz") as refused:
        read(topic)
    with typed(refused.value) as hint:
        hint.says("give this user the right to Read and Describe the topic")
        give(AclOperation.READ, AclOperation.DESCRIBE)
        assert read(topic) == 1


def read(topic: Topic) -> int:
    """How many records there are, read by the user of the secured listener."""
    options = properties(topic.broker)
    opened(topic, options).pin()
    told = {"bootstrap_servers": topic.broker.secured, "topic": topic.name, "value": BYTES, "options": options}
    connection = Connection(KafkaOptions.model_validate(told))
    return sum(len(part) for part in messages(connection, topic.name, Range(0, 0, 0, 1)))


def test_without_tls_the_listener_says_nothing_and_is_waited_for(topic: Topic) -> None:
    assert isinstance(refused(topic, security_protocol="PLAINTEXT"), Transient)
