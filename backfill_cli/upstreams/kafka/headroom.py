"""How long topics keep the records that a job has not read: by their retention, and by what is written to them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from backfill_cli.kafka.admin import Admin, Place
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import client
from backfill_cli.model.headroom import FAR_MS, Headroom, Unread
from backfill_cli.model.position import Position
from backfill_cli.model.units import spell_duration, spell_size
from backfill_cli.upstreams.kafka.topic import Topic

RATES_S = (300, 3600)
"""A topic's rate is that of the last minutes, or of the last hour, whichever is more."""

HALVED = 10
"""How often the time in which the oldest record was written is cut in half: to a thousandth of the retention."""

AtTime = Callable[[Collection[Place], int], Mapping[Place, int]]
"""The first offset of each partition whose record is not older than a moment; its end if there is none."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A topic's retention. appends: each of its records is a row.

    keep_ms, keep_bytes: what it keeps, of each partition, None for no limit. deletes_ms: for how long compaction
    keeps a record that deletes a key; None where nothing is compacted.
    """

    topic: str
    keep_ms: int | None = None
    keep_bytes: int | None = None
    deletes_ms: int | None = None
    appends: bool = False

    @staticmethod
    def of(topic: str, settings: Mapping[str, str], appends: bool) -> "Kept":
        """settings: as Kafka names them."""
        policy = settings.get("cleanup.policy", "delete")
        deletes = "delete" in policy
        ms, size = int(settings.get("retention.ms", -1)), int(settings.get("retention.bytes", -1))
        return Kept(
            topic,
            keep_ms=ms if deletes and 0 <= ms < FAR_MS else None,
            keep_bytes=size if deletes and size >= 0 else None,
            deletes_ms=int(settings.get("delete.retention.ms", 0)) if "compact" in policy else None,
            appends=appends,
        )


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the partitions of a topic are: their logs' begins and ends, and up to where the job has read them."""

    begins: Mapping[Place, int]
    ends: Mapping[Place, int]
    reached: Mapping[Place, int]

    @property
    def unread(self) -> list[Place]:
        """Those that have something that the job has not read."""
        return sorted(one for one, at in self.reached.items() if self.ends.get(one, at) > at)


class TopicsHeadroom:
    """Asks the cluster of some tables' topics; see contracts.Extras.

    archived: up to where an archive has each partition: what it holds is not read from the log.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Collection[Topic],
        archived: Callable[[], Mapping[int, int]] = dict,
    ) -> None:
        self._connection, self._topics, self._archived = connection, topics, archived
        self._admin: Admin | None = None

    def __call__(self, unread: Unread) -> Headroom | None:
        admin = self._admin = self._admin or Admin(self._connection)
        reached = self._reached(unread.position)
        settings = admin.settings_of(topic.name for topic in self._topics)
        begins = admin.begins(reached)
        ends = admin.ends(reached, self._connection.isolation == "read_committed")

        def at_time(places: Collection[Place], ms: int) -> Mapping[Place, int]:
            spec = client().admin.OffsetSpec.for_timestamp(ms)
            found = admin.offsets(dict.fromkeys(places, spec))
            return {one: found[one] if found[one] >= 0 else ends[one] for one in places}

        found: list[Headroom] = []
        for topic in {one.name: one for one in self._topics}.values():
            told, mine = settings.get(topic.name), [one for one in reached if one[0] == topic.name]
            if told is None:
                why = f"this user may not see the settings of topic '{topic.name}' (DescribeConfigs)"
                found.append(Headroom.unknown(why))
                continue
            stand = Stand(*({one: of[one] for one in mine} for of in (begins, ends, reached)))
            found.append(headroom(Kept.of(topic.name, told, topic.appends), stand, at_time, unread))
        return Headroom.least(found)

    def _reached(self, position: Position) -> dict[Place, int]:
        archived, found = self._archived(), dict[Place, int]()
        for topic in self._topics:
            for p, offset in topic.offsets(position).items():
                at = max(offset, archived.get(p, 0))
                found[topic.name, p] = min(at, found.get((topic.name, p), at))
        return found

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


def headroom(kept: Kept, stand: Stand, at_time: AtTime, unread: Unread) -> Headroom:
    """The first of a topic's limits that act."""
    found = Headroom.least(_limits(kept, stand, at_time, unread))
    return found or Headroom.unbounded(f"topic '{kept.topic}' has no retention")


def _limits(kept: Kept, stand: Stand, at_time: AtTime, unread: Unread) -> Iterator[Headroom]:
    if kept.keep_ms is not None:
        by = f"retention.ms ({spell_duration(kept.keep_ms / 1000)})"
        yield _by_age(kept.topic, kept.keep_ms, by, "retention.ms", stand, at_time, unread)
    if kept.keep_bytes is not None:
        yield from _by_size(kept, kept.keep_bytes, stand, at_time, unread)
    if kept.deletes_ms is not None and kept.appends:
        why = f"topic '{kept.topic}' is compacted: the older records of a key may go at any time"
        yield Headroom.unknown(why)
    elif kept.deletes_ms is not None:
        by = f"compaction, of deletes (delete.retention.ms, {spell_duration(kept.deletes_ms / 1000)})"
        yield _by_age(kept.topic, kept.deletes_ms, by, "delete.retention.ms", stand, at_time, unread)


def _by_age(
    topic: str, keep_ms: int, by: str, setting: str, stand: Stand, at_time: AtTime, unread: Unread
) -> Headroom:
    written_ms, places = oldest(stand, at_time, keep_ms, unread.now_ms)
    of = f"partition {places[0][1]} of topic '{topic}'" if places else f"topic '{topic}'"
    return Headroom.of_age(unread, written_ms, keep_ms, by, of, f"raise {setting} of topic '{topic}'")


def oldest(stand: Stand, at_time: AtTime, keep_ms: int, now_ms: int) -> tuple[int | None, list[Place]]:
    """When the oldest unread record was written at the earliest, and the partitions that it may be in.

    None if there is none. Found by halves, each a request for all partitions: no record is read.
    """
    places = stand.unread
    if not places:
        return None, places
    low, high = now_ms - keep_ms, now_ms
    for _ in range(HALVED):
        middle = (low + high) // 2
        first = at_time(places, middle)
        if older := [one for one in places if first[one] > stand.reached[one]]:
            places, high = older, middle
        else:
            low = middle
    return low, places


def _by_size(kept: Kept, keep_bytes: int, stand: Stand, at_time: AtTime, unread: Unread) -> Iterator[Headroom]:
    """A cluster does not tell how large a partition is. One that has lost its beginning is taken to be at its
    limit: then its beginning moves as its end does."""
    by, more = f"retention.bytes ({spell_size(keep_bytes)})", f"raise retention.bytes of topic '{kept.topic}'"
    places = sorted(stand.reached)
    then = {since_s: at_time(places, unread.now_ms - since_s * 1000) for since_s in RATES_S if places}
    for one in places:
        of = f"partition {one[1]} of topic '{kept.topic}'"
        if not stand.begins[one]:
            yield Headroom.unknown(f"the cluster does not tell how far it is from {by}", of)
            continue
        per_s = max((stand.ends[one] - then[since_s][one]) / since_s for since_s in RATES_S)
        yield Headroom.of_room(unread, stand.reached[one] - stand.begins[one], per_s, by, of, more)
