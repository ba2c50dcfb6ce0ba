"""Figures of refills, for benchmarks/refill.py: a range ÷ its comparison alone; the lag of live tables meanwhile.

Each world has the tables `live` (20,000 rows, somebody writes to it all the time), `t` and `later` (`rows`, at
rest); a job into DuckDB has the first two.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from measure import ROOT, Figure, percentile, quartiles

sys.path[:0] = [str(ROOT / "scripts")]
from demo_upstream import changes, land, write_snapshot  # noqa: E402
from postgres import running  # noqa: E402

PROGRAM = [sys.executable, "-P", "-m", "backfill_cli"]
JOB, INTERVAL_S, LIVE_ROWS = "refilled", 1.0, 20_000
LOOK_S = 0.2
WORSE = 2
"""Intervals by which the lag of live tables may grow."""

DATABASE = """type = "postgres"
dsn = "${env:REFILL_DSN}"
slot = "refilled"
"""
FILES = """type = "files"
snapshot = { path = "data/{table}/snapshot", format = "parquet" }
changes = { path = "data/{table}/changes", format = "debezium", decimals = "string", timestamps = "us" }
"""
CONFIG = """
[job]
name = "refilled"
[upstream]
UPSTREAM
[[tables]]
name = "live"
key = ["id"]
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
[spark]
master = "local[*]"
"""
DRAWN = "ARRAY(SELECT (random() * 20000)::bigint FROM generate_series(1, 20))"
WRITE = f"UPDATE live SET v = v + 1 WHERE id = ANY({DRAWN})"
LATER = '[[tables]]\nname = "later"\nkey = ["id"]\n'


@dataclass
class World:
    """A job's folder, with its upstream. dsn: of its database; empty for files."""

    folder: Path
    rows: int
    dsn: str = ""

    def type(self, *words: str) -> str:
        env = {**os.environ, "REFILL_DSN": self.dsn}
        done = subprocess.run(
            [*PROGRAM, *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    @property
    def catalog(self) -> Path:
        return self.folder / ".backfill" / "catalog.duckdb"

    def status(self) -> Any:
        """Read through the catalog: no process is started for it."""
        from backfill_cli.catalog import Catalog
        from backfill_cli.view.model import read_jobs

        (job,) = read_jobs(Catalog(self.catalog), JOB)
        return job

    def sink(self, *statements: str) -> list[tuple[Any, ...]]:
        until_s = time.monotonic() + 120
        while True:
            try:
                with duckdb.connect(str(self.folder / "sink.duckdb")) as db:
                    return [row for one in statements for row in db.execute(one).fetchall()]
            except duckdb.IOException:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.02)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The job runs, caught up."""
        (self.folder / "job.toml").write_text(CONFIG.replace("UPSTREAM", DATABASE if self.dsn else FILES))
        self.type("start", "--config", "job.toml", "--detach")
        try:
            self.type("wait", JOB, "--for", "caught-up", "--timeout", "2h")
            yield
        finally:
            self.type("stop", JOB, "--wait")

    @contextlib.contextmanager
    def written_to(self) -> Iterator[None]:
        """Somebody writes to `live`, five times a second."""
        over = threading.Event()
        write = threading.Thread(target=self._to_database if self.dsn else self._to_files, args=(over,))
        write.start()
        try:
            yield
        finally:
            over.set()
            write.join()

    def _to_database(self, over: threading.Event) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as db:
            while not over.wait(0.2):
                db.execute(WRITE)

    def _to_files(self, over: threading.Event) -> None:
        number = 0
        while not over.wait(0.2):
            number += 1
            now_ms = time.time_ns() // 1_000_000
            land(self.folder / "data" / "live" / "changes", number, changes(number, 20, LIVE_ROWS, now_ms))

    def lags(self, seconds: float, goes_on: threading.Event | None = None) -> list[float]:
        """The lag as it is shown, in intervals: for so long, and while the event is not set."""
        until_s, found = time.monotonic() + seconds, []
        while time.monotonic() < until_s or (goes_on is not None and not goes_on.is_set()):
            lag_s = self.status().lag_s
            found.append((lag_s or 0.0) / INTERVAL_S)
            time.sleep(LOOK_S)
        return found

    def lags_while(self, *words: str) -> list[float]:
        """The same, while that is typed, and has ended."""
        over = threading.Event()

        def act() -> None:
            try:
                self.type(*words)
                if words[0] == "add":
                    self.type("wait", JOB, "--for", "caught-up", "--timeout", "2h")
            finally:
                over.set()

        acts = threading.Thread(target=act)
        acts.start()
        found = self.lags(0, over)
        acts.join()
        return found


@contextlib.contextmanager
def database(folder: Path, rows: int) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="backfill-postgres-") as data, running(Path(data)) as postgres:
        dsn = postgres.dsn()
        with psycopg.connect(dsn, autocommit=True) as db:
            for table, many in (("live", LIVE_ROWS), ("t", rows), ("later", rows)):
                db.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, v int, doc text)".encode())
                fill = f"INSERT INTO {table} SELECT n, 0, md5(n::text) FROM generate_series(1, {many}) n"
                db.execute(fill.encode())
            db.execute("VACUUM ANALYZE")
        yield World(folder, rows, dsn)


@contextlib.contextmanager
def files(folder: Path, rows: int) -> Iterator[World]:
    for table, many in (("live", LIVE_ROWS), ("t", rows), ("later", rows)):
        write_snapshot(folder / "data" / table / "snapshot", many, max(1, many // 500_000))
        (folder / "data" / table / "changes").mkdir(parents=True)
    yield World(folder, rows)


def ranges(rows: int, pairs: int, share: float, different: float) -> list[Figure]:
    """A refill of a share of the keys, of which some differ ÷ the comparison of that range alone; alternating."""
    found = []
    for system, made in (("PostgreSQL", database), ("files", files)):
        with (
            tempfile.TemporaryDirectory(prefix="refill-") as place,
            made(Path(place), rows) as world,
            world.running(),
        ):
            low, high = rows // 3, rows // 3 + int(rows * share) - 1
            every = max(1, round(1 / different))
            column, wrong = ("v", "-1") if world.dsn else ("status", "'wrong'")
            took: dict[str, list[float]] = {"alone": [], "refill": []}
            for number in range(pairs + 1):
                for way in ("alone", "refill") if number % 2 else ("refill", "alone"):
                    spoil = (
                        f"UPDATE t SET {column} = {wrong} WHERE id BETWEEN {low} AND {high} AND id % {every} = 0"
                    )
                    world.sink(spoil)
                    began_s = time.monotonic()
                    if way == "alone":
                        _compared(world, low, high)
                    else:
                        world.type("refill", JOB, "--table", "t", "--range", f"{low}..{high}", "--wait")
                    took[way].append(time.monotonic() - began_s)
                    if way == "refill":
                        (left,) = world.sink(f"SELECT count(*) FROM t WHERE {column} = {wrong}")[0]
                        assert left == 0, f"{left} rows still differ"
                print(
                    f"  {system} {number}: {', '.join(f'{w} {t[-1]:.1f} s' for w, t in took.items())}",
                    file=sys.stderr,
                )
        alone, refill = took["alone"][1:], took["refill"][1:]  # the first one warms up
        each = tuple(r / a for r, a in zip(refill, alone, strict=True))
        ratio = statistics.median(refill) / statistics.median(alone)
        note = f"alone {quartiles(alone)} s, refill {quartiles(refill)} s"
        found.append(
            Figure(f"{system}: refill of a range ÷ comparing it", ratio, "", "≤ 1.5", ratio <= 1.5, each, note)
        )
    return found


def _compared(world: World, low: int, high: int) -> None:
    """What `verify` of that range does: the same process as that of a refill, whose result nobody uses."""
    with tempfile.TemporaryDirectory(prefix="compared-", dir=world.folder) as place:
        extent = json.dumps({"where": "", "first": str(low), "last": str(high)})
        words = ["-m", "backfill_cli.engine.refill.compare", JOB, str(world.catalog), "t", extent, place]
        process = subprocess.Popen(
            [sys.executable, "-P", *words],
            cwd=world.folder,
            env={**os.environ, "REFILL_DSN": world.dsn},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        said = process.stderr.read()  # its stdin stays open until it has ended: with that, its runner would have
        process.wait()
        if process.returncode:
            raise SystemExit(f"{words}: exit {process.returncode}\n{said.decode()}")


def lags(rows: int, seconds: float) -> list[Figure]:
    """Of a live table, in intervals: before, while another is refilled, and while one joins the job."""
    found = []
    for system, made in (("PostgreSQL", database), ("files", files)):
        with (
            tempfile.TemporaryDirectory(prefix="refill-") as place,
            made(Path(place), rows) as world,
            world.running(),
            world.written_to(),
        ):
            world.lags(5)
            before = world.lags(seconds)
            config = world.folder / "job.toml"
            config.write_text(config.read_text().replace("[sink]", f"{LATER}[sink]"))
            ways = {
                "refilled": world.lags_while("refill", JOB, "--table", "t", "--wait"),
                "added": world.lags_while("add", JOB, "--table", "later", "--config", "job.toml", "--wait"),
            }
        for way, during in ways.items():
            worst, goal = percentile(during, 0.95), max(before) + WORSE
            told = f"before {_spread(before)}; during {_spread(during)}, {len(during)} looks"
            name = f"{system}: lag while a table is {way}, p95"
            found.append(Figure(name, worst, "intervals", f"≤ {goal:.1f}", worst <= goal, (), told))
    return found


def _spread(lag: list[float]) -> str:
    return f"p50 {percentile(lag, 0.5):.1f}, p95 {percentile(lag, 0.95):.1f}, max {max(lag):.1f}"
