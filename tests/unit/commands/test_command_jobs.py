"""start, status, plan, verify, drop, init, config: what they hand on and what they print."""

import json
import os
import stat
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_builders import CONFIG, Run, end_job, fake_engine, make_job, write_config

from backfill_cli.catalog import Catalog
from backfill_cli.commands import _detached
from backfill_cli.commands._options import config_file, open_catalog
from backfill_cli.config import load
from backfill_cli.errors import UsageError
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.plan_report import PlanReport
from backfill_cli.model.verify import TableVerdict, VerifyReport


def test_start_hands_the_config_to_the_engine_and_tells_the_end(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def start(config: Any, catalog: Catalog, until: str, into_existing: bool, watcher: Any) -> JobState:
        asked.append((config.job.name, until, into_existing))
        make_job(catalog)
        end_job(catalog, "orders", JobState.DONE, "caught up")
        return JobState.DONE

    fake_engine(monkeypatch, "loop.run", start=start)
    result = run("start", "--config", write_config(folder), "--until", "caught-up", "--into-existing", "--json")
    assert result.exit_code == 0
    assert asked == [("orders", "caught-up", True)]
    assert json.loads(result.stdout)["jobs"][0]["state"] == "done"


def test_start_off_a_terminal_tells_plain_lines_of_what_it_does_and_how_far_it_is(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(config: Any, catalog: Catalog, until: str, into_existing: bool, watcher: Any) -> JobState:
        watcher.tell("starting Spark")
        watcher.tell("starting Spark")
        watcher.tell("waiting: it is held")
        make_job(catalog)
        end_job(catalog, "orders", JobState.DONE)
        watcher.progressed()
        return JobState.RUNNING

    fake_engine(monkeypatch, "loop.run", start=start)
    result = run("start", "--config", write_config(folder))
    assert "\x1b" not in result.output
    stamps, lines = zip(*(line.split("Z ", 1) for line in result.stderr.splitlines()), strict=True)
    assert [datetime.fromisoformat(stamp) for stamp in stamps] == sorted(map(datetime.fromisoformat, stamps))
    assert lines[:2] == ("orders: starting Spark", "orders: waiting: it is held")
    assert lines[2].startswith("orders: done, snapshot; ")
    assert (folder / ".backfill/logs/orders.log").read_text() == result.stderr


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
    assert json.loads(run("status", "--json").stdout) == {"schema": 1, "jobs": []}
    assert list(folder.iterdir()) == []


def test_a_catalog_that_was_moved_away_is_not_no_jobs_yet(run: Run, catalog: Catalog) -> None:
    with catalog.claim("orders", "test", 5):
        moved = catalog.path.rename(catalog.path.with_name("moved.duckdb"))
        told = run("status").stderr
        assert f"there is no catalog at {catalog.path}, but these jobs ran with it: orders (it still has" in told
        assert (
            "Try: move it back; if the catalog was lost, rebuild it from the sink: backfill resume --from" in told
        )
        assert json.loads(run("status", "--json").stdout)["jobs"] == []
        make_job(Catalog(catalog.path), "orders")  # as `resume --from-sink` elsewhere would
        assert "a process that has not claimed the job in this catalog" in run("status", "orders").stdout
        catalog.path.unlink()
        assert "resume --from-sink job.toml" in run("history").stderr
        moved.rename(catalog.path)


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
    assert "no epoch committed" in run("history").stderr
    with catalog.claim("orders", "test", 5) as claim:
        for epoch, verbs in ((1_763_692_800_123, ""), (1_763_692_801_500, "pause")):
            record = EpochRecord(
                epoch, 1, Phase.UPSTREAM, epoch, 0, 1_200, 900, 3, 250, 40, 1_500, 2, verbs, 0, 700, 200
            )
            claim.store.take((), Control(), JobState.RUNNING, record)
    told = run("history")
    head, *lines = told.stdout.splitlines()
    assert head.split()[:4] == ["TIME", "(UTC)", "EPOCH", "PHASE"]
    assert [line.split()[:4] for line in lines] == [
        ["2025-11-21", "02:40:00", "1763692800123", "upstream"],
        ["2025-11-21", "02:40:01", "1763692801500", "upstream"],
    ]
    assert lines[1].split()[4:] == ["0", "1,200", "900", "0", "700", "200", "0.2s", "0s", "1.5s", "2", "pause"]
    (newest,) = json.loads(run("history", "--last", "1", "--json").stdout)["epochs"]
    assert (newest["epoch"], newest["mutations"], newest["stage_ms"]) == (1_763_692_801_500, "pause", 250)
    assert run("history", "--last", "none").exit_code == 2
    assert len(run("history", "--last", "9" * 30).stdout.splitlines()) == 3


def test_the_catalog_of_a_folder_above_is_found_unless_a_job_is_made(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(folder / "a" / "b")
    assert run("status", "orders").exit_code == 0
    assert open_catalog("", above=False).path == Path.cwd() / ".backfill/catalog.duckdb"
    assert run("stop").exit_code == 4  # of a job that was not named, in a catalog that was not either
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert open_catalog("").path == Path.cwd() / ".backfill/catalog.duckdb"
    monkeypatch.undo()
    monkeypatch.chdir(folder / "a" / "b")
    assert run("list").stdout == run("status").stdout != ""
    assert f"catalog {folder}/.backfill/catalog.duckdb" in run("status").stderr.splitlines()
    assert run("status", "--check").exit_code == 4, "another folder's health is not this one's"
    assert run("status", "orders", "--check").exit_code != 4
    monkeypatch.chdir(folder)
    assert "catalog " not in run("status").stderr


def test_the_config_is_named_by_an_option_an_argument_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"no job\.toml in"):
        config_file(None, None)
    (folder / "job.toml").touch()
    assert config_file(None, None) == Path("job.toml")
    assert config_file("a.toml", None) == config_file(None, "a.toml") == Path("a.toml")
    with pytest.raises(UsageError, match="two configs"):
        config_file("a.toml", "b.toml")
    with pytest.raises(UsageError, match="is empty"):
        config_file(None, "")


def test_a_start_whose_metrics_have_no_place_leaves_nothing_behind(run: Run, folder: Path) -> None:
    config = write_config(folder)
    before = set(folder.rglob("*"))
    assert run("start", "--config", config, "--metrics-port", "http").exit_code == 2
    assert set(folder.rglob("*")) == before


def test_help_has_a_short_form(run: Run) -> None:
    for words in (["-h"], ["status", "-h"], ["config", "-h"]):
        helped = run(*words)
        assert helped.exit_code == 0
        assert "Usage:" in helped.stdout


def test_watching_off_a_terminal_ends_with_the_job(run: Run, catalog: Catalog) -> None:
    end_job(catalog, "orders", JobState.FAILED, "part-7 is gone")
    result = run("status", "orders", "--watch")
    assert result.exit_code == 0
    assert "orders: failed, snapshot" in result.stderr
    assert [json.loads(line)["schema"] for line in run("status", "--watch", "--json").stdout.splitlines()] == [1]


def test_plan_and_verify_print_what_the_engine_found(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(
        monkeypatch,
        "job.preflight",
        plan=lambda config, where, existing: PlanReport(config.job.name, "snapshot", "x", (), "0"),
    )
    verdict = VerifyReport("orders", 5, (TableVerdict("orders", "orders", True, 1, 1),), 1.0)
    fake_engine(monkeypatch, "verify.job", verify=lambda *_: verdict)
    assert run("plan", "--config", write_config(folder)).stdout.startswith("job         orders\n")
    assert json.loads(run("verify", "--json").stdout)["equal"] is True


def test_a_plan_that_start_would_refuse_ends_with_2_and_names_the_catalog_that_was_typed(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "t has rows. Try: backfill start --config job.toml --into-existing"
    report = PlanReport("orders", "snapshot", "x", (), "LSN 0/1", pending_epochs=None, refused=(hint,))
    fake_engine(monkeypatch, "job.preflight", plan=lambda config, where, existing: report)
    file = write_config(folder)
    ended = run("plan", "--config", file, "--catalog", "c.duckdb")
    assert ended.exit_code == 2
    assert f"start would refuse: {hint.replace('job.toml', file)} --catalog c.duckdb" in ended.stdout
    assert "change log  from LSN 0/1\n" in ended.stdout


def test_drop_wants_the_name_twice(run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    left = "replication slot 'orders' is being read"

    def forget(job: str, where: Catalog, without_sink: bool, with_rows: bool) -> SimpleNamespace:
        dropped.append(job + " without its sink" * without_sink)
        return SimpleNamespace(known=True, left=left, tables=("orders", "lines"), gone=with_rows, live=())

    fake_engine(monkeypatch, "job.drop", drop=forget, live_names=lambda job, where: ())
    assert run("drop", "orders").exit_code == 2
    assert dropped == []
    done = run("drop", "orders", "--confirm", "orders")
    assert done.exit_code == 0
    assert "dropped; the rows in the sink are kept, in orders, lines; to fill them again: " in done.stderr
    assert f"start --into-existing\nleft in the upstream: {left}" in done.stderr
    assert dropped == ["orders"]
    asked = run("drop", "orders", "--with-rows")
    assert (asked.exit_code, dropped) == (2, ["orders"])
    assert "all rows of its tables" in asked.stderr
    gone = run("drop", "orders", "--with-rows", "--confirm", "orders")
    assert "dropped; its tables and their rows are gone: orders, lines" in gone.stderr
    assert run("drop", "orders", "--with-rows", "--without-sink", "--confirm", "orders").exit_code == 2


def test_init_writes_a_config_that_loads_and_never_over_another(run: Run, folder: Path) -> None:
    assert run("init").exit_code == 0
    assert load(folder / "job.toml").job.name == "orders"
    (folder / "job.toml").write_text("mine")
    result = run("init")
    assert result.exit_code == 2
    assert (folder / "job.toml").read_text() == "mine"
    assert run("init", "other.toml").exit_code == 0
    assert run("init", "k.toml", "--upstream", "kafka", "--sink", "postgres").exit_code == 0
    assert load(folder / "k.toml").tree["sink"]["type"] == "postgres"


def test_init_that_looks_says_what_is_left_to_fill_in(run: Run, folder: Path) -> None:
    (folder / "lines.csv").write_text("order,note\n1,a\n1,b\n")
    result = run("init", "looked.toml", "--path", "lines.csv")
    assert result.exit_code == 0
    assert (
        "Try: fill in tables.key in it, then: backfill plan --config looked.toml" in result.stderr + result.stdout
    )
    assert json.loads(run("init", "again.toml", "--path", "lines.csv", "--json").stdout) == {
        "schema": 1,
        "file": "again.toml",
        "fill_in": ["key"],
    }
    refused = run("plan", "looked.toml")
    assert refused.exit_code == 2
    assert "tables[0].key: must not be empty" in refused.stderr


def test_init_for_a_type_that_is_not_there_writes_nothing(run: Run, folder: Path) -> None:
    result = run("init", "--upstream", "kafak")
    assert result.exit_code == 2
    assert "unknown upstream type 'kafak'; known: kafka, " in result.stderr
    assert list(folder.iterdir()) == []


def test_config_show_says_where_each_value_comes_from_and_no_secret(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_DSN", "postgresql://me:hunter2@h/w")
    (folder / "secret").write_text("hunter3")
    text = CONFIG.replace(
        'type = "duckdb"\npath = "warehouse.duckdb"', 'type = "postgres"\ndsn = "${env:WAREHOUSE_DSN}"'
    )
    text += '[barrier]\ninterval = "500ms"\n[spark.conf]\n'
    text += '"a.password" = "${file:secret}"\n"b.token" = "${env:NOT_THERE}"\n'
    file = write_config(folder, text)
    done = run("config", "show", "--json")
    told = {one["path"]: (one["value"], one["origin"], one["note"]) for one in json.loads(done.stdout)["options"]}
    assert told["job.name"] == ("orders", "file", "")
    assert told["job.strategy"] == ("auto", "default", "")
    assert told["upstream.type"] == ("files", "file", "")
    assert told["upstream.snapshot.path"] == (str(folder / "data/snapshot"), "file", "")
    assert told["upstream.snapshot.csv.header"] == (True, "default", "")
    assert told["tables[0].key"] == (["id"], "file", "")
    assert told["sink.dsn"] == ("${env:WAREHOUSE_DSN}", "environment", "WAREHOUSE_DSN")
    assert told["sink.schema"] == ("public", "default", "")
    assert told["barrier.interval"] == ("0.5s", "file", "")
    assert told["barrier.target"] == ("5s", "default", "")
    assert told['spark.conf."a.password"'] == (f"${{file:{folder}/secret}}", "secret file", "secret")
    assert told['spark.conf."b.token"'] == ("${env:NOT_THERE}", "environment", "NOT_THERE, which is not set")
    shown = run("config", "show", file)
    assert "barrier.interval" in shown.stdout
    assert "hunter" not in done.output + shown.output
    assert max(len(line.split("  ")) for line in shown.stdout.splitlines()) >= 3


def test_config_show_of_a_key_that_the_upstream_knows(run: Run, folder: Path) -> None:
    text = '[job]\nname = "o"\n[upstream]\ntype = "kafka"\nbootstrap_servers = "h:1"\ntopic = "o"\n'
    text += (
        'value = { schema = "id BIGINT" }\n[[tables]]\nname = "o"\n[sink]\ntype = "duckdb"\npath = "w.duckdb"\n'
    )
    done = run("config", "show", write_config(folder, text), "--json")
    told = {one["path"]: (one["value"], one["origin"]) for one in json.loads(done.stdout)["options"]}
    assert told["tables[0].key"] == (["kafka_partition", "kafka_offset"], "upstream")
    assert told["upstream.value.schema"] == ("id BIGINT", "file")


def test_config_show_of_a_file_with_faults_is_code_2(run: Run, folder: Path) -> None:
    done = run("config", "show", write_config(folder, "[job]\nname = 'A B'\n"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "job.name" in done.stderr


@pytest.mark.parametrize("words", [["start", "--until", "x"], ["wait", "--for", "x"], ["resume", "--until", "x"]])
def test_a_wrong_choice_is_told_in_plain_words(run: Run, folder: Path, words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert f"error: Invalid value for '{words[1]}': 'x' is not one of 'caught-up', " in result.stderr


def test_config_schema_is_json(run: Run) -> None:
    assert json.loads(run("config", "schema").stdout)["title"] == "backfill job"


READ_OR_POST = [
    ["status"],
    ["status", "--json"],
    ["status", "orders"],
    ["status", "--check"],
    ["history"],
    ["logs"],
    ["pause"],
    ["throttle", "--rate", "5"],
    ["stop"],
    ["wait", "--for", "stopped"],
]


@pytest.mark.parametrize("words", READ_OR_POST, ids=" ".join)
def test_commands_that_read_or_post_import_neither_spark_nor_pydantic(catalog: Catalog, words: list[str]) -> None:
    end_job(catalog, "orders", JobState.DONE)
    code = (
        "import sys, atexit\n"
        "heavy = {'pyspark', 'py4j', 'pydantic', 'sqlglot', 'pyarrow', 'pandas', 'numpy'}\n"
        "atexit.register(lambda: print('IMPORTED', sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['backfill', *{words!r}]\n"
        "from backfill_cli.main import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    allowed = "['pydantic']" if words[0] == "wait" else "[]"
    assert f"IMPORTED {allowed}" in ended.stderr


RUNNER = """
import sys, time, types
sys.path[:0] = {paths!r}
fake = types.ModuleType("backfill_cli.engine.loop.run")
def start(config, catalog, until, into_existing, watcher):
    from command_builders import make_job
    from backfill_cli.errors import Held
    if {fails!r}:
        raise Held("job 'orders' is held by somebody", "backfill status orders")
    make_job(catalog)
    with catalog.claim("orders", "test", int(time.time() * 1000)) as claim:
        while not claim.store.commands():
            time.sleep(0.02)
    return "stopped"
fake.start = start
sys.modules["backfill_cli.engine.loop.run"] = fake
"""


def background(folder: Path, fails: bool) -> "subprocess.CompletedProcess[str]":
    """`start --detach` with an engine of our own in both processes."""
    site = folder / "site"
    site.mkdir()
    text = RUNNER.format(paths=[str(Path(__file__).parent)], fails=fails)
    (site / "sitecustomize.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "backfill_cli",
        "start",
        "--config",
        write_config(folder),
        "--detach",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.seconds
def test_a_detached_job_runs_on_with_a_private_log(folder: Path, run: Run) -> None:
    ended = background(folder, fails=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    log = Path(told["log"])
    assert log == folder / ".backfill/logs/orders.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    row = Catalog(folder / ".backfill/catalog.duckdb").job("orders")
    assert (row.live, row.lease.pid) == (True, told["pid"])
    assert os.getsid(told["pid"]) == told["pid"]
    assert run("stop", "--json").exit_code == 0


RESUMING = """
import sys, time, types
sys.path[:0] = {paths!r}
fake = types.ModuleType("backfill_cli.engine.loop.run")
def resume(name, catalog, sink_config, until, watcher):
    from dataclasses import replace
    from backfill_cli.model.job import JobState
    from view_builders import PROGRESS
    with catalog.claim(name, "test", int(time.time() * 1000)) as claim:
        claim.store.become(JobState.STARTING, "")
        claim.store.become(JobState.RUNNING, "")
        claim.store.heartbeat(5, replace(PROGRESS, token=claim.token))
        time.sleep(0.5)
        if {passes!r}:
            claim.store.heartbeat(5, replace(PROGRESS, token=claim.token, looked_ms=5))
        while not claim.store.commands():
            time.sleep(0.02)
        claim.store.become(JobState.STOPPING, "")
        claim.store.become(JobState.STOPPED, until)
    return "stopped"
fake.resume = resume
sys.modules["backfill_cli.engine.loop.run"] = fake
"""


@pytest.mark.seconds
@pytest.mark.parametrize(("passes", "code", "within"), [(True, 0, "30s"), (False, 8, "4s")])
def test_a_resume_in_the_background_waits_for_the_first_barrier_within_the_time(
    folder: Path, catalog: Catalog, run: Run, passes: bool, code: int, within: str
) -> None:
    end_job(catalog, "orders", JobState.STOPPED)
    site = folder / "site"
    site.mkdir()
    tests = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "view")]
    (site / "sitecustomize.py").write_text(RESUMING.format(paths=tests, passes=passes))
    words = ["resume", "orders", "--until", "caught-up", "--detach", "--wait", "--timeout", within]
    ended = subprocess.run(
        [sys.executable, "-m", "backfill_cli", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(site)},
        timeout=60,
    )
    assert ended.returncode == code, ended.stderr
    said = "past its first barrier" if passes else f"reached no barrier within {within[:-1]} s and goes on"
    assert said in ended.stderr
    assert catalog.job("orders").live
    assert run("stop", "--wait", "--json").exit_code == 0
    assert catalog.job("orders").reason == "caught-up"


@pytest.mark.seconds
def test_a_detached_job_that_fails_at_once_passes_its_error_on(folder: Path) -> None:
    ended = background(folder, fails=True)
    assert ended.returncode == 5
    assert "error: job 'orders' is held by somebody\nTry: backfill status orders" in ended.stderr
    hint = f"backfill status orders --catalog {folder}/.backfill/catalog.duckdb"
    told = {"message": "job 'orders' is held by somebody", "hint": hint, "exit_code": 5}
    assert json.loads(ended.stdout)["error"] == told
    assert json.loads((folder / ".backfill/logs/orders.error.json").read_text()) == told


def test_a_runner_in_the_background_that_was_killed_left_no_error(tmp_path: Path) -> None:
    error = _detached._ended_with(tmp_path / "orders.error.json", -9, tmp_path / "orders.log")
    assert error.message == "the runner ended with signal 9 (SIGKILL) and left no error"
    assert error.exit_code == 137
    assert str(tmp_path / "orders.log") in error.hint


@pytest.mark.seconds
def test_the_log_of_a_job_in_the_background_is_bounded_and_loses_no_line_of_the_newest(folder: Path) -> None:
    log = folder / "orders.log"
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from backfill_cli.commands import _detached\n"
        "_detached.LOG_BYTES, _detached.LOOK_S = 10_000, 0.01\n"
        "with _detached.bounded_log():\n"
        "    for n in range(300):\n"
        "        print(f'{n:0200d}', file=sys.stderr, flush=True)\n"
        "        os.write(1, f'library {n}\\n'.encode())\n"
        "        time.sleep(0.005)\n"
    )
    with log.open("ab") as output:
        environment = {**os.environ, "BACKFILL_DETACHED_LOG": str(log)}
        subprocess.run([sys.executable, "-c", code], stdout=output, stderr=output, env=environment, check=True)
    assert sorted(folder.glob("orders.log*")) == [log, folder / "orders.log.1"]
    assert all(file.stat().st_size < 40_000 for file in folder.glob("orders.log*"))
    lines = ((folder / "orders.log.1").read_text() + log.read_text()).splitlines()
    numbers = [int(line) for line in lines if not line.startswith("library")]
    assert numbers == list(range(numbers[0], 300))
    assert numbers[0] > 0
    assert "library 299" in lines
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
