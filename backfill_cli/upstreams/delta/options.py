"""The options of `[upstream]` with `type = "delta"`, with their help."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from backfill_cli.contracts.example import Example
from backfill_cli.lake.delta.names import NO_PLACE, is_place
from backfill_cli.lake.uris import without_secrets


class DeltaOptions(BaseModel):
    """A Delta table: its rows at a version, and its change data feed from there on."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: Literal["delta"] = Field(default="delta", description="this connector")
    table: Annotated[str, Example("lake/orders")] = Field(
        min_length=1,
        description="the table's folder: a local path or a URI, with a `/` in it; or catalog.schema.table, in a "
        "catalog of the session; contains {table} if there are several tables",
    )
    version: int | str = Field(
        default="latest",
        description='the version to read as the snapshot: "latest", a version\'s number, or a timestamp '
        '("2026-11-01T12:00:00Z"), for the version that was the newest then',
    )

    @field_validator("table")
    @classmethod
    def _is_a_place(cls, given: str, info: ValidationInfo) -> str:
        if not is_place(given):
            raise ValueError(NO_PLACE)
        return without_secrets(given, info.context)

    @field_validator("version")
    @classmethod
    def _is_a_version(cls, given: int | str) -> int | str:
        if isinstance(given, int) or given.isdigit():
            if int(given) < 0:
                raise ValueError("a version is 0 or more")
            return int(given)
        if given != "latest" and moment(given) is None:
            raise ValueError('"latest", a number, or a timestamp with its time zone like "2026-11-01T12:00:00Z"')
        return given


def moment(text: str) -> datetime | None:
    """A timestamp with its time zone; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
