"""The topics that a job reads, as its cluster describes them now. Metadata only, no record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backfill_cli.errors import Transient, UsageError, in_config
from backfill_cli.kafka.admin import Admin, Place
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import client
from backfill_cli.model.units import near_names

_NAMED = 10
"""The most topics that an error lists."""

Offsets = Mapping[int, int]
"""partition → offset"""


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


def place(cluster: str, topic: str) -> str:
    """Where a topic's records are, whatever servers the config names: see Extras.places. cluster: its id."""
    return f"kafka:{cluster}/{topic}"


class Cluster:
    """What a client says of these topics; nothing is asked before `look`."""

    def __init__(self, connection: Connection, topics: Sequence[str], answer_s: float | None = None) -> None:
        self.admin = Admin(connection, answer_s)
        self._connection, self._topics = connection, tuple(dict.fromkeys(topics))
        self._oldest: dict[Place, int] = {}  # as last seen

    def look(self, read: Mapping[str, Offsets] | None = None) -> Mapping[str, Seen]:
        """Each topic as it is now.

        read: by topic, up to where partitions are read, None while history may still be read. See _begin_and_end.
        Raises Transient if the cluster does not answer or a topic does not exist, Fatal if it denies access.
        """
        with self.admin.asking("reading its metadata") as ask:
            cluster = ask.describe_cluster(request_timeout=self.admin.answer_s)
            found = self.admin.found(self._topics)
            if missing := [name for name in self._topics if name not in found]:
                option = f"{self._connection.at}.topic{'s' * (len(self._topics) > 1)}"
                raise Transient(
                    f"{self._connection.servers}: {_not_there(missing)}",
                    in_config(f"create it, or correct {option}"),
                )
            places = [(name, p) for name, topic in found.items() for p in topic.partitions]
            reached = (
                None if read is None else {(t, p): end for t, ends in read.items() for p, end in ends.items()}
            )
            self._oldest, ends = self._begin_and_end(places, reached)
            oldest, ends_of = _by_topic(self._oldest), _by_topic(ends)
            told = str(cluster.result().cluster_id)
        return {n: Seen(told, t.topic_id, oldest.get(n, {}), ends_of.get(n, {})) for n, t in found.items()}

    def _begin_and_end(
        self, places: Sequence[Place], read: Mapping[Place, int] | None
    ) -> tuple[dict[Place, int], dict[Place, int]]:
        """Where the logs of all partitions begin and end; with `read`, for some where they began before.

        A partition that is read up to its end can lose nothing, so its begin is not asked for again: that was a
        third of an idle barrier at 400 partitions. If the end moved, the begin is asked for after it.
        """
        committed = self._connection.isolation == "read_committed"
        if read is None:
            oldest = self.admin.begins(places)  # before the ends: no range begins after its end
            return oldest, self.admin.ends(places, committed)
        ends = self.admin.ends(places, committed)
        known = {p: self._oldest[p] for p, end in ends.items() if p in self._oldest and read.get(p) == end}
        return known | self.admin.begins(p for p in places if p not in known), ends

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
        found = self.admin.found(self._topics)
        return [name for name in self._topics if name not in found]

    def topics(self) -> Mapping[str, int]:
        """The partitions of each topic that this user may see, by name, without those of the cluster's own."""
        return {name: count for name, count in self.admin.topics().items() if not name.startswith("__")}

    def at_time(self, topic: str, partitions: Offsets, ms: int) -> dict[int, int]:
        """The first offset of each partition whose record is not older than `ms`; its end if there is none.

        partitions: each with its end.
        """
        spec = client().admin.OffsetSpec.for_timestamp(ms)
        committed = self._connection.isolation == "read_committed"
        found = self.admin.offsets({(topic, p): spec for p in partitions}, committed)
        return {p: found[topic, p] if found[topic, p] >= 0 else end for p, end in partitions.items()}

    def compacted(self) -> Mapping[str, bool | None]:
        """By topic, whether older records of a key may go at any time; None: this user may not see it."""
        told = self.admin.settings_of(self._topics)
        return {
            name: None if one is None else "compact" in one.get("cleanup.policy", "") for name, one in told.items()
        }

    def close(self) -> None:
        """The client, if any, has ended. Another call starts a new one."""
        self.admin.close()


def _not_there(missing: Sequence[str]) -> str:
    """`topic 'a' does not exist`, `topics 'a', 'b' do not exist`."""
    shown = ", ".join(f"'{name}'" for name in missing[:_NAMED])
    more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
    return f"topic{'s' * (len(missing) > 1)} {shown}{more} do{'es' * (len(missing) == 1)} not exist"


def _by_topic(found: Mapping[Place, int]) -> dict[str, dict[int, int]]:
    told: dict[str, dict[int, int]] = {}
    for (topic, p), offset in found.items():
        told.setdefault(topic, {})[p] = offset
    return told
