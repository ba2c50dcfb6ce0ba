"""`kill -9` of the real command between and inside the ranges of a fill: it goes on where it was, and is exact."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import kept_python
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

KILLS = (
    *("sink-before-commit", "recovery-committed", "sink-before-close"),
    *("commit-known", "recovery-done"),
)
ROWS, CHANGED = 1_000_000, 2_000
CONFIG = """
[job]
name = "filling"
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
sql = "SELECT v % 10 AS digit, count(*) AS n, sum(v) AS total FROM t GROUP BY 1"
[[derived]]
name = "doubled"
key = ["id"]
sql = "SELECT id, 2 * v AS v FROM t WHERE v % 3 <> 0"
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "200ms"
fill_rows = 250000
[spark]
master = "local[2]"
"""


def feed(folder: Path, version: int, first: int) -> None:
    """A version of the change feed: rows from `first` on, every 250th, get v = version."""
    keys = np.arange(first, first + 250 * CHANGED, 250)
    table = pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "v": pa.array(np.full(CHANGED, version), pa.int64()),
            "_change_type": ["insert"] * CHANGED,
            "_commit_version": pa.array([version] * CHANGED, pa.int64()),
            "_commit_timestamp": pa.array([1_700_000_000_000_000 + version] * CHANGED, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, folder / "changes" / f"{version:04d}.parquet")


def backfill(folder: Path, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    told: Mapping[str, str] = {
        **os.environ,
        "BACKFILL_FAILPOINT": failpoint,
        "BACKFILL_CATALOG": "catalog.duckdb",
    }
    return kept_python.typed(folder, told, *words)


def status(folder: Path) -> dict[str, Any]:
    (job,) = json.loads(backfill(folder, "status", "filling", "--json").stdout)["jobs"]
    return {one["name"]: one for one in job["derived"]}


def query(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as db:
        return db.execute(sql).fetchall()


@pytest.mark.in_turn("files into DuckDB under kills")
def test_a_fill_killed_between_and_inside_its_ranges_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "changes").mkdir()
    (tmp_path / "job.toml").write_text(CONFIG)
    rows = {key: key * 7 for key in range(ROWS)}
    table = pa.table({"id": pa.array(rows.keys(), pa.int64()), "v": pa.array(rows.values(), pa.int64())})
    pq.write_table(table, tmp_path / "snapshot" / "part.parquet")
    feed(tmp_path, 1, 0)
    died = backfill(
        tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint="sink-made-derived"
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    for key in range(0, 250 * CHANGED, 250):
        rows[key] = 1
    seen: dict[str, list[int]] = {"by_digit": [], "doubled": []}
    for at, failpoint in enumerate(KILLS):
        feed(tmp_path, 2 + at, 100 * at)
        for key in range(100 * at, 100 * at + 250 * CHANGED, 250):
            rows[key] = 2 + at
        died = backfill(tmp_path, "resume", "filling", failpoint=failpoint)
        assert died.returncode == -signal.SIGKILL, f"{failpoint}: {died.stderr}"
        for name, done in query(tmp_path, 'SELECT "table", done FROM _backfill_fills'):
            assert not query(tmp_path, f"SELECT 1 FROM duckdb_tables() WHERE table_name = '{name}'")
            seen[name].append(done)
    assert seen["by_digit"] == sorted(seen["by_digit"])
    assert seen["doubled"] == sorted(seen["doubled"])
    assert len({*seen["by_digit"], *seen["doubled"]}) > 2, f"too few ranges were between two deaths: {seen}"
    run = backfill(tmp_path, "resume", "filling")
    assert run.returncode == 0, run.stderr
    assert all(one["filled"] and one["filling"] is None for one in status(tmp_path).values())
    groups: dict[int, list[int]] = {}
    for v in rows.values():
        groups.setdefault(v % 10, []).append(v)
    held = query(tmp_path, "SELECT digit, n, total FROM by_digit ORDER BY 1")
    assert held == [(digit, len(of), sum(of)) for digit, of in sorted(groups.items())]
    doubled = query(tmp_path, "SELECT id, v FROM doubled ORDER BY 1")
    assert doubled == [(key, 2 * v) for key, v in sorted(rows.items()) if v % 3]
    assert not query(tmp_path, "SELECT 1 FROM duckdb_tables() WHERE table_name LIKE '%backfill_fills_%'")
