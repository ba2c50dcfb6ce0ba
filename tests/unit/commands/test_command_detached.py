"""Jobs in the background: the runner that a command leaves behind, its first barrier, its error and its log."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_builders import Run, end_job, write_config

from backfill_cli.api import background as detached
from backfill_cli.catalog import Catalog
from backfill_cli.model.job import JobState

RUNNER = """
import sys, time, types
sys.path[:0] = {paths!r}
fake = types.ModuleType("backfill_cli.engine.loop.run")
def start(config, catalog, until, into_existing, watcher, paused=False):
    from command_builders import make_job
    from backfill_cli.errors import Held, command
    if {fails!r}:
        raise Held("job 'orders' is held by somebody", command("status orders"))
    make_job(catalog)
    with catalog.claim("orders", "test", int(time.time() * 1000)) as claim:
        while not claim.store.commands():
            time.sleep(0.02)
    return "stopped"
fake.start = start
sys.modules["backfill_cli.engine.loop.run"] = fake
"""


def background(folder: Path, fails: bool) -> "subprocess.CompletedProcess[str]":
    """`start --detach` of the installed program, with an engine of our own in both processes.

    Typed where a package of the program's name is, as in a checkout of it: that one is not the installed program.
    """
    (folder / "backfill_cli").mkdir()
    (folder / "backfill_cli/__init__.py").write_text("raise RuntimeError('not the installed package')")
    site = folder / "site"
    site.mkdir()
    text = RUNNER.format(paths=[str(Path(__file__).parent)], fails=fails)
    (site / "sitecustomize.py").write_text(text)
    command = [
        sys.executable,
        "-P",
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
    said = "past its first commit" if passes else f"made no commit within {within[:-1]} s; it goes on"
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
    told = {"message": "job 'orders' is held by somebody", "hint": {"text": hint, "commands": [hint]}}
    assert json.loads(ended.stdout)["error"] == told | {"exit_code": 5, "faults": []}
    assert not (folder / ".backfill/logs").exists(), "a job that was never created leaves no log"


def test_a_runner_in_the_background_that_was_killed_left_no_error(tmp_path: Path) -> None:
    error = detached._ended_with(tmp_path / "orders.error.json", -9, tmp_path / "orders.log")
    assert error.message == "the runner ended with signal 9 (SIGKILL) and left no error"
    assert error.exit_code == 137
    assert str(tmp_path / "orders.log") in str(error.hint)


@pytest.mark.seconds
def test_the_log_of_a_job_in_the_background_is_bounded_and_loses_no_line_of_the_newest(folder: Path) -> None:
    log = folder / "orders.log"
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from backfill_cli.api import background\n"
        "background.LOG_BYTES, background.LOOK_S = 10_000, 0.01\n"
        "with background.bounded_log():\n"
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
