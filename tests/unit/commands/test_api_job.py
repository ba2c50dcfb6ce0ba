"""`backfill_cli.Job`: it calls what the commands call, and returns what they print."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_builders import end_job, fake_engine, make_job, write_config
from hint_typed import typed

import backfill_cli as bf
from backfill_cli.api import background
from backfill_cli.catalog import Catalog, Claim
from backfill_cli.errors import BackfillError, ConfigError, Held, NoSuchJob, StoppedEarly, UsageError
from backfill_cli.model.job import JobState, Verb
from backfill_cli.model.reports import PlanReport
from backfill_cli.model.verify import Asked, TableVerdict, VerifyReport
from backfill_cli.view.answers import Posted
from backfill_cli.view.console import ERROR_FILE, leave


@pytest.fixture
def job(folder: Path, catalog: Catalog) -> bf.Job:
    return bf.Job.from_toml(write_config(folder))


def test_the_package_imports_what_is_used() -> None:
    look = (
        "import sys, backfill_cli as bf\n"
        "assert {one for one in sys.modules if one.startswith('backfill_cli')} == {'backfill_cli'}\n"
        "bf.Job('orders')\n"
        "assert not {'pyspark', 'pydantic', 'pyarrow', 'typer', 'rich'} & set(sys.modules), sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", look], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'Jobs'"):
        bf.Jobs  # noqa: B018


def test_a_run_in_this_process_returns_the_job_and_what_was_done_and_says_nothing(
    job: bf.Job, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def start(config: Any, _catalog: Catalog, until: str, into_existing: bool, watcher: Any) -> JobState:
        watcher.tell("starting Spark")
        assert (config.job.name, until, into_existing) == ("orders", "caught-up", True)
        end_job(catalog, "orders", JobState.DONE, "caught up")
        return JobState.DONE

    fake_engine(monkeypatch, "loop.run", start=start)
    ran = job.start("caught-up", into_existing=True)
    assert ([view.state for view in ran.jobs], ran.run.this_run.commits) == ([JobState.DONE], 0)
    assert capfd.readouterr() == ("", "")
    assert "starting Spark" in (catalog.path.parent / "logs/orders.log").read_text()


def test_lines_of_progress_go_where_they_are_asked_for(job: bf.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*words: Any) -> JobState:
        words[-1].tell("starting Spark")
        return JobState.STOPPED

    fake_engine(monkeypatch, "loop.run", start=start)
    lines: list[str] = []
    job.start(say=lines.append)
    assert any(line.endswith("orders: starting Spark") for line in lines)


@pytest.mark.parametrize(
    ("ended", "raised"),
    [
        (SystemExit(130), KeyboardInterrupt),
        (SystemExit(143), SystemExit),
        (StoppedEarly("stopped", "x"), StoppedEarly),
    ],
)
def test_a_run_that_ends_early_raises(
    job: bf.Job, monkeypatch: pytest.MonkeyPatch, ended: BaseException, raised: type[BaseException]
) -> None:
    def start(*_: Any) -> JobState:
        raise ended

    fake_engine(monkeypatch, "loop.run", start=start)
    with pytest.raises(raised):
        job.start()


def test_a_job_in_the_background_is_the_command_that_would_be_typed(
    job: bf.Job, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed_words: list[list[str]] = []

    class Runner:
        pid = 1

        def poll(self) -> int:
            """It has ended, and done its work."""
            return 0

    def started(words: list[str], **_: Any) -> Runner:
        typed_words.append(words[4:])
        return Runner()

    monkeypatch.setattr(background.subprocess, "Popen", started)
    told = job.start("caught-up", detach=True, into_existing=True)
    assert (told.job, told.pid) == ("orders", 1)
    where = ["--catalog", str(catalog.path)]
    config = str(folder / "job.toml")
    end_job(catalog, "orders", JobState.STOPPED)
    job.resume("forever", detach=True)
    assert typed_words == [
        ["start", "--config", config, "--until", "caught-up", "--into-existing", *where],
        ["resume", "orders", "--until", "forever", *where],
    ]


def test_an_error_of_the_background_process_is_raised_here(tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    for error, kind in ((Held("it is held", "wait"), Held), (ConfigError("a.toml", ["x: missing"]), UsageError)):
        left = tmp_path / "error.json"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(ERROR_FILE, str(left))
            leave(error)
        found = background._ended_with(left, error.exit_code, log)
        assert type(found) is kind
        assert (found.message, found.hint, found.exit_code) == (error.message, error.hint, error.exit_code)


def test_commands_are_posted(job: bf.Job, claim: Claim) -> None:
    assert (job.pause().command, job.throttle(500).rate, job.stop().epoch) == (Verb.PAUSE, 500.0, None)
    assert [one.verb for one in claim.store.commands()] == [Verb.PAUSE, Verb.THROTTLE, Verb.STOP]
    assert job.status().state is JobState.STOPPING
    resumed = job.resume()
    assert isinstance(resumed, Posted)
    assert job.status().pending_commands[-1] is Verb.RESUME
    with pytest.raises(UsageError) as refused:
        job.resume("caught-up")
    with typed(refused.value) as hint:
        assert hint.commands() == [["stop", "orders"]]


def test_a_job_is_watched_to_its_end(job: bf.Job, catalog: Catalog) -> None:
    seen = []
    for view in job.watch(every_s=0.0):
        seen.append(view.state)
        if len(seen) == 2:
            end_job(catalog, "orders", JobState.DONE, "caught up")
    assert seen[-1] is JobState.DONE
    assert len(seen) == 3
    assert job.wait("done", timeout_s=1.0).state is JobState.DONE


def test_plan_verify_and_history_return_what_the_engine_found(
    job: bf.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = PlanReport("orders", "snapshot", "x", (), "0")
    fake_engine(monkeypatch, "job.checks", plan=lambda config, where, existing: planned)
    assert job.plan() is planned
    verdict = VerifyReport("orders", 5, (TableVerdict("orders", "orders", False, 1, 2, extra=1),), 1.0)
    asked: list[Any] = []
    fake_engine(monkeypatch, "verify.job", verify=lambda *words: asked.append(words) or verdict)
    assert job.verify(["orders"], sample=0.5).equal is False
    assert asked[0][2:4] == (False, Asked(("orders",), 0.5))
    assert job.history() == ()


def test_a_job_by_its_name_is_known_from_its_catalog_alone(
    folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bf.Job("orders").status().name == "orders"
    with pytest.raises(UsageError) as refused:
        bf.Job("orders").plan()
    with typed(refused.value) as hint:
        hint.says("Job.from_toml(FILE)")
        assert bf.Job.from_toml(write_config(folder)).name == "orders"
    with pytest.raises(NoSuchJob):
        bf.Job("shop").status()
    other = Catalog(folder / "other.duckdb")
    make_job(other, "shop")
    assert bf.Job("shop", folder / "other.duckdb").status().name == "shop"
    monkeypatch.setenv("BACKFILL_CATALOG", str(folder / "other.duckdb"))
    assert bf.Job("shop").status().name == "shop"
    (folder / "bad.toml").write_text("[job]\nname = 'x'\n")
    with pytest.raises(BackfillError, match="upstream: missing"):
        bf.Job.from_toml(folder / "bad.toml")
