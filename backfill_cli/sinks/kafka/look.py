"""What `init --to kafka://…` says of a cluster, and of a topic that is there already."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from backfill_cli.kafka.admin import Admin
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.url import ANSWER_S, Url, by_url
from backfill_cli.model.units import spell_count
from backfill_cli.sinks.kafka import KafkaSinkOptions


def look(options: KafkaSinkOptions) -> Sequence[str]:
    """Raises UsageError for servers that do not answer, or do not let us in."""
    url = Url(options.bootstrap_servers, options.topic or options.topics, options.options, "--to")
    url.require_listener()
    with (
        closing(Admin(Connection(options), ANSWER_S)) as admin,
        by_url(url, replace(url, properties={})),  # the properties are resolved: secrets are in them
    ):
        if options.topic is None:
            told = f"topics {options.topics} on {url.servers}"
            return (f"to {told}, which has {spell_count(len(admin.topics()), 'topic')}",)
        found = admin.found([options.topic]).get(options.topic)
    there = "which does not exist yet" if found is None else spell_count(len(found.partitions), "partition")
    return (f"to topic {options.topic} on {url.servers}, {there}",)
