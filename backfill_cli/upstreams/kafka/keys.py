"""The key of a table whose config names none, by the schema of the records' keys."""

from collections.abc import Sequence
from contextlib import suppress

from backfill_cli.decode.registered import Registered
from backfill_cli.errors import BadData
from backfill_cli.schema_registry.registry import SchemaRegistry
from backfill_cli.upstreams.kafka.options import TopicOptions


def of_registry(options: TopicOptions, tables: Sequence[str]) -> dict[str, Sequence[str]]:
    """By table the fields of the newest schema of its topic's keys, where there is one, and it is a record.

    A schema that does not show which of its messages keys are says nothing. Raises what the registry does.
    """
    assert options.registry is not None
    registry = SchemaRegistry.of(options.registry, f"{options.at}.registry")
    documents = Registered(registry, options.key.format, f"{options.at}.key.format")
    found: dict[str, Sequence[str]] = {}
    for table, topic in options.topic_of(tables).items():
        subject = f"{topic}-key"
        if registry.latest(subject) is not None:
            with suppress(BadData):
                ((_, schema),) = documents.schemas([], subject)
                found[table] = [str(one["field"]) for one in schema.get("fields") or ()]
    return {table: names for table, names in found.items() if names}
