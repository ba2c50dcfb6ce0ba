"""Fixtures of the commands' tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_builders import Run, make_job
from typer.testing import CliRunner

from backfill_cli.catalog import Catalog, Claim, places
from backfill_cli.main import app
from backfill_cli.model.job import JobState


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, no settings from outside; those of other tests are not beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(places, "_beside", lambda _: iter(()))
    monkeypatch.delenv("BACKFILL_CATALOG", raising=False)
    return tmp_path


@pytest.fixture
def catalog(folder: Path) -> Catalog:
    """The default catalog with the job `orders`, never run."""
    made = Catalog(folder / ".backfill/catalog.duckdb")
    make_job(made)
    return made


@pytest.fixture
def run(folder: Path) -> Run:
    """Type a command."""
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.fixture
def claim(catalog: Catalog) -> Iterator[Claim]:
    """A runner has the job `orders`."""
    with catalog.claim("orders", "test", 5) as held:
        held.store.become(JobState.RUNNING, "")
        yield held
