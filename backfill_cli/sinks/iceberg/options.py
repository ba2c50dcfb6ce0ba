"""The options of the Iceberg sink."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from backfill_cli.contracts.example import Example
from backfill_cli.errors import UsageError
from backfill_cli.lake.iceberg.places import NO_PLACE, Place
from backfill_cli.lake.uris import without_secrets


class IcebergSinkOptions(BaseModel):
    """`[sink]` with type = "iceberg"."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: str = Field("iceberg", pattern="^iceberg$", description="This sink.")
    table: Annotated[str, Example("lake/{table}")] = Field(
        min_length=1,
        description="The table's own folder, a path or URI; or catalog.schema.table, in a catalog that "
        "spark.conf defines. {table} stands for a table's target, and is needed for several tables.",
    )
    branch: Annotated[str, Example("backfill")] | None = Field(
        default=None,
        pattern=r"^[A-Za-z][A-Za-z0-9_]*$",
        description="A branch of the tables that the job fills, empty at first, beside the rows that people "
        "query; `backfill cutover` makes it the table's own in one step. Without it rows go to the table itself.",
    )
    properties: Mapping[str, str] = Field(
        default_factory=dict,
        description="Properties of the tables that the job creates, as Iceberg names them, such as "
        "`write.target-file-size-bytes`. Existing tables keep theirs.",
    )

    @field_validator("branch")
    @classmethod
    def _is_no_other(cls, given: str | None) -> str | None:
        if given is not None and (given == "main" or given.startswith("backfill_")):
            raise ValueError("main and names that begin with backfill_ are reserved")
        return given

    @field_validator("table")
    @classmethod
    def _is_a_place(cls, given: str, info: ValidationInfo) -> str:
        try:
            Place.of(given)
        except UsageError:
            raise ValueError(NO_PLACE) from None
        return without_secrets(given, info.context)
