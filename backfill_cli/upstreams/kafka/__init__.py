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
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.registry import decoder
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.options import EVENT_KEY, JSON_FORMATS, WIRE, KafkaOptions, TopicOptions


def _open(options: KafkaOptions, tables: Sequence[TableSpec]) -> Source:
    from backfill_cli.upstreams.kafka.upstream import KafkaUpstream

    return KafkaUpstream(options, tables)


def _open_changes(options: ChangesOptions, tables: Sequence[TableSpec]) -> ChangeLog:
    from backfill_cli.upstreams.kafka.changes import KafkaChanges

    return KafkaChanges(options, tables)


def _fingerprint(options: KafkaOptions) -> Mapping[str, Any]:
    """The options that decide which records are read, and what their columns hold. The cluster is known by id."""
    decides = {*_place(options), "from_", "value", "isolation", "archive", "compacted", "transactional"}
    told: dict[str, Any] = options.model_dump(mode="json", by_alias=True, include=decides)
    _value_fingerprint(told, options)
    if not options.value.tables:  # jobs created before this option existed are the same jobs
        del told["value"]["tables"]
    return told | _key_fingerprint(options)


def _changes_fingerprint(options: ChangesOptions) -> Mapping[str, Any]:
    """As for a topic alone, without the options that let a job continue after a new column or another table."""
    decides = {*_place(options), "from_", "complete_at", "value", "isolation"}
    told: dict[str, Any] = options.model_dump(mode="json", by_alias=True, include=decides)
    _value_fingerprint(told, options)
    del told["value"]["tables"]
    return told | _key_fingerprint(options)


def _value_fingerprint(told: dict[str, Any], options: TopicOptions) -> None:
    """Options that did not exist when the first jobs were created are left out where they say what held then."""
    told["value"]["format"] = _stored_format(options)
    if options.value.encoding == "json":
        del told["value"]["encoding"]


def _stored_format(options: TopicOptions) -> str:
    """rows and events had one name when the first jobs were created; the table's key tells which of them it is."""
    return "json" if options.value.format in JSON_FORMATS else options.value.format


def _place(options: TopicOptions) -> set[str]:
    return {"topic" if options.topics is None else "topics"}


def _key_fingerprint(options: TopicOptions) -> dict[str, Any]:
    """The key's format, if it is not that of jobs created before this option existed."""
    return {} if options.key.format == "json" else {"key": {"format": options.key.format}}


def _event_key(options: KafkaOptions) -> tuple[str, ...]:
    """Partition and offset; rows and changes of a table have that table's key."""
    keyed = options.value.format == "rows" or decoder(options.value.format).changes
    return () if keyed else EVENT_KEY


def _primary_keys(
    options: KafkaOptions, unkeyed: Sequence[str], tables: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """By the registry's schema of the records' keys, or by Debezium's keys in JSON.

    Raises ConfigError for rows whose key nothing says.
    """
    found: dict[str, Sequence[str]] = {}
    if options.key.format in WIRE:
        from backfill_cli.upstreams.kafka.keys import of_registry

        found = of_registry(options, unkeyed, tables)
    elif options.value.format == "debezium" and options.key.format == "json":
        from backfill_cli.upstreams.kafka.keys import of_records

        found = of_records(options, unkeyed, tables)
    unknown = [table for table in unkeyed if table not in found]
    if options.value.format != "rows" or not unknown:
        return found
    fault = f"tables: '{unknown[0]}' needs key: of rows, the newest of each key counts"
    key = 'name it in [[tables]], for example key = ["id"]'
    raise ConfigError(
        "config", [fault], in_config(f'{key}; for a row per record: upstream.value.format = "events"')
    )


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
    _primary_keys,
    changes=ChangesConnector(ChangesOptions, _open_changes, _changes_fingerprint, _look_at_changes),
    look=_look,
    claims=_claims,
)
