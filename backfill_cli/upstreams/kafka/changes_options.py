"""The `[upstream.changes]` part of a config with `type = "kafka"`: a topic beside another system's snapshot."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from backfill_cli.contracts.options import ByTable, Example
from backfill_cli.upstreams.kafka.options import ChangedRows, TopicOptions, ms_of, require_time

Offsets = dict[str, int]
"""partition (a string, as keys are in TOML; of several tables `table/partition`) → offset"""

_PLACES = (
    'must be earliest, a time like "2026-01-31T00:00:00Z", or a table of offsets like { "0" = 120, "1" = 97 }'
)


def _a_place(told: Any) -> Any:
    offsets = isinstance(told, dict) and all(type(one) is int and one >= 0 for one in told.values())
    if offsets and told and all(re.fullmatch("(.+/)?(0|[1-9][0-9]*)", str(p)) for p in told):
        return told
    if not isinstance(told, str):
        raise ValueError(_PLACES)
    if told != "earliest":
        require_time(told, _PLACES)
    return told


class ChangesOptions(TopicOptions):
    """A Kafka topic as the change log of a snapshot that another system holds."""

    at: ClassVar[str] = "upstream.changes"

    type: Literal["kafka"] = Field(description="which connector")

    value: ChangedRows = Field(default=ChangedRows(), description="what the records' values are")
    from_: Annotated[str | Offsets, BeforeValidator(_a_place), ByTable(), Example("2026-01-31T00:00:00Z")] = Field(
        alias="from",
        description="where the log continues the snapshot: the next offset of every partition, as in "
        '{ "0" = 120, "1" = 97 } (of several tables: "orders/0"), if the snapshot is exactly that '
        "state; otherwise a time before the snapshot was "
        'begun, like "2026-01-31T00:00:00Z" (UTC without a zone), or earliest: what it holds already is replayed',
    )
    complete_at: Annotated[str | Offsets, BeforeValidator(_a_place), ByTable()] | None = Field(
        default=None,
        description="when the snapshot was finished, by the records' time, or as offsets, if from is a time or "
        "earliest; until the job is past it, the sink is converging. Default: the topic's end when the job "
        "begins, which is too early if whatever fills the topic lags behind the source",
    )
    ignore: tuple[str, ...] = Field(
        default=(), description="columns of the changes that the snapshot leaves out on purpose"
    )
    sparse: tuple[str, ...] = Field(
        default=(), description="columns of the snapshot that changes may leave out: they are then NULL"
    )
    accept_compaction: bool = Field(
        default=False,
        description="continue although the topic is compacted: a delete that compaction removes before it is read "
        "leaves its row in the sink",
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.complete_at == "earliest":
            raise ValueError("complete_at: must be a time or a table of offsets")
        times = [told for told in (self.from_, self.complete_at) if isinstance(told, str) and told != "earliest"]
        if len(times) == 2 and ms_of(times[1]) < ms_of(times[0]):
            raise ValueError("complete_at: is before from, but a snapshot ends after it begins")
        if isinstance(self.from_, dict) and self.complete_at is not None:
            raise ValueError(
                "complete_at: from names offsets, so the snapshot is exactly that state: leave it out"
            )
        return self
