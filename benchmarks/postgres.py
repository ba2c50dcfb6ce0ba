"""A PostgreSQL that keeps taking writes into DuckDB: the copy against Spark's JDBC source and against Debezium,
beside pgbench; what a `where` saves; the cost and lag of following it, the longest transaction, what holds at
every checkpoint.

    python benchmarks/postgres.py                       everything, 2 million rows, about 20 minutes on 2 cores
    python benchmarks/postgres.py --quick               200,000 rows: only checks that it works
    python benchmarks/postgres.py --only pairs busy

A server is started for it. The plain way: Spark's JDBC source, with as many partitions as the job has splits,
copies to Parquet with default settings, then DuckDB creates the table from the copy. Debezium does its initial
snapshot in a Java program of its own, tuned for few and large fetches, its records counted and thrown away.
Rounds alternate; the first one warms up.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path

import measure
from control import wait_for
from measure import JOB, ROOT, Figure, percentile, quartiles, scratch
from pgbench import (
    CHANGES,
    SCALE,
    SETTINGS,
    TELLING,
    Database,
    PgJob,
    Watch,
    burning,
    our_cpu_s,
    sums,
)
from postgres_filtered import filtered
from postgres_ways import caught_up, debezium_way, our_way, partitions, plain_way, session

SECTIONS = ("pairs", "busy", "filtered", "follow", "live", "killed")
TARGET_S = 5.0
POINTS = ("after-stage:2", "after-prepare:2", "sink-before-commit:3", "after-commit:2", "commit-known:3")


def pairs(db: Database, count: int, watch: Watch) -> list[Figure]:
    """Ours ÷ plain, and our rows per second ÷ Debezium's."""
    spark, many = session(), partitions(db)
    rounds: list[tuple[float, float, float]] = []
    for number in range(count + 1):
        plain = plain_way(spark, db, db.folder / "plain", many)
        debezium = debezium_way(db) if number else 0.0
        with watch:
            ours = our_way(db)
        print(
            f"  round {number}: plain {plain:.2f} s, Debezium {debezium:.2f} s, ours {ours:.2f} s", file=sys.stderr
        )
        rounds.append((plain, debezium, ours))
    rounds = rounds[1:]
    by_plain = [o / p for p, _, o in rounds]
    by_debezium = [d / o for _, d, o in rounds]
    first, second = statistics.median(by_plain), statistics.median(by_debezium)
    middle = statistics.median(o for _, _, o in rounds)
    note = f"plain {quartiles([p for p, _, _ in rounds])} s, ours {quartiles([o for _, _, o in rounds])} s"
    beside = f"Debezium {db.rows / statistics.median(d for _, d, _ in rounds):,.0f} rows/s"
    return [
        Figure("copy ÷ JDBC to Parquet and load", first, "", "≤ 0.8", first <= 0.8, tuple(by_plain), note),
        Figure(
            "rows/s ÷ Debezium's snapshot", second, "", "≥ 3", second >= 3, tuple(by_debezium), beside, higher=True
        ),
        Figure("rows a second", db.rows / middle, "rows/s", "-", True, higher=True),
    ]


def busy(db: Database, count: int, clients: int, watch: Watch) -> list[Figure]:
    """The copy beside pgbench ÷ an idle one; what pgbench loses by it, against as much CPU load from elsewhere."""
    session()
    by_idle, losses, notes = [], [], []
    for number in range(count + 1):
        idle = our_way(db)
        with db.pgbench("-c", str(clients), "-T", "3600", touch=True):
            time.sleep(2)
            before, used, began = db.told(), our_cpu_s(db), time.perf_counter()
            with watch:
                copied = our_way(db)
            took = time.perf_counter() - began
            beside_us, cores = (db.told() - before) / took, (our_cpu_s(db) - used) / took
            db.forget_slot()
            with burning(cores):
                time.sleep(2)
                before, began = db.told(), time.perf_counter()
                time.sleep(max(5.0, min(took, 15.0)))
                beside_other = (db.told() - before) / (time.perf_counter() - began)
        said = f"idle {idle:.1f} s, busy {copied:.1f} s with {cores:.2f} cores"
        beside = f"pgbench {beside_us:.0f}/s beside us, {beside_other:.0f}/s beside as much CPU"
        print(f"  round {number}: {said}; {beside}", file=sys.stderr)
        if number:
            by_idle.append(copied / idle)
            losses.append(1 - beside_us / beside_other)
            notes.append(f"{beside_us:.0f} and {beside_other:.0f}/s")
    ratio, loss = statistics.median(by_idle), statistics.median(losses)
    told = f"{clients} client(s); " + ", ".join(notes)
    return [
        Figure("copy beside pgbench ÷ idle", ratio, "", "≤ 1.5", ratio <= 1.5, tuple(by_idle)),
        Figure("pgbench's loss by it", loss, "", "≤ 0.2", loss <= 0.2, tuple(losses), told),
    ]


def follow(db: Database, count: int, transactions: int, watch: Watch) -> list[Figure]:
    """Changes per second through a backlog that pgbench left, from the start of the command to its end."""
    from backfill_cli.catalog import Catalog

    session()
    our_way(db, TELLING)
    job = PgJob(db.folder / "ours", db.folder, tables=TELLING)
    rates = []
    for number in range(count + 1):
        begin = max(line.epoch for line in Catalog(job.catalog).ledger(JOB, 10_000))
        db.run_pgbench("-c", "2", "-t", str(transactions // 2))
        with watch:
            took = caught_up(job)
        lines = [line for line in Catalog(job.catalog).ledger(JOB, 10_000) if line.epoch > begin]
        changes = sum(line.changes_read for line in lines)
        assert changes == transactions // 2 * 2 * CHANGES, changes
        equal = sums(job.folder)
        assert len(set(equal)) == 1, equal
        print(f"  round {number}: {changes} changes in {took:.2f} s, {len(lines)} epochs", file=sys.stderr)
        rates += [changes / took] if number else []
    middle = statistics.median(rates)
    return [Figure("changes applied", middle, "1/s", "≥ 5000", middle >= 5000, tuple(rates), higher=True)]


def live(db: Database, seconds: int, watch: Watch) -> list[Figure]:
    """From each transaction's commit on the server to the commit that has it in the sink; then at full speed."""
    found = []
    for name, arguments, goal in (
        ("live lag at 500 transactions/s", ("-c", "4", "-R", "500"), 2.0),
        ("live lag, pgbench at full speed", ("-c", "1"), None),
    ):
        lags, rate = _lags(db, seconds, arguments, watch)
        middle, most = statistics.median(lags), percentile(lags, 0.95)
        note = f"{rate:.0f} transactions/s over {seconds} s; p95 {most:.2f} s, most {max(lags):.2f} s"
        reached = goal is None or middle <= goal
        found.append(Figure(f"{name}, median", middle, "s", f"≤ {goal:.0f}" if goal else "-", reached, (), note))
    return found


def _lags(db: Database, seconds: int, arguments: tuple[str, ...], watch: Watch) -> tuple[list[float], float]:
    """Seconds per transaction in order of commit, without the first fifth; transactions per second."""
    from backfill_cli.catalog import Catalog

    job = PgJob(db.folder / "live", db.folder, tables=TELLING)
    job.forget()
    db.forget_slot()
    before = db.told()
    with watch, job.write().runner("start", "--config", str(job.config)):
        wait_for(job, "running", "upstream")
        db.run_pgbench(*arguments, "-T", str(seconds))
        time.sleep(4)
        end = time.monotonic() + 60
        while job.status()["lag_s"] and time.monotonic() < end:
            time.sleep(0.5)
    at = "extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8"
    committed = [t for (t,) in db(f"SELECT {at} FROM pgbench_history WHERE hid > {before} ORDER BY 1")]
    lines = sorted(Catalog(job.catalog).ledger(JOB, 10_000), key=lambda line: line.epoch)
    held = list(accumulate(line.changes_read // CHANGES for line in lines))
    assert held[-1] == len(committed), f"{held[-1]} of {len(committed)} transactions committed"
    lags = [lines[bisect_left(held, n)].committed_ms / 1000 - t for n, t in enumerate(committed, 1)]
    steady = [line for line in lines if line.changes_read][2:]
    staged, taken = (
        statistics.median(getattr(line, what) for line in steady) for what in ("stage_ms", "commit_ms")
    )
    print(f"  {len(lines)} epochs, stage {staged:.0f} ms, commit {taken:.0f} ms", file=sys.stderr)
    return lags[len(lags) // 5 :], len(committed) / seconds


def killed(db: Database, kills: int) -> list[Figure]:
    """pgbench's invariant in the sink at every checkpoint once caught up, with the runner killed repeatedly."""
    job = PgJob(db.folder / "killed", db.folder, tables=TELLING)
    job.forget()
    db.forget_slot()
    job.write()
    command = [sys.executable, str(ROOT / "benchmarks" / "checked_runner.py"), str(job.folder)]
    chance = random.Random(10)
    points = [chance.choice(POINTS) if number % 3 else "" for number in range(kills)] + [""]
    with db.pgbench("-c", "2", "-R", "300", "-T", "3600"), (job.folder / "runner.log").open("ab") as log:
        for number, point in enumerate(points):
            env = {**os.environ, "BACKFILL_FAILPOINT": point}
            runner = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
            try:
                if number == 0:
                    wait_for(job, "running", "upstream")
                    (job.folder / "caught-up").touch()
                before = checked(job)
                end = time.monotonic() + 60
                while runner.poll() is None and checked(job) < before + 5 and time.monotonic() < end:
                    time.sleep(0.1)
                if not point:
                    time.sleep(chance.random() * 2)
            finally:
                runner.kill()
                runner.wait()
            print(f"  killed {point or 'at some time'}, {checked(job)} checkpoints checked", file=sys.stderr)
    job.run("start", "--config", str(job.config), "--until", "caught-up")
    found = [json.loads(line) for line in (job.folder / "checked").read_text().splitlines()] + [sums(job.folder)]
    told = db("SELECT sum(delta)::bigint FROM pgbench_history")[0][0]
    assert found[-1][0] == told, f"the sink has {found[-1]}, the upstream {told}"
    wrong = sum(len(set(one)) > 1 for one in found)
    note = f"{len(found)} checkpoints, {len(points)} times kill -9, {len(set(map(tuple, found)))} sums"
    return [Figure("checkpoints where pgbench's sums differ", wrong, "", "0", wrong == 0, (), note)]


def checked(job: PgJob) -> int:
    path = job.folder / "checked"
    return path.read_text().count("\n") if path.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=1, help="of pgbench at full speed")
    parser.add_argument("--quick", action="store_true", help="200,000 rows, 1 round, short waits")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    quick = given.quick
    rows, rounds, scale = (200_000, 1, 1) if quick else (given.rows, given.rounds, SCALE)
    import postgres  # in scripts/

    figures: list[Figure] = []
    with scratch(given.folder) as folder, postgres.running(folder / "postgres", settings=SETTINGS) as server:
        db = Database(server, folder, rows).make(scale)
        os.environ["BENCH_DSN"] = db.dsn
        watch = Watch(server.dsn())
        if "pairs" in given.only:
            figures += pairs(db, rounds, watch)
        if "busy" in given.only:
            figures += busy(db, rounds, given.clients, watch)
        if "filtered" in given.only:
            session()
            figures += filtered(db, rounds)
        if "follow" in given.only:
            figures += follow(db, rounds, 5_000 if quick else 50_000, watch)
        if "live" in given.only:
            figures += live(db, 10 if quick else 60, watch)
        if "killed" in given.only:
            figures += killed(db, 2 if quick else 5)
        if (longest := watch.longest_s) > 0:
            limit = 2 * TARGET_S
            name = "longest transaction of ours"
            figures.append(Figure(name, longest, "s", f"≤ {limit:.0f}", longest <= limit))
    sizes = {"rows": rows, "rounds": rounds, "scale": scale, "clients": given.clients}
    return 0 if measure.report("postgres", figures, sizes) or quick else 1


if __name__ == "__main__":
    sys.exit(main())
