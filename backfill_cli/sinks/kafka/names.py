"""The names of a job's topics."""

import re
from collections.abc import Iterable, Mapping

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.refusals import same_target
from backfill_cli.errors import UsageError, in_config
from backfill_cli.sinks.kafka import KafkaSinkOptions

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")


def state_of(options: KafkaSinkOptions, job: str) -> str:
    """The topic of a job's state, and the id of its transactions."""
    return options.state_topic.replace("{job}", job)


def states_in(options: KafkaSinkOptions, topics: Iterable[str]) -> dict[str, str]:
    """job -> its state's topic, of those among all topics."""
    before, after = options.state_topic.split("{job}")
    held = (name for name in topics if name.startswith(before) and name.endswith(after))
    return {name[len(before) : len(name) - len(after)]: name for name in held if len(name) > len(before + after)}


def topic_of(options: KafkaSinkOptions, table: SinkTable) -> str:
    """The topic of a table. Raises UsageError for a target that cannot name one."""
    if options.topic is not None and not table.side:
        return options.topic
    named = options.topics.replace("{table}", table.target)
    before = options.state_topic.split("{job}")[0]
    is_own = own.is_own(table.target) and not table.side
    # of a template of the user's own, only a topic that is a state is one: Topics.missing
    is_state = own.is_own(before) and named.startswith(before)
    if is_own or is_state or named in (".", "..") or not _LEGAL.fullmatch(named):
        raise UsageError(
            f"table {table.name!r}: target {table.target!r} cannot name a topic ({named!r}): it consists of "
            f"letters, digits, '.', '_' and '-', and names that begin with {own.PREFIX} are backfill's own",
            in_config('name another target, for example tables.target = "orders"'),
        )
    return named


def topics_of(options: KafkaSinkOptions, tables: Iterable[SinkTable]) -> Mapping[str, str]:
    """table -> its topic. Raises UsageError for two tables with the same one."""
    found: dict[str, str] = {}
    for table in tables:
        topic = topic_of(options, table)
        twin = next((name for name, other in found.items() if other == topic), None)
        if twin is not None and twin != table.name:
            raise same_target(twin, table.name, f"topic '{topic}'")
        found[table.name] = topic
    return found
