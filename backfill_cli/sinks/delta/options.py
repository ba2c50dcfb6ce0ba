"""The options of the Delta sink."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from backfill_cli.contracts.example import Example


class DeltaOptions(BaseModel):
    """`[sink]` with type = "delta"."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: str = Field("delta", pattern="^delta$", description="This sink.")
    table: Annotated[str, Example("lake/{table}")] = Field(
        min_length=1,
        description="The table's folder: a local path or a URI, with a `/` in it; created when it is not there. "
        "Holds {table}, which stands for the table's target, when there are several tables. What backfill keeps "
        "of its jobs is in the folder `_backfill_state` beside.",
    )

    @field_validator("table")
    @classmethod
    def _is_a_path(cls, given: str) -> str:
        if "/" not in given:
            raise ValueError('a Delta table is named by its folder, with a /: "./orders" for one that is beside')
        return given
