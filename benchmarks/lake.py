"""Lake tables filled from lake tables, against a plain Spark job and Structured Streaming.

    python benchmarks/lake.py                       Delta, everything, 5 million rows, half an hour on 2 cores
    python benchmarks/lake.py --format iceberg      the same with Iceberg
    python benchmarks/lake.py --quick               200,000 rows, 20 versions: only checks that it works
    python benchmarks/lake.py --only snapshot planning

snapshot: a pinned version into a new table, beside one Spark job that reads and writes it, and beside Structured
Streaming's initial snapshot with append, by micro-batches of 5 of the 20 files and all at once; alternating in
one session, the first round warms up. changes: many versions of 10,000 changes into that table, beside
foreachBatch with MERGE on the change feed, default settings (Iceberg's stream reads no changes: beside one
changelog and one MERGE). planning: a pin of a table of many files, without Spark. lag: a version a second of 1,000
changes, the sink seen from outside.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import measure
from lake_tables import BATCH_FILES, FILES, Delta, Iceberg, Lake, removed, total
from measure import JOB, Figure, Job, scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECTIONS = ("snapshot", "changes", "planning", "lag")
CONFIG = """\
[job]
name = "{job}"
staging = "{folder}/staging"
[upstream]
type = "{format}"
table = "{source}"
version = {version}
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "{format}"
table = "{folder}/sink/{{table}}"
[barrier]
interval = "1s"
[spark]
master = "local[*]"
conf = {{ "spark.driver.memory" = "4g" }}
"""


class LakeJob(Job):
    """The job from `orders`, a table of the format, into one below its folder."""

    def at(self, lake: Lake, version: int) -> "LakeJob":
        self.folder.mkdir(parents=True, exist_ok=True)
        named = {"job": JOB, "folder": self.folder, "source": self.orders, "version": version}
        self.config.write_text(CONFIG.format(format=lake.name, **named))
        return self

    @property
    def sink(self) -> Path:
        return self.folder / "sink" / "orders"

    def once(self) -> None:
        """The job is caught up, in this process and its session."""
        from backfill_cli.catalog import Catalog
        from backfill_cli.config import load
        from backfill_cli.engine.loop.run import start

        start(load(self.config), Catalog(self.catalog), "caught-up", False, None)


def _took(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def snapshot(spark: "SparkSession", lake: Lake, folder: Path, source: Path, pairs: int) -> list[Figure]:
    version = lake.version(source)
    job, plain, stream = LakeJob(folder / "job", source), folder / "plain", folder / "stream"
    runs: dict[str, list[float]] = {"ours": [], "plain": [], "batches": [], "at once": []}
    for turn in range(pairs + 1):
        job.forget()
        removed(plain)
        job.at(lake, version)
        took = {"ours": _took(job.once), "plain": _took(lambda: lake.plain(spark, source, version, plain))}
        for name, files in (("batches", BATCH_FILES), ("at once", None)):
            removed(stream)
            took[name] = _took(lambda files=files: lake.streamed(spark, source, stream, files))  # type: ignore[misc]
        assert total(spark, lake, job.sink) == total(spark, lake, plain) == total(spark, lake, stream / "table")
        if turn:
            for name, seconds in took.items():
                runs[name].append(seconds)
    note = ", ".join(f"{name} {measure.quartiles(values)} s" for name, values in runs.items())
    goals = {"plain": ("plain Spark job", 1.2), "batches": (f"stream by {BATCH_FILES} files", 0.5)}
    return [
        _figure(f"snapshot ÷ {shown}", [a / b for a, b in zip(runs["ours"], runs[name], strict=True)], goal, note)
        for name, (shown, goal) in goals.items()
    ]


def changes(
    spark: "SparkSession", lake: Lake, folder: Path, source: Path, sizes: tuple[int, int, int]
) -> list[Figure]:
    """sizes: rows of the table, versions, changes of each."""
    count, versions, each = sizes
    version = lake.version(source)
    job, theirs = LakeJob(folder / "job", source), folder / "theirs"
    job.forget()
    job.at(lake, version).once()
    removed(theirs)
    lake.plain(spark, source, version, theirs)
    for seed in range(versions):
        lake.change(spark, source, count, each, seed + 1)
    before = lake.commits(job.sink)
    ours = _took(job.once)
    commits = lake.commits(job.sink) - before
    took = _took(lambda: lake.followed(spark, source, version, theirs))
    assert total(spark, lake, job.sink) == total(spark, lake, theirs)
    note = f"{versions} versions of {each}: ours {ours:.1f} s, theirs {took:.1f} s"
    return [
        _figure("changes ÷ one MERGE of them", [ours / took], 0.3, note),
        Figure("commits of ours", commits, "", "<= 10", commits <= 10),
    ]


def planning(lake: Lake, folder: Path, files: int) -> list[Figure]:
    from backfill_cli import registry
    from backfill_cli.contracts import TableSpec

    path, connector = folder / "wide", registry.upstream(lake.name)
    removed(path)
    lake.wide(path, files)

    def once() -> None:
        options = connector.options.model_validate({"table": str(path)})
        assert len(connector.open(options, [TableSpec("t", ("id",))]).pin().splits)

    return [_seconds(f"planning {files:,} files", [_took(once) for _ in range(3)], 5.0)]


def lag(spark: "SparkSession", lake: Lake, folder: Path, seconds: int) -> list[Figure]:
    """For each version, the time from its commit until the sink has its insert, polled every 50 ms."""
    source, count, each = folder / "live", 100_000, 1_000
    removed(source)
    lake.load(source, count)
    job = LakeJob(folder / "live-job", source)
    job.forget()
    job.at(lake, lake.version(source))
    found: list[float] = []
    with job.runner("start", "--config", str(job.config)):
        _until(lambda: _follows(job), 180)
        lake.change(spark, source, count, each, 1)  # the first MERGE of a session takes its time
        _until(lambda: lake.has(job.sink, count + each), 120)
        waiting: dict[int, float] = {}
        for turn in range(2, seconds + 2):
            began = time.perf_counter()
            lake.change(spark, source, count, each, turn)
            waiting[count + turn * each] = time.perf_counter()
            while time.perf_counter() < began + 1:
                _seen(lake, job.sink, waiting, found)
        _until(lambda: _seen(lake, job.sink, waiting, found) == 0, 120)
    return [_seconds("live lag, median", found, 4.0)]


def _follows(job: Job) -> bool:
    from backfill_cli.errors import NoSuchJob

    try:
        return job.catalog.exists() and job.status()["phase"] == "upstream"
    except NoSuchJob:  # the runner has made the catalog, and not the job yet
        return False


def _seen(lake: Lake, sink: Path, waiting: dict[int, float], found: list[float]) -> int:
    there = [key for key in waiting if lake.has(sink, key)]
    found.extend(time.perf_counter() - waiting.pop(key) for key in there)
    time.sleep(0.05)
    return len(waiting)


def _until(holds: Callable[[], bool], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("the job did not get there")
        time.sleep(0.2)


def _figure(name: str, runs: list[float], most: float, note: str) -> Figure:
    value = statistics.median(runs)
    return Figure(name, value, "", f"<= {most}", value <= most, tuple(runs), note)


def _seconds(name: str, runs: list[float], most: float) -> Figure:
    value = statistics.median(runs)
    return Figure(name, value, "s", f"<= {most} s", value <= most, tuple(runs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--versions", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="200,000 rows, 20 versions, 1 pair")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="make the data below this folder, and keep it")
    given = parser.parse_args()
    count, versions, pairs = (200_000, 20, 1) if given.quick else (given.rows, given.versions, given.pairs)
    figures: list[Figure] = []
    with scratch(given.folder) as kept:
        folder = kept.resolve() / given.format
        lake: Lake = Delta() if given.format == "delta" else Iceberg(folder)
        if given.format == "iceberg" or {"snapshot", "changes", "lag"} & set(given.only):
            from backfill_cli.spark.session import open_session

            conf = {"spark.driver.memory": "4g", **lake.settings}
            spark = open_session("local[*]", conf, formats=(given.format,))
            if "planning" in given.only and given.format == "iceberg":
                figures += planning(lake, folder, 20_000)
            if "lag" in given.only:
                figures += lag(spark, lake, folder, 10 if given.quick else 60)
            source = folder / f"orders-{count}"
            if {"snapshot", "changes"} & set(given.only) and not source.exists():
                lake.load(source, count)
            if "snapshot" in given.only:
                figures += snapshot(spark, lake, folder, source, pairs)
            if "changes" in given.only:
                figures += changes(spark, lake, folder, source, (count, versions, 10_000))
            spark.stop()
        if "planning" in given.only and given.format == "delta":
            figures += planning(lake, folder, 20_000)
    sizes = {"format": given.format, "rows": count, "files": FILES, "versions": versions, "pairs": pairs}
    return 0 if measure.report(f"lake-{given.format}", figures, sizes) or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
