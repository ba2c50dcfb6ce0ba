"""`kill -9` of the real command at each durable step, then `resume`: the sink equals the upstream, row by row."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import kept_python
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kept_java import kept_java

from backfill_cli.catalog import Catalog

FILES, ROWS, CHANGE_FILES, CHANGES = 3, 2_000, 6, 100

CONFIG = '''
[job]
name = "crash"
[upstream]
type = "files"
snapshot = { path = "snapshot", format = "parquet" }
changes = { path = "changes", format = "change-feed" }
[[tables]]
name = "t"
key = ["id"]
[[derived]]
name = "by_digit"
key = ["digit"]
sql = "SELECT v % 10 AS digit, count(*) AS n, sum(v) AS total, max(id) AS last FROM t GROUP BY 1"
[[derived]]
name = "alone"
key = ["id"]
refresh = "full"
sql = """
  SELECT a.id, a.v FROM t AS a
  WHERE NOT EXISTS (SELECT * FROM t AS b WHERE b.v % 1999 = a.v % 1999 AND b.id <> a.id)
"""
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "200ms"
[throttle]
rate = 8000
[spark]
master = "local[2]"
'''

LOOP_POINTS = (
    "table-staged:3",  # after the two of the sample
    "after-stage:2",
    "after-prepare",
    "before-commit:2",
    "sink-before-commit:2",
    "sink-before-close:2",
    "sink-made-derived",  # its DDL and rows are in the log of the file, which has no checkpoint of them yet
    "after-commit:2",
    "commit-known:2",
    "after-mark",
)
RECOVERY_POINTS = ("recovery-fenced", "recovery-before-commit", "recovery-committed", "recovery-done")
IN_TURN = (
    "after-stage:2",
    "after-prepare",
    *RECOVERY_POINTS,
    "sink-before-commit:2",
    "sink-before-close:2",
    "after-mark",
)
"""One for each thing that is durable by then: staged, promised, committed, marked. Those of a recovery come after
a death that leaves an epoch promised. The others are in --all, and schedules of tests/simulation die at them.
"""


def upstream(folder: Path) -> dict[int, int]:
    """A snapshot in three files and a change feed in six; returns what the sink must hold in the end."""
    draw = random.Random(5)
    (folder / "snapshot").mkdir()
    (folder / "changes").mkdir()
    (folder / "job.toml").write_text(CONFIG)
    rows = {key: key * 10 for key in range(FILES * ROWS)}
    for i in range(FILES):
        keys = range(i * ROWS, (i + 1) * ROWS)
        table = pa.table({"id": pa.array(keys, pa.int64()), "v": pa.array([rows[k] for k in keys], pa.int64())})
        pq.write_table(table, folder / "snapshot" / f"part-{i}.parquet", row_group_size=500)
    for version in range(1, CHANGE_FILES + 1):
        chosen = draw.sample(range(FILES * ROWS + 500), CHANGES)
        kinds = ["delete" if draw.random() < 0.3 and k in rows else "insert" for k in chosen]
        values = [draw.randrange(10**9) for _ in chosen]
        for key, kind, value in zip(chosen, kinds, values, strict=True):
            if kind == "delete":
                del rows[key]
            else:
                rows[key] = value
        feed = pa.table(
            {
                "id": pa.array(chosen, pa.int64()),
                "v": pa.array(values, pa.int64()),
                "_change_type": kinds,
                "_commit_version": pa.array([version] * CHANGES, pa.int64()),
                "_commit_timestamp": pa.array(
                    [1_700_000_000_000_000 + version] * CHANGES, pa.timestamp("us", "UTC")
                ),
            }
        )
        pq.write_table(feed, folder / "changes" / f"{version:04d}.parquet")
    return rows


def environment(failpoint: str = "") -> Mapping[str, str]:
    return {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}


def backfill(folder: Path, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    return kept_python.typed(folder, environment(failpoint), *words)


@contextmanager
def began(folder: Path, *words: str, failpoint: str = "") -> "Iterator[subprocess.Popen[bytes]]":
    """A command that goes on; killed at the end of `with`."""
    command = [sys.executable, "-m", "backfill_cli", *words]
    with kept_java() as java:
        told = {**environment(failpoint), **java}
        with subprocess.Popen(command, cwd=folder, env=told, stderr=subprocess.DEVNULL) as running:
            try:
                yield running
            finally:
                running.kill()


def held(folder: Path) -> dict[int, int]:
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as db:
        found = db.execute("SELECT id, v FROM t").fetchall()
    assert len(found) == len(dict(found)), "a key stands twice"
    return dict(found)


def by_digit(rows: Mapping[int, int]) -> dict[int, tuple[int, int, int]]:
    """What the derived table must hold: by the last digit of v, how many, their sum, and the greatest id."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for key, value in rows.items():
        groups.setdefault(value % 10, []).append((key, value))
    return {
        digit: (len(of), sum(value for _, value in of), max(key for key, _ in of)) for digit, of in groups.items()
    }


def derived(folder: Path) -> dict[int, tuple[int, int, int]]:
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as db:
        found = db.execute("SELECT digit, n, total, last FROM by_digit").fetchall()
    assert len(found) == len({digit for digit, *_ in found}), "a key stands twice"
    return {digit: (n, int(total), last) for digit, n, total, last in found}


def alone(folder: Path) -> dict[int, int]:
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as db:
        found = db.execute("SELECT id, v FROM alone").fetchall()
    assert len(found) == len(dict(found)), "a key stands twice"
    return dict(found)


def start_killed(folder: Path, failpoint: str) -> None:
    run = backfill(folder, "start", "--config", "job.toml", "--until", "caught-up", failpoint=failpoint)
    assert run.returncode == -signal.SIGKILL, run.stderr


def resume_to_the_end(folder: Path, expected: dict[int, int]) -> None:
    run = backfill(folder, "resume", "crash")
    assert run.returncode == 0, run.stderr
    assert held(folder) == expected
    assert derived(folder) == by_digit(expected)
    times = Counter(value % 1_999 for value in expected.values())
    assert alone(folder) == {key: value for key, value in expected.items() if times[value % 1_999] == 1}


def test_a_job_killed_at_every_durable_step_in_turn_resumes_to_the_upstream(tmp_path: Path) -> None:
    expected = upstream(tmp_path)
    (tmp_path / "job.toml").write_text(CONFIG.replace("rate = 8000", "rate = 60"))
    start_killed(tmp_path, "table-staged")  # in the sample: there is no job yet
    told = json.loads(backfill(tmp_path, "status", "--json").stdout)
    assert [job["created"] for job in told["jobs"]] == [False]
    start_killed(tmp_path, IN_TURN[0])
    for failpoint in IN_TURN[1:]:
        if failpoint == "after-mark":  # of a barrier without rows: one comes once nothing is left to read
            assert backfill(tmp_path, "throttle", "crash", "--rate", "none").returncode == 0
        died = backfill(tmp_path, "resume", "crash", failpoint=failpoint)
        assert died.returncode == -signal.SIGKILL, f"{failpoint}: {died.stderr}"
    resume_to_the_end(tmp_path, expected)


@pytest.mark.long
@pytest.mark.parametrize("failpoint", LOOP_POINTS)
def test_a_job_killed_in_the_loop_resumes_to_the_upstream(tmp_path: Path, failpoint: str) -> None:
    expected = upstream(tmp_path)
    start_killed(tmp_path, failpoint)
    resume_to_the_end(tmp_path, expected)


@pytest.mark.long
@pytest.mark.parametrize("failpoint", RECOVERY_POINTS)
def test_a_job_killed_again_in_its_recovery_resumes_to_the_upstream(tmp_path: Path, failpoint: str) -> None:
    expected = upstream(tmp_path)
    start_killed(tmp_path, "after-prepare:2")
    again = backfill(tmp_path, "resume", "crash", failpoint=failpoint)
    assert again.returncode == -signal.SIGKILL, again.stderr
    resume_to_the_end(tmp_path, expected)


@pytest.mark.long
def test_case_45_a_limit_outlives_the_runner_that_took_it_and_a_signal_commits_the_epoch(tmp_path: Path) -> None:
    expected = upstream(tmp_path)
    (tmp_path / "job.toml").write_text(CONFIG.replace("rate = 8000", "rate = 500"))
    with began(tmp_path, "start", "--config", "job.toml", failpoint="after-take") as runner:
        deadline = time.monotonic() + 120
        while backfill(tmp_path, "throttle", "crash", "--rate", "432").returncode != 0:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert runner.wait(120) == -signal.SIGKILL
    assert '"rate": 432' in backfill(tmp_path, "status", "crash", "--json").stdout

    read = rows_read(tmp_path)
    with began(tmp_path, "start", "--config", "job.toml") as runner:
        deadline = time.monotonic() + 120
        while rows_read(tmp_path) == read:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        runner.terminate()
        assert runner.wait(60) == 128 + signal.SIGTERM
    status = backfill(tmp_path, "status", "crash", "--json").stdout
    assert '"state": "stopped"' in status
    assert '"rate": 432' in status
    (tmp_path / "job.toml").write_text(CONFIG)
    assert backfill(tmp_path, "throttle", "crash", "--rate", "none").returncode == 0
    run = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up")
    assert run.returncode == 0, run.stderr
    assert held(tmp_path) == expected
    assert "the config has changed and was stored: throttle.rate" in run.stderr
    assert json.loads(Catalog(tmp_path / "catalog.duckdb").definition("crash").config)["throttle"]["rate"] == 8000


def rows_read(folder: Path) -> int:
    progress = Catalog(folder / "catalog.duckdb").job("crash").progress
    return 0 if progress is None else progress.rows_read


MORE = """
[[derived]]
name = "all_of_it"
sql = "SELECT sum(total) AS total FROM by_digit"
"""


@pytest.mark.long
def test_a_job_killed_as_its_derived_tables_join_change_and_leave_has_them_or_has_them_not(tmp_path: Path) -> None:
    expected = upstream(tmp_path)
    config = CONFIG.replace("rate = 8000", "rate = 100000")
    (tmp_path / "job.toml").write_text(config)
    run = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up")
    assert run.returncode == 0, run.stderr

    def changed(now: str, asked: Sequence[str], *failpoints: str) -> str:
        """What the last of the runs told: each is killed at one of these, the last is not."""
        (tmp_path / "job.toml").write_text(now)
        done = backfill(tmp_path, *asked)
        assert done.returncode == 0, done.stderr
        for failpoint in failpoints:
            died = backfill(tmp_path, "resume", "crash", failpoint=failpoint)
            assert died.returncode == -signal.SIGKILL, f"{failpoint}: {died.stderr}"
        resume_to_the_end(tmp_path, expected)
        return backfill(tmp_path, "verify", "crash").stderr

    def total() -> list[tuple[object, ...]]:
        with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
            return db.execute("SELECT * FROM all_of_it").fetchall()

    by = ("crash", "--derived", "all_of_it")
    changed(config + MORE, ("add", *by), "derived-prepared", "redefined", "sink-made-derived", "recovery-done")
    assert total() == [(sum(expected.values()),)]
    texts = MORE.replace("sum(total)", "CAST(sum(total) AS VARCHAR) || ' in all'")
    changed(config + texts, ("add", *by, "--replace"), "derived-renewed", "redefined", "sink-before-commit")
    assert total() == [(f"{sum(expected.values())} in all",)]
    changed(config, ("remove", *by, "--with-rows", "--confirm", "crash"), "redefined", "left-tables-dropped")
    with pytest.raises(duckdb.CatalogException):
        total()
