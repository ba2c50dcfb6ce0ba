"""Iceberg tables as an upstream: rows at a snapshot, and the changes between snapshots after it."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import TableSpec, Upstream, UpstreamConnector
from backfill_cli.errors import ConfigError
from backfill_cli.upstreams.iceberg.options import IcebergOptions


def _open(options: IcebergOptions, tables: Sequence[TableSpec]) -> Upstream:
    from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

    if len(tables) > 1 and "{table}" not in options.table:
        fault = f"upstream.table: '{options.table}' has no {{table}}, but the job has {len(tables)} tables"
        raise ConfigError("upstream", [fault], 'use {table} in it, for example "lake/{table}"')
    return IcebergUpstream(options, tables)


def _fingerprint(options: IcebergOptions) -> Mapping[str, Any]:
    """All options. The table itself is identified by its id."""
    return options.model_dump(mode="json")


connector = UpstreamConnector(IcebergOptions, _open, _fingerprint, formats=("iceberg",))
