"""`kill -9` of the real command while a table is set aside, and while it is put back: the others are exact."""

import json
import signal
from pathlib import Path

import duckdb
import pytest

from .test_kill import backfill

CONFIG = """
[job]
name = "crash"
on_error = "set-aside"
[upstream]
type = "files"
[upstream.snapshot]
path = "{table}"
format = "json"
schema = { a = "id BIGINT, v BIGINT", b = "id BIGINT, v BIGINT" }
[[tables]]
name = "a"
key = ["id"]
[[tables]]
name = "b"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "100ms"
[throttle]
rate = 1000
[spark]
master = "local[2]"
"""


def write(folder: Path, table: str, ids: range) -> None:
    (folder / table).mkdir(exist_ok=True)
    lines = [json.dumps({"id": n, "v": n * 10}) for n in ids]
    (folder / table / "rows.jsonl").write_text("\n".join(lines) + "\n")


def held(folder: Path, table: str) -> list[tuple[int, int]]:
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as db:
        return db.execute(f"SELECT id, v FROM {table} ORDER BY id").fetchall()


def killed(folder: Path, failpoint: str, *words: str) -> None:
    run = backfill(folder, *words, failpoint=failpoint)
    assert run.returncode == -signal.SIGKILL, f"{failpoint}: {run.stderr}"


@pytest.mark.in_turn("files into DuckDB under kills")
def test_deaths_while_a_table_is_set_aside_and_put_back(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(CONFIG)
    write(tmp_path, "a", range(4_000))
    write(tmp_path, "b", range(200))
    killed(tmp_path, "after-mark", "start", "--config", "job.toml", "--until", "caught-up")
    write(tmp_path, "b", range(100, 250))  # another file than the one that was pinned
    lifted = backfill(tmp_path, "throttle", "crash", "--rate", "none")
    assert lifted.returncode == 0, lifted.stderr
    killed(tmp_path, "aside-checked", "resume", "crash")
    killed(tmp_path, "aside", "resume", "crash")
    told = backfill(tmp_path, "status", "crash", "--json")
    (job,) = json.loads(told.stdout)["jobs"]
    assert [one["table"] for one in job["aside"]] == ["b"]
    asked = backfill(tmp_path, "refill", "crash", "--table", "b")
    assert asked.returncode == 0, asked.stderr
    killed(tmp_path, "redefined", "resume", "crash")
    ended = backfill(tmp_path, "resume", "crash")
    assert ended.returncode == 0, ended.stderr
    for table, keys in {"a": range(4_000), "b": range(100, 250)}.items():
        assert held(tmp_path, table) == [(n, n * 10) for n in keys]
    (job,) = json.loads(backfill(tmp_path, "status", "crash", "--json").stdout)["jobs"]
    assert job["aside"] == []
