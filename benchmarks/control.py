"""How quickly the job obeys and how far it lags: live, throttled, commanded, idle, starting, with nothing to do.

python benchmarks/control.py                       everything, about 10 minutes
python benchmarks/control.py --quick               shorter waits
python benchmarks/control.py --only live throttle
python benchmarks/control.py --only shown --quick  the lag that status shows against the lag from outside
python benchmarks/control.py --only derived        the lag with a derived table ÷ without
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import measure
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from demo_upstream import changes, land, orders, write_snapshot
from measure import JOB, Figure, Job, percentile, quartiles, scratch
from shown import Shown

SECTIONS = (
    "live",
    "derived",
    "shown",
    "throttle",
    "latency",
    "staging",
    "guard",
    "idle",
    "commands",
    "visible",
    "start",
    "cron",
    "first",
)
TARGET_S, INTERVAL_S = 5.0, 1.0
WITHOUT = Path(__file__).parent.parent / "tests" / "without"
"""Hides the packages that users do not have, as from the tests."""


def wait_for(job: Job, state: str, phase: str | None = None, limit_s: float = 180) -> None:
    """Until the job's status says so."""
    from backfill_cli.errors import NoSuchJob

    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            status = job.status()
            if status["state"] == state and (phase is None or status["phase"] == phase):
                return
        except NoSuchJob:
            pass
        time.sleep(0.2)
    log = (job.folder / "runner.log").read_text()
    raise TimeoutError(f"job not {state} {phase or ''} within {limit_s:.0f} s: {log}")


def live(folder: Path, seconds: float) -> list[Figure]:
    """From the arrival of a change file to the commit that has it; a file of 250 changes every quarter second."""
    write_snapshot(folder / "orders", 200_000, 4)
    job, latency = Job(folder / "live", folder / "orders").write(), list[float]()
    rounds = 4 if seconds < 30 else 12
    lags = _lags(
        job,
        job.changes,
        200_000,
        seconds,
        lambda: latency.extend(_latency(job, ("pause", "resume", "throttle"), rounds)),
    )
    middle, most, late = statistics.median(lags), percentile(lags, 0.95), percentile(latency, 0.95)
    limit = INTERVAL_S + 1
    note = f"{len(lags)} files, {1000} changes/s"
    return [
        Figure("live lag, median", middle, "s", "≤ 2", middle <= 2, (), note),
        Figure("live lag, p95", most, "s", "≤ 4", most <= 4),
        Figure("command to barrier, live, p95", late, "s", f"≤ {limit:.0f}", late <= limit, tuple(latency)),
    ]


def _lags(job: Job, changed: Path, rows: int, seconds: float, last: Callable[[], object]) -> list[float]:
    """Seconds from each change file's arrival to its commit. last: done before the job ends."""
    from backfill_cli.catalog import Catalog

    landed: list[float] = []
    with job.runner("start", "--config", str(job.config)):
        wait_for(job, "running", "upstream")
        due = time.monotonic()
        end = due + seconds
        while due < end:
            content = changes(len(landed) + 1, 250, rows, time.time_ns() // 1_000_000)
            land(changed, len(landed) + 1, content)
            landed.append(time.time() * 1000)
            due += 0.25
            time.sleep(max(0.0, due - time.monotonic()))
        time.sleep(10)
        status = job.status()
        last()
    lags: list[float] = []
    for line in sorted(Catalog(job.catalog).ledger(JOB, 10_000), key=lambda line: line.epoch):
        taken = landed[len(lags) : len(lags) + line.upstream_epochs]
        lags.extend((line.committed_ms - at) / 1000 for at in taken)
    assert len(lags) == len(landed), f"{len(lags)} of {len(landed)} files committed; {status}"
    return lags[len(lags) // 5 :]  # the first ones meet a cold JVM


CUSTOMERS = """
[[tables]]
name = "customers"
key = ["id"]
"""
DERIVED = (
    """
[[derived]]
name = "by_group"
key = ["grp"]
sql = """
    + '''"""SELECT c.grp, count(*) AS n, sum(o.amount) AS amount
FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY 1"""
'''
)


def derived(folder: Path, rows: int, seconds: float) -> list[Figure]:
    """The lag of `live` with orders joined with 50,000 customers in 1,000 groups, ÷ without."""
    write_snapshot(folder / "joined" / "orders", rows, 4)
    ids = pa.array(range(50_000), pa.int64())
    (folder / "joined" / "customers").mkdir()
    groups = pa.table({"id": ids, "grp": pc.subtract(ids, pc.multiply(pc.divide(ids, 1000), 1000))})
    pq.write_table(groups, folder / "joined" / "customers" / "customers.parquet")
    medians: dict[str, list[float]] = {"without": [], "with": []}
    for name, more in (("without", ""), ("with", DERIVED), ("with", DERIVED), ("without", "")):
        job = Job(folder / "derived", folder / "joined" / "{table}", CUSTOMERS + more).write()
        for table in ("orders", "customers"):
            (job.changes / table).mkdir()
        job.config.write_text(job.config.read_text().replace("/changes", "/changes/{table}"))
        medians[name].append(statistics.median(_lags(job, job.changes / "orders", rows, seconds, lambda: None)))
        job.forget()
    ratio = statistics.median(medians["with"]) / statistics.median(medians["without"])
    note = f"{rows:,} orders, seconds without: {quartiles(medians['without'])}, with: {quartiles(medians['with'])}"
    return [Figure("live lag with a derived table ÷ without", ratio, "", "≤ 1.5", ratio <= 1.5, (), note)]


def shown(folder: Path, seconds: float) -> list[Figure]:
    """The lag in `status`, against that of change files of 250 changes."""
    write_snapshot(folder / "shown-orders", 200_000, 4)
    job = Job(folder / "shown", folder / "shown-orders").write()
    numbers = count(1)

    def put() -> None:
        number = next(numbers)
        land(job.changes, number, changes(number, 250, 200_000, time.time_ns() // 1_000_000))

    watched = Shown(job, put, INTERVAL_S)
    with job.runner("start", "--config", str(job.config)) as process:
        wait_for(job, "running", "upstream")
        watched.measure(process, seconds)
    return watched.figures(lambda line: line.upstream_epochs)


def _latency(job: Job, verbs: tuple[str, ...], rounds: int) -> list[float]:
    """Seconds from posting each command to the barrier that took it (an epoch is its barrier's time)."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.job import Verb

    catalog = Catalog(job.catalog)
    took = []
    for number in range(rounds):
        for verb in verbs:
            time.sleep(0.37 + 0.41 * (number % 3))  # not in step with the barriers
            posted_ms = time.time() * 1000
            command = catalog.post(
                JOB, Verb(verb), 1e9 if verb == "throttle" else None, "benchmark", int(posted_ms)
            )
            while (epoch := catalog.taken(JOB, command)) is None:
                time.sleep(0.05)
                assert time.time() * 1000 < posted_ms + 120_000, f"{verb} not taken"
            took.append(max(0.0, (epoch - posted_ms) / 1000))
    return took


def latency_behind(folder: Path, rows: int, rounds: int) -> list[Figure]:
    """As `live`, while the snapshot is read as fast as possible."""
    write_snapshot(folder / "big", rows, 20)
    job = Job(folder / "behind", folder / "big").write()
    with job.runner("start", "--config", str(job.config)):
        wait_for(job, "running", "snapshot")
        took = _latency(job, ("throttle", "pause", "resume"), rounds)
        assert job.status()["phase"] == "snapshot", "the snapshot ended before the commands did: give it more rows"
    late, limit = percentile(took, 0.95), TARGET_S + 1
    return [Figure("command to barrier, behind, p95", late, "s", f"≤ {limit:.0f}", late <= limit, tuple(took))]


def staging(folder: Path, rows: int, rounds: int) -> list[Figure]:
    """From posting a command to its barrier in the catalog, at random times, while one CSV file is read."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.job import Verb

    (folder / "text").mkdir()
    with pacsv.CSVWriter(folder / "text" / "orders.csv", orders(pa.array([], pa.int64()), 0).schema) as writer:
        for begin in range(0, rows, 500_000):
            writer.write(orders(pa.array(range(begin, min(rows, begin + 500_000)), pa.int64()), 0))
    job = Job(folder / "staging", folder / "text").write()
    text = f'format = "csv", schema = "{CSV_COLUMNS}"'
    job.config.write_text(job.config.read_text().replace('format = "parquet"', text))
    random, took, rate = Random(7), dict[str, list[float]](), 9e9
    with job.runner("start", "--config", str(job.config)):
        wait_for(job, "running", "snapshot")
        catalog = Catalog(job.catalog)
        for verb in ("throttle", "pause", "resume") * rounds:
            time.sleep(random.uniform(0.2, 6.0) if verb != "resume" else 0.2)
            rate -= 1  # each is lower than the last one
            began = time.monotonic()
            told = (Verb(verb), rate if verb == "throttle" else None, "benchmark", time.time_ns() // 1_000_000)
            command = catalog.post(JOB, *told)
            while catalog.taken(JOB, command) is None:
                time.sleep(0.05)
                assert time.monotonic() < began + 300, f"{verb} not taken"
            took.setdefault(verb, []).append(time.monotonic() - began)
            if job.status()["phase"] != "snapshot":
                break
    every = [one for some in took.values() for one in some]
    late, most = percentile(every, 0.95), max(every)
    note = f"median {statistics.median(every):.2f}, max {most:.2f} s; " + ", ".join(
        f"{verb} {statistics.median(some):.2f} ({len(some)})" for verb, some in took.items()
    )
    return [Figure("command to effect, staging CSV, p95", late, "s", "≤ 1", late <= 1, tuple(every), note)]


GUARD = """
[[guards]]
name = "memory"
kind = "free-disk"
path = "{path}"
limit = "{limit}"
lift = 0.999
every = "1s"
"""


def guard(folder: Path, rows: int, rounds: int) -> list[Figure]:
    """From a guard's limit being passed to the barrier that has its hold in the catalog, at random times, while a
    snapshot is read as fast as possible. It guards the free space of the disk in memory, which few others use."""
    place = Path("/dev/shm")
    write_snapshot(folder / "guarded-orders", rows, 20)
    free = shutil.disk_usage(place).free
    limit = int(free * 0.997)
    told = GUARD.format(path=place, limit=limit)
    job = Job(folder / "guarded", folder / "guarded-orders", told).write()
    random, held, lifted = Random(7), list[float](), list[float]()
    with job.runner("start", "--config", str(job.config)), tempfile.NamedTemporaryFile(dir=place) as full:
        wait_for(job, "running", "snapshot")
        for _ in range(rounds):
            time.sleep(random.uniform(2.0, 5.0))
            os.posix_fallocate(full.fileno(), 0, free - limit + (64 << 20))
            took = _until_held(job, held=True)
            if job.status()["phase"] != "snapshot":
                break  # more --rows give more of them
            held.append(took)
            full.truncate(0)
            lifted.append(_until_held(job, held=False))
    late, most = percentile(held, 0.95), max(held)
    note = f"median {statistics.median(held):.2f}, max {most:.2f} s of {len(held)}; "
    note += f"lifted {statistics.median(lifted):.2f} s"
    return [Figure("guard's limit to its hold, p95", late, "s", "≤ 2", late <= 2 * INTERVAL_S, tuple(held), note)]


def _until_held(job: Job, held: bool) -> float:
    """Seconds until the catalog says so."""
    from backfill_cli.catalog import Catalog

    began, catalog = time.monotonic(), Catalog(job.catalog)
    while bool(catalog.job(JOB).control.holds) is not held:
        time.sleep(0.05)
        assert time.monotonic() < began + 120, f"held: {not held}"
    return time.monotonic() - began


CSV_COLUMNS = "id BIGINT, customer_id BIGINT, status STRING, amount DECIMAL(10,2), updated_at TIMESTAMP"


def throttle(folder: Path, seconds: float) -> list[Figure]:
    """Rows per second at a limit of 500, between the first and the last checkpoint of the span."""
    from backfill_cli.catalog import Catalog

    write_snapshot(folder / "throttled-orders", 200_000, 2)
    job = Job(folder / "throttled", folder / "throttled-orders", "[throttle]\nrate = 500\n").write()
    with job.runner("start", "--config", str(job.config)):
        wait_for(job, "running", "snapshot")
        time.sleep(10 + seconds)
    lines = sorted(Catalog(job.catalog).ledger(JOB, 10_000), key=lambda line: line.epoch)
    lines = [line for line in lines if line.epoch > lines[0].epoch + 8_000]  # settled
    span = (lines[-1].epoch - lines[0].epoch) / 1000
    rate = sum(line.snapshot_rows for line in lines[1:]) / span
    note = f"over {span:.0f} s"
    return [Figure("throttle 500 rows/s", rate, "rows/s", "500 ± 5 %", abs(rate - 500) <= 25, (), note)]


def idle(folder: Path, seconds: float) -> list[Figure]:
    """Python CPU time of the runner per idle second, that is per barrier."""
    write_snapshot(folder / "few", 10_000, 1)
    job = Job(folder / "idle", folder / "few").write()
    with job.runner("start", "--config", str(job.config)) as process:
        wait_for(job, "running", "upstream")
        time.sleep(5)
        runner = psutil.Process(process.pid)
        before = sum(runner.cpu_times()[:2])
        time.sleep(seconds)
        used_ms = (sum(runner.cpu_times()[:2]) - before) / seconds * INTERVAL_S * 1000
    note = f"over {seconds:.0f} s, heartbeats in it"
    return [Figure("idle barrier, Python CPU", used_ms, "ms", "≤ 20", used_ms <= 20, (), note)]


def commands(folder: Path, rounds: int) -> list[Figure]:
    """Wall time of the commands that read or post ÷ that of importing the least that they need."""
    write_snapshot(folder / "few", 10_000, 1)
    job = Job(folder / "commands", folder / "few").write()
    bare = [sys.executable, "-c", "import typer, rich, duckdb"]
    verbs = {"status": ["status"], "pause": ["pause"], "throttle": ["throttle", "--rate", "500"]}
    took: dict[str, list[float]] = {name: [] for name in ("bare", *verbs)}
    # As an installed package: its byte code is kept. Without it ours is compiled each time, a quarter of `status`.
    installed = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with job.runner("start", "--config", str(job.config)):
        wait_for(job, "running", "upstream")
        for number in range(rounds + 1):
            for name in took:
                command = bare if name == "bare" else job.command(*verbs[name])
                began = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=installed)
                if number:
                    took[name].append(time.perf_counter() - began)
    base = statistics.median(took["bare"])
    figures = []
    for name in verbs:
        ratio = statistics.median(took[name]) / base
        note = f"{quartiles(took[name])} s, imports {quartiles(took['bare'])} s"
        figures.append(Figure(f"{name} ÷ its imports", ratio, "", "≤ 2", ratio <= 2, tuple(took[name]), note))
    return figures


def start(folder: Path, rounds: int) -> list[Figure]:
    """From the command to the first checkpoint's commit, with the class archive ÷ without."""
    from backfill_cli.spark import class_data_maker

    subprocess.run([sys.executable, class_data_maker.__file__], check=True, stdout=subprocess.DEVNULL)
    write_snapshot(folder / "start-orders", 200_000, 4)
    without = [_first_checkpoint_s(folder, {"BACKFILL_CLASS_ARCHIVE": "off"})]
    with_it = [_first_checkpoint_s(folder, {})]
    for _ in range(rounds):
        without.append(_first_checkpoint_s(folder, {"BACKFILL_CLASS_ARCHIVE": "off"}))
        with_it.append(_first_checkpoint_s(folder, {}))
    without, with_it = without[1:], with_it[1:]
    ratio = statistics.median(w / o for w, o in zip(with_it, without, strict=True))
    note = f"with {quartiles(with_it)} s, without {quartiles(without)} s"
    runs = tuple(w / o for w, o in zip(with_it, without, strict=True))
    return [
        Figure("start to first checkpoint, with archive ÷ without", ratio, "", "≤ 0.75", ratio <= 0.75, runs, note)
    ]


def visible(folder: Path, rounds: int) -> list[Figure]:
    """From the command to its job being in the catalog, where `status` shows it: imports and config come first."""
    from backfill_cli.catalog import Catalog

    write_snapshot(folder / "visible-orders", 1_000, 1)
    installed = {"PYTHONDONTWRITEBYTECODE": ""}  # as an installed package: its byte code is kept
    took = []
    for _ in range(rounds + 1):
        job = Job(folder / "visible", folder / "visible-orders").write()
        began = time.perf_counter()
        with job.runner("start", "--config", str(job.config), env=installed):
            while not job.catalog.exists() or not any(row.live for row in Catalog(job.catalog).listed()):
                time.sleep(0.02)
                assert time.perf_counter() < began + 60, (job.folder / "runner.log").read_text()
            took.append(time.perf_counter() - began)
        job.forget()
    middle = statistics.median(took[1:])
    note = quartiles(took[1:])
    return [Figure("start to its job in status, median", middle, "s", "≤ 1", middle <= 1, tuple(took[1:]), note)]


def cron(folder: Path, rows: int, rounds: int) -> list[Figure]:
    """CPU time of a plan, and of a run with nothing new, ÷ that of importing what they need; without Java."""
    write_snapshot(folder / "quick-orders", rows, 20)
    job = Job(folder / "quick", folder / "quick-orders").write()
    small = Job(folder / "nothing-new", folder / "few-orders").write()
    write_snapshot(folder / "few-orders", 10_000, 1)
    land(small.changes, 1, changes(1, 250, 10_000, time.time_ns() // 1_000_000))
    again = ("start", "--config", str(small.config), "--until", "caught-up")
    small.run(*again)
    lines = {
        "bare": [sys.executable, "-c", "import typer, rich, duckdb, pyarrow"],
        "plan": job.command("plan", "--config", str(job.config)),
        "nothing new": small.command(*again),
    }
    # As an installed package: its byte code is kept. And without pandas, which pyarrow imports where it is there.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(WITHOUT), env.get("PYTHONPATH")]))
    took: dict[str, list[float]] = {name: [] for name in lines}
    for number in range(rounds + 1):
        for name, line in lines.items():
            before = _children_s()
            subprocess.run(line, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=env)
            if number:
                took[name].append(_children_s() - before)
    base, figures = statistics.median(took["bare"]), []
    for name, goal in (("plan", 3), ("nothing new", 2)):
        ratio = statistics.median(took[name]) / base
        note = f"{quartiles(took[name])} CPU s, imports {quartiles(took['bare'])} CPU s"
        figures.append(Figure(f"{name} ÷ imports", ratio, "", f"≤ {goal}", ratio <= goal, tuple(took[name]), note))
    return figures


def _children_s() -> float:
    """CPU seconds of the processes that have ended, with those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


SPARK = """
import time
from backfill_cli.spark.session import open_session
open_session("local[*]", {}).range(1).count()
print(time.time())
"""


def first(folder: Path, rounds: int) -> list[Figure]:
    """From `start` to its first committed rows ÷ from `python` to the end of a job in a new session of Spark, both
    with the class archive."""
    from backfill_cli.spark import class_data_maker

    subprocess.run([sys.executable, class_data_maker.__file__], check=True, stdout=subprocess.DEVNULL)
    write_snapshot(folder / "start-orders", 100_000, 4)
    installed = {"PYTHONDONTWRITEBYTECODE": ""}  # as an installed package: its byte code is kept
    spark, committed = [], []
    for number in range(rounds + 1):
        session_s, rows_s = _first_job_s(installed), _first_checkpoint_s(folder, installed)
        if number:
            spark.append(session_s)
            committed.append(rows_s)
    runs = tuple(c / s for c, s in zip(committed, spark, strict=True))
    ratio, note = statistics.median(runs), f"start {quartiles(committed)} s, Spark {quartiles(spark)} s"
    return [Figure("start to first committed row ÷ Spark", ratio, "", "≤ 1.15", ratio <= 1.15, runs, note)]


def _first_job_s(env: dict[str, str]) -> float:
    began = time.time()
    line = [sys.executable, "-c", SPARK]
    ran = subprocess.run(
        line, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **env}
    )
    return float(ran.stdout.split()[-1]) - began


def _first_checkpoint_s(folder: Path, env: dict[str, str]) -> float:
    """From the command to the first commit with rows."""
    from backfill_cli.catalog import Catalog

    job = Job(folder / "start", folder / "start-orders").write()
    began_ms = time.time() * 1000
    with job.runner("start", "--config", str(job.config), "--until", "caught-up", env=env) as process:
        assert process.wait(180) == 0, (job.folder / "runner.log").read_text()
    lines = [line for line in Catalog(job.catalog).ledger(JOB, 10_000) if line.snapshot_rows]
    first = min(lines, key=lambda line: line.epoch)
    job.forget()
    return (first.committed_ms - began_ms) / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument(
        "--rows", type=int, default=20_000_000, help="of the snapshot that is being read meanwhile"
    )
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    hurried, figures = given.quick, []
    with scratch(given.folder) as folder:
        if "live" in given.only:
            figures += live(folder, 15 if hurried else 60)
        if "derived" in given.only:
            figures += derived(folder, 500_000 if hurried else 5_000_000, 15 if hurried else 60)
        if "shown" in given.only:
            figures += shown(folder, 15 if hurried else 60)
        if "throttle" in given.only:
            figures += throttle(folder, 15 if hurried else 60)
        if "latency" in given.only:
            figures += latency_behind(folder, 5_000_000 if hurried else given.rows, 1 if hurried else 5)
        if "staging" in given.only:
            figures += staging(folder, 5_000_000, 5 if hurried else 30)
        if "guard" in given.only:
            figures += guard(folder, 5_000_000 if hurried else given.rows, 3 if hurried else 20)
        if "idle" in given.only:
            figures += idle(folder, 15 if hurried else 60)
        if "commands" in given.only:
            figures += commands(folder, 3 if hurried else 9)
        if "visible" in given.only:
            figures += visible(folder, 3 if hurried else 9)
        if "start" in given.only:
            figures += start(folder, 1 if hurried else 5)
        if "cron" in given.only:
            figures += cron(folder, 500_000 if hurried else 5_000_000, 3 if hurried else 9)
        if "first" in given.only:
            figures += first(folder, 1 if hurried else 5)
    sizes = {"sections": json.dumps(list(given.only)), "quick": hurried}
    return 0 if measure.report("control", figures, sizes) or hurried else 1


if __name__ == "__main__":
    sys.exit(main())
