"""A few records of a topic, read when a job begins: what they say about columns that the options do not."""

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from backfill_cli.errors import ConfigError, in_config
from backfill_cli.formats.debezium_changes import UNWRAPPED
from backfill_cli.formats.debezium_types import Connect
from backfill_cli.formats.source_table import matching, source_of
from backfill_cli.upstreams.kafka.decode.debezium_block import envelope_of, together
from backfill_cli.upstreams.kafka.log import reader
from backfill_cli.upstreams.kafka.log.cluster import Connection, Seen
from backfill_cli.upstreams.kafka.log.edge import client
from backfill_cli.upstreams.kafka.tasks import Range

_RECORDS, _PARTITIONS, _CLIENTS = 10, 16, 4
"""Offsets read at each end of a partition; how many partitions, the fullest ones; clients at once."""


@dataclass(frozen=True, slots=True)
class Samples:
    """told: the row's fields by the schema blocks; empty without one. names: columns that some row has.

    source: the one table that the records are of; None if no record says so. blockless: parsed rows of records
    without a schema block.
    """

    told: dict[str, Connect]
    names: frozenset[str] = frozenset()
    source: str | None = None
    blockless: tuple[Mapping[str, Any], ...] = ()


def of_debezium(connection: Connection, topic: str, seen: Seen, tables: Sequence[str]) -> Samples:
    """What the first and the last records of a topic say.

    tables: as in the options. Raises ConfigError for records of several tables if the options name none,
    BadData for blocks that contradict each other.
    """
    found = [one for one in map(envelope_of, _values(connection, topic, seen)) if one is not None]
    mine = [one for one in found if not tables or re.search(matching(tables), source_of(one[0]))]
    sources = sorted({source_of(envelope) for envelope, _ in mine} - {""})
    if len(sources) > 1 and not tables:
        fault = f"{connection.at}.topic: '{topic}' holds records of several tables: {', '.join(sources[:5])}"
        raise ConfigError(
            "upstream", [fault], in_config(f'name those to read: {connection.at}.value.tables = ["{sources[0]}"]')
        )
    told = together(topic, [block for _, block in mine if block is not None])
    images = [envelope.get("after") for envelope, _ in mine]
    names = frozenset(name for image in images if isinstance(image, dict) for name in image)
    source = sources[0] if len(sources) == 1 and not tables else None
    blockless = [image for envelope, block in mine if block is None for image in _images(envelope)]
    return Samples(told, names | told.keys(), source, tuple(blockless))


def envelopes(connection: Connection, topic: str, ranges: Sequence[Range]) -> list[Mapping[str, Any]]:
    """Envelopes at both ends of these ranges."""
    spans = {one.partition: (one.after, one.up_to) for one in ranges}
    found = (envelope_of(value) for value in _at_ends(connection, topic, spans))
    return [envelope for envelope, _ in filter(None, found)]


def unwrapped(connection: Connection, topic: str, seen: Seen) -> list[str]:
    """Fields that ExtractNewRecordState added to the first or the last records of a topic."""
    found = set[str]()
    for value in _values(connection, topic, seen):
        with suppress(ValueError, RecursionError):
            row = json.loads(value)
            found |= set(UNWRAPPED) & row.keys() if isinstance(row, dict) else set()
    return sorted(found)


def _images(envelope: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in (envelope.get("before"), envelope.get("after")) if isinstance(row, dict)]


def _values(connection: Connection, topic: str, seen: Seen) -> list[bytes]:
    """Values at both ends of the fullest partitions."""
    return _at_ends(connection, topic, {p: (seen.oldest[p], end) for p, end in seen.ends.items()})


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
