"""Iceberg tables as a sink: in folders, or by name in a catalog of the session."""

from collections.abc import Mapping
from typing import Any

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.sinks.iceberg.options import IcebergSinkOptions


def _open(options: IcebergSinkOptions) -> Sink:
    from backfill_cli.sinks.iceberg.sink import IcebergSink

    return IcebergSink(options)


def _fingerprint(options: IcebergSinkOptions) -> Mapping[str, Any]:
    from backfill_cli.lake.iceberg.places import Place

    own = {} if options.branch is None else {"branch": options.branch}
    return {"type": "iceberg", "table": str(Place.of(options.table)), **own}


connector = SinkConnector(options=IcebergSinkOptions, open=_open, fingerprint=_fingerprint, formats=("iceberg",))
