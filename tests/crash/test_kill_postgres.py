"""`kill -9` of the real command over a real PostgreSQL, written to between all deaths: the sink equals it."""

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import kept_python
import pytest
from postgres_database import Database, database

if TYPE_CHECKING:
    from postgres import Server

CONFIG = """
[job]
name = "crash"
[upstream]
type = "postgres"
dsn = "${{env:CRASH_DSN}}"
slot = "{slot}"
[[tables]]
name = "t"
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "100ms"
[throttle]
rate = 3000
[spark]
master = "local[2]"
"""

WRITTEN = (
    "UPDATE t SET v = v + 1 WHERE id % 3 = 0",
    "UPDATE t SET id = id + 10000 WHERE id % 97 = 1 AND id < 3000",
    "UPDATE t SET id = id - 20000 WHERE id % 89 = 1 AND id > 0 AND id < 3000",
    "DELETE FROM t WHERE id % 101 = 5",
)

POINTS = ("start-held", "after-prepare:2", "sink-before-close")
ALL = (
    "start-begun",
    "slot-marked",
    "start-held",
    "start-made",
    "table-staged:2",
    "after-stage:2",
    "after-prepare:2",
    "recovery-fenced",
    "recovery-before-commit",
    "before-commit:2",
    "sink-before-commit:2",
    "recovery-committed",
    "sink-before-close:2",
    "after-commit:2",
    "commit-known:2",
    "after-mark",
)
"""In this order: those of a recovery come after a death that leaves an epoch promised."""


def run(folder: Path, dsn: str, failpoint: str) -> "subprocess.CompletedProcess[str]":
    told = {
        **os.environ,
        "BACKFILL_FAILPOINT": failpoint,
        "BACKFILL_CATALOG": "catalog.duckdb",
        "CRASH_DSN": dsn,
    }
    return kept_python.typed(folder, told, "start", "--config", "job.toml", "--until", "caught-up")


def dies_and_ends_equal(postgres: "Server", folder: Path, points: tuple[str, ...]) -> None:
    with database(postgres) as db:
        db(
            "CREATE TABLE t (id int PRIMARY KEY, v int)",
            "INSERT INTO t SELECT n, 0 FROM generate_series(1, 3000) n",
        )
        (folder / "job.toml").write_text(CONFIG.format(slot=db.name))
        for point in points:
            died = run(folder, db.dsn, point)
            assert died.returncode == -signal.SIGKILL, f"{point}: {died.stderr}"
            db(*WRITTEN)
        ended = run(folder, db.dsn, "")
        assert ended.returncode == 0, ended.stderr
        equal(db, folder)


def equal(db: Database, folder: Path) -> None:
    held = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"
    assert db(held) == [(db.name,)]
    query = "SELECT id, v FROM t ORDER BY 1, 2"
    with duckdb.connect(str(folder / "sink.duckdb"), read_only=True) as sink:
        assert sink.execute(query).fetchall() == db(query)


def test_case_20_deaths_with_writes_between_lose_and_repeat_nothing(postgres: "Server", tmp_path: Path) -> None:
    dies_and_ends_equal(postgres, tmp_path, POINTS)


@pytest.mark.long
def test_a_death_at_every_point_in_turn_loses_and_repeats_nothing(postgres: "Server", tmp_path: Path) -> None:
    dies_and_ends_equal(postgres, tmp_path, ALL)
