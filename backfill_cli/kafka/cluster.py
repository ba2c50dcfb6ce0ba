"""What a cluster says about topics: ids, partitions, where their logs begin and end. Metadata only, no record."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

from backfill_cli.errors import Transient, UsageError, in_config
from backfill_cli.kafka.client_properties import SECRETS
from backfill_cli.kafka.edge import Complaints, asking, client, ours
from backfill_cli.model.units import near_names

ANSWER_S = 10.0
"""A live cluster answers within milliseconds; the election of a leader takes some seconds."""

_NAMED = 10
"""The most topics that an error lists."""

Offsets = Mapping[int, int]
"""partition → offset"""

_Places = dict[tuple[str, int], int]
"""(topic, partition) → offset"""

LEFT: list[Any] = []
"""Clients whose Cluster is no longer referenced, until one of our own threads ends them.

librdkafka aborts the process when a client is ended by one of its own threads. Such a thread runs Python for a
moment with each answer, and may collect garbage then: a client must never be garbage.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A topic, as seen at one look.

    oldest: first offset that each partition still holds, or held at an earlier look if it is read up to its end.
    ends: next offset at each partition's end; with read_committed, where the first open transaction begins.
    """

    cluster: str
    topic_id: str
    oldest: Offsets
    ends: Offsets


class Reached(Protocol):
    """The options of how a cluster is reached. at: where they are in the config, for errors."""

    @property
    def at(self) -> str: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def isolation(self) -> str: ...
    @property
    def options(self) -> Mapping[str, str]: ...


class Connection:
    """How to reach the cluster: the client's settings. Never shown: they hold secrets."""

    def __init__(self, options: Reached, rights: str = "Read and Describe the topic") -> None:
        self.rights = rights
        self.at, self.servers = options.at, options.bootstrap_servers
        self.isolation = options.isolation
        self._told = dict(options.options)

    def __repr__(self) -> str:
        return f"Connection({self.servers})"

    def of_all_records(self) -> "Connection":
        """The same for records of open and aborted transactions, too."""
        found = copy(self)
        found.isolation = "read_uncommitted"
        return found

    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "client.id": "backfill",
            "allow.auto.create.topics": False,
            # refused connections are tried again soon: a broker that restarts is back within seconds
            "reconnect.backoff.max.ms": 2000,
            **self._told,
        }

    def scrubbed(self, text: str) -> str:
        """The text without any secret of these settings."""
        for name in SECRETS & self._told.keys():
            if self._told[name]:
                text = text.replace(self._told[name], "…")
        return text


class Cluster:
    """A client that only reads metadata. One per process; nothing is asked before `look`.

    What is asked of all topics is one request.
    """

    def __init__(self, connection: Connection, topics: Sequence[str], answer_s: float | None = None) -> None:
        self._connection, self._topics = connection, tuple(dict.fromkeys(topics))
        self._answer_s = ANSWER_S if answer_s is None else answer_s
        self._complaints = Complaints()
        self._admin: Any = None
        self._oldest: _Places = {}  # as last seen

    def look(self, read: Mapping[str, Offsets] | None = None) -> Mapping[str, Seen]:
        """Each topic as it is now.

        read: by topic, up to where partitions are read, None while history may still be read. See _begin_and_end.
        Raises Transient if the cluster does not answer or a topic does not exist, Fatal if it denies access.
        """
        with self._asking("reading its metadata"):
            cluster = self._ask().describe_cluster(request_timeout=self._answer_s)
            found = self._described()
            if missing := [name for name in self._topics if name not in found]:
                option = f"{self._connection.at}.topic{'s' * (len(self._topics) > 1)}"
                raise Transient(
                    f"{self._connection.servers}: {_not_there(missing)}",
                    in_config(f"create it, or correct {option}"),
                )
            places = [(name, one.id) for name, topic in found.items() for one in topic.partitions]
            reached = (
                None if read is None else {(t, p): end for t, ends in read.items() for p, end in ends.items()}
            )
            self._oldest, ends = self._begin_and_end(places, reached)
            oldest, ends_of = _by_topic(self._oldest), _by_topic(ends)
            told = cluster.result().cluster_id
            return {
                n: Seen(told, str(t.topic_id), oldest.get(n, {}), ends_of.get(n, {})) for n, t in found.items()
            }

    def _begin_and_end(
        self, partitions: Sequence[tuple[str, int]], read: _Places | None
    ) -> tuple[_Places, _Places]:
        """Where the logs of all partitions begin and end; with `read`, for some where they began before.

        A partition that is read up to its end can lose nothing, so its begin is not asked for again: that was a
        third of an idle barrier at 400 partitions. If the end moved, the begin is asked for after it.
        """
        spec = client().admin.OffsetSpec
        begins = {p: spec.earliest() for p in partitions}
        latest = {p: spec.latest() for p in partitions}
        if read is None:
            oldest = self._offsets(begins)  # before the ends: no range begins after its end
            return oldest, self._offsets(latest)
        ends = self._offsets(latest)
        known = {p: self._oldest[p] for p, end in ends.items() if p in self._oldest and read.get(p) == end}
        return known | self._offsets({p: one for p, one in begins.items() if p not in known}), ends

    def must_exist(self) -> None:
        """All topics exist. Raises UsageError listing topics with similar names if one does not."""
        missing = self.missing()
        if not missing:
            return
        plain = list(self.topics())
        near = near_names(missing[0], plain) or plain[:5]
        raise UsageError(
            f"{self._connection.servers}: {_not_there(missing)}",
            f"name one of: {', '.join(near)}" if near else "create it first: the cluster has no topics yet",
        )

    def missing(self) -> Sequence[str]:
        """The topics that do not exist. A list of topics leaves out those that this user may not see."""
        with self._asking("reading its metadata"):
            found = self._described()
        return [name for name in self._topics if name not in found]

    def topics(self) -> Mapping[str, int]:
        """The partitions of each topic that this user may see, by name, without those of the cluster's own."""
        with self._asking("listing its topics"):
            found = self._ask().list_topics(timeout=self._answer_s).topics
        return {name: len(found[name].partitions) for name in sorted(found) if not name.startswith("__")}

    def at_time(self, topic: str, partitions: Offsets, ms: int) -> dict[int, int]:
        """The first offset of each partition whose record is not older than `ms`; its end if there is none.

        partitions: each with its end.
        """
        spec = client().admin.OffsetSpec
        with self._asking("looking up a time"):
            found = self._offsets({(topic, p): spec.for_timestamp(ms) for p in partitions})
        return {p: found[topic, p] if found[topic, p] >= 0 else end for p, end in partitions.items()}

    def compacted(self) -> Mapping[str, bool | None]:
        """By topic, whether older records of a key may go at any time; None: this user may not see it."""
        kafka = client()
        kind = kafka.admin.ConfigResource.Type.TOPIC
        asked = [kafka.admin.ConfigResource(kind, name) for name in self._topics]
        found: dict[str, bool | None] = {}
        with self._asking("reading its settings"):
            for one, answer in self._ask().describe_configs(asked, request_timeout=self._answer_s).items():
                try:
                    found[one.name] = "compact" in str(answer.result()["cleanup.policy"].value)
                except kafka.KafkaException as exc:
                    if exc.args[0].code() != kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise
                    found[one.name] = None
        return found

    def close(self) -> None:
        """The client, if any, has ended. Another call starts a new one."""
        if self._admin is not None:
            self._left.detach()
            self._admin = None

    def _described(self) -> dict[str, Any]:
        """The client's description of each topic that exists."""
        kafka = client()
        wanted = kafka.TopicCollection(list(self._topics))
        found = {}
        for name, asked in self._ask().describe_topics(wanted, request_timeout=self._answer_s).items():
            try:
                found[name] = asked.result()
            except kafka.KafkaException as exc:
                if exc.args[0].code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return found

    def _offsets(self, wanted: Mapping[tuple[str, int], Any]) -> _Places:
        if not wanted:
            return {}
        kafka = client()
        level = kafka.IsolationLevel
        committed = self._connection.isolation == "read_committed"
        asked = self._ask().list_offsets(
            {kafka.TopicPartition(*place): spec for place, spec in wanted.items()},
            isolation_level=level.READ_COMMITTED if committed else level.READ_UNCOMMITTED,
            request_timeout=self._answer_s,
        )
        return {(one.topic, one.partition): future.result().offset for one, future in asked.items()}

    def _ask(self) -> Any:
        if self._admin is None:
            told = self._complaints.settings()
            settings = {**self._connection.settings(), "error_cb": told["error_cb"]}
            # an admin client does not accept the settings of consumers
            fetching = ("fetch.", "queued.", "check.crcs", "allow.auto.create.topics")
            settings = {k: v for k, v in settings.items() if not k.startswith(fetching)}
            LEFT.clear()
            try:
                self._admin = client().admin.AdminClient(settings, logger=told["logger"])
            except client().KafkaException as exc:
                raise ours(exc.args[0], self._connection, "its settings") from exc
            self._left = weakref.finalize(self, LEFT.append, self._admin)
            self._left.atexit = False
        return self._admin

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        with asking(self._connection, what, self._complaints):
            try:
                yield
            finally:
                if self._admin is not None:
                    self._admin.poll(0)  # delivers the client's complaints so far
            self._complaints.forget()


def _not_there(missing: Sequence[str]) -> str:
    """`topic 'a' does not exist`, `topics 'a', 'b' do not exist`."""
    shown = ", ".join(f"'{name}'" for name in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
    return f"topic{'s' * (len(missing) > 1)} {shown}{more} do{'es' * (len(missing) == 1)} not exist"


def _by_topic(found: _Places) -> dict[str, dict[int, int]]:
    told: dict[str, dict[int, int]] = {}
    for (topic, p), offset in found.items():
        told.setdefault(topic, {})[p] = offset
    return told
