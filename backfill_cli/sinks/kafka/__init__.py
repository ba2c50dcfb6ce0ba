"""Kafka as a sink: a topic per table, whose newest record of a key is its row; one transaction per epoch."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.contracts.domain import Domain
from backfill_cli.contracts.options import Example, FilePath, Named, SecretKeys
from backfill_cli.kafka.client_properties import CLIENT_PROPERTIES, FILES, PRODUCER_PROPERTIES, SECRETS
from backfill_cli.kafka.properties import Properties, require_known
from backfill_cli.kafka.url import SCHEME, Url
from backfill_cli.model.units import duration_s
from backfill_cli.schema_registry.options import RegistryOptions

_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"

Duration = Annotated[
    float,
    BeforeValidator(duration_s),
    WithJsonSchema({"type": ["string", "number"], "examples": ["60s", "10m"], "description": "duration"}),
]


class KafkaSinkOptions(BaseModel):
    """`[sink]` with type = "kafka"."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    at: ClassVar[str] = "sink"
    isolation: ClassVar[str] = "read_committed"

    type: str = Field("kafka", pattern="^kafka$", description="This sink.")
    bootstrap_servers: Annotated[str, Example("127.0.0.1:9092")] = Field(
        min_length=1, description="`host:port`; several are separated by commas."
    )
    topic: str | None = Field(
        default=None,
        pattern=_TOPIC,
        description="The topic of the one table. A quarantine table has a topic of its own name.",
    )
    topics: str = Field(
        default="{table}",
        description='The topic of each table: {table} stands for the table\'s target, as in "shop.{table}".',
    )
    create: bool = Field(
        default=True, description="Whether topics that do not exist are created; without it they must exist."
    )
    partitions: int | None = Field(
        default=None, ge=1, description="Partitions of a topic that the job creates. Default: the broker's."
    )
    replication: int | None = Field(
        default=None, ge=1, description="Replicas of a topic that the job creates. Default: the broker's."
    )
    properties: Properties = Field(
        default={"cleanup.policy": "compact"},
        description="Settings of topics that the job creates, as Kafka names them. Existing topics keep theirs.",
    )
    encoding: Literal["json", "json-schema", "avro", "protobuf"] = Field(
        default="json",
        description="How keys and values are written: json: objects; json-schema: objects, whose schema is "
        "registered; avro; protobuf.",
    )
    subjects: Literal["topic", "record", "topic-record"] = Field(
        default="topic",
        description="The registry's subjects, as its strategies name them: topic: `<topic>-key`, `<topic>-value`; "
        "record: the record's full name; topic-record: both.",
    )
    registry: RegistryOptions | None = Field(
        default=None, description="The schema registry, for json-schema, avro and protobuf."
    )
    accept_growth: bool = Field(
        default=False,
        description="Continue when a topic has more partitions than the job began with. Records of a key can then "
        "be in two partitions, without an order between them.",
    )
    state_topic: str = Field(
        default="_backfill_job_{job}",
        description="The topic that keeps the job's position, and the id of its transactions. {job} stands for "
        "the job's name.",
    )
    transaction_timeout: Duration = Field(
        default=300.0,
        ge=1,
        description="The broker aborts a commit that takes longer; no more than its transaction.max.timeout.ms. "
        "While a runner that died is not restarted, consumers that read committed records wait this long.",
    )
    options: Annotated[Properties, SecretKeys(SECRETS), FilePath(words=frozenset({"probe"}), keys=FILES)] = Field(
        default_factory=dict,
        description="Client properties (librdkafka's names): security, timeouts, compression; secrets as "
        "references.",
    )

    @field_validator("topics")
    @classmethod
    def _names_topics(cls, given: str) -> str:
        return _template(given, "table", 'name each topic after its table, for example "shop.{table}"')

    @field_validator("state_topic")
    @classmethod
    def _names_states(cls, given: str) -> str:
        return _template(given, "job", 'name it after the job, for example "_backfill_job_{job}"')

    @field_validator("options")
    @classmethod
    def _known_properties(cls, told: Properties) -> Properties:
        return require_known(told, CLIENT_PROPERTIES | PRODUCER_PROPERTIES)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.topic is not None and self.topics != "{table}":
            raise ValueError("topic and topics: give one of them")
        if self.encoding != "json" and self.registry is None:
            raise ValueError(f"registry: {self.encoding} needs a schema registry, for example [sink.registry] url")
        return self


def _template(given: str, stands: str, or_else: str) -> str:
    if given.count(f"{{{stands}}}") != 1 or not re.match(_TOPIC, given.replace(f"{{{stands}}}", "x")):
        raise ValueError(or_else)
    return given


def _open(options: KafkaSinkOptions) -> Sink:
    from backfill_cli.sinks.kafka.sink import KafkaSink

    return KafkaSink(options)


def _fingerprint(options: KafkaSinkOptions) -> Mapping[str, Any]:
    """What decides where rows go. The brokers' addresses are left out: a cluster may move."""
    named = {"topics": options.topics} if options.topic is None else {"topic": options.topic}
    encoded = {} if options.encoding == "json" else {"encoding": options.encoding}
    return {"type": "kafka", "state_topic": options.state_topic, **named, **encoded}


def _placed(named: Named) -> Mapping[str, Any]:
    """What `kafka://HOST:PORT[/TOPIC][?property=value]` says; a topic for each table has `{table}` in it."""
    _, url = Url.typed(named.text, named.written, named.values, "--to")
    topic = {"topics" if "{table}" in url.topic else "topic": url.topic} if url.topic else {}
    options = {"options": dict(url.properties)} if url.properties else {}
    return {"bootstrap_servers": url.servers, **topic, **options}


def _domain(options: KafkaSinkOptions) -> Domain:
    """JSON has texts for all dates and times."""
    from backfill_cli.sinks.kafka.years import domain_of

    title = {"avro": "Avro", "protobuf": "Protobuf"}.get(options.encoding)
    return Domain() if title is None else domain_of(title)


def _look(options: KafkaSinkOptions) -> Sequence[str]:
    from backfill_cli.sinks.kafka.look import look

    return look(options)


connector = SinkConnector(
    options=KafkaSinkOptions,
    open=_open,
    fingerprint=_fingerprint,
    place="bootstrap_servers",
    placed=_placed,
    claims=lambda text: text.startswith(SCHEME),
    look=_look,
    domain=_domain,
)
