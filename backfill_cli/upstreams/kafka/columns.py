"""The columns that a topic fills: those that say where each row's record is, then those of the value."""

import difflib

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import ConfigError, UsageError, in_config
from backfill_cli.formats import debezium_forms, schemas
from backfill_cli.formats.debezium_types import encoding, is_time
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.kafka.archive.archive import Archive
from backfill_cli.upstreams.kafka.changes_options import ChangesOptions
from backfill_cli.upstreams.kafka.decode import debezium, debezium_block, events
from backfill_cli.upstreams.kafka.log.samples import Samples
from backfill_cli.upstreams.kafka.options import DECLARE, EVENT_KEY, KafkaOptions, TopicOptions


def of_source(
    options: KafkaOptions, table: TableSpec, archive: Archive | None, samples: Samples | None
) -> Columns:
    """All source columns. archive: one whose files were indexed. samples: of a topic with Debezium's records.

    Raises ConfigError for a schema that cannot be parsed, a key that is not a column, a format that needs a key;
    UsageError for names that clash, BadData for an archive whose values would not fit the types.
    """
    value = _of_debezium(options, samples) if samples is not None else _of_value(options, archive)
    _refuse_names(f"topic '{options.topic}'", value)
    if options.value.format == "debezium":
        if table.key in ((), EVENT_KEY):
            fault = f"tables: '{table.name}' needs key: debezium values are changes of a table"
            raise ConfigError("config", [fault], 'name its primary key in [[tables]], for example key = ["id"]')
        _refuse_lacking(value, options, samples)
        debezium.encodings(value, options.value, options.at)
    missing = [name for name in table.key if name not in value and name not in EVENT_KEY]
    if missing:
        near = difflib.get_close_matches(missing[0], list(value), 3, 0.5) or list(value)
        fault = f"tables: key column '{missing[0]}' of '{table.name}' is not a column of the topic"
        raise ConfigError("config", [fault], f"name one of its columns: {', '.join(near)}")
    if archive is not None and options.value.ddl is not None and archive.holds_columns:
        archive.columns()
        archive.read_as(value)
    return {**events.PLACE, **value}


def of_changes(options: ChangesOptions, snapshot: Columns, samples: Samples | None) -> Columns:
    """The columns of a snapshot whose changes a topic holds, each with what the topic's records say about it.

    Raises ConfigError for columns that one of the two lacks, and for those whose values could not be read exactly.
    """
    at, topic = options.at, f"topic '{options.topic}'"
    _refuse_names(topic, snapshot)
    if samples is None:
        return snapshot
    faults = []
    if samples.names:
        less = snapshot.keys() - samples.names - set(options.sparse)
        faults += [f"{at}: no record of {topic} has the snapshot's column '{name}'" for name in less]
        more = samples.names - snapshot.keys() - set(options.ignore)
        faults += [f"{at}: records of {topic} have a column '{name}', but the snapshot does not" for name in more]
    if faults:
        hint = (
            f"take a snapshot with the columns of the changes; or name those that it leaves out in {at}.ignore, "
            f"and those that changes leave out (NULL then) in {at}.sparse"
        )
        raise ConfigError("upstream", sorted(faults), hint)
    source = debezium_block.with_told(snapshot, samples.told)
    _refuse_other_times(source, at)
    _refuse_lacking(source, options, samples)
    debezium.encodings(source, options.value, at)
    return source


def _refuse_other_times(source: Columns, at: str) -> None:
    """Raises ConfigError for a time that the snapshot has otherwise: a number of days is no text of a date."""
    faults = []
    for name, column in source.items():
        told = debezium_block.told_of(column)
        if told is not None and is_time(told):
            try:
                encoding(told, column["type"])
            except schemas.Unsupported as exc:
                faults.append(f"{at}: column '{name}' of the snapshot: {exc}, as records of the topic have it")
    if faults:
        raise ConfigError(
            "upstream", faults, "take a snapshot in which these columns have the types of the source"
        )


def _refuse_lacking(value: Columns, options: TopicOptions, samples: Samples | None) -> None:
    """Raises ConfigError if neither a schema block nor the options say how columns are written."""
    said = options.value.timestamps, options.value.decimals
    rows = samples.blockless if samples is not None else ()
    untold = {name: column for name, column in value.items() if debezium_block.told_of(column) is None}
    faults = debezium_forms.lacking(untold, rows, *said, at=f"{options.at}.value")
    if faults:
        raise ConfigError("upstream", faults)


def _refuse_names(topic: str, value: Columns) -> None:
    """Raises UsageError for a column of the value that cannot stand beside those of the record's place."""
    own.refuse_names(topic, value)
    places = {own.fold(name) for name in events.PLACE}
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
    return {name: column for name, column in source.items() if name not in events.PLACE}


def _of_debezium(options: KafkaOptions, samples: Samples) -> Columns:
    """The declared columns, or else those of the schema blocks, each with what the blocks say about it."""
    if options.value.ddl is None:
        if not samples.told:
            fault = f"upstream.value.schema: missing, and no record of topic '{options.topic}' has a schema block"
            raise ConfigError("upstream", [fault], DECLARE)
        return debezium_block.with_told(debezium_block.columns_of(options.topic, samples.told), samples.told)
    declared = _of_value(options, None)
    unknown = [name for name in declared if name not in samples.names]
    if samples.names and unknown:
        near = difflib.get_close_matches(unknown[0], list(samples.names), 3, 0.5) or sorted(samples.names)
        fault = f"upstream.value.schema: no record of topic '{options.topic}' has a column '{unknown[0]}'"
        raise ConfigError("upstream", [fault], f"its columns are: {', '.join(near[:10])}")
    return debezium_block.with_told(declared, samples.told)


def _of_value(options: KafkaOptions, archive: Archive | None) -> Columns:
    if options.value.format == "bytes":
        return events.BYTES
    if options.value.ddl is None:
        assert archive is not None, "the options demand a schema without an archive"
        return {name: c for name, c in archive.columns().items() if name not in archive.place_names}
    try:
        return schemas.of_ddl(options.value.ddl)
    except schemas.Unsupported as exc:
        raise ConfigError("upstream", [f"upstream.value.schema: {exc}"], DECLARE) from exc
