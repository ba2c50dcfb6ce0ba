"""A client for what a cluster says about topics: ids, partitions, where their logs begin and end. No record."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import Complaints, asking, client, ours

ANSWER_S = 10.0
"""A live cluster answers within milliseconds; the election of a leader takes some seconds."""

Place = tuple[str, int]
"""(topic, partition)"""

LEFT: list[Any] = []
"""Clients whose Admin is no longer referenced, until one of our own threads ends them.

librdkafka aborts the process when a client is ended by one of its own threads. Such a thread runs Python for a
moment with each answer, and may collect garbage then: a client must never be garbage.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A topic that exists. partitions: their numbers, rising."""

    topic_id: str
    partitions: tuple[int, ...]


def _is_untold(error: Any) -> bool:
    """Whether a broker answered that it does not tell its settings: the user may not see them, or no one may.

    Not with what passes by itself, which would be taken for a setting that the broker does not have.
    """
    K = client().KafkaError
    return error.code() in {
        K.TOPIC_AUTHORIZATION_FAILED,
        K.CLUSTER_AUTHORIZATION_FAILED,
        # of brokers that are not Apache's
        K.UNSUPPORTED_VERSION,
        K.INVALID_REQUEST,
        K.UNKNOWN,
        K._UNSUPPORTED_FEATURE,
    }


class Admin:
    """The client is started by the first call. All raise Transient if the cluster is silent.

    What is asked of several topics is one request.
    """

    def __init__(self, connection: Connection, answer_s: float | None = None) -> None:
        self.connection = connection
        self.answer_s = ANSWER_S if answer_s is None else answer_s
        self._complaints = Complaints()
        self._client: Any = None

    def cluster_id(self) -> str:
        with self.asking("reading its metadata") as ask:
            return str(ask.describe_cluster(request_timeout=self.answer_s).result().cluster_id)

    def topics(self) -> dict[str, int]:
        """The partitions of each topic that this user may see, by name."""
        with self.asking("listing its topics") as ask:
            found = ask.list_topics(timeout=self.answer_s).topics
        return {name: len(found[name].partitions) for name in sorted(found)}

    def found(self, topics: Iterable[str]) -> dict[str, Found]:
        """Those of these topics that exist. A name that none can have is of one that does not."""
        kafka, K = client(), client().KafkaError
        there, wanted = {}, list(dict.fromkeys(topics))
        if not wanted:
            return {}
        with self.asking("reading its metadata") as ask:
            asked = ask.describe_topics(kafka.TopicCollection(wanted), request_timeout=self.answer_s)
            for name, answer in asked.items():
                try:
                    topic = answer.result()
                except kafka.KafkaException as exc:
                    if exc.args[0].code() not in (K.UNKNOWN_TOPIC_OR_PART, K.TOPIC_EXCEPTION):
                        raise
                else:
                    there[name] = Found(str(topic.topic_id), tuple(sorted(one.id for one in topic.partitions)))
        return there

    def settings_of(self, topics: Iterable[str]) -> dict[str, Mapping[str, str] | None]:
        """Each topic's settings, as Kafka names them; None: this user may not see them."""
        kafka = client()
        kind = kafka.admin.ConfigResource.Type.TOPIC
        wanted = [kafka.admin.ConfigResource(kind, name) for name in dict.fromkeys(topics)]
        found: dict[str, Mapping[str, str] | None] = {}
        if not wanted:
            return found
        with self.asking("reading its settings") as ask:
            for one, answer in ask.describe_configs(wanted, request_timeout=self.answer_s).items():
                try:
                    told = answer.result()
                except kafka.KafkaException as exc:
                    if not _is_untold(exc.args[0]):
                        raise
                    found[one.name] = None
                else:
                    values = {name: setting.value for name, setting in told.items()}
                    found[one.name] = {name: str(value) for name, value in values.items() if value is not None}
        return found

    def broker_setting(self, name: str) -> str | None:
        """A broker's setting, as Kafka names it; None: it has none, or this user may not see it."""
        kafka = client()
        with self.asking("reading its settings") as ask:
            nodes = ask.describe_cluster(request_timeout=self.answer_s).result().nodes
            if not nodes:
                return None
            broker = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.BROKER, str(nodes[0].id))
            try:
                told = ask.describe_configs([broker], request_timeout=self.answer_s)[broker].result()
            except kafka.KafkaException as exc:
                if not _is_untold(exc.args[0]):
                    raise
                return None
        value = told[name].value if name in told else None
        return None if value is None else str(value)

    def begins(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where the log of each partition begins."""
        return self.offsets(dict.fromkeys(places, client().admin.OffsetSpec.earliest()))

    def ends(self, places: Iterable[Place], committed: bool) -> dict[Place, int]:
        """Where each partition ends; committed: where its first open transaction begins, if there is one."""
        return self.offsets(dict.fromkeys(places, client().admin.OffsetSpec.latest()), committed)

    def offsets(self, wanted: Mapping[Place, Any], committed: bool = True) -> dict[Place, int]:
        """wanted: the client's specs of offsets."""
        if not wanted:
            return {}
        kafka = client()
        level = kafka.IsolationLevel
        with self.asking("reading where its topics begin and end") as ask:
            asked = ask.list_offsets(
                {kafka.TopicPartition(*place): spec for place, spec in wanted.items()},
                isolation_level=level.READ_COMMITTED if committed else level.READ_UNCOMMITTED,
                request_timeout=self.answer_s,
            )
            return {(one.topic, one.partition): future.result().offset for one, future in asked.items()}

    def close(self) -> None:
        """The client, if any, has ended. Another call starts a new one."""
        if self._client is not None:
            self._left.detach()
            self._client = None

    @contextmanager
    def asking(self, what: str) -> Iterator[Any]:
        """The client, for what only some ask. Its errors inside are raised as BackfillErrors."""
        with asking(self.connection, what, self._complaints):
            try:
                yield self._started()
            finally:
                if self._client is not None:
                    self._client.poll(0)  # delivers the client's complaints so far
            self._complaints.forget()

    def _started(self) -> Any:
        if self._client is None:
            told = self._complaints.settings()
            settings = {**self.connection.settings("admin"), "error_cb": told["error_cb"]}
            LEFT.clear()
            try:
                self._client = client().admin.AdminClient(settings, logger=told["logger"])
            except client().KafkaException as exc:
                raise ours(exc.args[0], self.connection, "its settings") from exc
            self._left = weakref.finalize(self, LEFT.append, self._client)
            self._left.atexit = False
        return self._client
