"""Delta tables as an upstream: rows at a version, and the change data feed after it."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import TableSpec, Upstream, UpstreamConnector
from backfill_cli.errors import ConfigError
from backfill_cli.upstreams.delta.options import DeltaOptions


def _open(options: DeltaOptions, tables: Sequence[TableSpec]) -> Upstream:
    from backfill_cli.upstreams.delta.upstream import DeltaUpstream

    if len(tables) > 1 and "{table}" not in options.table:
        fault = f"upstream.table: '{options.table}' has no {{table}}, but the job has {len(tables)} tables"
        raise ConfigError("upstream", [fault], 'use {table} in it, for example "lake/{table}"')
    return DeltaUpstream(options, tables)


def _fingerprint(options: DeltaOptions) -> Mapping[str, Any]:
    """All options. The table itself is identified by its id."""
    return options.model_dump(mode="json")


connector = UpstreamConnector(DeltaOptions, _open, _fingerprint, formats=("delta",))
