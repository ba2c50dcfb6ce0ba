"""DuckDB as a sink: one embedded file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.sinks.duckdb.options import DuckDBOptions


def _open(options: DuckDBOptions) -> Sink:
    from backfill_cli.sinks.duckdb.sink import DuckDBSink

    return DuckDBSink(options)


def _fingerprint(options: DuckDBOptions) -> Mapping[str, Any]:
    return {"type": "duckdb", "path": str(Path(options.path).absolute())}


connector = SinkConnector(options=DuckDBOptions, open=_open, fingerprint=_fingerprint)
