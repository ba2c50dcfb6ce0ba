"""The `[upstream]` part of a config with `type = "kafka"`: what a user may write, with units and help."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from backfill_cli.contracts.options import STORED, ByTable, Example, FilePath, NoSecret, SecretKeys
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.kafka.client_properties import CLIENT_PROPERTIES, FILES, SECRETS
from backfill_cli.kafka.properties import Properties, require_known
from backfill_cli.model.units import nearest_first
from backfill_cli.registry import DECODERS, decoder, known
from backfill_cli.schema_registry.options import RegistryOptions

EVENT_KEY = ("kafka_partition", "kafka_offset")
"""Where a record is: the key of a table whose config names none."""

DECLARE = in_config('declare all columns, each with its type: upstream.value.schema = "id BIGINT, note STRING"')
"""The hint where the columns are not known, or not all."""

JSON_FORMATS = ("rows", "events", "json")
"""Formats of rows; `json` is what jobs begun by an earlier version have for both."""

TimeUnit = Literal["ms", "us", "ns"]
DecimalForm = Literal["precise", "string", "double"]


WIRE = ("avro", "protobuf", "json-schema")
"""Encodings whose records name their schemas by a registry's ids."""

_OURS = (
    *("bytes", "canal", "debezium", "debezium-mongodb", "events", "json", "long", "maxwell", "open-protocol"),
    *("rows", "string"),
)


def _format(*own: str) -> Any:
    """A format by its name: one of these, which are listed first, or of another package."""

    def named() -> list[str]:
        return [*own, *(name for name in known(DECODERS) if name not in _OURS)]

    def check(name: str, info: ValidationInfo) -> str:
        if name == "json" and info.context == STORED:
            return name  # rows of a table with a key, or events: jobs begun before these had names of their own
        if name not in named():
            # What was typed is not shown: anything may stand there, a secret too.
            raise ValueError(f"must be {' or '.join(map(repr, nearest_first(name, named())))}")
        return name

    return AfterValidator(check), WithJsonSchema({"type": "string", "enum": named()})


_VALUE, _CHANGE, _KEY = (
    _format(*names)
    for names in (
        ("rows", "events", "debezium", "debezium-mongodb", "maxwell", "canal", "open-protocol", "bytes"),
        ("debezium", "maxwell", "canal", "open-protocol", "rows"),
        ("json", *WIRE, "string", "long", "bytes"),
    )
)


class _Options(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True, serialize_by_alias=True
    )


class Values(_Options):
    """How values are written that do not say so themselves."""

    timestamps: TimeUnit | None = Field(
        default=None,
        description="unit of numeric timestamps in debezium without its schema block: ms, us or ns",
    )
    decimals: DecimalForm | None = Field(
        default=None,
        description="form of decimals in debezium without its schema block: precise (base64), string or double",
    )
    tables: tuple[str, ...] = Field(
        default=(),
        description="the tables whose records are read in a topic of debezium, by the end of their names "
        '("public.orders", "shop.orders_*"; * stands for anything but a dot); records of other tables are '
        "skipped. Default: the topic holds one table, and a record of another one is an error",
    )

    encoding: Literal["json", *WIRE] = Field(  # type: ignore[valid-type]
        default="json",
        description="how values are written: json; for rows, events, debezium and debezium-mongodb, also avro, "
        "protobuf or json-schema, each with the id of its schema in the registry",
    )

    def _refuse_others(self, form: str) -> None:
        """Raises ValueError for an option that the format does not know."""
        given = {name for name in ("timestamps", "decimals", "tables") if getattr(self, name)}
        given |= {"encoding"} if self.encoding != "json" else set()
        if given and given - decoder(form).options:
            said = ", ".join(sorted(given - decoder(form).options))
            raise ValueError(f"{said}: not an option of {form}")


class ValueOptions(Values):
    """What the records' values are."""

    format: Annotated[str, *_VALUE, Example("events")] = Field(
        default="rows",
        description="what a value is: rows, the row of its key as it is now, which a tombstone (a NULL value) "
        "deletes; events, a row per record, each kept; debezium, an envelope with before and after, with or "
        "without its schema block; debezium-mongodb, one with a document, whose members are the columns; maxwell "
        "or canal, changes as Maxwell, or Canal and TiCDC (canal-json), write them; open-protocol, changes by "
        "TiCDC's protocol of that name; bytes, kept as they are in the column `value`",
    )
    ddl: Annotated[str | dict[str, str] | None, NoSecret(), ByTable(), Example("id BIGINT, note STRING")] = Field(
        default=None,
        alias="schema",
        description='the table\'s columns as Spark DDL ("id BIGINT, note STRING"), or a table of these by the '
        "names in [[tables]]; can be left out if the archive is Parquet, or Debezium's records have their schema "
        "block",
    )

    @model_validator(mode="after")
    def _format_allows(self) -> Self:
        if self.format == "bytes" and self.ddl is not None:
            raise ValueError("bytes have one column, `value BINARY`: leave schema out")
        self._refuse_others(self.format)
        return self


class ChangedRows(Values):
    """What the values are of records that change a snapshot's rows; their columns are the snapshot's."""

    ddl: ClassVar[None] = None

    format: Annotated[str, *_CHANGE] = Field(
        default="debezium",
        description="what a value is: debezium, an envelope with before and after, with or without its schema "
        "block; maxwell or canal, changes as Maxwell, or Canal and TiCDC (canal-json), write them; open-protocol, "
        "changes by TiCDC's protocol of that name; rows, the row as it is now, which a tombstone (a NULL value) "
        "deletes",
    )

    @model_validator(mode="after")
    def _format_allows(self) -> Self:
        self._refuse_others(self.format)
        return self


class KeyOptions(_Options):
    """What the records' keys are: those of records without a value, which delete a row."""

    format: Annotated[str, *_KEY] = Field(
        default="json",
        description="how keys of rows without a value are written, and of debezium-mongodb those of deletes: "
        "json, an object with the key's columns, or the value of the one key column; avro, protobuf or "
        "json-schema, the same, with their schema's id; string or long, that value, as Kafka's serializers of "
        "these names write it; bytes, that column's text or bytes as they are",
    )


class ArchiveOptions(_Options):
    """History from files that a log archiver wrote: one row per record, with its partition and offset."""

    path: Annotated[str, FilePath()] = Field(
        min_length=1,
        description="folder (read with its subfolders) or glob; a local path or a URI that both pyarrow and Spark "
        "can read",
    )
    format: Literal["parquet", "json"] = Field(
        default="parquet", description="what the files are: parquet or json (one object per line)"
    )
    partition: str = Field(
        default="kafka_partition", min_length=1, description="column that holds a record's partition"
    )
    offset: str = Field(default="kafka_offset", min_length=1, description="column that holds a record's offset")
    timestamp: str = Field(
        default="kafka_timestamp",
        min_length=1,
        description="column that holds a record's time: a timestamp, or milliseconds since 1970; NULL if the "
        "files have no such column",
    )
    value: str | None = Field(
        default=None,
        min_length=1,
        description="column of parquet that holds a record's value, as bytes or text that are decoded as in the "
        "log. Default: the files hold the table's columns themselves",
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="column of parquet that holds a record's key, as bytes or text, by which a tombstone (a NULL "
        "value) deletes",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.format == "json" and (self.value or self.key):
            raise ValueError("json lines hold the table's columns themselves: value and key are for parquet")
        if self.key and not self.value:
            raise ValueError("key is for archives of raw records: name their value column too")
        return self


_TOPIC = re.compile("[A-Za-z0-9._-]{1,249}")


def _topics(told: str | dict[str, str] | None) -> str | dict[str, str] | None:
    if isinstance(told, str) and "{table}" not in told:
        raise ValueError("must have {table} in it, or be a table of topics by the names of tables")
    for topic in told.values() if isinstance(told, dict) else ():
        if not _TOPIC.fullmatch(topic):
            raise ValueError("a topic's name is up to 249 of A-Z, a-z, 0-9, ., _ and -")
    return told


class TopicOptions(_Options):
    """How a topic is reached and read. at: where these options are in the config, for errors."""

    at: ClassVar[str] = "upstream"

    type: Literal["kafka"] = Field(default="kafka", description="which connector")
    bootstrap_servers: Annotated[str, Example("127.0.0.1:9092")] = Field(
        min_length=1, description="`host:port`; several are separated by commas"
    )
    topic: Annotated[str | None, Example("orders")] = Field(
        default=None,
        min_length=1,
        max_length=249,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="the topic's name; of several tables, each reads the records whose source ends with its name",
    )
    topics: Annotated[str | dict[str, str] | None, AfterValidator(_topics), ByTable()] = Field(
        default=None,
        description='instead of topic, a topic for each table: "shop.public.{table}", or a table of topics by the '
        "names in [[tables]]",
    )
    value: ValueOptions | ChangedRows
    key: KeyOptions = Field(default=KeyOptions(), description="what the records' keys are")
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="skip records of open and aborted transactions (read_committed), or read them too",
    )
    options: Annotated[
        Properties,
        SecretKeys(SECRETS),
        FilePath(words=frozenset({"probe"}), keys=FILES),
    ] = Field(
        default_factory=dict,
        description="client properties (librdkafka's names): security, timeouts, fetch sizes; secrets as "
        "references",
    )
    reader: Literal["confluent", "spark"] = Field(
        default="confluent",
        description="what reads the topic: confluent, this package's own reader, by confluent-kafka; spark, "
        "Spark's Kafka source, if its jars are given in [spark]",
    )
    registry: RegistryOptions | None = Field(
        default=None,
        description="the schema registry, where the records name their schemas by id",
    )
    accept_growth: bool = Field(
        default=False,
        description="continue when partitions are added to the topic of a table with a key, because every key "
        "stays in the partition that it was in",
    )

    @model_validator(mode="after")
    def _names_topics(self) -> Self:
        if (self.topic is None) == (self.topics is None):
            raise ValueError("name a topic, or topics")
        return self

    def topic_of(self, tables: Sequence[str]) -> dict[str, str]:
        """Each table's topic. Raises ConfigError for a table that none is named for, or that has no table."""
        if self.topics is None:
            assert self.topic is not None, "there is a topic, or there are topics"
            return dict.fromkeys(tables, self.topic)
        if isinstance(self.topics, str):
            found = {table: self.topics.replace("{table}", table) for table in tables}
            at, wrong = f"{self.at}.topics", [one for one in found.values() if not _TOPIC.fullmatch(one)]
            faults = [f"{at}: '{one}' is no name of a topic" for one in wrong]
            hint = f"write {at} as a table, with each table's topic by its name"
        else:
            at, found = f"{self.at}.topics", dict(self.topics)
            faults = [f"{at}: no topic for table '{one}'" for one in tables if one not in found]
            faults += [f"{at}: there is no table '{one}' in [[tables]]" for one in found if one not in tables]
            hint = f"name one topic for each of the tables: {', '.join(tables)}"
        if faults:
            raise ConfigError("upstream", faults, in_config(hint))
        return {table: found[table] for table in tables}

    @field_validator("options")
    @classmethod
    def _known_properties(cls, told: Properties) -> Properties:
        return require_known(told, CLIENT_PROPERTIES)

    @model_validator(mode="after")
    def _reader_fits(self) -> Self:
        for name, wire in (("value.encoding", self.value.encoding), ("key.format", self.key.format)):
            if wire in WIRE and self.registry is None:
                raise ValueError(f"registry: missing: {name} = {wire!r} names schemas by a schema registry's ids")
        if self.reader == "spark" and self.options:
            raise ValueError('options: these are librdkafka\'s: leave them out with reader = "spark"')
        return self


class KafkaOptions(TopicOptions):
    """A Kafka topic: its log from an offset on, and optionally an archive of what the log no longer holds."""

    value: ValueOptions = Field(default=ValueOptions(), description="what the records' values are")

    from_: str = Field(
        default="earliest",
        alias="from",
        description="where history begins: earliest (with an archive: its first record), latest (follow only), or "
        'a time like "2026-01-31T00:00:00Z"',
    )
    on_error: Literal["fail", "quarantine"] = Field(
        default="fail",
        description="a record that cannot be read: fail stops the job and names it, quarantine keeps it in a "
        "quarantine table of the sink and continues",
    )
    archive: ArchiveOptions | None = Field(
        default=None, description="history from files. Default: history is read from the log"
    )
    compacted: bool = Field(
        default=False, description="the topic is compacted: offsets missing inside the archive are not a gap"
    )
    transactional: bool = Field(
        default=False,
        description="the topic is written in transactions, whose markers use offsets: offsets missing inside the "
        "archive are not a gap",
    )
    accept_gap: bool = Field(
        default=False, description="continue if records between the archive's end and the log's begin are gone"
    )

    @field_validator("from_")
    @classmethod
    def _is_a_place(cls, told: str) -> str:
        if told not in ("earliest", "latest"):
            require_time(told, 'must be earliest, latest or a time like "2026-01-31T00:00:00Z"')
        return told

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        archive = self.archive
        says_types = archive is not None and archive.format == "parquet" and archive.value is None
        says_types = says_types or self.value.encoding != "json"
        if self.value.format in JSON_FORMATS and self.value.ddl is None and not says_types:
            raise ValueError(
                f'value: {self.value.format} do not say their types: give schema = "<Spark DDL>", '
                'for example "id BIGINT, note STRING"'
            )
        if archive is not None and self.topics is not None:
            raise ValueError("archive: holds the records of one topic: name it, instead of topics")
        if archive is not None and self.from_ != "earliest":
            raise ValueError(
                'from: with an archive, history begins at its first record: leave from out, or set "earliest"'
            )
        if archive is not None and archive.value is None and self.value.format not in JSON_FORMATS:
            raise ValueError(f"archive.value: name the column that holds the records' {self.value.format} values")
        return self

    def from_ms(self) -> int | None:
        """When history begins, milliseconds since 1970 (UTC without a zone); None for earliest and latest."""
        return None if self.from_ in ("earliest", "latest") else ms_of(self.from_)


def ms_of(told: str) -> int:
    """A time as milliseconds since 1970, UTC without a zone."""
    at = datetime.fromisoformat(told)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def require_time(told: str, or_else: str) -> None:
    """Raises ValueError with `or_else` if the text is not a time in ISO 8601."""
    try:
        datetime.fromisoformat(told)
    except ValueError:
        raise ValueError(or_else) from None
