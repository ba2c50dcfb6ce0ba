"""`backfill schema`: it lists the answers, and prints one as JSON Schema; `status` in each state."""

import json
from types import SimpleNamespace

import pytest
from command_builders import Run, end_job, make_job
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.model.job import JobState
from backfill_cli.view.schemas import ANSWERS


def test_a_schema_is_printed(run: Run) -> None:
    told = json.loads(run("schema", "status").stdout)
    assert told["properties"]["schema"] == {"const": 2}
    assert "not_started" in told["$defs"]["SplitStatus"]["enum"]


def test_without_a_name_all_are_listed_with_what_prints_them(run: Run) -> None:
    lines = run("schema").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(ANSWERS)
    assert "health       status --check" in lines


def test_an_unknown_schema_is_refused_and_the_nearest_is_the_next_to_type(run: Run) -> None:
    refused = run("schema", "statsu")
    assert refused.exit_code == 2
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        (words,) = hint.commands()
        assert run(*words).exit_code == 0


def state(run: Run, job: str) -> str:
    return str(json.loads(run("status", job, "--json").stdout)["jobs"][0]["state"])


def test_a_job_is_shown_in_each_of_its_states(run: Run, catalog: Catalog) -> None:
    assert state(run, "orders") == "starting"
    run("pause", "orders")
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.PAUSED, "")
        assert state(run, "orders") == "paused"
        claim.store.become(JobState.RUNNING, "")
        assert state(run, "orders") == "running"
        run("stop", "orders")
        assert state(run, "orders") == "stopping"
    make_job(catalog, "shop")
    with catalog.claim("shop", "test", 5) as claim:
        claim.store.become(JobState.RUNNING, "")
        run("pause", "shop")
        assert state(run, "shop") == "pausing"
    for ended in (JobState.STOPPED, JobState.DONE, JobState.FAILED):
        make_job(catalog, ended.value)
        end_job(catalog, ended.value, ended)
        assert state(run, ended.value) == ended.value
    catalog.starters.begin("killed", "me", "starting Spark", "{}", "job.toml")
    assert state(run, "killed") == "dead"


def test_a_wait_and_a_start_in_the_background_are_told_as_json(
    run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_job(catalog, "orders", JobState.DONE)
    reached = json.loads(run("wait", "--for", "done", "--json").stdout)
    assert (reached["goal"], reached["state"]) == ("done", "done")
    ended = SimpleNamespace(pid=7, poll=lambda: 0)
    monkeypatch.setattr("backfill_cli.api.background.subprocess.Popen", lambda *_, **__: ended)
    assert json.loads(run("resume", "--detach", "--json").stdout)["pid"] == 7
