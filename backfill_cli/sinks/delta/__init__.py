"""Delta tables as a sink: one commit per table and epoch, written by Spark."""

from collections.abc import Mapping
from typing import Any

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.sinks.delta.options import DeltaOptions


def _open(options: DeltaOptions) -> Sink:
    from backfill_cli.sinks.delta.sink import DeltaSink

    return DeltaSink(options)


def _fingerprint(options: DeltaOptions) -> Mapping[str, Any]:
    return {"type": "delta", "table": options.table}


connector = SinkConnector(options=DeltaOptions, open=_open, fingerprint=_fingerprint, formats=("delta",))
