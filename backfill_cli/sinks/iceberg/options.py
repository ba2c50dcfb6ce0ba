"""The options of the Iceberg sink."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from backfill_cli.contracts.example import Example
from backfill_cli.errors import UsageError
from backfill_cli.formats.iceberg.places import NO_PLACE, Place


class IcebergSinkOptions(BaseModel):
    """`[sink]` with type = "iceberg"."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: str = Field("iceberg", pattern="^iceberg$", description="This sink.")
    table: Annotated[str, Example("lake/{table}")] = Field(
        min_length=1,
        description="The table's own folder, a path or URI; or catalog.schema.table, of a catalog that "
        "spark.conf names. {table} stands for a table's target, and is needed where there are several.",
    )
    properties: Mapping[str, str] = Field(
        default_factory=dict,
        description="Properties of the tables that are created, as Iceberg names them, such as "
        "`write.target-file-size-bytes`. Those of a table that exists stay as they are.",
    )

    @field_validator("table")
    @classmethod
    def _is_a_place(cls, given: str) -> str:
        try:
            Place.of(given)
        except UsageError:
            raise ValueError(NO_PLACE) from None
        return given
