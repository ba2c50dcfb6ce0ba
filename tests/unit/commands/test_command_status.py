"""status, its health check and its history: what is printed, and the exit code."""

import json
from pathlib import Path

import pytest
from command_builders import Run, end_job, make_job

from backfill_cli.catalog import Catalog
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Control, JobState, Phase


def test_status_is_one_line_a_job_or_one_job_in_full(run: Run, catalog: Catalog) -> None:
    make_job(catalog, "shop")
    lines = run("status").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["JOB", "orders", "shop"]
    assert run("status", "shop").stdout.splitlines()[0].split() == ["job:", "shop"]
    assert [job["name"] for job in json.loads(run("status", "--json").stdout)["jobs"]] == ["orders", "shop"]


def test_status_of_nothing_is_no_error(run: Run, folder: Path) -> None:
    result = run("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no jobs yet" in result.stderr
    assert json.loads(run("status", "--json").stdout) == {"schema": 2, "jobs": []}
    assert list(folder.iterdir()) == []


def test_where_a_config_lies_the_way_on_from_no_jobs_is_to_start_it(run: Run, folder: Path) -> None:
    assert "Try: backfill init" in run("status").stderr
    (folder / "job.toml").write_text("")
    assert "Try: backfill start --config job.toml" in run("status").stderr


def test_a_catalog_that_was_moved_away_is_not_no_jobs_yet(run: Run, catalog: Catalog) -> None:
    with catalog.claim("orders", "test", 5):
        moved = catalog.path.rename(catalog.path.with_name("moved.duckdb"))
        told = run("status").stderr
        assert f"there is no catalog at {catalog.path}, but job 'orders' has a runner: it is just start" in told
        assert "or runs with a catalog that was here before" in told
        assert "if the catalog was moved away, move it back; if the catalog was lost, rebuild it from" in told
        assert json.loads(run("status", "--json").stdout)["jobs"] == []
        make_job(Catalog(catalog.path), "orders")  # as `resume --from-sink` elsewhere would
        assert "a process that this catalog does not know" in run("status", "orders").stdout
        catalog.path.unlink()
        assert "resume --from-sink job.toml" in run("history").stderr
        moved.rename(catalog.path)


def test_a_job_without_a_runner_tells_that_the_catalog_was_there(run: Run, catalog: Catalog) -> None:
    with catalog.claim("orders", "test", 5):
        pass
    catalog.path.unlink()
    told = run("status").stderr
    assert f"there is no catalog at {catalog.path}, but these jobs ran with it: orders\n" in told
    assert "Try: move it back; if the catalog was lost, rebuild it from the sink: backfill resume --from" in told


@pytest.mark.parametrize(
    "words", [["status"], ["status", "fresh"], ["status", "--check"], ["pause"], ["stop", "fresh"]], ids=" ".join
)
def test_a_job_that_is_starting_in_a_new_folder_has_not_lost_its_catalog(
    run: Run, folder: Path, words: list[str]
) -> None:
    """The catalog is created once the upstream was looked at and Spark runs: ten seconds after the start."""
    new = Catalog(folder / "new" / "catalog.duckdb")
    with new.lock_job("fresh"):
        told = run(*words, "--catalog", str(new.path)).stderr
    assert f"there is no catalog at {new.path}, but job 'fresh' has a runner: it is just starting, or" in told
    assert "\nTry: backfill status" in told
    assert "again in half a minute" in told


def test_a_catalog_that_never_was_there_is_no_lost_one(run: Run, catalog: Catalog) -> None:
    with catalog.claim("orders", "test", 5):
        pass
    typo = run("status", "--catalog", str(catalog.path.with_suffix("")))
    assert "ran with it" not in typo.stderr


def test_a_health_check_is_an_exit_code_and_a_line(run: Run, catalog: Catalog) -> None:
    end_job(catalog, "orders", JobState.DONE, "caught up")
    well = run("status", "--check")
    assert (well.exit_code, well.stdout) == (0, "orders: healthy: done\n")
    make_job(catalog, "shop")
    end_job(catalog, "shop", JobState.FAILED, "part-7 is gone")
    ill = run("status", "--check", "--max-lag", "1m", "--json")
    assert ill.exit_code == 1
    told = json.loads(ill.stdout)
    assert (told["healthy"], [one["healthy"] for one in told["jobs"]]) == (False, [True, False])
    assert run("status", "orders", "--check").exit_code == 0
    assert run("status", "nobody", "--check").exit_code == 4


@pytest.mark.parametrize("words", [["--max-lag", "1m"], ["--check", "--watch"], ["--check", "--max-lag", "soon"]])
def test_options_of_a_health_check_that_do_not_fit_are_refused(
    run: Run, catalog: Catalog, words: list[str]
) -> None:
    assert run("status", *words).exit_code == 2


def test_a_health_check_where_there_is_no_job_fails(run: Run, folder: Path) -> None:
    assert run("status", "--check").exit_code == 4


def test_history_lists_commits_and_commands_oldest_first(run: Run, catalog: Catalog) -> None:
    assert "nothing committed" in run("history").stderr
    with catalog.claim("orders", "test", 5) as claim:
        for epoch, verbs in ((1_763_692_800_123, ""), (1_763_692_801_500, "pause")):
            record = EpochRecord(
                epoch, 1, Phase.UPSTREAM, epoch, 0, 1_200, 900, 3, 250, 40, 1_500, 2, verbs, 0, 700, 200
            )
            claim.store.take((), Control(), JobState.RUNNING, record)
    told = run("history")
    head, *lines = told.stdout.splitlines()
    assert head.split()[:3] == ["TIME", "COMMIT", "PHASE"]
    assert [line.split()[:4] for line in lines] == [
        ["2025-11-21", "02:40:00", "1763692800123", "upstream"],
        ["2025-11-21", "02:40:01", "1763692801500", "upstream"],
    ]
    assert lines[1].split()[4:] == [
        "0",
        "1,200",
        "900",
        "0",
        "700",
        "200",
        "0.2",
        "s",
        "40",
        "ms",
        "1.5",
        "s",
        "2",
        "pause",
    ]
    (newest,) = json.loads(run("history", "--last", "1", "--json").stdout)["epochs"]
    assert (newest["epoch"], newest["mutations"], newest["stage_ms"]) == (1_763_692_801_500, "pause", 250)
    assert run("history", "--last", "none").exit_code == 2
    assert len(run("history", "--last", "9" * 30).stdout.splitlines()) == 3


def test_watching_off_a_terminal_ends_with_the_job(run: Run, catalog: Catalog) -> None:
    end_job(catalog, "orders", JobState.FAILED, "part-7 is gone")
    result = run("status", "orders", "--watch")
    assert result.exit_code == 0
    assert "orders: failed, snapshot" in result.stderr
    assert [json.loads(line)["schema"] for line in run("status", "--watch", "--json").stdout.splitlines()] == [2]


def test_every_split_is_listed_with_how_far_it_is(run: Run, catalog: Catalog) -> None:
    make_job(catalog, "shop")
    lines = run("status", "shop", "--splits").stdout.splitlines()
    assert lines[0].split() == ["STATUS", "ROWS", "READ", "OF", "SIZE", "NEXT", "LAST", "COMMIT", "PART"]
    assert [line.split()[-1] for line in lines[1:]] == ["part-0", "part-1", "part-2", "part-3"]
    told = json.loads(run("status", "shop", "--splits", "--json").stdout)
    assert (told["job"], len(told["splits"]), told["splits"][0]["status"]) == ("shop", 4, "not_started")
