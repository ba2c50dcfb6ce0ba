"""PostgreSQL as a sink: tables of a database, one transaction per epoch."""

from collections.abc import Mapping
from typing import Any

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.sinks.postgres.options import PostgresOptions


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


connector = SinkConnector(options=PostgresOptions, open=_open, fingerprint=_fingerprint)
