"""`backfill drop` with the real engine: refused it has changed nothing, killed on its way it can be repeated."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_builders import Run
from half_done import half_done, run_elsewhere, staging, told, written

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig

pytestmark = pytest.mark.seconds

DROP = ("drop", "orders", "--confirm", "orders")


@pytest.fixture
def config(folder: Path) -> JobConfig:
    return written(folder)


@pytest.fixture
def known(folder: Path, config: JobConfig) -> Catalog:
    """The default catalog with the job, half done."""
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    half_done(config, catalog)
    return catalog


def both(folder: Path) -> object:
    return told(folder / ".backfill/catalog.duckdb"), told(folder / "sink.duckdb")


def test_a_dropped_job_leaves_its_rows_and_its_token_alone(
    run: Run, folder: Path, config: JobConfig, known: Catalog
) -> None:
    assert run(*DROP).exit_code == 0
    catalog, sink = told(known.path), told(folder / "sink.duckdb")
    assert {table for table, rows in sink.items() if rows} == set()
    assert "main.orders" in sink
    kept = {"main.catalog_version", "main.leases", "main.catalog_identity"}
    assert {table for table, rows in catalog.items() if rows} == kept
    assert not staging(config).exists()


def test_a_drop_refused_for_a_runner_elsewhere_has_changed_nothing(
    run: Run, folder: Path, config: JobConfig, known: Catalog
) -> None:
    run_elsewhere(known.path)
    before = both(folder)
    refused = run(*DROP)
    assert refused.exit_code == 5
    assert "cron on far-host, pid 4711" in refused.stderr
    assert both(folder) == before
    assert staging(config).exists()


def test_a_drop_refused_for_a_runner_here_has_changed_nothing(run: Run, folder: Path, known: Catalog) -> None:
    with known.claim("orders", "test", 5):
        before = both(folder)
        assert run(*DROP).exit_code == 5
        assert both(folder) == before


@pytest.mark.parametrize("point", ["drop-claimed", "drop-forgotten", "drop-unstaged"])
def test_a_drop_that_was_killed_is_done_by_the_next_one(
    run: Run, folder: Path, config: JobConfig, known: Catalog, point: str
) -> None:
    words = [sys.executable, "-m", "backfill_cli", *DROP]
    died = subprocess.run(words, env={**os.environ, "BACKFILL_FAILPOINT": point}, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL
    assert run(*DROP).exit_code == 0
    assert {table for table, rows in told(folder / "sink.duckdb").items() if rows} == set()
    assert known.jobs() == ()
    assert not staging(config).exists()
