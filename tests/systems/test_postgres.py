"""The real commands over PostgreSQL under pgbench: its own invariant holds at every checkpoint, with kills."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from postgres import NoPostgres, Server
from postgres_database import open_folder
from typed import PATIENCE_S, Place, rest

from backfill_cli.catalog import Catalog

CONFIG = """
[job]
name = "orders"
[upstream]
type = "postgres"
dsn = "${env:SHOP_DSN}"
slot = "shop"
[[tables]]
name = "pgbench_accounts"
[[tables]]
name = "pgbench_branches"
[[tables]]
name = "pgbench_tellers"
[[tables]]
name = "pgbench_history"
[sink]
type = "duckdb"
path = "warehouse.duckdb"
[barrier]
interval = "200ms"
[throttle]
rate = 15000
[spark]
master = "local[2]"
conf = { "spark.sql.shuffle.partitions" = "2", "spark.driver.memory" = "600m" }
"""

TABLES = {
    "pgbench_accounts": "aid, bid, abalance, filler",
    "pgbench_branches": "bid, bbalance, filler",
    "pgbench_tellers": "tid, bid, tbalance, filler",
    "pgbench_history": "hid, tid, bid, aid, delta, mtime, filler",
}
SUMS = """SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
                 (SELECT sum(tbalance) FROM pgbench_tellers),
                 (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"""


class Shop(Place):
    """A database of pgbench, whose history has a key, and a job that copies it."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        self.checked: set[int] = set()
        self._bench("-i", "-q", "-s", "1")
        self.sql("ALTER TABLE pgbench_history ADD hid bigserial PRIMARY KEY")
        self.configured()

    def configured(self, *replaced: tuple[str, str], name: str = "job.toml") -> None:
        text = CONFIG
        for old, new in replaced:
            text = text.replace(old, new)
        (self.folder / name).write_text(text)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            found = connection.execute(query.encode())
            return found.fetchall() if found.description else []

    def _bench(self, *words: str) -> None:
        subprocess.run(self._pgbench(*words), check=True, capture_output=True, timeout=120)

    def _pgbench(self, *words: str) -> list[str]:
        address = ("-h", "127.0.0.1", "-p", str(self.server.port), "-U", "postgres", "postgres")
        return [str(self.server.program("pgbench")), *words, *address]

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """pgbench writes, 200 transactions a second, until the end of `with`."""
        writer = subprocess.Popen(
            self._pgbench("-n", "-c", "2", "-R", "200", "-T", "600"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield
            assert writer.poll() is None
        finally:
            writer.terminate()
            writer.communicate()

    def held(self, query: str) -> list[tuple[Any, ...]]:
        """What the sink says between two commits."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with duckdb.connect(str(self.folder / "warehouse.duckdb"), read_only=True) as db:
                    return db.execute(query).fetchall()
            except duckdb.IOException:
                assert time.monotonic() < until
                time.sleep(0.02)

    def progress(self) -> tuple[str, int]:
        """Phase and epoch in the catalog; no command is typed for it."""
        told = Catalog(self.folder / ".backfill" / "catalog.duckdb").job("orders")
        return str(told.phase), told.epoch

    def follows(self, checkpoints: int, runner: "subprocess.Popen[str]") -> None:
        """So many checkpoints pass once all tables are read, and at each that is met the invariant holds."""
        until = time.monotonic() + PATIENCE_S
        met: set[Any] = set()
        began = time.monotonic()
        while len(met) < checkpoints:
            assert runner.poll() is None, self.said
            assert time.monotonic() < until, (met, self.said)
            if self.progress()[0] == "upstream":
                (sums,) = self.held(SUMS)
                assert len(set(sums)) == 1, sums
                met.add(sums)
            began = rest(began)

    def equal(self) -> None:
        for table, columns in TABLES.items():
            query = f"SELECT {columns} FROM {table} ORDER BY 1"
            assert self.held(query) == self.sql(query), table


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """On a server of its own, for it is stopped."""
    with open_folder() as folder:
        try:
            server = Server(folder)
            server.start()
        except NoPostgres as reason:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no PostgreSQL: {reason}")
        monkeypatch.setenv("SHOP_DSN", server.dsn())
        try:
            yield Shop(tmp_path, server)
        finally:
            server.stop()


@pytest.mark.in_turn("a job under pgbench")
def test_case_19_under_pgbench_with_kills_a_pause_and_a_crash_of_the_database(shop: Shop) -> None:
    with shop.busy():
        with shop.began("start", "--config", "job.toml") as runner:
            shop.until(lambda job: job.get("rows_read", 0) > 20_000)
            runner.kill()
        assert shop.progress()[0] == "snapshot"
        with shop.began("start", "--config", "job.toml") as runner:
            shop.until(lambda job: job["rows_read"] > 40_000)
            assert shop.typed("throttle", "--rate", "none").returncode == 0
            shop.follows(3, runner)
            runner.kill()
        with shop.began("resume", "orders") as runner:
            shop.follows(5, runner)
            assert shop.typed("pause", "--wait").returncode == 0
            before = shop.held(SUMS)
            shop.until(lambda job: (job["held_bytes"] or 0) > 100_000)
            assert shop.held(SUMS) == before
            assert shop.typed("resume", "--wait").returncode == 0
            shop.follows(2, runner)
    with shop.began("resume", "orders") as runner:
        shop.until(lambda job: job["phase"] == "upstream" and job["runner"]["alive"])
        shop.server.stop(signal.SIGQUIT)
        shop.until(lambda job: job["limited_by"]["kind"] == "waiting")
        shop.server.start()
        with shop.busy():
            shop.follows(3, runner)
        assert shop.typed("stop", "--wait").returncode == 0
        assert runner.wait(60) == 0, shop.said
    ended = shop.typed("start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == 0, ended.stderr
    shop.equal()
    assert shop.sql("SELECT active FROM pg_replication_slots") == [(False,)]
    assert shop.typed("drop", "orders", "--confirm", "orders").returncode == 0
    assert shop.sql("SELECT slot_name FROM pg_replication_slots") == []
    assert shop.sql("SELECT pubname FROM pg_publication") == []


def most_held(shop: Shop, holds: Callable[[dict[str, Any]], bool]) -> int:
    """The most log that was not acknowledged, until that is true of the job: bytes."""
    most, until = 0, time.monotonic() + PATIENCE_S
    query = b"SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots"
    with psycopg.connect(shop.server.dsn(), autocommit=True) as connection:
        while not holds(shop.looked()):
            assert time.monotonic() < until, shop.said
            for _ in range(10):
                most = max([most, *(found for (found,) in connection.execute(query))])
                time.sleep(0.05)
    return most


@pytest.mark.in_turn("a job under pgbench")
def test_chain_holds_back_no_more_than_an_epoch_through_a_snapshot_a_kill_and_a_pause(shop: Shop) -> None:
    shop.configured(('name = "orders"', 'name = "orders"\nstrategy = "chain"'))
    with shop.busy():
        before = shop.sql("SELECT pg_current_wal_lsn() - '0/0'")
        with shop.began("start", "--config", "job.toml") as runner:
            shop.until(lambda job: job.get("rows_read", 0) > 10_000)
            held = most_held(shop, lambda job: job["rows_read"] > 50_000)
            assert shop.job()["spool"]["changes"] > 100
            runner.kill()
        assert shop.progress()[0] == "snapshot"
        with shop.began("start", "--config", "job.toml") as runner:
            shop.until(lambda job: job["runner"]["alive"])
            assert shop.typed("throttle", "--rate", "none").returncode == 0
            shop.follows(2, runner)
            assert shop.typed("pause", "--wait").returncode == 0
            sums = shop.held(SUMS)
            held = max(held, most_held(shop, lambda job: (job["spool"] or {"changes": 0})["changes"] > 1_000))
            assert shop.held(SUMS) == sums
            assert shop.typed("resume", "--wait").returncode == 0
            shop.follows(2, runner)
            assert shop.typed("stop", "--wait").returncode == 0
        after = shop.sql("SELECT pg_current_wal_lsn() - '0/0'")
    ended = shop.typed("start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == 0, ended.stderr
    shop.equal()
    written = int(after[0][0] - before[0][0])
    assert held < written / 5, f"{held} of {written} bytes"
