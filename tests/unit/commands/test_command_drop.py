"""`backfill drop` with the real engine: refused it has changed nothing, killed on its way it can be repeated."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb_shared
import pytest
from command_builders import Run
from half_done import EPOCH, half_done, run_elsewhere, staging, told, written
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import Swap

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
    assert not list(known.path.parent.glob("*.runner")), "no trace of a job that ran"
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


@pytest.fixture
def cut_over(folder: Path, known: Catalog) -> None:
    """People query the job's table by a view, and what they queried before is kept."""
    config = (folder / "job.toml").read_text().replace('key = ["id"]', 'key = ["id"]\nlive = "shown"')
    (folder / "job.toml").write_text(config)
    job = load(folder / "job.toml")
    with known.claim("orders", "test", 5) as claim:
        claim.store.redefine(job.stored(), "forever", job.file)
    with duckdb_shared.opened(folder / "sink.duckdb") as db:
        db.execute("INSERT INTO orders VALUES (1, 'a'); CREATE TABLE shown AS SELECT 'old' AS name")
    (table,) = known.definition("orders").tables
    sink = job.open_sink()
    assert sink.extras.cutover is not None
    sink.extras.cutover.cut_over("orders", [Swap(table, "shown")], EPOCH, 1, 2)


@pytest.mark.usefixtures("cut_over")
def test_a_drop_after_a_cut_over_says_before_and_after_what_people_go_on_to_see(run: Run, folder: Path) -> None:
    stays = "shown is still a view of orders, which nothing fills any more; cutover --reverse needs the job"
    kept = f"shown_before_{EPOCH}"
    asked = run("drop", "orders").stderr
    assert f"{stays}; what was there before is kept as {kept}" in asked
    assert "--with-rows" not in asked  # it would be refused
    done = run(*DROP, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["live"] == [{"name": "shown", "target": "orders", "before": kept}]
    with duckdb_shared.opened(folder / "sink.duckdb") as db:
        assert db.execute("FROM shown").fetchall() == [(1, "a")]


@pytest.mark.usefixtures("cut_over")
def test_a_drop_with_rows_that_people_query_is_refused_until_the_cut_over_is_reversed(
    run: Run, folder: Path
) -> None:
    before = both(folder)
    refused = run(*DROP, "--with-rows")
    assert refused.exit_code == 2
    assert "shown is a view of orders since the cutover of job 'orders'" in refused.stderr
    assert both(folder) == before
    with duckdb_shared.opened(folder / "sink.duckdb") as db:
        db.execute("DROP VIEW shown")
    assert run(*DROP, "--with-rows").exit_code == 0


@pytest.mark.usefixtures("cut_over")
def test_a_sink_that_cannot_be_asked_what_people_see_is_no_reason_to_say_nothing(run: Run, folder: Path) -> None:
    (folder / "sink.duckdb").write_bytes(b"no database")
    assert "--confirm is missing" in run("drop", "orders").stderr


def test_a_stored_config_that_is_no_longer_accepted_has_a_way_out(
    run: Run, folder: Path, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a newer version that lacks an option: catalog and sink have it, the file on disk is correct."""
    stored = json.loads(config.stored())
    stored["upstream"]["snapshot"]["gone"] = 1
    monkeypatch.setattr(JobConfig, "stored", lambda _: json.dumps(stored))
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    half_done(config, catalog)
    config.open_sink().own("orders", catalog.made(), None)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    for words in (("resume", "orders"), ("start", "--config", "job.toml"), DROP, (*DROP, "--without-sink")):
        before = both(folder)
        refused = run(*words)
        assert refused.exit_code == 2, refused.output
        assert both(folder) == before
        shown = refused.stderr.split("Try: ", 1)[1]
    with typed(shown) as hint:
        for command in hint.commands():
            done = run(*command)
            assert done.exit_code == 0, done.stderr
    assert not staging(config).exists()
    assert run("plan", "--config", "job.toml", "--into-existing").exit_code == 0
    assert config.open_sink().committed("orders") == {}
