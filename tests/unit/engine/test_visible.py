"""A start that ends before there is a job leaves what it found."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.starts import Starters
from backfill_cli.engine.loop.process import Wake
from backfill_cli.engine.loop.run import visible


def ended(catalog: Catalog, *before: Any) -> None:
    """A start of `orders` that Ctrl-C ends. before: what happens between its lock and its first row."""
    config: Any = SimpleNamespace(
        job=SimpleNamespace(name="orders"), file="job.toml", stored=lambda: "{}", retry=SimpleNamespace(limit_s=1)
    )
    resources: Any = SimpleNamespace(tell=lambda _: None, with_retries=lambda act: act())
    with catalog.lock_job("orders") as lock:
        for act in before:
            act()
        with pytest.raises(KeyboardInterrupt), visible(config, catalog, lock, resources, Wake()):
            raise KeyboardInterrupt


def test_nothing_is_left_of_a_start_that_ends_before_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Starters, "begin", interrupted)
    ended(Catalog(tmp_path / "deep" / "catalog.duckdb"))
    assert list(tmp_path.iterdir()) == []


def test_no_catalog_is_left_where_the_start_that_had_made_it_was_refused_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "catalog.duckdb"
    path.touch()  # as another start makes it
    ended(Catalog(path), path.unlink)
    assert not path.exists()


def test_the_row_of_a_killed_start_is_there_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(tmp_path / "catalog.duckdb")
    with monkeypatch.context() as of_another:
        of_another.setattr("os.getpid", lambda: 1)
        catalog.starters.begin("orders", "me", "starting Spark", "{}", "job.toml")
    killed = catalog.starters.of("orders")
    ended(catalog)
    assert catalog.starters.of("orders") == killed
