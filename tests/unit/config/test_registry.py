"""Connectors by name."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from hint_typed import typed

from backfill_cli import registry
from backfill_cli.contracts import SinkConnector, UpstreamConnector
from backfill_cli.errors import UsageError


def test_the_connectors_of_this_package_are_there() -> None:
    assert isinstance(registry.upstream("files"), UpstreamConnector)
    assert isinstance(registry.sink("duckdb"), SinkConnector)


def test_an_unknown_type_lists_the_known_ones_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "known", lambda group: ("delta", "duckdb", "kafka"))
    with pytest.raises(UsageError, match="unknown sink type 'duckbd'; did you mean duckdb"):
        registry.sink("duckbd")


def test_only_the_connector_asked_for_is_imported_and_no_spark() -> None:
    code = (
        "import sys; from backfill_cli import registry; registry.sink('duckdb');"
        "assert 'backfill_cli.upstreams.files' not in sys.modules; registry.upstream('files');"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("group", "kind"), [(registry.UPSTREAMS, "kafka"), (registry.SINKS, "duckdb")])
def test_a_package_whose_entry_point_is_no_connector_is_named_until_it_is_right(
    monkeypatch: pytest.MonkeyPatch, group: str, kind: str
) -> None:
    """As one is left by an update that stopped half-way."""
    find = {registry.UPSTREAMS: registry.upstream, registry.SINKS: registry.sink}[group]
    right = registry._installed(group)
    half = EntryPoint(kind, "os:getcwd", group)
    monkeypatch.setattr(registry, "_installed", lambda _: (half,))
    with pytest.raises(UsageError, match=f"type '{kind}' does not name a") as refused:
        find(kind)
    with typed(refused.value) as hint:
        hint.says("reinstall its package")
        monkeypatch.setattr(registry, "_installed", lambda _: right)
        assert find(kind).options is not None
