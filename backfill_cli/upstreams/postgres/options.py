"""The `[upstream]` part of a config with `type = "postgres"`: what a user may write, with units and help."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from backfill_cli.contracts.options import Example
from backfill_cli.model.units import duration_s, size_bytes

_NAME = r"^[a-z0-9_]{1,63}$"
_DURATION = WithJsonSchema({"type": ["string", "number"], "examples": ["500ms", "2s"], "description": "duration"})


class PostgresOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dsn: Annotated[str, Example("${env:ORDERS_DSN}")] = Field(
        description="The database as a libpq connection string, postgresql://user@host:5432/database; its "
        'password is in PGPASSWORD or ~/.pgpass, or the whole string is a reference: "${env:ORDERS_DSN}". The '
        "role needs REPLICATION, and SELECT on the tables.",
    )
    slot: Annotated[str, Example("backfill_orders")] = Field(
        pattern=_NAME,
        description="The job's own logical replication slot; start creates it, drop removes it.",
    )
    publication: str = Field(
        default="",
        description="The publication that has the job's tables; start creates it if it is missing and the role "
        "owns the tables. Default: the slot's name.",
    )
    accept_partition_changes: bool = Field(
        default=False,
        description="Whether the sink need not follow what the log lacks of a partitioned table: rows added or "
        "removed with a whole partition (ATTACH, DETACH, DROP, TRUNCATE of one), or changed while a partition is "
        "UNLOGGED; true says so, or that there are none.",
    )
    max_retained: Annotated[int, BeforeValidator(size_bytes, json_schema_input_type=int | str)] | None = Field(
        default=None,
        ge=1,
        description='The most write-ahead log that the slot may retain: bytes, or "10GB". Beyond it the job drops '
        "the slot and fails, and needs a new snapshot, instead of filling the upstream's disk. While no runner is "
        "alive, `status --check` reports it, and the server's max_slot_wal_keep_size acts. Default: no limit.",
    )

    chunk_time_s: Annotated[float, BeforeValidator(duration_s), _DURATION] | None = Field(
        default=None,
        alias="chunk_time",
        ge=0.01,
        description='How long a statement that reads rows may take on the server: "500ms". Statements are sized '
        "to take half of it; one that takes longer is ended by the server, and asked again for half of its rows. "
        "Default: no limit; a statement then reads up to 400,000 rows.",
    )

    @property
    def chunk_time_ms(self) -> int | None:
        return None if self.chunk_time_s is None else int(self.chunk_time_s * 1000)

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, told: object) -> object:
        if isinstance(told, dict) and not told.get("publication") and "slot" in told:
            return {**told, "publication": told["slot"]}
        return told
