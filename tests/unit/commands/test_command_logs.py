"""What a run writes into its log, what of it is shown, and `logs`."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from command_builders import CONFIG, Run, fake_engine, make_job, write_config
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.errors import BackfillError, BadData, Held, Hint, Transient
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress
from backfill_cli.model.job import Control, JobState, Phase, Verb
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position

SIDE = "_backfill_quarantine_orders"
LOG = ".backfill/logs/orders.log"


def ran(catalog: Catalog, watcher: Any, quarantined: int) -> JobState:
    """A run of one epoch; a throttle came."""
    aside = {SIDE: quarantined} if quarantined else {}
    told = Progress(Phase.UPSTREAM, 20, 9, 9, 0, 0, {}, 0, 0, None, None, Limit("nothing"), quarantined=aside)
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.RUNNING, "a runner began")
        catalog.post("orders", Verb.THROTTLE, 500.0, "ann@box", 5)
        epoch = claim.store.load().committed.epoch + 20
        taken = EpochRecord(epoch, 1, Phase.SNAPSHOT, epoch, mutations="throttle")
        claim.store.take(claim.store.commands(), Control(), JobState.RUNNING, taken)
        checkpoint = Checkpoint(
            epoch + 1,
            epoch,
            claim.token,
            "a",
            "{}",
            Phase.UPSTREAM,
            Position(),
            plan=EpochPlan(),
            staged=Staged("a"),
        )
        claim.store.prepare(checkpoint, None, told)
        record = EpochRecord(epoch + 1, epoch, Phase.SNAPSHOT, epoch, 9, 4, 14, 1, 1_500, 200)
        claim.store.mark(record, told if quarantined else None)
        watcher.progressed()
        claim.store.become(JobState.DONE, "caught up")
    return JobState.DONE


@pytest.fixture
def config(folder: Path, catalog: Catalog) -> str:
    return write_config(folder)


def engine(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, quarantined: int = 0, fails: bool = False) -> None:
    def start(config: Any, _catalog: Catalog, until: str, into_existing: bool, watcher: Any, *_: Any) -> JobState:
        watcher.tell("starting Spark")
        watcher.tell(Limit("it is held", Kind.WAITING))
        if fails:
            with catalog.claim("orders", "test", 5) as claim:
                claim.store.become(JobState.STARTING, "")
                claim.store.become(JobState.FAILED, Limit("part-7: changed", hint=Hint.of("restore it")))
            raise BadData("part-7: changed", "restore it")
        return ran(catalog, watcher, quarantined)

    fake_engine(monkeypatch, "loop.run", start=start)


def said(text: str) -> list[str]:
    """What stands in the lines after time and job."""
    return [line.split(" orders: ", 1)[1] for line in text.splitlines()]


def test_a_run_that_is_done_ends_with_five_lines_and_writes_all_it_says_into_its_log(
    run: Run, folder: Path, catalog: Catalog, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, catalog)
    result = run("start", "--config", config, "--json")
    assert result.exit_code == 0, result.stderr
    lines = said(result.stderr)
    assert lines[:2] == ["starting Spark", "waiting: it is held"]
    assert lines[2] == "throttle to 500 rows/s by ann@box, at commit 20"
    assert "1 commit: 9 rows and 4 changes read, staging 1.5 s, sink 0.2 s" in lines[3]
    assert lines[-5:-2] == ["rows:     9 read from the snapshot, 14 written", "changes:  4 read", "rejected: none"]
    assert lines[-2].endswith(", 1 commit")
    assert (folder / LOG).read_text() == result.stderr
    told = json.loads(result.stdout)["run"]["this_run"]
    assert (told["snapshot_rows"], told["changes_read"], told["rows_written"], told["commits"]) == (9, 4, 14, 1)
    again = said(run("start", "--config", config).stderr)
    assert again[-5] == (
        "rows:     9 read from the snapshot, 14 written "
        "(this run; all runs: 18 read from the snapshot, 28 written)"
    )


def test_a_quiet_run_shows_warnings_and_the_end_and_its_log_has_all(
    run: Run, folder: Path, catalog: Catalog, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, catalog)
    lines = said(run("start", "--config", config, "-q").stderr)
    assert [line.split(":")[0] for line in lines] == ["waiting", "rows", "changes", "rejected", "time", "rate"]
    assert "starting Spark" in said((folder / LOG).read_text())


def test_a_failure_is_in_the_log_and_shown_once(
    run: Run, folder: Path, catalog: Catalog, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, catalog, fails=True)
    result = run("start", "--config", config)
    assert result.exit_code == 1
    assert result.stderr.count("part-7: changed\n") == 1
    assert result.stderr.endswith("error: part-7: changed\nTry: restore it\n")
    assert said((folder / LOG).read_text())[-1] == "failed: part-7: changed; to continue: restore it"


def test_quarantined_rows_fail_a_run_that_ended_well_where_that_is_asked_for(
    run: Run, catalog: Catalog, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, catalog, quarantined=2)
    well = run("start", "--config", config)
    assert well.exit_code == 0
    assert f"rejected: 2 rows in {SIDE}" in said(well.stderr)
    assert f"quarantined, because they could not be read: 2 rows in {SIDE}" in said(well.stderr)
    failed = run("start", "--config", config, "--fail-on-quarantine", "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["run"]["all_runs"]["quarantined"] == {SIDE: 2}
    assert f"error: job 'orders': quarantined 2 rows in {SIDE}" in failed.stderr
    with typed(failed.stderr.split("Try: ", 1)[1]) as hint, duckdb.connect() as sink:
        sink.execute(f"CREATE TABLE {SIDE} AS SELECT 'no JSON' AS record")
        (look,) = hint.statements()
        assert sink.execute(look).fetchall() == [("no JSON",)]
    assert catalog.job("orders").state is JobState.DONE
    assert run("status", "--check").exit_code == 0
    check = run("status", "--check", "--fail-on-quarantine")
    assert (check.exit_code, f"quarantined 2 rows in {SIDE}" in check.stdout) == (1, True)
    assert run("status", "--fail-on-quarantine").exit_code == 2
    assert "QUARANTINED" in run("status").stdout
    assert f"2 rows in {SIDE}" in run("status", "orders").stdout


def test_without_quarantined_rows_nothing_fails(
    run: Run, catalog: Catalog, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, catalog)
    assert run("start", "--config", config, "--fail-on-quarantine").exit_code == 0
    assert run("status", "--check", "--fail-on-quarantine").exit_code == 0
    assert "QUARANTINED" not in run("status").stdout


@pytest.mark.parametrize("words", [("--progress-interval", "soon"), ("--progress-interval", "100ms")])
def test_an_interval_that_is_none_is_refused(run: Run, config: str, words: tuple[str, str]) -> None:
    assert run("start", "--config", config, *words).exit_code == 2


@pytest.mark.parametrize("word", [("--fail-on-quarantine",), ("--progress-interval", "1m")])
def test_what_is_of_a_run_is_refused_where_the_job_has_a_runner(
    run: Run, catalog: Catalog, word: tuple[str, ...]
) -> None:
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.become(JobState.RUNNING, "")
        refused = run("resume", *word)
        assert catalog.job("orders").waiting == ()
    assert refused.exit_code == 2
    assert word[0] in refused.stderr


def test_a_failure_is_told_once_where_stderr_is_the_log(
    run: Run, folder: Path, catalog: Catalog, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(monkeypatch, catalog, fails=True)
    monkeypatch.setenv("BACKFILL_DETACHED_LOG", str(folder / LOG))
    monkeypatch.setattr("backfill_cli.api.background.rotate", lambda _log: None)
    result = run("start", "--config", config)
    assert " orders: failed: " not in result.stderr
    assert re.search(r"Z orders: failed\nerror: part-7: changed\nTry: restore it\n$", result.stderr)


@pytest.mark.parametrize(("error", "logged"), [(Held("a runner has it"), False), (Transient("no broker"), True)])
def test_what_failed_before_it_began_is_in_the_log_and_what_was_refused_is_not(
    run: Run, folder: Path, config: str, monkeypatch: pytest.MonkeyPatch, error: BackfillError, logged: bool
) -> None:
    def start(*_: Any) -> JobState:
        raise error

    fake_engine(monkeypatch, "loop.run", start=start)
    assert run("start", "--config", config).stderr == f"error: {error.message}\n"
    assert (folder / LOG).exists() == logged
    if logged:
        assert said((folder / LOG).read_text()) == ["failed: no broker"]


def test_hooks_get_the_events_of_the_run(
    run: Run, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = '[hooks]\non = ["done", "failed", "quarantined"]\ncommand = ["sh", "-c", "cat >> events"]\n'
    config = write_config(folder, CONFIG + hooks)
    engine(monkeypatch, catalog, quarantined=2)
    assert run("start", "--config", config).exit_code == 0
    engine(monkeypatch, catalog, fails=True)
    assert run("start", "--config", config).exit_code == 1
    told = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    assert [(one["event"], one["job"], one["quarantined"]) for one in told] == [
        ("quarantined", "orders", {SIDE: 2}),
        ("done", "orders", {SIDE: 2}),
        ("failed", "orders", told[2]["quarantined"]),
    ]
    assert set(told[0]) == {
        "schema",
        "job",
        "event",
        "time",
        "epoch",
        "phase",
        "state",
        "lag_s",
        "reason",
        "hint",
        "quarantined",
        "headroom_s",
    }
    assert (told[2]["reason"], told[2]["hint"]["text"]) == ("part-7: changed", "restore it")
    assert "hook for failed: ran" in said((folder / LOG).read_text())


def test_logs_prints_the_newest_lines_and_json_tells_their_times(run: Run, folder: Path, catalog: Catalog) -> None:
    log = folder / LOG
    log.parent.mkdir()
    (folder / f"{LOG}.1").write_text("2025-01-01T00:00:00.000Z orders: older\n")
    log.write_text("2025-01-01T00:00:01.500Z orders: a\nWARN of a library \x1b[31m\n")
    assert run("logs").stdout.splitlines() == [
        "2025-01-01T00:00:00.000Z orders: older",
        "2025-01-01T00:00:01.500Z orders: a",
        "WARN of a library [31m",
    ]
    assert run("logs", "orders", "--last", "1").stdout == "WARN of a library [31m\n"
    told = json.loads(run("logs", "--last", "2", "--json").stdout)
    assert (told["job"], told["log"]) == ("orders", str(log))
    assert [line["time"] for line in told["lines"]] == ["2025-01-01T00:00:01.500Z", None]
    assert run("logs", "--last", "none").exit_code == 2
    assert run("logs", "../orders").exit_code == 2
    assert run("logs", "nobody").exit_code == 4


def test_a_start_that_failed_before_there_was_a_job_has_a_log_too(run: Run, folder: Path) -> None:
    (folder / ".backfill/logs").mkdir(parents=True)
    (folder / LOG).write_text("2025-01-01T00:00:00.000Z orders: failed: no\n")
    assert "failed: no" in run("logs", "orders").stdout


def test_a_job_without_a_log_says_what_writes_one(run: Run, catalog: Catalog) -> None:
    told = run("logs")
    assert (told.exit_code, told.stdout) == (0, "")
    assert "there is no log at " in told.stderr
    assert "Try: backfill resume orders" in told.stderr
    assert json.loads(run("logs", "--json").stdout)["lines"] == []


@pytest.mark.seconds
def test_logs_follows_until_ctrl_c(folder: Path, catalog: Catalog) -> None:
    log = folder / LOG
    log.parent.mkdir()
    log.write_text("first\n")
    command = [sys.executable, "-m", "backfill_cli", "logs", "-f", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["text"] == "first"
        log.rename(folder / f"{LOG}.1")
        log.write_text("second\n")
        assert json.loads(following.stdout.readline())["text"] == "second"
        following.send_signal(2)
        assert following.wait(20) == 130


def test_another_job_of_the_catalog_has_a_log_of_its_own(run: Run, folder: Path, catalog: Catalog) -> None:
    make_job(catalog, "shop")
    (folder / ".backfill/logs").mkdir()
    (folder / LOG).write_text("of orders\n")
    assert run("logs", "orders").stdout == "of orders\n"
    assert run("logs", "shop").stdout == ""
    assert run("logs").exit_code == 2
