"""Delta tables as an upstream: rows at a version, and the change data feed after it."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import TableSpec, Upstream, UpstreamConnector
from backfill_cli.errors import ConfigError
from backfill_cli.upstreams.delta.options import DeltaOptions


def _open(options: DeltaOptions, tables: Sequence[TableSpec]) -> Upstream:
    from backfill_cli.upstreams.delta.upstream import DeltaUpstream

    if len(tables) > 1 and "{table}" not in options.table:
        fault = f"upstream.table: '{options.table}' has no {{table}}, and the job has {len(tables)} tables"
        raise ConfigError("upstream", [fault], 'write it like "lake/{table}"')
    return DeltaUpstream(options, tables)


def _fingerprint(options: DeltaOptions) -> Mapping[str, Any]:
    """All of it. The table itself is known by its id."""
    return options.model_dump(mode="json")


connector = UpstreamConnector(DeltaOptions, _open, _fingerprint, formats=("delta",))
