"""Delta tables filled from Delta tables, against a plain Spark job and Structured Streaming.

    python benchmarks/lake.py                       all of it, 5 million rows, half an hour on 2 cores
    python benchmarks/lake.py --quick               200,000 rows, 20 versions: whether it works, not how fast it is
    python benchmarks/lake.py --only snapshot planning

snapshot: a pinned version into a new table, beside one Spark job that reads and writes it, and beside Structured
Streaming's initial snapshot with append; alternating in one session, the first round warms up. changes: many
versions of 10,000 changes into that table, beside foreachBatch with MERGE on the change feed, default settings.
planning: a pin of a table of many files. lag: a version a second of 1,000 changes, the sink seen from outside.
"""

import argparse
import json
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from measure import JOB, Figure, Job, scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECTIONS = ("snapshot", "changes", "planning", "lag")
FEED = {"delta.enableChangeDataFeed": "true"}
FILES = 20
ROWS = pa.schema(
    [("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.decimal128(12, 2)), ("note", pa.string())]
)
CONFIG = """\
[job]
name = "{job}"
staging = "{folder}/staging"
[upstream]
type = "delta"
table = "{source}"
version = {version}
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "delta"
table = "{folder}/sink/{{table}}"
[barrier]
interval = "1s"
[spark]
master = "local[*]"
conf = {{ "spark.driver.memory" = "4g" }}
"""


class LakeJob(Job):
    """The job from `orders`, a Delta table, into one below its folder."""

    def at(self, version: int) -> "LakeJob":
        self.folder.mkdir(parents=True, exist_ok=True)
        text = CONFIG.format(job=JOB, folder=self.folder, source=self.orders, version=version)
        self.config.write_text(text)
        return self

    @property
    def sink(self) -> Path:
        return self.folder / "sink" / "orders"

    def once(self) -> float:
        """Seconds until the job is caught up, in this process and its session."""
        from backfill_cli.catalog import Catalog
        from backfill_cli.config import load
        from backfill_cli.engine.loop.run import start

        began = time.perf_counter()
        start(load(self.config), Catalog(self.catalog), "caught-up", False, None)
        return time.perf_counter() - began


def rows(low: int, high: int, seed: int = 0) -> pa.Table:
    ids = range(low, high)
    amounts = pa.array([(n * 37 + seed) % 1_000_000 for n in ids], pa.int64()).cast(pa.decimal128(19, 0))
    notes = pa.array([f"order {n * 7919 % 1_000_003} of nobody in particular {seed}" for n in ids])
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([n % 10_007 for n in ids]),
        amounts.cast(ROWS.field(2).type),
        notes,
    ]
    return pa.table(columns, schema=ROWS)


def load(path: Path, count: int) -> None:
    per = -(-count // FILES)
    for low in range(0, count, per):
        write_deltalake(str(path), rows(low, min(low + per, count)), mode="append", configuration=FEED)


def change(path: Path, count: int, changes: int, seed: int) -> None:
    """One version whose feed has so many changes: 8 of 10 are updates, one inserts, one deletes.

    The commit is written by hand: its rows are in a file of the feed alone, which is all that who follows reads.
    """
    version = DeltaTable(str(path)).version() + 1
    low = (seed * 7_919_000) % max(1, count - changes)
    updates, deletes = (
        rows(low, low + changes * 8 // 10, seed),
        rows(low + changes * 8 // 10, low + changes * 9 // 10),
    )
    inserts = rows(count + seed * changes, count + seed * changes + changes // 10, seed)
    kinds = (("update_preimage", rows(low, low + changes * 8 // 10)), ("update_postimage", updates))
    parts = (*kinds, ("delete", deletes), ("insert", inserts))
    told = [part.append_column("_change_type", pa.array([kind] * len(part))) for kind, part in parts]
    (path / "_change_data").mkdir(exist_ok=True)
    name = f"_change_data/{uuid.uuid4().hex}.parquet"
    pq.write_table(pa.concat_tables(told), path / name)
    cdc = {"path": name, "partitionValues": {}, "size": (path / name).stat().st_size, "dataChange": False}
    info = {"timestamp": int(time.time() * 1000), "operation": "MERGE", "operationParameters": {}}
    text = "".join(json.dumps(one) + "\n" for one in ({"commitInfo": info}, {"cdc": cdc}))
    (path / "_delta_log" / f"{version:020d}.json").write_text(text)


def plain(spark: "SparkSession", source: Path, version: int, target: Path) -> float:
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    frame = spark.read.format("delta").option("versionAsOf", version).load(str(source))
    frame.write.format("delta").save(str(target))
    return time.perf_counter() - began


def streamed(spark: "SparkSession", source: Path, folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    stream = spark.readStream.format("delta").load(str(source)).writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    stream.start(str(folder / "table")).awaitTermination()
    return time.perf_counter() - began


def snapshot(spark: "SparkSession", folder: Path, source: Path, count: int, pairs: int) -> list[Figure]:
    version = DeltaTable(str(source)).version()
    ours, plains, streams = [], [], []
    for turn in range(pairs + 1):
        job = LakeJob(folder / "job", source)
        job.forget()
        took = job.at(version).once()
        assert len(DeltaTable(str(job.sink)).to_pyarrow_dataset().to_table(columns=["id"])) == count
        copied = plain(spark, source, version, folder / "plain")
        flowed = streamed(spark, source, folder / "stream")
        if turn:
            ours.append(took)
            plains.append(copied)
            streams.append(flowed)
    by_plain, by_stream = ([a / b for a, b in zip(ours, other, strict=True)] for other in (plains, streams))
    note = (
        f"ours {measure.quartiles(ours)} s, plain {measure.quartiles(plains)}, stream {measure.quartiles(streams)}"
    )
    return [
        _figure("snapshot ÷ plain Spark job", by_plain, 1.2, note),
        _figure("snapshot ÷ Structured Streaming", by_stream, 0.5, note),
    ]


def changes(
    spark: "SparkSession", folder: Path, source: Path, count: int, versions: int, each: int
) -> list[Figure]:
    from pyspark.sql import functions as F

    version = DeltaTable(str(source)).version()
    job = LakeJob(folder / "job", source)
    job.forget()
    job.at(version).once()
    theirs = folder / "theirs"
    plain(spark, source, version, theirs)
    for seed in range(versions):
        change(source, count, each, seed + 1)
    before = DeltaTable(str(job.sink)).version()
    ours = job.once()
    commits = DeltaTable(str(job.sink)).version() - before

    def merged(batch: "DataFrame", _number: int) -> None:
        last = (
            batch.where("_change_type != 'update_preimage'")
            .groupBy("id")
            .agg(
                F.max_by(F.struct("*"), F.struct("_commit_version", F.col("_change_type") != "delete")).alias("r")
            )
        )
        last.select("r.*").createOrReplaceTempView("batch")
        columns = ", ".join(ROWS.names)
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{theirs}` t USING batch s ON t.id = s.id "
            "WHEN MATCHED AND s._change_type = 'delete' THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{n} = s.{n}' for n in ROWS.names)} "
            f"WHEN NOT MATCHED AND s._change_type != 'delete' THEN INSERT ({columns}) VALUES ({columns})"
        )

    began = time.perf_counter()
    feed = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", version + 1)
    stream = feed.load(str(source)).writeStream.foreachBatch(merged).trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(folder / "stream-2")).start()
    query.awaitTermination()
    took = time.perf_counter() - began
    assert _total(job.sink) == _total(theirs)
    note = f"{versions} versions of {each}: ours {ours:.1f} s, foreachBatch {took:.1f} s"
    return [
        _figure("changes ÷ foreachBatch MERGE", [ours / took], 0.3, note),
        Figure("commits of ours", commits, "", "<= 10", commits <= 10),
    ]


def _total(path: Path) -> tuple[int, Any]:
    table = DeltaTable(str(path)).to_pyarrow_dataset().to_table(columns=["id", "amount"])
    return len(table), pc.sum(table["amount"]).as_py()


def planning(folder: Path, files: int) -> list[Figure]:
    from backfill_cli.contracts import TableSpec
    from backfill_cli.upstreams.delta import connector

    path = folder / "wide"
    shutil.rmtree(path, ignore_errors=True)
    DeltaTable.create(str(path), pa.schema([("id", pa.int64()), ("note", pa.string())]), configuration=FEED)
    with (path / "_delta_log" / f"{1:020d}.json").open("w") as log:
        log.write(json.dumps({"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE"}}) + "\n")
        for n in range(files):
            low, high = n * 1_000_000, n * 1_000_000 + 999_999
            stats = {
                "numRecords": 1_000_000,
                "minValues": {"id": low},
                "maxValues": {"id": high},
                "nullCount": {"id": 0},
            }
            add = {"path": f"{uuid.uuid4()}.parquet", "partitionValues": {}, "size": 10**8, "dataChange": True}
            log.write(json.dumps({"add": {**add, "modificationTime": 0, "stats": json.dumps(stats)}}) + "\n")

    def once() -> float:
        began = time.perf_counter()
        upstream = connector.open(
            connector.options.model_validate({"table": str(path)}), [TableSpec("t", ("id",))]
        )
        assert len(upstream.pin().splits) == files
        return time.perf_counter() - began

    return [_seconds(f"planning {files:,} files", [once() for _ in range(3)], 5.0)]


def lag(folder: Path, seconds: int) -> list[Figure]:
    """Of each version: from when its commit was there until the sink has its insert, looked at every 50 ms."""
    source, count, each = folder / "live", 100_000, 1_000
    shutil.rmtree(source, ignore_errors=True)
    write_deltalake(str(source), rows(0, count), configuration=FEED)
    job = LakeJob(folder / "live-job", source)
    job.forget()
    job.at(0)
    found: list[float] = []
    with job.runner("start", "--config", str(job.config)):
        _until(lambda: job.catalog.exists() and job.status()["phase"] == "upstream", 180)
        change(source, count, each, 1)  # the first MERGE of a session takes its time
        _until(lambda: _has(job.sink, count + each), 120)
        waiting: dict[int, float] = {}
        began = time.perf_counter()
        for turn in range(2, seconds + 2):
            change(source, count, each, turn)
            waiting[count + turn * each] = time.perf_counter()
            while time.perf_counter() < began + turn - 1:
                _seen(job.sink, waiting, found)
        _until(lambda: _seen(job.sink, waiting, found) == 0, 120)
    return [_seconds("live lag, median", found, 4.0)]


def _has(sink: Path, key: int) -> bool:
    found = DeltaTable(str(sink)).to_pyarrow_dataset().to_table(columns=["id"], filter=pc.field("id") == key)
    return len(found) > 0


def _seen(sink: Path, waiting: dict[int, float], found: list[float]) -> int:
    there = [key for key in waiting if _has(sink, key)]
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
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--versions", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="200,000 rows, 20 versions, 1 pair")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    count, versions, pairs = (200_000, 20, 1) if given.quick else (given.rows, given.versions, given.pairs)
    figures: list[Figure] = []
    with scratch(given.folder) as folder:
        if "planning" in given.only:
            figures += planning(folder, 20_000)
        if "lag" in given.only:
            figures += lag(folder, 10 if given.quick else 60)
        if {"snapshot", "changes"} & set(given.only):
            from backfill_cli.spark.session import open_session

            source = folder / f"orders-{count}"
            if not source.exists():
                load(source, count)
            spark = open_session("local[*]", {"spark.driver.memory": "4g"}, formats=("delta",))
            if "snapshot" in given.only:
                figures += snapshot(spark, folder, source, count, pairs)
            if "changes" in given.only:
                figures += changes(spark, folder, source, count, versions, 10_000)
            spark.stop()
    sizes = {"rows": count, "files": FILES, "versions": versions, "pairs": pairs}
    return 0 if measure.report("lake", figures, sizes) or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
