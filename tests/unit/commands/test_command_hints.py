"""A hint's commands find the job: they carry the `--catalog` that was typed."""

import json
from pathlib import Path

import pytest
from command_builders import Run, end_job, fake_engine, make_job, write_config

from backfill_cli.catalog import Catalog
from backfill_cli.engine.job import checks
from backfill_cli.errors import START_OVER, BackfillError, Fatal, Hint, Transient, command, retried
from backfill_cli.model.checkpoint import Progress
from backfill_cli.model.job import JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.view.console import from_here, in_catalog


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (command("status orders"), "backfill status orders --catalog c"),
        (
            "look: " + command("status a") + "; or " + command("drop a --confirm a") + " (x)",
            "look: backfill status a --catalog c; or backfill drop a --confirm a --catalog c (x)",
        ),
        (
            command("throttle --rate 500") + ", or --rate none",
            "backfill throttle --rate 500 --catalog c, or --rate none",
        ),
        (command("status a --catalog b"), "backfill status a --catalog b"),
        (command("init other.toml"), "backfill init other.toml"),
        (
            command("drop a --sink '/my jobs (old), or/j.toml' --confirm a") + "; or wait",
            "backfill drop a --sink '/my jobs (old), or/j.toml' --confirm a --catalog c; or wait",
        ),
        (
            BackfillError("", START_OVER).naming("a", False).hint,
            "backfill drop a --confirm a --catalog c, and start over",
        ),
        (Hint.of("rename 'backfill status a'"), "rename 'backfill status a'"),
    ],
)
def test_commands_of_a_hint_carry_the_catalog(hint: Hint, told: str) -> None:
    assert str(in_catalog(hint, "c")) == told


def test_a_catalog_that_was_typed_is_in_the_hint_and_one_of_the_environment_is_not(
    run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = run("pause", "none", "--catalog", str(catalog.path))
    assert f"Try: backfill status orders --catalog {catalog.path}\n" in typed.stderr
    monkeypatch.setenv("BACKFILL_CATALOG", str(catalog.path))
    assert "Try: backfill status orders\n" in run("pause", "none").stderr


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("then: " + command("start --config FILE"), "then: backfill start --config 'my job.toml'"),
        (
            command("resume a --from-sink job.toml", "drop a --sink job.toml --with-rows --confirm a"),
            "backfill resume a --from-sink 'my job.toml'; "
            "backfill drop a --sink 'my job.toml' --with-rows --confirm a",
        ),
        (command("start --config job.toml.old"), "backfill start --config job.toml.old"),
        ("name it: --config FILE; or write one: " + command("init"), None),
        (command("report a --out FILE"), "backfill report a --out FILE"),
    ],
)
def test_commands_of_a_hint_name_the_config_quoted_for_a_shell(hint: Hint, told: str | None) -> None:
    assert str(hint.of_file("my job.toml")) == (told or str(hint))
    assert hint.of_file("") == hint


def test_a_path_is_told_as_it_is_typed_here(folder: Path) -> None:
    assert from_here(str(folder / "jobs/a.toml")) == "jobs/a.toml"
    assert from_here("/elsewhere/a.toml") == "/elsewhere/a.toml"
    assert from_here("") == ""


@pytest.mark.parametrize("words", [("my job.toml",), ("--config", "my job.toml")])
def test_the_config_that_was_typed_is_the_one_that_a_hint_names(
    run: Run, folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "my job.toml").write_text("oops = 1\n")
    assert "then: backfill plan --config 'my job.toml'\n" in run("plan", *words).stderr
    assert "then: backfill plan --config 'my job.toml'\n" in run("start", *words).stderr


def test_a_command_that_names_no_config_tells_the_one_that_the_job_was_started_by(
    run: Run, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine("{}", "forever", str(folder / "my job.toml"))

    def refused(*_: object) -> None:
        raise Fatal("it is not so", "set tables.live; then: " + command("start --config FILE"))

    fake_engine(monkeypatch, "cutover", look=refused)
    assert "start --config 'my job.toml'\n" in run("cutover", "orders", "--dry-run").stderr
    way_on = "make room; then: " + command("start --config FILE")
    end_job(catalog, "orders", JobState.FAILED, Limit("full", hint=way_on))
    assert "start --config 'my job.toml'" in run("status", "orders").stdout
    assert "start --config 'my job.toml'\n" in run("wait", "orders", "--for", "caught-up").stderr


def test_what_a_command_prints_carries_the_catalog_that_was_typed(run: Run, folder: Path) -> None:
    there = folder / "c d.duckdb"
    typed = f"--catalog '{there}'"
    assert run("status", "--catalog", str(there)).stderr.endswith(f"start --config job.toml {typed}\n")
    catalog = Catalog(there)
    make_job(catalog)
    assert f"Try: backfill resume orders {typed}, which" in run("logs", "--catalog", str(there)).stderr
    kept = Progress(Phase.UPSTREAM, 20, 9, 9, 0, 0, {}, 0, 0, None, None, Limit("nothing"), held_bytes=5 << 20)
    end_job(catalog, "orders", JobState.STOPPED, told=kept)
    words = ("--catalog", str(there))
    assert run("stop", *words).stderr.endswith(f"until the job continues: backfill resume orders {typed}\n")
    assert f"backfill resume orders {typed}\n" in run("status", *words).stderr
    assert f"to continue: backfill resume orders {typed}" in run("status", "orders", *words).stdout
    told = json.loads(run("status", "--json", *words).stdout)["jobs"][0]["limited_by"]
    assert (told["kind"], told["to"], told["text"]) == ("ended", "continue", "stopped")
    assert told["hint"]["commands"] == [f"backfill resume orders {typed}"]


def test_a_failure_that_may_pass_is_not_said_to_be_retried_by_a_command_that_ends(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*_: object) -> None:
        raise Transient("s3://b: the object store does not answer", retried("check the network"))

    monkeypatch.setattr(checks, "plan", plan)
    ended = run("plan", write_config(folder))
    assert ended.exit_code == 6
    assert ended.stderr.endswith("Try: check the network; then type the command again\n")
