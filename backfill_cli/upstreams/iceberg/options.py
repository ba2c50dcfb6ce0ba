"""The options of `[upstream]` with `type = "iceberg"`, with their help."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from backfill_cli.contracts.example import Example
from backfill_cli.errors import UsageError
from backfill_cli.lake.iceberg.places import NO_PLACE, Place
from backfill_cli.lake.uris import without_secrets


class IcebergOptions(BaseModel):
    """An Iceberg table: its rows at a snapshot, and what changed from there on."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: Literal["iceberg"] = Field(default="iceberg", description="this connector")
    table: Annotated[str, Example("lake/orders")] = Field(
        min_length=1,
        description="the table's folder, a path or URI with a `/` in it; or catalog.schema.table, in a catalog "
        "that spark.conf defines; contains {table} if there are several tables",
    )
    version: int | str = Field(
        default="latest",
        description='the snapshot to read: "latest", a snapshot\'s id, a tag or branch, or a timestamp '
        '("2026-11-01T12:00:00Z"), for the snapshot that was the newest then',
    )

    tag: bool = Field(
        default=True,
        description="whether the job creates a tag that keeps the snapshot from expiring while it is read; false "
        "if the job may not write to the table",
    )

    @field_validator("table")
    @classmethod
    def _is_a_place(cls, given: str, info: ValidationInfo) -> str:
        try:
            Place.of(given)
        except UsageError:
            raise ValueError(NO_PLACE) from None
        return without_secrets(given, info.context)

    @field_validator("version")
    @classmethod
    def _is_a_version(cls, given: int | str) -> int | str:
        return int(given) if isinstance(given, str) and given.isdigit() else given


def moment(text: str) -> datetime | None:
    """A timestamp with its time zone; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
