"""Files as an upstream: Parquet, JSON or CSV snapshots, and a landing zone of change files."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import TableSpec, Upstream, UpstreamConnector
from backfill_cli.upstreams.files.options import FilesOptions


def _open(options: FilesOptions, tables: Sequence[TableSpec]) -> Upstream:
    from backfill_cli.upstreams.files.upstream import FilesUpstream

    return FilesUpstream(options, tables)


def _fingerprint(options: FilesOptions) -> Mapping[str, Any]:
    """All that changes results. `changes.columns` does not: columns are declared when they come.

    Nor does `changes.tables`: a job that met a line of another table goes on once it says which are meant. Nor do
    `snapshot.ignore` and `sparse`, which say what columns may be missing, and `changes.consecutive`.
    """
    told: dict[str, Any] = options.model_dump(mode="json", by_alias=True)
    del told["snapshot"]["ignore"], told["snapshot"]["sparse"]
    if told["changes"] is not None:
        del told["changes"]["columns"], told["changes"]["tables"], told["changes"]["consecutive"]
    return told


connector = UpstreamConnector(FilesOptions, _open, _fingerprint)
