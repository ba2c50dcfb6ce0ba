"""Strategy chain: the log that a slot holds back during a snapshot, how late barriers are, cost, draining.

    python benchmarks/chain.py                    all of it, about 10 minutes on 2 cores
    python benchmarks/chain.py --quick            small: only checks that it works
    python benchmarks/chain.py --only slot cost

slot: 2 million rows of PostgreSQL under pgbench. A barrier's lateness is the time from when it was due until what
it took was durable. cost: the same files with a concurrent writer, by strategies chain and snapshot in turn,
until caught up. drain: entries that accumulated during a snapshot, against one commit each.
"""

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import duckdb
import measure
from control import wait_for
from demo_upstream import changes, land, write_snapshot
from log_store import one_by_one, wait_until
from measure import JOB, Figure, Job, percentile, quartiles, scratch
from pgbench import SETTINGS, Database, PgJob

SECTIONS = ("slot", "cost", "drain")
INTERVAL_S = 1.0
CHAIN = 'strategy = "chain"'


def chained(job: Job) -> Job:
    """The job's config asks for strategy chain, its spool in the job's folder."""
    text = job.config.read_text().replace(f'name = "{JOB}"', f'name = "{JOB}"\n{CHAIN}', 1)
    job.config.write_text(f'{text}\n[spool]\npath = "{job.folder}/spool"\n')
    return job


class Watch:
    """Beside a job: what its slot has not been told to let go of, bytes, and each entry of its spool."""

    def __init__(self, db: Database, job: Job) -> None:
        self.db, self.job = db, job
        self.held: list[int] = []
        self.late_s: dict[int, float] = {}

    def look(self) -> None:
        query = "SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots"
        self.held += [int(held) for (held,) in self.db(query) if held is not None]
        try:
            with duckdb.connect(str(self.job.catalog), read_only=True) as con:
                found = con.execute("SELECT number, taken_ms - due_ms FROM spool").fetchall()
        except duckdb.Error:
            return  # the job has it open just now, or has not made it yet
        self.late_s.update((number, late_ms / 1000) for number, late_ms in found)


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Beside what is in `with`."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def slot(folder: Path, rows: int, scale: int) -> list[Figure]:
    """The log that a slot keeps, and how late barriers are, through a snapshot under pgbench."""
    import postgres  # in scripts/

    with postgres.running(folder / "postgres", settings=SETTINGS) as server:
        db = Database(server, folder, rows).make(scale)
        os.environ["BENCH_DSN"] = db.dsn
        job = PgJob(folder / "slot", folder).write()
        chained(job)
        watch = Watch(db, job)
        with db.pgbench("-c", "2", "-R", "300", "-T", "3600", touch=True), every(0.1, watch.look):
            begin = int(db("SELECT (pg_current_wal_lsn() - '0/0')::bigint")[0][0])
            job.run("start", "--config", str(job.config), "--until", "caught-up")
            written = int(db("SELECT (pg_current_wal_lsn() - '0/0')::bigint")[0][0]) - begin
    entries = max(watch.late_s)
    an_epoch, most = written / entries, max(watch.held)
    late = list(watch.late_s.values())
    p95, due = percentile(late, 0.95), INTERVAL_S + 1
    told = f"{most / 1e6:.1f} MB of {written / 1e6:.0f} MB written meanwhile, in {entries} epochs"
    seen = f"{len(late)} of {entries} entries seen; median {statistics.median(late):.2f} s, most {max(late):.2f} s"
    return [
        Figure(
            "slot: log held back ÷ that of an epoch", most / an_epoch, "", "≤ 3", most <= 3 * an_epoch, (), told
        ),
        Figure("barriers late in the snapshot, p95", p95, "s", f"≤ {due:g}", p95 <= due, (), seen),
    ]


def writer(job: Job, rows: int) -> AbstractContextManager[None]:
    """Lands 1,000 changes every half second."""
    sequence = count(1)

    def write() -> None:
        number = next(sequence)
        land(job.changes, number, changes(number, 1_000, rows, time.time_ns() // 1_000_000))

    return every(0.5, write)


def cost(folder: Path, rows: int, rounds: int) -> list[Figure]:
    """Time to caught up by chain ÷ by snapshot, the same files and as many changes a second."""
    write_snapshot(folder / "orders", rows, 8)
    ratios, both = [], []
    for number in range(rounds + 1):
        took = {}
        for strategy in ("snapshot", "chain"):
            job = Job(folder / f"{strategy}-{number}", folder / "orders").write()
            if strategy == "chain":
                chained(job)
            with writer(job, rows):
                took[strategy] = job.run("start", "--config", str(job.config), "--until", "caught-up")
        print(f"  round {number}: {', '.join(f'{k} {v:.1f} s' for k, v in took.items())}", file=sys.stderr)
        if number:
            ratios.append(took["chain"] / took["snapshot"])
            both.append(took)
    ratio = statistics.median(ratios)
    note = "; ".join(f"{name} {quartiles([one[name] for one in both])} s" for name in ("chain", "snapshot"))
    return [Figure("to caught up ÷ strategy snapshot", ratio, "", "≤ 1.15", ratio <= 1.15, tuple(ratios), note)]


def drain(folder: Path, rows: int, entries: int, singles: int) -> list[Figure]:
    """Entries drained ÷ one commit for each."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.job import Phase

    write_snapshot(folder / "drained", rows, 8)
    more = '[barrier]\ninterval = "100ms"\n[throttle]\nrate = 0\n'
    job = chained(Job(folder / "drain", folder / "drained", more).write())
    catalog = Catalog(job.catalog)
    with job.runner("start", "--config", str(job.config)):
        wait_for(job, "running", "snapshot")
        for sequence in range(1, entries + 1):
            land(job.changes, sequence, changes(sequence, 2_000, rows, time.time_ns() // 1_000_000))
            wait_until(lambda least=sequence: _taken(job) >= least, 60)
        job.run("throttle", "--rate", "none")
        wait_until(lambda: job.status()["phase"] == "upstream", 300)
    lines = catalog.ledger(JOB, 10_000)
    drained = [line for line in lines if line.phase is Phase.LOG_STORE and line.upstream_epochs]
    assert sum(line.upstream_epochs for line in drained) == entries
    took = sum(line.stage_ms + line.commit_ms for line in drained) / 1000  # the first is staged beside a commit
    plain = Job(folder / "single", folder / "drained", '[barrier]\ninterval = "50ms"\n').write()
    plain.run("start", "--config", str(plain.config), "--until", "caught-up")
    single = statistics.median(one_by_one(plain, 1, singles, 2_000, rows)[2:])
    faster = single * entries / took
    note = f"{entries} entries in {took:.1f} s, {len(drained)} commits; one commit takes {single:.2f} s"
    return [
        Figure(
            "draining: times as fast as one commit each", faster, "×", "≥ 10", faster >= 10, (), note, higher=True
        )
    ]


def _taken(job: Job) -> int:
    """How many entries are in the spool; none while the job has its catalog open."""
    try:
        with duckdb.connect(str(job.catalog), read_only=True) as con:
            row = con.execute("SELECT count(*) FROM spool").fetchone()
    except duckdb.Error:
        return 0
    return int(row[0]) if row is not None else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    quick = given.quick
    rows, rounds, entries = (100_000, 1, 20) if quick else (given.rows, given.rounds, 150)
    figures: list[Figure] = []
    with scratch(given.folder) as folder:
        if "slot" in given.only:
            figures += slot(folder, rows, 1 if quick else 10)
        if "cost" in given.only:
            figures += cost(folder, 2 * rows, rounds)
        if "drain" in given.only:
            figures += drain(folder, rows // 4, entries, 5 if quick else 15)
    sizes = {"rows": rows, "rounds": rounds, "entries": entries}
    return 0 if measure.report("chain", figures, sizes) or quick else 1


if __name__ == "__main__":
    sys.exit(main())
