"""Kafka as an upstream: a topic's partitions, and an archive of what they held before."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import (
    ChangeLog,
    ChangesConnector,
    Looked,
    Named,
    Source,
    TableSpec,
    UpstreamConnector,
)
from backfill_cli.registry import decoder
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.options import EVENT_KEY, KafkaOptions, TopicOptions


def _open(options: KafkaOptions, tables: Sequence[TableSpec]) -> Source:
    from backfill_cli.upstreams.kafka.upstream import KafkaUpstream

    return KafkaUpstream(options, tables)


def _open_changes(options: ChangesOptions, tables: Sequence[TableSpec]) -> ChangeLog:
    from backfill_cli.upstreams.kafka.changes import KafkaChanges

    return KafkaChanges(options, tables)


def _fingerprint(options: KafkaOptions) -> Mapping[str, Any]:
    """The options that decide which records are read, and what their columns hold. The cluster is known by id."""
    decides = {"topic", "from_", "value", "isolation", "archive", "compacted", "transactional"}
    told: dict[str, Any] = options.model_dump(mode="json", by_alias=True, include=decides)
    if not options.value.tables:  # jobs created before this option existed are the same jobs
        del told["value"]["tables"]
    return told | _key_fingerprint(options)


def _changes_fingerprint(options: ChangesOptions) -> Mapping[str, Any]:
    """As for a topic alone, without the options that let a job continue after a new column or another table."""
    decides = {"topic", "from_", "complete_at", "value", "isolation"}
    told: dict[str, Any] = options.model_dump(mode="json", by_alias=True, include=decides)
    del told["value"]["tables"]
    return told | _key_fingerprint(options)


def _key_fingerprint(options: TopicOptions) -> dict[str, Any]:
    """The key's format, if it is not that of jobs created before this option existed."""
    return {} if options.key.format == "json" else {"key": {"format": options.key.format}}


def _event_key(options: KafkaOptions) -> tuple[str, ...]:
    """Partition and offset; changes of a table have that table's key, which the config must name."""
    return () if decoder(options.value.format).changes else EVENT_KEY


def _look(named: Named) -> Looked:
    from backfill_cli.upstreams.kafka.look import look

    return look(named)


def _look_at_changes(named: Named, snapshot: Looked) -> Looked:
    from backfill_cli.upstreams.kafka.look import look_at_changes

    return look_at_changes(named, snapshot)


def _claims(text: str) -> bool:
    return text.startswith("kafka://")


connector = UpstreamConnector(
    KafkaOptions,
    _open,
    _fingerprint,
    _event_key,
    changes=ChangesConnector(ChangesOptions, _open_changes, _changes_fingerprint, _look_at_changes),
    look=_look,
    claims=_claims,
)
