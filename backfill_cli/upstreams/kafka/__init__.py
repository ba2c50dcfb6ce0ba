"""Kafka as an upstream: a topic's partitions, and an archive of what they held before."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import TableSpec, Upstream, UpstreamConnector
from backfill_cli.upstreams.kafka.options import EVENT_KEY, KafkaOptions


def _open(options: KafkaOptions, tables: Sequence[TableSpec]) -> Upstream:
    from backfill_cli.upstreams.kafka.upstream import KafkaUpstream

    return KafkaUpstream(options, tables)


def _fingerprint(options: KafkaOptions) -> Mapping[str, Any]:
    """All that decides which records are read, and what their columns hold. The cluster is known by its own id."""
    decides = {"topic", "from_", "value", "isolation", "archive", "compacted", "transactional"}
    told: dict[str, Any] = options.model_dump(mode="json", by_alias=True, include=decides)
    if not options.value.tables:  # jobs that were there before the option are the same jobs
        del told["value"]["tables"]
    return told


def _event_key(options: KafkaOptions) -> tuple[str, ...]:
    """Partition and offset; changes of a table have that table's key, and must say so."""
    return () if options.value.format == "debezium" else EVENT_KEY


connector = UpstreamConnector(KafkaOptions, _open, _fingerprint, _event_key)
