"""The options of the Delta sink."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from backfill_cli.contracts.example import Example
from backfill_cli.lake.delta.names import FORGETS, NO_PLACE, is_place
from backfill_cli.lake.uris import without_secrets


class DeltaOptions(BaseModel):
    """`[sink]` with type = "delta"."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: str = Field("delta", pattern="^delta$", description="This sink.")
    table: Annotated[str, Example("lake/{table}")] = Field(
        min_length=1,
        description="The table's folder: a local path or a URI, with a `/` in it; or catalog.schema.table, in a "
        "catalog of the session. Created if it does not exist. For several tables it contains {table}, which "
        "stands for each table's target. backfill keeps its own state in the folder `_backfill_state` beside the "
        "table, or in the schema's folder.",
    )

    properties: Mapping[str, str] = Field(
        default_factory=dict,
        description="Properties of the tables that the job creates, as Delta names them, such as "
        "`delta.enableDeletionVectors`. Existing tables keep theirs.",
    )

    @field_validator("properties")
    @classmethod
    def _can_be_written(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        for name in given:
            if name.lower() == FORGETS.lower():
                raise ValueError(f"{name} would let a table forget which epoch it is at")
            if name.lower() == "delta.appendonly":
                raise ValueError(f"{name} would let rows be added only, but a job changes and deletes them, too")
        return given

    @field_validator("table")
    @classmethod
    def _is_a_place(cls, given: str, info: ValidationInfo) -> str:
        if not is_place(given):
            raise ValueError(NO_PLACE)
        return without_secrets(given, info.context)
