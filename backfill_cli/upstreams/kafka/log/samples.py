"""A few records of a topic, read when a job begins: what they say that the options do not."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from backfill_cli.decode.debezium import UNWRAPPED
from backfill_cli.upstreams.kafka.log import reader
from backfill_cli.upstreams.kafka.log.cluster import Connection, Seen
from backfill_cli.upstreams.kafka.log.edge import client
from backfill_cli.upstreams.kafka.tasks import Range

_RECORDS, _PARTITIONS, _CLIENTS = 10, 16, 4
"""Offsets read at each end of a partition; how many partitions, the fullest ones; clients at once."""


def of_ranges(connection: Connection, topic: str, ranges: Sequence[Range]) -> list[bytes]:
    """Values at both ends of these ranges."""
    return _at_ends(connection, topic, {one.partition: (one.after, one.up_to) for one in ranges})


def of_topic(connection: Connection, topic: str, seen: Seen) -> list[bytes]:
    """Values at both ends of the fullest partitions."""
    return _at_ends(connection, topic, {p: (seen.oldest[p], end) for p, end in seen.ends.items()})


def unwrapped(connection: Connection, topic: str, seen: Seen) -> list[str]:
    """Fields that ExtractNewRecordState added to the first or the last records of a topic."""
    found = set[str]()
    for value in of_topic(connection, topic, seen):
        with suppress(ValueError, RecursionError):
            row = json.loads(value)
            found |= set(UNWRAPPED) & row.keys() if isinstance(row, dict) else set()
    return sorted(found)


def _at_ends(connection: Connection, topic: str, spans: Mapping[int, tuple[int, int]]) -> list[bytes]:
    """Values at both ends of the longest spans. spans: (first, end) offset by partition."""
    held = {p: span for p, span in spans.items() if span[1] > span[0]}
    fullest = sorted(held, key=lambda p: held[p][0] - held[p][1])[:_PARTITIONS]
    ranges = {Range(0, p, held[p][0], min(held[p][0] + _RECORDS, held[p][1])) for p in fullest}
    ranges |= {Range(0, p, max(held[p][1] - _RECORDS, held[p][0]), held[p][1]) for p in fullest}
    of = client().Message

    def read(one: Range) -> list[bytes]:
        return [value for part in reader.messages(connection, topic, one) for m in part if (value := of.value(m))]

    with ThreadPoolExecutor(_CLIENTS) as pool:
        return [
            value
            for part in pool.map(read, sorted(ranges, key=lambda r: (r.partition, r.after)))
            for value in part
        ]
