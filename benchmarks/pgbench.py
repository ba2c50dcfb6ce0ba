"""What the PostgreSQL benchmarks share: a database, pgbench beside a job, CPU used, our longest transaction."""

import multiprocessing
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
import psutil
import psycopg
from measure import JOB, Job
from postgres import Server  # in scripts/

DATABASE = "bench"
SLOT = "backfill_bench"
SCALE = 10
ORDERS = ("orders",)
TELLING = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
CHANGES = 4
"""Of one of pgbench's transactions, a change in each of its tables."""

SETTINGS = {"track_commit_timestamp": "on", "shared_buffers": "512MB", "max_wal_size": "4GB"}

CONFIG = """\
[job]
name = "{job}"
staging = "{folder}/staging"

[upstream]
type = "postgres"
dsn = "${{env:BENCH_DSN}}"
slot = "{slot}"

{tables}
[sink]
type = "duckdb"
path = "{folder}/warehouse.duckdb"
"""

MADE = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text, city text, price numeric(12,2), at timestamptz);
INSERT INTO orders SELECT g, 'note number ' || g, 'city ' || g % 1000, g * 1.37,
'2024-01-01+00'::timestamptz + g * interval '1.001 s' FROM generate_series(1, {rows}) g;
ALTER TABLE pgbench_history ADD COLUMN hid bigserial PRIMARY KEY;
"""

TOUCH = """\\set id random(1, {rows})
UPDATE orders SET price = price + 1, note = note || '.' WHERE id = :id;
"""
"""One transaction of ten while a copy of `orders` is measured: its changes are the job's."""


@dataclass(frozen=True)
class Database:
    """A server's database with `orders` and pgbench's tables, the history with a key."""

    server: Server
    folder: Path
    rows: int

    @property
    def dsn(self) -> str:
        return self.server.dsn(DATABASE)

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]:
        """Each statement in a transaction of its own; the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def make(self, scale: int) -> "Database":
        with psycopg.connect(self.server.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {DATABASE}".encode())
        command = [self.server.program("pgbench"), "-q", "-i", "-s", str(scale), "--foreign-keys", self.dsn]
        subprocess.run(command, check=True, capture_output=True)
        self(*MADE.format(rows=self.rows).strip().removesuffix(";").split(";\n"), "VACUUM ANALYZE", "CHECKPOINT")
        (self.folder / "touch.sql").write_text(TOUCH.format(rows=self.rows))
        return self

    def forget_slot(self) -> None:
        """Slot and publication of the job are gone; `orders` has no dead rows left from an earlier run."""
        self(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{SLOT}'",
            f"DROP PUBLICATION IF EXISTS {SLOT}",
            "VACUUM ANALYZE orders",
            "CHECKPOINT",
        )

    def told(self) -> int:
        """How many transactions pgbench has made so far."""
        last = "CASE WHEN is_called THEN last_value ELSE 0 END"  # of a new one the last value is 1 too
        return int(self(f"SELECT {last} FROM pgbench_history_hid_seq")[0][0])

    @contextmanager
    def pgbench(self, *arguments: str, touch: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        """pgbench running alongside; ended afterwards if it still runs. touch: it also changes orders."""
        mixed = ["-b", "tpcb-like@9", "-f", f"{self.folder / 'touch.sql'}@1"] if touch else []
        command = [str(self.server.program("pgbench")), "-n", "-j", "1", *arguments, *mixed, self.dsn]
        with (self.folder / "pgbench.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()

    def run_pgbench(self, *arguments: str) -> None:
        """pgbench has ended."""
        with self.pgbench(*arguments) as process:
            if process.wait():
                raise RuntimeError((self.folder / "pgbench.log").read_text()[-2000:])


@dataclass(frozen=True)
class PgJob(Job):
    """A job over tables of the database that BENCH_DSN leads to, into DuckDB."""

    tables: tuple[str, ...] = ORDERS

    def write(self) -> "PgJob":
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = "".join(f'[[tables]]\nname = "{name}"\n' for name in self.tables)
        told = {"folder": self.folder, "slot": SLOT, "tables": tables}
        self.config.write_text(CONFIG.format(job=JOB, **told))
        return self


class Watch:
    """Inside the block: how long our longest transaction was seen open, in seconds."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._over = threading.Event()
        self.longest_s = 0.0

    def __enter__(self) -> "Watch":
        self._over.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        query = """SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
                   FROM pg_stat_activity WHERE application_name = 'backfill'"""
        with psycopg.connect(self._dsn, autocommit=True, application_name="watch") as connection:
            while not self._over.wait(0.05):
                row = connection.execute(query).fetchone()
                assert row is not None
                self.longest_s = max(self.longest_s, row[0])


def our_cpu_s(db: Database) -> float:
    """CPU seconds so far of this process and its descendants, and of the server without pgbench's sessions."""
    postmaster = psutil.Process(int((db.server.data / "postmaster.pid").read_text().split()[0]))
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench'"
    theirs = {pid for (pid,) in db(query)}
    own = postmaster.cpu_times()
    used = own.user + own.system + own.children_user + own.children_system
    for one in postmaster.children():
        try:
            if one.pid not in theirs:
                used += one.cpu_times().user + one.cpu_times().system
        except psutil.NoSuchProcess:
            continue
    return used + measure.cpu_s(psutil.Process())


@contextmanager
def burning(cores: float) -> Iterator[None]:
    """Two other processes that together use this much CPU and do not touch the database."""
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_burn, args=(cores / 2,), daemon=True) for _ in range(2)]
    for one in both:
        one.start()
    try:
        yield
    finally:
        for one in both:
            one.terminate()
            one.join()


def _burn(cores: float) -> None:
    began = time.monotonic()
    before = time.process_time()
    while True:
        if time.process_time() - before < cores * (time.monotonic() - began):
            sum(range(20_000))
        else:
            time.sleep(0.001)


def sums(folder: Path, tables: Sequence[str] = TELLING) -> tuple[int, ...]:
    """The sums that pgbench keeps equal, as the sink has them: of balances and of the history."""
    import duckdb

    columns = ("abalance", "bbalance", "tbalance", "delta")
    found = ", ".join(
        f"(SELECT coalesce(sum({c}), 0)::BIGINT FROM {t})" for c, t in zip(columns, tables, strict=True)
    )
    with duckdb.connect(str(folder / "warehouse.duckdb")) as con:
        row = con.execute(f"SELECT {found}").fetchone()
    assert row is not None
    return row
