"""PostgreSQL as a sink: tables of a database, one transaction per epoch."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from backfill_cli import postgres_dsn, postgres_gauge
from backfill_cli.contracts import Gauge, Sink, SinkConnector
from backfill_cli.contracts.domain import Domain
from backfill_cli.contracts.options import Example


class PostgresOptions(BaseModel):
    """`[sink]` with type = "postgres"."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True, serialize_by_alias=True
    )

    type: str = Field("postgres", pattern="^postgres$", description="This sink.")
    dsn: Annotated[str, Example("${env:WAREHOUSE_DSN}")] = Field(
        min_length=1,
        description="The database as a libpq connection string, postgresql://user@host:5432/database; its "
        'password is in PGPASSWORD or ~/.pgpass, or the whole string is a reference: "${env:WAREHOUSE_DSN}". The '
        "role needs CREATE on the schema and TEMPORARY on the database.",
    )
    in_schema: str = Field(
        "public",
        alias="schema",
        min_length=1,
        max_length=63,
        description="The schema of targets that name none, and of backfill's own tables (_backfill_*); created "
        "if it does not exist.",
    )


def _open(options: PostgresOptions) -> Sink:
    from backfill_cli.sinks.postgres.sink import PostgresSink

    return PostgresSink(options)


def _fingerprint(options: PostgresOptions) -> Mapping[str, Any]:
    """Where the tables are, without secrets. A DSN with a reference is omitted: its database has the markers."""
    told: dict[str, Any] = {"schema": options.in_schema}
    if "${" not in options.dsn:
        from backfill_cli.sinks.postgres.session import Place

        place = Place.of(options.dsn)
        told |= {"host": place.host, "port": place.port, "dbname": place.database}
    return told


def _look(options: PostgresOptions) -> Sequence[str]:
    from backfill_cli.sinks.postgres.look import look

    return look(options)


def _gauge(options: PostgresOptions, query: str, timeout_s: float) -> Gauge:
    return postgres_gauge.PostgresGauge(options.dsn, "sink.dsn", query, timeout_s)


_FIRST_DAY = -2_440_588
"""4714-11-24 BC as days since 1970. Its last date is later than any that is read."""
_FIRST = _FIRST_DAY * 86_400_000_000
_DOMAIN = Domain(
    "PostgreSQL",
    frozenset({"uuid", "json"}),
    nul=False,
    first={"date": _FIRST_DAY, "timestamp": _FIRST, "timestamp_ntz": _FIRST},
)
connector = SinkConnector(
    options=PostgresOptions,
    open=_open,
    fingerprint=_fingerprint,
    place="dsn",
    claims=postgres_dsn.is_url,
    look=_look,
    domain=lambda _options: _DOMAIN,
    gauge=_gauge,
    dialect="postgres",
)
