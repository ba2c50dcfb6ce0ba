"""The key of a table whose config names none: by the schema of the records' keys, or by the keys themselves."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from backfill_cli.decode.block import envelope_of
from backfill_cli.decode.registered import Registered
from backfill_cli.decode.source_table import matching, source_of
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import BadData
from backfill_cli.kafka.cluster import Cluster
from backfill_cli.kafka.connection import Connection
from backfill_cli.schema_registry.registry import SchemaRegistry
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.options import WIRE, TopicOptions

_SAMPLE_S = 10.0
_OF_ROWS = ("c", "r", "u", "d")
"""What Debezium calls the changes of single rows: others have no key, or not the table's."""

Fields = tuple[str, ...]


def of_registry(
    options: TopicOptions, unkeyed: Sequence[str], tables: Collection[str]
) -> dict[str, Sequence[str]]:
    """By table the fields of the newest schema of its topic's keys, where that is a record.

    A sample of the keys tells it where the schema does not: of several messages, or in a topic of several tables,
    where it is of one of them.
    Raises what the registry does, and what `of_records` does.
    """
    documents = _registered(options, options.key.format, "key.format")
    topics = options.topic_of(list(tables))
    found: dict[str, Sequence[str]] = {}
    for table in unkeyed:
        subject = f"{topics[table]}-key"
        if not _patterns(options, topics, table) and documents.registry.latest(subject) is not None:
            with suppress(BadData):
                ((_, schema),) = documents.schemas([], subject)
                found[table] = _names(schema)
    found = {table: list(names) for table, names in found.items() if names}
    unknown = [table for table in unkeyed if table not in found]
    return found | (of_records(options, unknown, tables) if unknown else {})


def of_records(options: TopicOptions, unkeyed: Sequence[str], tables: Collection[str]) -> dict[str, Sequence[str]]:
    """By table the fields of its records' keys, if a sample has some, all of them with the same fields.

    Debezium takes them from the table's key. Raises what Cluster does, and UsageError for a topic that is missing.
    """
    topics, connection = options.topic_of(list(tables)), Connection(options)
    cluster = Cluster(connection, sorted({topics[table] for table in unkeyed}))
    try:
        cluster.must_exist()
        seen = cluster.look()
    finally:
        cluster.close()
    read = {topic: samples.glimpse(connection, topic, seen[topic], _SAMPLE_S) for topic in seen}
    told = {
        topic: list(
            zip(
                _fields_of(options, [one.key() for one in found]),
                _sources_of(options, [one.value() for one in found]),
                strict=True,
            )
        )
        for topic, found in read.items()
    }
    keys = {table: shown(told[topics[table]], _patterns(options, topics, table)) for table in unkeyed}
    return {table: list(names) for table, names in keys.items() if names}


def shown(records: Sequence[tuple[Fields, str | None]], tables: Sequence[str]) -> Fields:
    """The fields that the keys of a table's records have, if they all have the same; empty if they do not.

    records: (the fields of one's key, what table it is of; None: it changes no row). tables: patterns of the
    table's names at its source; none if all records are of it.
    """
    of = re.compile(matching(tables)) if tables else None
    found = {
        fields
        for fields, source in records
        if source is not None and (of is None or of.search(source) is not None)
    }
    return found.pop() if len(found) == 1 else ()


def _is_shared(topics: Mapping[str, str], table: str) -> bool:
    return list(topics.values()).count(topics[table]) > 1


def _patterns(options: TopicOptions, topics: Mapping[str, str], table: str) -> Sequence[str]:
    return (table,) if _is_shared(topics, table) else options.value.tables


def _registered(options: TopicOptions, encoding: str, at: str) -> Registered:
    assert options.registry is not None, "the options demand a registry"
    registry = SchemaRegistry.of(options.registry, f"{options.at}.registry")
    return Registered(registry, encoding, f"{options.at}.{at}")


def _names(schema: Mapping[str, Any]) -> Fields:
    return tuple(str(one["field"]) for one in schema.get("fields") or ())


def _fields_of(options: TopicOptions, keys: Sequence[bytes | None]) -> list[Fields]:
    if options.key.format not in WIRE:
        return [_fields(key) for key in keys]
    found: list[Fields] = [()] * len(keys)
    groups, _ = _registered(options, options.key.format, "key.format").groups(keys)
    for group in groups:
        for at in group.at:
            found[at] = _names(group.schema or {})
    return found


def _sources_of(options: TopicOptions, values: Sequence[bytes | None]) -> list[str | None]:
    """What table each record is of, empty if it names none; None for one that changes no row of a table."""
    if options.value.format != "debezium":
        return [""] * len(values)  # a tombstone has a key, too
    if options.value.encoding not in WIRE:
        envelopes = (None if value is None else envelope_of(value) for value in values)
        return [None if told is None else _source(told[0]) for told in envelopes]
    found: list[str | None] = [None] * len(values)
    groups, _ = _registered(options, options.value.encoding, "value.encoding").groups(values)
    for group in groups:
        for number, at in enumerate(group.at):
            with suppress(Unreadable):
                told = group.token(number)
                found[at] = _source(told) if isinstance(told, dict) else None
    return found


def _source(envelope: Mapping[str, Any]) -> str | None:
    return source_of(envelope) if envelope.get("op") in _OF_ROWS else None


def _fields(key: bytes | None) -> Fields:
    """Of a key as Kafka Connect writes it: an object, alone or beside its schema block."""
    told: Any = None
    with suppress(ValueError, RecursionError):
        told = None if key is None else json.loads(key)
    if isinstance(told, dict) and told.keys() == {"schema", "payload"}:
        told = told["payload"]
    return tuple(told) if isinstance(told, dict) else ()
