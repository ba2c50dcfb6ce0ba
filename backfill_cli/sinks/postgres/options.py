"""The options of the PostgreSQL sink."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from backfill_cli.contracts.example import Example
from backfill_cli.contracts.secrets import Secret


class PostgresOptions(BaseModel):
    """`[sink]` with type = "postgres"."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True, serialize_by_alias=True
    )

    type: str = Field("postgres", pattern="^postgres$", description="This sink.")
    dsn: Annotated[str, Secret(), Example("${env:WAREHOUSE_DSN}")] = Field(
        min_length=1,
        description='The database as a libpq connection string, given by reference: "${env:WAREHOUSE_DSN}" for '
        "postgresql://user:password@host:5432/database. The role needs CREATE on the schema and TEMPORARY on the "
        "database.",
    )
    in_schema: str = Field(
        "public",
        alias="schema",
        min_length=1,
        max_length=63,
        description="The schema of targets that name none, and of backfill's own tables (_backfill_*); created "
        "if it does not exist.",
    )
