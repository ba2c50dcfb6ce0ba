"""Derived tables under pgbench and `kill -9`: at every look each equals its SELECT, and at the end upstream's.

The long one is run by hand: `pytest --all -s tests/systems/test_derived_pgbench.py -k many` says its figures.
"""

import contextlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from postgres import NoPostgres, Server
from postgres_database import open_folder
from typed import PATIENCE_S, Place

CONFIG = """
[job]
name = "bank"
[upstream]
type = "postgres"
dsn = "${env:BANK_DSN}"
slot = "bank"
[[tables]]
name = "pgbench_accounts"
[[tables]]
name = "pgbench_branches"
[[derived]]
name = "by_branch"
key = ["bid"]
sql = "BY_BRANCH"
[[derived]]
name = "branches"
key = ["bid", "bbalance"]
sql = "BRANCHES"
[sink]
SINK
[barrier]
interval = "200ms"
[throttle]
rate = 40000
[spark]
master = "local[2]"
conf = { "spark.sql.shuffle.partitions" = "2", "spark.driver.memory" = "600m" }
"""
DERIVED = {
    "by_branch": "SELECT bid, sum(abalance) AS balance, count(*) AS accounts FROM pgbench_accounts GROUP BY bid",
    "branches": "SELECT b.bid, b.bbalance, count(a.aid) AS accounts, sum(a.abalance) AS balance "
    "FROM pgbench_branches b LEFT JOIN pgbench_accounts a ON a.bid = b.bid GROUP BY b.bid, b.bbalance",
}
SINKS = {
    "duckdb": 'type = "duckdb"\npath = "warehouse.duckdb"',
    "postgres": 'type = "postgres"\ndsn = "${env:WAREHOUSE_DSN}"',
}
BRANCHES = 10
MADE = (
    f"INSERT INTO pgbench_branches SELECT n, 0 FROM generate_series(2, {BRANCHES}) n",
    f"UPDATE pgbench_accounts SET bid = aid % {BRANCHES} + 1",
    "CREATE DATABASE warehouse",
)
WRITTEN = rf"""\set aid random(1, 100000)
\set bid random(1, {BRANCHES})
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
END;
"""
MOVED = rf"""\set aid random(1, 100000)
\set bid random(1, {BRANCHES})
\set other random(1, {BRANCHES})
BEGIN;
UPDATE pgbench_accounts SET bid = :bid WHERE aid = :aid;
DELETE FROM pgbench_accounts WHERE aid = :aid + 1;
INSERT INTO pgbench_accounts VALUES (:aid + 1, :other, 1, '') ON CONFLICT (aid) DO NOTHING;
END;
"""


@dataclass
class Seen:
    """looks: at tables that are filled. differences: what was found otherwise, of all of them."""

    looks: int = 0
    differences: list[str] = field(default_factory=list)


class Bank(Place):
    """A database of pgbench, and a job that copies it with two derived tables. sink: its type."""

    def __init__(self, folder: Path, server: Server, sink: str) -> None:
        self.folder, self.server, self.sink = folder, server, sink
        subprocess.run(self._pgbench("-i", "-q", "-s", "1"), check=True, capture_output=True, timeout=120)
        for statement in MADE:
            self.upstream(statement)
        (folder / "written.sql").write_text(WRITTEN)
        (folder / "moved.sql").write_text(MOVED)
        text = CONFIG.replace("SINK", SINKS[sink])
        text = text.replace("BY_BRANCH", DERIVED["by_branch"]).replace("BRANCHES", DERIVED["branches"])
        (folder / "job.toml").write_text(text)

    def _pgbench(self, *words: str) -> list[str]:
        address = ("-h", "127.0.0.1", "-p", str(self.server.port), "-U", "postgres", "postgres")
        return [str(self.server.program("pgbench")), *words, *address]

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        scripts = ("-f", f"{self.folder}/written.sql@9", "-f", f"{self.folder}/moved.sql@1")
        words = ("-n", "-c", "2", "-R", "100", "-T", "3600", *scripts)
        writer = subprocess.Popen(self._pgbench(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield
            assert writer.poll() is None, writer.communicate()[1].decode()
        finally:
            writer.terminate()
            writer.communicate()

    def upstream(self, query: str) -> list[tuple[Any, ...]]:
        return self._postgres(self.server.dsn(), query)

    def _postgres(self, dsn: str, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            found = connection.execute(query.encode())
            return found.fetchall() if found.description else []

    def held(self, query: str) -> list[tuple[Any, ...]]:
        """One statement, so of one moment."""
        if self.sink == "postgres":
            return self._postgres(self.server.dsn("warehouse"), query)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with duckdb.connect(str(self.folder / "warehouse.duckdb"), read_only=True) as db:
                    return db.execute(query).fetchall()
            except (duckdb.IOException, duckdb.ConnectionException):
                assert time.monotonic() < until
                time.sleep(0.02)

    def written(self, *statements: str) -> None:
        """By somebody else than a job."""
        for statement in statements:
            if self.sink == "postgres":
                self._postgres(self.server.dsn("warehouse"), statement)
                continue
            until = time.monotonic() + PATIENCE_S
            while True:
                try:
                    with duckdb.connect(str(self.folder / "warehouse.duckdb")) as db:
                        db.execute(statement)
                    break
                except (duckdb.IOException, duckdb.ConnectionException):
                    assert time.monotonic() < until
                    time.sleep(0.02)

    def filled(self) -> bool:
        listed = ", ".join(f"'{name}'" for name in DERIVED)
        if self.sink == "duckdb" and not (self.folder / "warehouse.duckdb").exists():
            return False
        found = self.held(f"SELECT table_name FROM information_schema.tables WHERE table_name IN ({listed})")
        return len(found) == len(DERIVED) and self.held("SELECT count(*) FROM by_branch") != [(0,)]

    @contextlib.contextmanager
    def watched(self) -> Iterator[Seen]:
        """Somebody looks, again and again, until the end of `with`."""
        seen, over = Seen(), threading.Event()
        differs = " UNION ALL ".join(
            f"SELECT '{name}' AS name, count(*) AS n FROM ((SELECT * FROM {name} EXCEPT ALL {select}) "
            f"UNION ALL ({select} EXCEPT ALL SELECT * FROM {name})) AS d"
            for name, select in DERIVED.items()
        )

        def look() -> None:
            while not over.wait(0.1):
                if seen.looks or self.filled():
                    found = self.held(differs)
                    seen.looks += 1
                    seen.differences += [f"{name}: {n} rows" for name, n in found if n]

        with contextlib.ExitStack() as ending:
            looking = threading.Thread(target=look)
            looking.start()
            ending.callback(looking.join)
            ending.callback(over.set)
            yield seen

    def equal(self) -> None:
        for query in (
            "SELECT aid, bid, abalance FROM pgbench_accounts ORDER BY 1",
            "SELECT bid, bbalance FROM pgbench_branches ORDER BY 1",
        ):
            assert self.held(query) == self.upstream(query), query
        for name, select in DERIVED.items():
            assert self.held(f"SELECT * FROM {name} ORDER BY 1") == self.upstream(f"{select} ORDER BY 1"), name


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with open_folder() as folder:
        try:
            server = Server(folder)
            server.start()
        except NoPostgres as reason:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no PostgreSQL: {reason}")
        monkeypatch.setenv("BANK_DSN", server.dsn())
        monkeypatch.setenv("WAREHOUSE_DSN", server.dsn("warehouse"))
        try:
            yield server
        finally:
            server.stop()


def killed_and_resumed(bank: Bank, kills: int, longest_s: float, last_looks: int = 10) -> Seen:
    """The job is killed so often, at any moment; what was seen until it is done. last_looks: at the last run."""
    chance = random.Random(kills)
    with bank.busy(), bank.watched() as seen:
        for _ in range(kills):
            with bank.began("start", "--config", "job.toml") as runner:
                time.sleep(chance.uniform(2, longest_s))
                assert runner.poll() is None, bank.said
                runner.kill()
        with bank.began("start", "--config", "job.toml") as runner:
            until, looks = time.monotonic() + PATIENCE_S, -1
            while looks < 0 or seen.looks < looks + last_looks:
                assert runner.poll() is None, bank.said
                assert time.monotonic() < until, bank.said
                if looks < 0 and bank.filled():
                    looks = seen.looks
                time.sleep(0.2)
    ended = bank.typed("start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == 0, ended.stderr
    assert not seen.differences
    bank.equal()
    assert bank.typed("verify", "bank").returncode == 0
    return seen


@pytest.mark.parametrize("sink", SINKS)
def test_the_reader_sees_a_single_row_that_differs(server: Server, tmp_path: Path, sink: str) -> None:
    """What would be seen if a derived table were wrong: no job runs here."""
    bank = Bank(tmp_path, server, sink)
    tables = "CREATE TABLE pgbench_branches AS SELECT n AS bid, 0 AS bbalance FROM generate_series(1, 10) AS g(n)"
    accounts = "CREATE TABLE pgbench_accounts AS SELECT n AS aid, n % 10 + 1 AS bid, n AS abalance "
    bank.written(tables, accounts + "FROM generate_series(1, 1000) AS g(n)")
    bank.written(*(f"CREATE TABLE {name} AS {select}" for name, select in DERIVED.items()))
    with bank.watched() as seen:
        looked(seen, 3)
        assert not seen.differences
        bank.written("UPDATE by_branch SET accounts = accounts + 1 WHERE bid = 3")
        looked(seen, seen.looks + 3)
        assert set(seen.differences) == {"by_branch: 2 rows"}
        bank.written("UPDATE by_branch SET accounts = accounts - 1 WHERE bid = 3")
        bank.written("INSERT INTO branches SELECT * FROM branches WHERE bid = 3")
        looked(seen, seen.looks + 3)
        assert set(seen.differences) >= {"branches: 1 rows"}


def looked(seen: Seen, looks: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while seen.looks < looks:
        assert time.monotonic() < until, seen
        time.sleep(0.05)


@pytest.mark.in_turn("derived tables under pgbench")
@pytest.mark.parametrize("sink", SINKS)
def test_under_pgbench_and_kills_a_derived_table_is_its_select_at_every_look(
    server: Server, tmp_path: Path, sink: str
) -> None:
    assert killed_and_resumed(Bank(tmp_path, server, sink), 2, 9).looks >= 10


@pytest.mark.long
@pytest.mark.parametrize("sink", SINKS)
def test_so_it_is_under_pgbench_and_many_kills(server: Server, tmp_path: Path, sink: str) -> None:
    kills = 25
    seen = killed_and_resumed(Bank(tmp_path, server, sink), kills, 40, last_looks=200)
    assert seen.looks >= 200
    print(f"{sink}: {kills} kills, {seen.looks} looks, {len(seen.differences)} differences")
