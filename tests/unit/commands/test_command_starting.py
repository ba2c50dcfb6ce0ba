"""Commands about a job that is being created, or whose start was killed: what is true, and what to type."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_builders import CONFIG, Run, make_job, write_config

from backfill_cli.catalog import Catalog
from backfill_cli.config import load

COMMANDS = (
    ("pause", "orders"),
    ("pause",),
    ("resume", "orders"),
    ("stop", "orders"),
    ("throttle", "orders", "--rate", "5"),
    ("history", "orders"),
    ("verify", "orders"),
    ("cutover", "orders", "--dry-run"),
    ("report", "orders"),
)


@pytest.fixture
def killed(folder: Path) -> Catalog:
    """A catalog with a start of the job `orders` that was killed."""
    file = write_config(folder, CONFIG)
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    catalog.starters.begin("orders", "me", "starting Spark", load(Path(file)).stored(), file)
    return catalog


@pytest.fixture
def starting(killed: Catalog) -> Iterator[Catalog]:
    """Its process is alive."""
    with killed.lock_job("orders"):
        yield killed


def test_status_shows_a_start_and_what_it_is_doing(run: Run, starting: Catalog) -> None:
    (job,) = json.loads(run("status", "--json").stdout)["jobs"]
    assert (job["state"], job["created"], job["limited_by"]["text"]) == ("starting", False, "starting Spark")
    assert job["runner"]["alive"]
    shown = run("status", "orders").stdout
    assert "state:  starting (being created)" in shown
    assert run("status", "--check").exit_code == 0
    make_job(starting, "other")
    assert [line.split()[0] for line in run("status").stdout.splitlines()] == ["JOB", "other", "orders"]


def test_status_shows_a_start_that_was_killed_and_the_command_that_works(run: Run, killed: Catalog) -> None:
    told = run("status", "orders")
    assert told.exit_code == 0
    assert "dead (never created)" in told.stdout
    assert "died before the job was created (it was at: starting Spark)" in told.stdout
    assert "to continue: backfill start --config job.toml" in told.stdout
    assert run("status", "--check").exit_code == 1


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_that_needs_the_job_says_that_it_is_being_created(
    run: Run, starting: Catalog, words: tuple[str, ...]
) -> None:
    told = run(*words)
    assert told.exit_code == 5, told.stderr
    assert "job 'orders' is being created (pid " in told.stderr
    assert "wait until it runs: backfill status orders; or end the start: kill " in told.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_that_needs_the_job_says_that_its_start_died(
    run: Run, killed: Catalog, folder: Path, words: tuple[str, ...]
) -> None:
    told = run(*words)
    assert told.exit_code == 4, told.stderr
    assert "job 'orders' does not exist: its start (pid " in told.stderr
    assert f"start it again: backfill start --config {folder / 'job.toml'}" in told.stderr


def test_a_second_start_is_told_who_starts_the_job(run: Run, starting: Catalog) -> None:
    told = run("start", "job.toml")
    assert (told.exit_code, "is being created (pid " in told.stderr) == (5, True)
    assert run("drop", "orders", "--confirm", "orders").exit_code == 5


def test_wait_waits_for_a_start_and_ends_when_it_died(
    run: Run, killed: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with killed.lock_job("orders"):
        told = run("wait", "--for", "caught-up", "--timeout", "100ms")
        assert (told.exit_code, "it is being created" in told.stderr) == (8, True)
    monkeypatch.setattr("backfill_cli.api.waiting.GONE_AFTER_S", 0.0)
    told = run("wait", "--for", "caught-up")
    assert told.exit_code == 9
    assert "died before the job was created" in told.stderr
    assert "backfill start --config job.toml" in told.stderr


def test_a_killed_start_is_forgotten_by_drop_and_by_the_job_that_is_created(run: Run, killed: Catalog) -> None:
    assert run("drop", "orders").exit_code == 2
    assert run("drop", "orders", "--confirm", "orders").exit_code == 0
    assert killed.listed() == ()
    killed.starters.begin("orders", "me", "starting Spark", "{}", "job.toml")
    make_job(killed)
    assert [row.created for row in killed.listed()] == [True]
    assert killed.starters.of("orders") is None


def test_a_killed_start_that_is_forgotten_keeps_what_another_catalogs_job_of_its_name_has_staged(
    run: Run, folder: Path, killed: Catalog
) -> None:
    staging = Path(load(folder / "job.toml").job.staging) / "orders" / "1-abc"
    staging.mkdir(parents=True)
    (staging / "part.parquet").write_text("of another catalog's epoch")
    assert run("drop", "orders", "--confirm", "orders").exit_code == 0
    assert (staging / "part.parquet").exists()


def test_a_start_into_a_catalog_whose_folder_is_a_file_is_refused_by_name(run: Run, folder: Path) -> None:
    write_config(folder, CONFIG)
    (folder / "file").write_text("")
    refused = run("start", "--config", "job.toml", "--catalog", "file/c.duckdb")
    assert refused.exit_code == 2, refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_process_of_a_killed_start_is_not_named_as_one_to_end_while_another_has_its_lock(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another program's by now."""
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid, offered in ((ended.pid, False), (os.getpid(), True)):
        with monkeypatch.context() as of_another:
            of_another.setattr("os.getpid", lambda pid=pid: pid)
            catalog.starters.begin("orders", "me", "starting Spark", "{}", "job.toml")
        with catalog.lock_job("orders"):
            refused = run("pause", "orders")
        assert "is being created" in refused.stderr
        assert (f"kill {pid}" in refused.stderr) is offered


def test_a_killed_start_has_no_tables_that_a_drop_could_drop(run: Run, killed: Catalog) -> None:
    refused = run("drop", "orders")
    assert refused.exit_code == 2
    assert "backfill drop orders --confirm orders" in refused.stderr
    assert "--with-rows" not in refused.stderr
