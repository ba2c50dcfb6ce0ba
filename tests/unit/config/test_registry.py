"""Connectors by name."""

import subprocess
import sys

import pytest

from backfill_cli import registry
from backfill_cli.contracts import SinkConnector, UpstreamConnector
from backfill_cli.errors import UsageError


def test_the_connectors_of_this_package_are_there() -> None:
    assert isinstance(registry.upstream("files"), UpstreamConnector)
    assert isinstance(registry.sink("duckdb"), SinkConnector)


def test_an_unknown_type_lists_the_known_ones_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "known", lambda group: ("delta", "duckdb", "kafka"))
    with pytest.raises(UsageError, match="unknown sink type 'duckbd'; known: duckdb, delta, kafka"):
        registry.sink("duckbd")


def test_only_the_connector_asked_for_is_imported_and_no_spark() -> None:
    code = (
        "import sys; from backfill_cli import registry; registry.sink('duckdb');"
        "assert 'backfill_cli.upstreams.files' not in sys.modules; registry.upstream('files');"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
