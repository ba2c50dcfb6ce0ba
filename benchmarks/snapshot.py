"""The snapshot into DuckDB against the plain way, with kill -9 and resume, a small slice, memory, verify.

    python benchmarks/snapshot.py                       everything, 10 million rows, about 10 minutes on 2 cores
    python benchmarks/snapshot.py --quick               500,000 rows: only checks that it works
    python benchmarks/snapshot.py --only pairs killed

The plain way: the same Spark session copies Parquet to Parquet with default settings, then DuckDB creates the
table from the copy, one after the other, without any control. Pairs alternate; the first one warms up.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import measure
import psutil
from demo_upstream import orders, write_snapshot
from measure import JOB, ROOT, Figure, Job, scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECTIONS = ("pairs", "killed", "slice", "memory")


def plain_way(spark: "SparkSession", source: Path, folder: Path) -> float:
    """Seconds for copy, then load, with default settings."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.perf_counter()
    spark.read.parquet(str(source)).write.parquet(str(folder / "copy"))
    with duckdb.connect(str(folder / "plain.duckdb")) as db:
        db.execute(f"CREATE TABLE orders AS SELECT * FROM read_parquet('{folder}/copy/*.parquet')")
    took = time.perf_counter() - began
    shutil.rmtree(folder)
    return took


def our_way(job: Job, rows: int) -> float:
    """Seconds for the whole job in this process, with its final checks; the session already exists."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import load
    from backfill_cli.engine.loop.run import start

    job.forget()
    job.write()
    began = time.perf_counter()
    start(load(job.config), Catalog(job.catalog), "caught-up", False, None)
    took = time.perf_counter() - began
    with duckdb.connect(str(job.warehouse), read_only=True) as db:
        assert db.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone() == (rows, rows)
    return took


def pairs(folder: Path, source: Path, rows: int, count: int) -> list[Figure]:
    """Ours ÷ plain in one session, and verify ÷ ours."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.engine.verify.job import verify
    from backfill_cli.spark.session import open_session

    spark = open_session("local[*]", {})
    job = Job(folder / "ours", source)
    plain, ours = [], []
    for number in range(count + 1):
        p, o = plain_way(spark, source, folder / "plain"), our_way(job, rows)
        print(f"  pair {number}: plain {p:.2f} s, ours {o:.2f} s", file=sys.stderr)
        plain, ours = [*plain, p], [*ours, o]
    plain, ours = plain[1:], ours[1:]
    ratios = [o / p for o, p in zip(ours, plain, strict=True)]
    ratio = statistics.median(ratios)
    verified = []
    for number in range(min(3, count) + 1):  # the first one warms up
        began = time.perf_counter()
        assert verify(JOB, Catalog(job.catalog)).equal
        verified += [time.perf_counter() - began] if number else []
    took = statistics.median(ours)
    share = statistics.median(verified) / took
    note = f"plain {measure.quartiles(plain)} s, ours {measure.quartiles(ours)} s"
    return [
        Figure("snapshot ÷ plain way", ratio, "", "≤ 1.0 (CI 1.3)", ratio <= 1.0, tuple(ratios), note),
        Figure("rows a second", rows / took, "rows/s", "-", True, tuple(rows / o for o in ours), higher=True),
        Figure("verify ÷ snapshot", share, "", "≤ 0.3", share <= 0.3, tuple(verified), "runs in seconds"),
    ]


def spark_start_s(tries: int) -> float:
    """Seconds from nothing to a Spark session, median."""
    code = "from backfill_cli.spark.session import open_session; open_session('local[*]', {}).range(1).count()"
    took = []
    for _ in range(tries):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def killed(folder: Path, source: Path, rows: int, tries: int) -> list[Figure]:
    """(wall time − one Spark start − time in lost epochs) ÷ uninterrupted; SIGKILL when half is committed."""
    start = spark_start_s(3)
    ratios, lost_epochs, notes = [], [], []
    for _ in range(tries):
        whole = Job(folder / "whole", source).write()
        uninterrupted = whole.run("start", "--config", str(whole.config), "--until", "caught-up")
        whole.forget()
        job = Job(folder / "killed", source).write()
        before, lost_s, lost = _until_killed(job, rows // 2)
        wall = before + job.run("resume", JOB)
        with duckdb.connect(str(job.warehouse), read_only=True) as db:
            assert db.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone() == (rows, rows)
        job.forget()
        ratios.append((wall - start - lost_s) / uninterrupted)
        lost_epochs.append(lost)
        notes.append(f"{uninterrupted:.1f}→{wall:.1f} s, lost {lost_s:.1f} s")
    ratio, most = statistics.median(ratios), max(lost_epochs)
    note = f"Spark start {start:.1f} s; " + "; ".join(notes)
    return [
        Figure("kill -9 half-way + resume ÷ uninterrupted", ratio, "", "≤ 1.1", ratio <= 1.1, tuple(ratios), note),
        Figure("epochs lost", most, "", "≤ 2", most <= 2, tuple(map(float, lost_epochs))),
    ]


def _until_killed(job: Job, rows: int) -> tuple[float, float, int]:
    """Seconds until SIGKILL once `rows` are committed, seconds since the last commit, epochs then in flight."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.errors import NoSuchJob

    began = time.perf_counter()
    with job.runner("start", "--config", str(job.config), "--until", "caught-up") as process:
        while process.poll() is None:
            try:
                read = job.status()["rows_read"]
            except NoSuchJob:
                read = 0
            if read >= rows:
                break
            time.sleep(0.1)
        assert process.poll() is None, "it ended before half of it was done: give it more rows"
        process.kill()
        killed_ms = time.time() * 1000
        process.wait()
    took = time.perf_counter() - began
    (last,) = Catalog(job.catalog).ledger(JOB, 1)
    attempts = {path.name for path in (job.folder / "staging" / JOB).glob("*-*")}
    in_flight = sum(int(name.partition("-")[0]) > last.epoch for name in attempts)
    return took, max(0.0, (killed_ms - last.committed_ms) / 1000), in_flight


def small_slice(folder: Path, rows: int, tries: int) -> list[Figure]:
    """CPU of one slice of a big file ÷ the same rows from a file of their own, staged in the same session."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from backfill_cli.spark.session import open_session

    size = min(25_000, rows // 20)
    first = rows // 2 + size // 3
    big, own = folder / "big", folder / "own"
    write_snapshot(big, rows, 1, row_group_rows=min(100_000, rows // 10))
    own.mkdir()
    pq.write_table(orders(pa.array(range(first, first + size), pa.int64()), 0), own / "orders-0000.parquet")
    spark = open_session("local[*]", {})
    of_big, of_own = [], []
    for number in range(tries + 2):  # the first two warm up
        measured = (_slice_cpu_s(spark, own, 0, size), _slice_cpu_s(spark, big, first, first + size))
        if number >= 2:
            of_own.append(measured[0])
            of_big.append(measured[1])
    ratio = statistics.median(of_big) / statistics.median(of_own)
    note = f"slice {measure.quartiles(of_big)} s CPU, own file {measure.quartiles(of_own)} s"
    runs = tuple(b / o for b, o in zip(of_big, of_own, strict=True))
    return [Figure(f"CPU of a slice of {size} rows ÷ own file", ratio, "", "≤ 1.5", ratio <= 1.5, runs, note)]


def _slice_cpu_s(spark: "SparkSession", path: Path, after: int, up_to: int) -> float:
    from backfill_cli.config import load
    from backfill_cli.model.plan import SnapshotRead

    job = Job(path.parent / "slice", path).write()
    upstream = load(job.config).open_upstream()
    pin = upstream.pin()
    target = job.folder / "staged"
    me = psutil.Process()
    before = measure.cpu_s(me)
    frame = upstream.scan(spark, "orders", [SnapshotRead("orders", pin.splits[0].id, after, up_to)])
    frame.write.mode("overwrite").option("compression", "lz4_raw").parquet(str(target))
    used = measure.cpu_s(me) - before
    read = spark.read.parquet(str(target)).count()
    assert read == up_to - after, read
    upstream.close()
    job.forget()
    return used


def memory(folder: Path, rows: int) -> list[Figure]:
    """Peak driver memory of a whole job: RSS of Python and JVM heap after a full collection, big ÷ a tenth."""
    sizes = (rows // 10, rows)
    found = []
    for size in sizes:
        source = folder / f"orders-{size}"
        if not source.exists():
            write_snapshot(source, size, 20)
        child = [sys.executable, __file__, "--memory-of", str(source), "--folder", str(folder / "memory")]
        done = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    figures = []
    for name in ("python_rss_mib", "jvm_heap_mib"):
        small, big = (one[name] for one in found)
        ratio = big / small
        note = f"{small:.0f} → {big:.0f} MiB, {sizes[0]:,} → {sizes[1]:,} rows"
        figures.append(Figure(f"memory, {name} big ÷ small", ratio, "", "within 20 %", ratio <= 1.2, (), note))
    return figures


def memory_of(source: Path, folder: Path) -> None:
    """Run a job in this process and print what it needed, as JSON."""
    import resource

    from pyspark import SparkContext

    from backfill_cli.spark.session import open_session

    open_session("local[*]", {})
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import load
    from backfill_cli.engine.loop.run import start

    job = Job(folder, source)
    job.forget()
    job.write()
    start(load(job.config), Catalog(job.catalog), "caught-up", False, None)
    gateway = SparkContext._gateway  # a benchmark may look inside; the product does not
    assert gateway is not None
    for _ in range(3):
        gateway.jvm.java.lang.System.gc()
    runtime = gateway.jvm.java.lang.Runtime.getRuntime()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"python_rss_mib": rss, "jvm_heap_mib": heap}))
    job.forget()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="500,000 rows, 1 pair")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory_of:
        memory_of(given.memory_of, given.folder)
        return 0
    rows, count = (500_000, 1) if given.quick else (given.rows, given.pairs)
    figures: list[Figure] = []
    with scratch(given.folder) as folder:
        source = folder / f"orders-{rows}"
        if not source.exists():
            write_snapshot(source, rows, 20)
        if "killed" in given.only:
            figures += killed(folder, source, rows, 1 if given.quick else 3)
        if "memory" in given.only:
            figures += memory(folder, rows)
        if "pairs" in given.only:
            figures += pairs(folder, source, rows, count)
        if "slice" in given.only:
            figures += small_slice(folder, rows // 2, count)
    sizes = {"rows": rows, "files": 20, "columns": 5, "pairs": count}
    return 0 if measure.report("snapshot", figures, sizes) or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
