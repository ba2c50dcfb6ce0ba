"""PostgreSQL as an upstream: tables as they are now, by key, and one replication slot for all their changes."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli import postgres_dsn, postgres_gauge
from backfill_cli.contracts import Gauge, Looked, Named, Source, TableSpec, UpstreamConnector
from backfill_cli.upstreams.postgres.options import PostgresOptions


def _open(options: PostgresOptions, tables: Sequence[TableSpec]) -> Source:
    from backfill_cli.upstreams.postgres.source import PostgresSource

    return PostgresSource(options, tables)


def _fingerprint(options: PostgresOptions) -> Mapping[str, Any]:
    """The database is identified by its own identifier, not by its address."""
    return {"slot": options.slot, "publication": options.publication}


def _primary_keys(
    options: PostgresOptions, unkeyed: Sequence[str], _tables: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    from backfill_cli.upstreams.postgres.client import connected
    from backfill_cli.upstreams.postgres.tables import primary_keys

    with connected(options.dsn) as connection:
        return primary_keys(connection, unkeyed)


def _look(named: Named) -> Looked:
    from backfill_cli.upstreams.postgres.look import look

    return look(named)


def _gauge(options: PostgresOptions, query: str, timeout_s: float) -> Gauge:
    return postgres_gauge.PostgresGauge(options.dsn, "upstream.dsn", query, timeout_s)


connector = UpstreamConnector(
    PostgresOptions,
    _open,
    _fingerprint,
    primary_keys=_primary_keys,
    look=_look,
    claims=postgres_dsn.is_url,
    gauge=_gauge,
    gauges=postgres_gauge.NAMED,
)
