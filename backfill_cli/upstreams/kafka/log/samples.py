"""A few records of a topic, read before or when a job begins: what they say that the options do not."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import itemgetter
from typing import Any

from backfill_cli.decode.keyed import joined
from backfill_cli.decode.unwrapped import ADDED
from backfill_cli.errors import Transient
from backfill_cli.kafka.cluster import Seen
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import Complaints, asking, client, ours, unreachable
from backfill_cli.kafka.messages import messages, settings
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.units import spell_duration

_RECORDS, _PARTITIONS, _CLIENTS = 10, 16, 4
"""Offsets read at each end of a partition; how many partitions, the fullest ones; clients at once."""

_MANY_S = 10.0

_GLIMPSE, _GLIMPSE_BYTES = 2_000, 16 << 20
"""The most records of a glimpse, and about the most bytes."""


def of_ranges(connection: Connection, topic: str, ranges: Sequence[Range]) -> list[bytes]:
    """Values at both ends of these ranges."""
    return _values(_at_ends(connection, topic, {one.partition: (one.after, one.up_to) for one in ranges}))


def of_topic(connection: Connection, topic: str, seen: Seen, keyed: bool = False) -> list[bytes]:
    """Values at both ends of the fullest partitions, oldest first. keyed: with their keys (decode/keyed.py)."""
    spans = {p: (seen.oldest[p], end) for p, end in seen.ends.items()}
    return _values(_by_time(_at_ends(connection, topic, spans)), keyed)


def headers(connection: Connection, topic: str, seen: Seen) -> set[str]:
    """The names of the headers of those records."""
    found = _at_ends(connection, topic, {p: (seen.oldest[p], end) for p, end in seen.ends.items()})
    return {name for one in found for name, _ in one.headers() or ()}


def many_of_topic(connection: Connection, topic: str, seen: Seen, keyed: bool = False) -> list[bytes]:
    """As many values as come within some seconds: of a topic in which several tables have records.

    Oldest first; keyed: as above.
    """
    return _values(_by_time(glimpse(connection, topic, seen, _MANY_S)), keyed)


def unwrapped(connection: Connection, topic: str, seen: Seen) -> list[str]:
    """Fields that ExtractNewRecordState added to the first or the last records of a topic."""
    found = set[str]()
    for value in of_topic(connection, topic, seen):
        with suppress(ValueError, RecursionError):
            row = json.loads(value)
            found |= set(ADDED) & row.keys() if isinstance(row, dict) else set()
    return sorted(found)


def _values(found: Sequence[Any], keyed: bool = False) -> list[bytes]:
    of = client().Message
    if keyed:
        return [both for one in found if (both := joined(of.key(one), of.value(one)))]
    return [value for one in found if (value := of.value(one))]


def _by_time(found: Sequence[Any]) -> list[Any]:
    """The client's messages by their timestamps, those of a partition in the log's order. found: in that order."""
    latest: dict[int, int] = {}
    placed = []
    for one in found:
        p = one.partition()
        latest[p] = max(latest.get(p, 0), one.timestamp()[1])  # a clock that goes back reorders no log
        placed.append((latest[p], one))
    return [one for _, one in sorted(placed, key=itemgetter(0))]


def _at_ends(connection: Connection, topic: str, spans: Mapping[int, tuple[int, int]]) -> list[Any]:
    """The client's messages at both ends of the longest spans. spans: (first, end) offset by partition."""
    held = {p: span for p, span in spans.items() if span[1] > span[0]}
    fullest = sorted(held, key=lambda p: held[p][0] - held[p][1])[:_PARTITIONS]
    ranges = {Range(0, p, held[p][0], min(held[p][0] + _RECORDS, held[p][1])) for p in fullest}
    ranges |= {Range(0, p, max(held[p][1] - _RECORDS, held[p][0]), held[p][1]) for p in fullest}

    def read(one: Range) -> list[Any]:
        return [message for part in messages(connection, topic, one) for message in part]

    with ThreadPoolExecutor(_CLIENTS) as pool:
        parts = pool.map(read, sorted(ranges, key=lambda r: (r.partition, r.after)))
        return [message for part in parts for message in part]


def glimpse(connection: Connection, topic: str, seen: Seen, limit_s: float) -> list[Any]:
    """The client's messages at both ends of the fullest partitions, as many as come within this time.

    One consumer reads all: what it costs does not depend on the number of partitions. None may be left: of aborted
    transactions, say. Raises Transient if none came in time.
    """
    held = {p: (seen.oldest[p], end) for p, end in seen.ends.items() if end > seen.oldest[p]}
    fullest = sorted(held, key=lambda p: held[p][0] - held[p][1])[:_PARTITIONS]
    if not fullest:
        return []
    each = max(1, _GLIMPSE // (2 * len(fullest)))
    first = {p: (held[p][0], min(held[p][0] + each, held[p][1])) for p in fullest}
    last = {p: (max(held[p][1] - each, first[p][1]), held[p][1]) for p in fullest}
    kafka, complaints, until = client(), Complaints(), time.monotonic() + limit_s
    with asking(connection, "reading a few records", complaints):
        consumer = kafka.Consumer({**settings(connection, each), **complaints.settings()})
        try:
            found = [
                one
                for spans, share in ((first, 0.5), (last, 1.0))
                for one in _within(consumer, connection, topic, spans, until - limit_s * (1 - share))
            ]
        finally:
            consumer.close()
    if not found and time.monotonic() >= until:
        said = f"{connection.servers}: topic '{topic}' sent no record within {spell_duration(limit_s)}"
        raise Transient(said, unreachable(connection))
    return found


def _within(
    consumer: Any, connection: Connection, topic: str, spans: Mapping[int, tuple[int, int]], until: float
) -> Iterator[Any]:
    """The messages of these spans that come in time. Raises what the client reports.

    spans: (first, end) offset by partition. until: by the monotonic clock.
    """
    kafka = client()
    left = {p: end for p, (begin, end) in spans.items() if begin < end}
    consumer.assign([kafka.TopicPartition(topic, p, spans[p][0]) for p in left])
    size = 0
    while left and size < _GLIMPSE_BYTES // 2 and time.monotonic() < until:
        for one in consumer.consume(500, 0.1):
            error, p = one.error(), one.partition()
            if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
                if error.fatal() or not error.retriable():
                    raise ours(error, connection, "reading a few records")
            elif error is None and p in left and one.offset() < left[p]:
                size += len(one.value() or b"")
                yield one
            if p in left and one.offset() >= left[p] - (error is None):
                del left[p]
