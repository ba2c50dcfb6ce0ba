"""Two catalogs, one sink: whose job it is, who is refused before anything changes, and the ways on that work."""

import socket
from pathlib import Path

import pytest
from command_builders import Run
from half_done import CONFIG, EPOCH, half_done, staging, told, written
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig
from backfill_cli.model.checkpoint import Owner

pytestmark = pytest.mark.seconds

OTHER = ("--catalog", "other/catalog.duckdb")


@pytest.fixture
def config(folder: Path) -> JobConfig:
    return written(folder)


@pytest.fixture
def known(folder: Path, config: JobConfig) -> Catalog:
    """The default catalog with the job, half done; its sink says whose it is."""
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    half_done(config, catalog)
    config.open_sink().own("orders", catalog.made(), None)
    return catalog


def test_a_start_from_another_catalog_is_refused_before_it_fences(run: Run, folder: Path, known: Catalog) -> None:
    with known.claim("orders", "test", 5):
        before = told(folder / "sink.duckdb")
        refused = run("start", "--config", "job.toml", *OTHER)
        assert refused.exit_code == 5, refused.stderr
        assert f"belongs to another catalog: {known.path} on {socket.gethostname()}" in refused.stderr
        assert f"backfill status orders --catalog {known.path}" in refused.stderr
        assert told(folder / "sink.duckdb") == before
        assert not (folder / "other/catalog.duckdb").exists()
    assert run("status", "orders", "--catalog", str(known.path)).exit_code == 0


def test_a_resume_in_the_background_that_came_second_is_refused(
    run: Run, known: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKFILL_DETACHED_LOG", str(folder / "log"))  # as `resume --detach` starts it
    with known.claim("orders", "test", 5):
        refused = run("resume", "orders")
        assert (refused.exit_code, known.job("orders").waiting) == (5, ())


def test_a_catalog_is_named_as_a_shell_reads_it() -> None:
    assert Owner("id", "host", "/the data/catalog.duckdb").option == "--catalog '/the data/catalog.duckdb'"


def test_a_sink_taken_over_is_not_fenced_by_the_catalog_that_had_it(
    run: Run, folder: Path, config: JobConfig, known: Catalog
) -> None:
    mine = known.made()
    config.open_sink().own("orders", Owner("id-2", "far-host", "/far/catalog.duckdb"), mine)
    before = told(folder / "sink.duckdb"), told(known.path)
    for words in (("resume", "orders"), ("start", "--config", "job.toml")):
        refused = run(*words)
        assert refused.exit_code == 5
        assert "/far/catalog.duckdb on far-host" in refused.stderr
        assert "backfill resume orders --from-sink job.toml" in refused.stderr
    assert (told(folder / "sink.duckdb"), told(known.path)) == before

    assert run("drop", "orders", "--confirm", "orders").exit_code == 0
    assert told(folder / "sink.duckdb") == before[0]
    assert staging(config).exists()
    assert known.jobs() == ()


def test_a_job_is_not_rebuilt_while_its_catalog_is_there(run: Run, folder: Path, known: Catalog) -> None:
    before = told(folder / "sink.duckdb")
    for words in (
        ("resume", "--from-sink", "job.toml"),
        ("drop", "orders", "--sink", "job.toml", "--confirm", "orders"),
    ):
        refused = run(*words, *OTHER)
        assert refused.exit_code == 5, refused.stderr
        assert str(known.path) in refused.stderr
    assert told(folder / "sink.duckdb") == before
    assert not (folder / "other/catalog.duckdb").exists()


def test_a_job_whose_catalog_is_lost_is_dropped_from_the_sink(
    run: Run, folder: Path, config: JobConfig, known: Catalog
) -> None:
    known.path.unlink()
    refused = run("start", "--config", "job.toml")
    assert refused.exit_code == 5
    assert "that catalog is gone" in refused.stderr
    assert "if it was moved, name it: --catalog FILE" in refused.stderr
    assert "backfill resume orders --from-sink job.toml" in refused.stderr
    words = ("drop", "orders", "--sink", "job.toml", "--confirm", "orders")
    assert words[0] in refused.stderr
    assert " ".join(words) in refused.stderr

    assert run(*words[:-2]).exit_code == 2
    assert config.open_sink().committed("orders") != {}
    assert run(*words).exit_code == 0
    assert {table for table, rows in told(folder / "sink.duckdb").items() if rows} == set()
    assert not staging(config).exists()
    again = run(*words)
    assert again.exit_code == 4
    assert "has no record of job 'orders'" in again.stderr
    with typed(again.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("check the job's name and [sink]")
        other = written(folder, "others")
        half_done(other, Catalog(folder / "lost.duckdb"))
        (folder / "lost.duckdb").unlink()
        assert run("drop", "others", "--sink", "job.toml", "--confirm", "others").exit_code == 0


def test_a_lost_catalogs_runner_that_lives_keeps_its_job(run: Run, folder: Path, known: Catalog) -> None:
    with known.claim("orders", "test", 5):
        known.path.unlink()
        for words in (
            ("resume", "--from-sink", "job.toml", *OTHER),
            ("drop", "orders", "--sink", "job.toml", "--confirm", "orders", *OTHER),
        ):
            assert run(*words).exit_code == 5


def test_drop_sink_is_for_lost_catalogs_only(run: Run, folder: Path, known: Catalog) -> None:
    refused = run("drop", "orders", "--sink", "job.toml", "--confirm", "orders")
    assert refused.exit_code == 2
    assert "backfill drop orders --confirm orders" in refused.stderr


def test_a_sink_of_an_older_version_is_refused_to_a_catalog_that_does_not_know_its_job(
    run: Run, folder: Path, config: JobConfig
) -> None:
    half_done(config, Catalog(folder / "old/catalog.duckdb"))
    before = told(folder / "sink.duckdb")
    refused = run("start", "--config", "job.toml")
    assert refused.exit_code == 1
    assert f"holds job 'orders' up to commit {EPOCH}" in refused.stderr
    assert told(folder / "sink.duckdb") == before
    assert not (folder / ".backfill/catalog.duckdb").exists()


@pytest.mark.parametrize("words", [("resume", "orders"), ("start", "--config", "job.toml")])
def test_a_sink_that_was_deleted_is_not_made_anew(
    run: Run, folder: Path, known: Catalog, words: tuple[str, ...]
) -> None:
    (folder / "sink.duckdb").unlink()
    before = told(known.path)
    refused = run(*words)
    assert refused.exit_code == 1
    assert f"the sink has no record of job 'orders', but the catalog has its commit {EPOCH}" in refused.stderr
    assert "--from-sink" not in refused.stderr
    assert not (folder / "sink.duckdb").exists()
    assert told(known.path) == before
    assert "backfill drop orders --with-rows --confirm orders" in run("resume", "--from-sink", "job.toml").stderr
    assert run("drop", "orders", "--confirm", "orders").exit_code == 0


def test_another_jobs_table_is_let_go_by_the_command_that_its_refusal_names(
    run: Run, folder: Path, known: Catalog
) -> None:
    (folder / "second.toml").write_text(CONFIG.replace('name = "orders"\n[up', 'name = "second"\n[up'))
    refused = run("plan", "--config", "second.toml")
    assert refused.exit_code == 5, refused.stderr
    assert f"backfill drop orders --confirm orders --catalog {known.path}" in refused.stderr
    known.path.unlink()
    refused = run("plan", "--config", "second.toml")
    assert "backfill drop orders --confirm orders --sink second.toml" in refused.stderr
