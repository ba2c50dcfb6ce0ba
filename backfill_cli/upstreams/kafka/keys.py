"""The key of a table whose config names none: by the schema of the records' keys, or by the keys themselves."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from backfill_cli.decode.block import envelope_of
from backfill_cli.decode.registered import Registered
from backfill_cli.decode.source_table import matching, source_of
from backfill_cli.errors import BadData
from backfill_cli.kafka.cluster import Cluster
from backfill_cli.kafka.connection import Connection
from backfill_cli.schema_registry.registry import SchemaRegistry
from backfill_cli.upstreams.kafka.log import samples
from backfill_cli.upstreams.kafka.options import TopicOptions

_SAMPLE_S = 10.0


def of_registry(options: TopicOptions, tables: Sequence[str]) -> dict[str, Sequence[str]]:
    """By table the fields of the newest schema of its topic's keys, where there is one, and it is a record.

    A schema that does not show which of its messages keys are says nothing, nor does one in a topic of several
    tables: it is of one of them. Raises what the registry does.
    """
    assert options.registry is not None
    registry = SchemaRegistry.of(options.registry, f"{options.at}.registry")
    documents = Registered(registry, options.key.format, f"{options.at}.key.format")
    found: dict[str, Sequence[str]] = {}
    topics = options.topic_of(tables)
    for table, topic in topics.items():
        subject = f"{topic}-key"
        if _is_alone(options, topics, table) and registry.latest(subject) is not None:
            with suppress(BadData):
                (one,) = documents.schemas([], subject)
                found[table] = [str(field["field"]) for field in one.schema.get("fields") or ()]
    return {table: names for table, names in found.items() if names}


def of_records(options: TopicOptions, tables: Sequence[str]) -> dict[str, Sequence[str]]:
    """By table the fields of its records' keys, if a sample has some, all of them with the same fields.

    Debezium takes them from the table's key. Raises what Cluster does, and UsageError for a topic that is missing.
    """
    topics, connection = options.topic_of(tables), Connection(options)
    cluster = Cluster(connection, list(topics.values()))
    try:
        cluster.must_exist()
        seen = cluster.look()
    finally:
        cluster.close()
    read = {topic: samples.glimpse(connection, topic, seen[topic], _SAMPLE_S) for topic in seen}
    found: dict[str, Sequence[str]] = {}
    for table, topic in topics.items():
        of = None if _is_alone(options, topics, table) else re.compile(matching(options.value.tables or (table,)))
        names = {_fields(one.key()) for one in read[topic] if of is None or _is_of(one.value(), of)}
        if len(names) == 1 and (fields := names.pop()):
            found[table] = list(fields)
    return found


def _is_alone(options: TopicOptions, topics: Mapping[str, str], table: str) -> bool:
    """Whether a table's topic has no records of others, as far as the options say."""
    return list(topics.values()).count(topics[table]) == 1 and not options.value.tables


def _is_of(value: bytes | None, table: re.Pattern[str]) -> bool:
    """Whether a record is of this table; one without a value does not say it."""
    told = None if value is None else envelope_of(value)
    return told is not None and table.search(source_of(told[0])) is not None


def _fields(key: bytes | None) -> tuple[str, ...]:
    """Of a key as Kafka Connect writes it: an object, alone or beside its schema block."""
    told: Any = None
    with suppress(ValueError, RecursionError):
        told = None if key is None else json.loads(key)
    if isinstance(told, dict) and told.keys() == {"schema", "payload"}:
        told = told["payload"]
    return tuple(told) if isinstance(told, dict) else ()
