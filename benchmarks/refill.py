"""Refills under writers and `kill -9`: real PostgreSQL to DuckDB, compared with the database itself, N rounds.

    python benchmarks/refill.py --rounds 50 [--seed 1]
    python benchmarks/refill.py --only range [--rows 5000000 --pairs 5 --share 0.1 --different 0.01]
    python benchmarks/refill.py --only lag [--rows 5000000 --seconds 60]

Each round corrupts the sink by SQL (rows missing, changed, extra, inside and outside of a range) and lets writers
change the database (updates that leave a TOAST column out, moved keys, deletes, inserts). It asks for a refill of
the range, by --range or --where, kills the runner at random moments and starts it again until the refill is done.
Once the job is caught up, plain SQL on both sides compares: inside of the range every row is equal; outside, what
was corrupted still is, until a refill of the whole table mends it.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from measure import report
from refill_figures import lags, ranges

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "scripts")]
from postgres import running  # noqa: E402

PROGRAM = [sys.executable, "-P", "-m", "backfill_cli"]
KEYS, LOW, HIGH = 4_000, 1_000, 2_500
OUTSIDE = 1_000_000
"""Keys that only a corruption writes."""
MOVE = "UPDATE t SET id = %s WHERE id = %s AND length(doc) < 100 AND NOT EXISTS (SELECT FROM t WHERE id = %s)"
PUT = "INSERT INTO t VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc"
CONFIG = """
[job]
name = "refilled"
[upstream]
type = "postgres"
dsn = "${env:REFILL_DSN}"
slot = "refilled"
[[tables]]
name = "t"
[[tables]]
name = "other"
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "300ms"
[spark]
master = "local[2]"
"""


class Round:
    """folder: of the job. wild: random numbers of this round."""

    def __init__(self, folder: Path, dsn: str, seed: int) -> None:
        self.folder, self.dsn, self.wild = folder, dsn, random.Random(seed)
        self.environment = {**os.environ, "REFILL_DSN": dsn}
        self.kills = 0

    def type(self, *words: str, limit_s: float = 300) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*PROGRAM, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def typed(self, *words: str, limit_s: float = 300) -> str:
        done = self.type(*words, limit_s=limit_s)
        if done.returncode:
            raise SystemExit(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def sink(self, *statements: str, read_only: bool = False) -> list[tuple[Any, ...]]:
        until_s = time.monotonic() + 60
        while True:
            try:
                with duckdb.connect(str(self.folder / "sink.duckdb"), read_only=read_only) as db:
                    rows: list[tuple[Any, ...]] = []
                    for statement in statements:
                        rows = db.execute(statement).fetchall()
                    return rows
            except duckdb.IOException:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.02)

    def corrupt(self) -> None:
        low, high = LOW, HIGH
        some = self.wild.randrange(3, 40)
        self.sink(
            f"DELETE FROM t WHERE id % {some} = 0 AND id BETWEEN {low} AND {high} AND length(doc) < 100",
            f"UPDATE t SET v = -1, doc = 'wrong' WHERE id % {some} = 1 AND id BETWEEN {low} AND {high}",
            f"INSERT INTO t SELECT n, -2, 'extra' FROM range({low}, {high + 1}) AS r(n) "
            "WHERE n NOT IN (SELECT id FROM t)",
            "DELETE FROM t WHERE id BETWEEN 10 AND 20",
            "UPDATE t SET v = -3 WHERE id BETWEEN 30 AND 40",
            f"INSERT INTO t VALUES ({OUTSIDE}, -4, 'extra')",
        )

    @contextlib.contextmanager
    def writers(self) -> Iterator[None]:
        over = threading.Event()

        def write(seed: int) -> None:
            wild = random.Random(seed)
            with psycopg.connect(self.dsn, autocommit=True) as db:
                while not over.is_set():
                    key = wild.randrange(60, KEYS)
                    match wild.randrange(5):
                        case 0:
                            db.execute("DELETE FROM t WHERE id = %s", (key,))
                        case 1:
                            to = wild.randrange(60, KEYS)
                            db.execute(
                                MOVE,
                                (to, key, to),
                            )
                        case 2:
                            doc = str(wild.randrange(10)) * wild.choice((10, 3_000))
                            db.execute(PUT, (key, wild.randrange(100), doc))
                        case _:
                            db.execute("UPDATE t SET v = v + 1 WHERE id BETWEEN %s AND %s", (key, key + 3))
                    db.execute("UPDATE other SET v = v + 1 WHERE id = %s", (wild.randrange(100),))
                    time.sleep(wild.random() * 0.05)

        threads = [threading.Thread(target=write, args=(self.wild.random(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def run(self) -> None:
        self.typed("resume", "refilled", "--detach")

    def pid(self) -> int | None:
        (job,) = json.loads(self.typed("status", "refilled", "--json"))["jobs"]
        return job["runner"]["pid"] if job["runner"]["alive"] else None

    def refill(self) -> str:
        (job,) = json.loads(self.typed("status", "refilled", "--json"))["jobs"]
        return str(job["refills"][-1]["state"])

    def refilled(self, *words: str, kills: int) -> None:
        """Asked for, and done, whatever happens to the runner."""
        self.typed("refill", "refilled", "--table", "t", *words)
        until_s = time.monotonic() + 600
        while (state := self.refill()) != "done":
            if state in ("failed", "cancelled") or time.monotonic() > until_s:
                raise SystemExit(f"{words}: {state}\n{self.typed('status', 'refilled')}")
            if kills and (pid := self.pid()) is not None:
                time.sleep(self.wild.random() * 25)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self.kills, kills = self.kills + 1, kills - 1
                self.run()
            time.sleep(0.5)

    def equal(self, where: str) -> tuple[int, int]:
        """(rows of the database, differing rows); by plain SQL on both sides."""
        query = f"SELECT id, v, doc FROM t WHERE {where} ORDER BY id"
        with psycopg.connect(self.dsn, autocommit=True) as db:
            theirs = db.execute(query.encode()).fetchall()
        ours = self.sink(query, read_only=True)
        return len(theirs), len(set(theirs) ^ set(ours)) + abs(len(theirs) - len(ours))

    def caught_up(self) -> None:
        self.typed("wait", "refilled", "--for", "caught-up")

    def done(self) -> str:
        between = f"id BETWEEN {LOW} AND {HIGH}"
        self.corrupt()
        by_condition = self.wild.random() < 0.3
        words = ("--where", f"id >= {LOW} AND id <= {HIGH}") if by_condition else ("--range", f"{LOW}..{HIGH}")
        with self.writers():
            self.refilled(*words, kills=self.wild.randrange(3))
        self.caught_up()
        rows, wrong = self.equal(between)
        (outside,) = self.sink(f"SELECT count(*) FROM t WHERE id = {OUTSIDE} OR v = -3", read_only=True)[0]
        assert outside > 0, "rows outside of the range were changed"
        with self.writers():
            self.refilled(kills=self.wild.randrange(2))
        self.caught_up()
        every, all_wrong = self.equal("true")
        said = f"{words[0]}: {rows:,} rows, {wrong} differ; then of all {every:,} {all_wrong}; {self.kills} kills"
        if wrong or all_wrong:
            raise SystemExit(f"DIFFERENT: {said}")
        return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("rounds", "range", "lag"), default="rounds")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table that is refilled, or joins")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.1, help="of the keys, in the range")
    parser.add_argument("--different", type=float, default=0.01, help="of its rows")
    parser.add_argument("--seconds", type=float, default=60, help="for which the lag before is looked at")
    asked = parser.parse_args()
    if asked.only != "rounds":
        figures = (
            ranges(asked.rows, asked.pairs, asked.share, asked.different)
            if asked.only == "range"
            else lags(asked.rows, asked.seconds)
        )
        sys.exit(0 if report(f"refill-{asked.only}", figures, {"rows": f"{asked.rows:,}"}) else 1)
    with contextlib.ExitStack() as held:
        data = held.enter_context(tempfile.TemporaryDirectory(prefix="backfill-postgres-"))
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="refill-")))
        postgres = held.enter_context(running(Path(data)))
        dsn = postgres.dsn()
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute("CREATE TABLE t (id int PRIMARY KEY, v int, doc text)")
            db.execute("ALTER TABLE t ALTER doc SET STORAGE EXTERNAL")
            fill = "INSERT INTO t SELECT n, 0, repeat('x', CASE n % 3 WHEN 0 THEN 3000 ELSE 5 END)"
            db.execute(f"{fill} FROM generate_series(1, {KEYS}) n".encode())
            db.execute("CREATE TABLE other (id int PRIMARY KEY, v int)")
            db.execute("INSERT INTO other SELECT n, 0 FROM generate_series(0, 99) n")
        (folder / "job.toml").write_text(CONFIG)
        first = Round(folder, dsn, asked.seed)
        first.typed("start", "--config", "job.toml", "--detach")
        first.caught_up()
        for number in range(asked.rounds):
            began_s = time.monotonic()
            said = Round(folder, dsn, asked.seed * 1_000 + number).done()
            print(f"round {number + 1}: {said} ({time.monotonic() - began_s:.0f} s)", flush=True)
        print(f"{asked.rounds} of {asked.rounds} equal")
        first.typed("stop", "refilled", "--wait")


if __name__ == "__main__":
    main()
