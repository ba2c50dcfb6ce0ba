"""What a cluster says about topics, and what makes and deletes them. No record is read or written here."""

import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from backfill_cli.errors import Transient, UsageError, in_config
from backfill_cli.kafka import cluster
from backfill_cli.kafka.cluster import Connection
from backfill_cli.kafka.edge import Complaints, asking, client, ours, unreachable

Place = tuple[str, int]
"""(topic, partition)"""

_MADE_S = 30.0
"""A topic is led, or gone, within milliseconds; in a cluster of many brokers within seconds."""


@dataclass(frozen=True, slots=True)
class Found:
    """A topic that exists."""

    topic_id: str
    partitions: int


class Admin:
    """A client for topics; nothing is asked before the first call. Raises Transient if the cluster is silent."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._complaints = Complaints()
        self._client: Any = None

    def cluster_id(self) -> str:
        with self._asking("reading its metadata") as ask:
            return str(ask.describe_cluster(request_timeout=cluster.ANSWER_S).result().cluster_id)

    def names(self) -> list[str]:
        """All topics that this user may see."""
        with self._asking("listing its topics") as ask:
            return sorted(ask.list_topics(timeout=cluster.ANSWER_S).topics)

    def found(self, topics: Iterable[str]) -> dict[str, Found]:
        """Those of these topics that exist."""
        kafka, K = client(), client().KafkaError
        there = {}
        wanted = sorted(set(topics))
        if not wanted:
            return {}
        with self._asking("reading its metadata") as ask:
            asked = ask.describe_topics(kafka.TopicCollection(wanted), request_timeout=cluster.ANSWER_S)
            for name, answer in asked.items():
                try:
                    topic = answer.result()
                except kafka.KafkaException as exc:
                    if exc.args[0].code() not in (K.UNKNOWN_TOPIC_OR_PART, K.TOPIC_EXCEPTION):  # no legal name
                        raise
                else:
                    there[name] = Found(str(topic.topic_id), len(topic.partitions))
        return there

    def begins(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where the log of each partition begins."""
        return self._offsets(places, client().admin.OffsetSpec.earliest(), committed=True)

    def ends(self, places: Iterable[Place], committed: bool) -> dict[Place, int]:
        """Where each partition ends; committed: where its first open transaction begins, if there is one."""
        return self._offsets(places, client().admin.OffsetSpec.latest(), committed)

    def create(self, topic: str, partitions: int | None, replication: int | None, told: Mapping[str, str]) -> None:
        """The topic exists, and its partitions are led. One that exists by now is left as it is."""
        kafka = client()
        wanted = kafka.admin.NewTopic(
            topic,
            num_partitions=partitions or -1,
            replication_factor=replication or -1,
            config=dict(told),
        )
        with self._asking(f"creating topic '{topic}'") as ask:
            try:
                ask.create_topics([wanted], request_timeout=cluster.ANSWER_S)[topic].result()
            except kafka.KafkaException as exc:
                error = exc.args[0]
                if error.code() in _not_taken():
                    raise UsageError(
                        f"{self.connection.servers}: topic '{topic}' cannot be created: {error.str()}",
                        in_config("correct sink.properties, sink.replication or sink.partitions"),
                    ) from exc
                if error.code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        self._until(topic, there=True)

    def delete(self, topics: Iterable[str]) -> None:
        """None of these topics exists."""
        there = sorted(self.found(topics))
        if not there:
            return
        kafka = client()
        with self._asking("deleting topics") as ask:
            for answer in ask.delete_topics(there, request_timeout=cluster.ANSWER_S).values():
                try:
                    answer.result()
                except kafka.KafkaException as exc:
                    if exc.args[0].code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        for name in there:
            self._until(name, there=False)

    def _until(self, topic: str, there: bool) -> None:
        until = time.monotonic() + _MADE_S
        while not self._is(topic, there):
            if time.monotonic() > until:
                said = "is not led by a broker yet" if there else "is not gone yet"
                raise Transient(f"{self.connection.servers}: topic '{topic}' {said}", unreachable(self.connection))
            time.sleep(0.02)

    def _is(self, topic: str, there: bool) -> bool:
        found = self.found([topic])
        if not there:
            return topic not in found and topic not in self.names()
        if topic not in found:
            return False
        with self._asking("reading its metadata") as ask:
            ask.list_topics(topic, timeout=cluster.ANSWER_S)  # refreshes what the client knows
        try:
            self.ends(((topic, p) for p in range(found[topic].partitions)), committed=True)
        except Transient:  # for some ms its broker denies being its leader
            return False
        return True

    def _offsets(self, places: Iterable[Place], spec: Any, committed: bool) -> dict[Place, int]:
        kafka = client()
        level = kafka.IsolationLevel
        wanted = {kafka.TopicPartition(topic, p): spec for topic, p in places}
        if not wanted:
            return {}
        with self._asking("reading where its topics begin and end") as ask:
            asked = ask.list_offsets(
                wanted,
                isolation_level=level.READ_COMMITTED if committed else level.READ_UNCOMMITTED,
                request_timeout=cluster.ANSWER_S,
            )
            return {(one.topic, one.partition): future.result().offset for one, future in asked.items()}

    @contextmanager
    def _asking(self, what: str) -> Iterator[Any]:
        with asking(self.connection, what, self._complaints):
            try:
                yield self._ask()
            finally:
                if self._client is not None:
                    self._client.poll(0)  # delivers the client's complaints so far
            self._complaints.forget()

    def _ask(self) -> Any:
        if self._client is None:
            told = self._complaints.settings()
            settings = {**self.connection.settings(), "error_cb": told["error_cb"]}
            # an admin client does not accept the settings of others
            settings = {k: v for k, v in settings.items() if not k.startswith(_OF_OTHERS)}
            cluster.LEFT.clear()
            try:
                self._client = client().admin.AdminClient(settings, logger=told["logger"])
            except client().KafkaException as exc:
                raise ours(exc.args[0], self.connection, "its settings") from exc
            weakref.finalize(self, cluster.LEFT.append, self._client).atexit = False
        return self._client


def _not_taken() -> frozenset[int]:
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


_OF_OTHERS = (
    *("fetch.", "queued.", "check.crcs", "allow.auto.create.topics"),
    *("batch.", "compression.", "linger.ms", "queue.buffering.", "request.timeout.ms"),
)
