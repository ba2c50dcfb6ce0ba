"""What makes topics, and deletes them."""

import time
from collections.abc import Iterable, Mapping

from backfill_cli.errors import Transient, UsageError, in_config
from backfill_cli.kafka.admin import Admin
from backfill_cli.kafka.edge import client, unreachable

_MADE_S = 30.0
"""A topic is led, or gone, within milliseconds; in a cluster of many brokers within seconds."""


def create(
    admin: Admin, topic: str, partitions: int | None, replication: int | None, told: Mapping[str, str]
) -> None:
    """The topic exists, and its partitions are led. One that exists by now is left as it is."""
    kafka = client()
    wanted = kafka.admin.NewTopic(
        topic,
        num_partitions=partitions or -1,
        replication_factor=replication or -1,
        config=dict(told),
    )
    with admin.asking(f"creating topic '{topic}'") as ask:
        try:
            ask.create_topics([wanted], request_timeout=admin.answer_s)[topic].result()
        except kafka.KafkaException as exc:
            error = exc.args[0]
            if error.code() in _not_taken():
                raise UsageError(
                    f"{admin.connection.servers}: topic '{topic}' cannot be created: {error.str()}",
                    in_config("correct sink.properties, sink.replication or sink.partitions"),
                ) from exc
            if error.code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    _until(admin, topic, there=True)


def delete(admin: Admin, topics: Iterable[str]) -> None:
    """None of these topics exists."""
    there = sorted(admin.found(topics))
    if not there:
        return
    kafka = client()
    with admin.asking("deleting topics") as ask:
        for answer in ask.delete_topics(there, request_timeout=admin.answer_s).values():
            try:
                answer.result()
            except kafka.KafkaException as exc:
                if exc.args[0].code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
    for name in there:
        _until(admin, name, there=False)


def _until(admin: Admin, topic: str, there: bool) -> None:
    until = time.monotonic() + _MADE_S
    while not _is(admin, topic, there):
        if time.monotonic() > until:
            said = "is not led by a broker yet" if there else "is not gone yet"
            raise Transient(f"{admin.connection.servers}: topic '{topic}' {said}", unreachable(admin.connection))
        time.sleep(0.02)


def _is(admin: Admin, topic: str, there: bool) -> bool:
    found = admin.found([topic])
    if not there:
        return topic not in found and topic not in admin.topics()
    if topic not in found:
        return False
    with admin.asking("reading its metadata") as ask:
        ask.list_topics(topic, timeout=admin.answer_s)  # refreshes what the client knows
    try:
        admin.ends(((topic, p) for p in found[topic].partitions), committed=True)
    except Transient:  # for some ms its broker denies being its leader
        return False
    return True


def _not_taken() -> frozenset[int]:
    """Errors of settings that the cluster does not take."""
    K = client().KafkaError
    return frozenset(
        {
            K.INVALID_CONFIG,
            K.INVALID_PARTITIONS,
            K.INVALID_REPLICATION_FACTOR,
            K.POLICY_VIOLATION,
            K.TOPIC_EXCEPTION,
        }
    )
