"""The columns that a topic fills: those that say where each row's record is, then those of the value."""

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Found
from backfill_cli.errors import ConfigError, UsageError, in_config
from backfill_cli.formats import schemas
from backfill_cli.kafka.cluster import Seen
from backfill_cli.model.schema import Columns
from backfill_cli.model.units import near_names
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.options import DECLARE, EVENT_KEY, KafkaOptions
from backfill_cli.upstreams.kafka.reading import PLACE
from backfill_cli.upstreams.kafka.topic import Topic


def of_source(options: KafkaOptions, topic: Topic, archive: Archive | None, seen: Seen) -> tuple[Columns, Found]:
    """All source columns, and what the format found. archive: one whose files were indexed.

    Raises ConfigError for a schema that cannot be parsed, a key that is not a column, a format that needs a key;
    UsageError for names that clash, BadData for an archive whose values would not fit the types.
    """
    table = topic.table
    if topic.decoder.changes and table.key in ((), EVENT_KEY):
        fault = f"tables: '{table.name}' needs key: {options.value.format} values are changes of a table"
        raise ConfigError("config", [fault], 'name its primary key in [[tables]], for example key = ["id"]')
    if options.value.format == "events" and table.key not in ((), EVENT_KEY):
        fault = f"tables: '{table.name}' has key {', '.join(table.key)}, but each event is a row of its own"
        correct = 'leave key out of [[tables]]; for the newest row of each key: upstream.value.format = "rows"'
        raise ConfigError("config", [fault], in_config(correct))
    found = topic.columns(seen, topic.asked(_declared(topic, archive)))
    value = found.columns
    refuse_names(f"topic '{topic.name}'", value)
    missing = [name for name in table.key if name not in value and name not in EVENT_KEY]
    if missing:
        near = near_names(missing[0], value) or list(value)
        fault = f"tables: key column '{missing[0]}' of '{table.name}' is not a column of the topic"
        raise ConfigError("config", [fault], f"name one of its columns: {', '.join(near)}")
    if not topic.decoder.changes and table.key and value.keys() >= set(table.key):
        topic.of_key(value)
    if archive is not None and topic.ddl is not None and archive.holds_columns:
        archive.columns()
        archive.read_as(value)
    return {**PLACE, **value}, found


def of_changes(options: ChangesOptions, topic: Topic, snapshot: Columns, seen: Seen) -> Found:
    """The columns of a snapshot whose changes a topic holds, each with what the topic's records say about it.

    Raises ConfigError for columns that one of the two lacks, and for those whose values could not be read exactly.
    """
    at, name = options.at, f"topic '{topic.name}'"
    refuse_names(name, snapshot)
    found = topic.columns(seen, topic.asked(snapshot, whole(options, snapshot)))
    faults = []
    if found.names:
        less = snapshot.keys() - found.names - set(options.sparse)
        faults += [f"{at}: no record of {name} has the snapshot's column '{one}'" for one in less]
        more = found.names - snapshot.keys() - set(options.ignore)
        faults += [f"{at}: records of {name} have a column '{one}', but the snapshot does not" for one in more]
    if faults:
        hint = (
            f"take a snapshot with the columns of the changes; or name those that it leaves out in {at}.ignore, "
            f"and those that changes leave out (NULL then) in {at}.sparse"
        )
        raise ConfigError("upstream", sorted(faults), hint)
    return found


def whole(options: ChangesOptions, columns: Columns) -> tuple[frozenset[str], frozenset[str]]:
    """(columns that rows may have besides these, columns that no row may lack)."""
    return frozenset(options.ignore), frozenset(columns) - frozenset(options.sparse)


def refuse_names(topic: str, value: Columns) -> None:
    """Raises UsageError for a column of the value that cannot stand beside those of the record's place."""
    own.refuse_names(topic, value)
    places = {own.fold(name) for name in PLACE}
    for name in value:
        if own.fold(name) in places:
            raise UsageError(
                f"{topic}: column {name!r} has the name of the column that says where a row's record is",
                in_config(
                    "give it another name in the system that writes it; if upstream.value.schema declares it, "
                    "leave it out there"
                ),
            )


def of_value(source: Columns) -> Columns:
    """The value's columns, without those that say where its record is."""
    return {name: column for name, column in source.items() if name not in PLACE}


def _declared(topic: Topic, archive: Archive | None) -> Columns | None:
    """The columns by the schema that the options give, or that a Parquet archive of columns has."""
    if topic.ddl is None:
        if archive is None or not archive.holds_columns:
            return None
        return {name: c for name, c in archive.columns().items() if name not in archive.place_names}
    try:
        return schemas.of_ddl(topic.ddl)
    except schemas.Unsupported as exc:
        raise ConfigError("upstream", [f"upstream.value.schema: {exc}"], DECLARE) from exc
