"""Lake tables filled by a cluster of two workers: an executor, the driver and the runner are killed on the way."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import Cluster, began, cluster, typed
from kafka_topics import new_topic

from backfill_cli.catalog import Catalog
from backfill_cli.view.answers import document
from backfill_cli.view.model import Jobs, read_jobs

if TYPE_CHECKING:
    from broker import Broker

PYTHON = Path(sys.executable)
PATIENCE_S = 120.0
ROWS = 2_000
JOB = """
[job]
name = "lake"
staging = "{folder}/staging"
{upstream}
[[tables]]
name = "t"
key = ["id"]
[throttle]
rate = 400
[barrier]
interval = "500ms"
[spark]
master = "{master}"
[spark.conf]
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "600m"
"spark.cores.max" = "2"
"spark.sql.shuffle.partitions" = "2"
"spark.databricks.delta.snapshotPartitions" = "2"
"""
FILES = '[upstream]\ntype = "files"\nsnapshot = {{ path = "{folder}/snapshot", format = "parquet" }}'
TOPIC = """[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
value = {{ format = "events", schema = "id BIGINT, name STRING" }}"""
DELTA = '[upstream]\ntype = "delta"\ntable = "{folder}/source"'
ONE_EXECUTOR = ('"spark.cores.max" = "2"', '"spark.cores.max" = "1"')
"""For runs in which none dies: each takes five seconds of CPU."""
INTERPRETED = (
    '"spark.cores.max" = "2"',
    '"spark.cores.max" = "2"\n'
    '"spark.sql.codegen.wholeStage" = "false"\n"spark.sql.codegen.factoryMode" = "NO_CODEGEN"',
)
"""For MERGEs of some rows in Delta, of whose CPU generated code took a quarter; the other jobs have it."""
DELTA_SINK = '[sink]\ntype = "delta"\ntable = "{folder}/lake/{{table}}"\n'
ICEBERG = '[sink]\ntype = "iceberg"\ntable = "{folder}/lake/{{table}}"\n'


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1, memory="700m") as made:
        yield made


def row(n: int) -> dict[str, Any]:
    return {"id": n, "name": f"name {n}"}


@pytest.mark.in_turn("a cluster")
def test_a_topic_fills_an_iceberg_table_although_the_driver_dies(
    two_workers: Cluster, broker: "Broker", tmp_path: Path
) -> None:
    topic, rows = new_topic(broker, 2), [row(n) for n in range(1_000)]
    topic.write_json(rows)
    keyless = ('[[tables]]\nname = "t"\nkey = ["id"]', '[[tables]]\nname = "t"')
    slow = ("rate = 400", "rate = 100")  # so that rows are left for the death, on a busy machine too
    told = {"bootstrap": broker.bootstrap, "topic": topic.name}
    write_job(tmp_path, TOPIC, ICEBERG, two_workers, keyless, slow, ONE_EXECUTOR, **told)
    with began(tmp_path, PYTHON, "start", "--config", "job.toml") as runner:
        until(tmp_path, lambda job: job["rows_read"] > 0)
        driver_of(runner.pid).kill()
        assert runner.wait(PATIENCE_S) != 0
    end(tmp_path, "iceberg")
    assert [{"id": one["id"], "name": one["name"]} for one in held(tmp_path)] == rows


@pytest.mark.in_turn("a cluster")
def test_a_delta_table_follows_another_while_an_executor_and_the_runner_die(
    two_workers: Cluster, tmp_path: Path
) -> None:
    from deltalake import DeltaTable, write_deltalake

    source, fed = str(tmp_path / "source"), {"delta.enableChangeDataFeed": "true"}
    write_deltalake(source, pa.Table.from_pylist([row(n) for n in range(ROWS)]), configuration=fed)
    few = ('"500ms"', '"2s"')  # a commit of a Delta table takes a second of CPU
    write_job(tmp_path, DELTA, DELTA_SINK, two_workers, INTERPRETED, ("rate = 400", "rate = 1000"), few)

    def seen() -> set[str]:
        """The last of each version's name, once its rows are in the sink."""
        found = DeltaTable(tmp_path / "lake" / "t").to_pyarrow_table(columns=["name"])
        return {name for name in found["name"].to_pylist() if name.startswith("version")}

    with began(tmp_path, PYTHON, "start", "--config", "job.toml") as runner:
        until(tmp_path, lambda job: job["phase"] == "upstream")
        DeltaTable(source).update({"name": "'version 1'"}, predicate="id % 10 = 3")
        two_workers.executors()[0].kill()
        DeltaTable(source).delete("id < 50")
        wait_for(lambda: "version 1" in seen(), tmp_path)
        DeltaTable(source).update({"name": "'version 2'"}, predicate="id % 7 = 1")
        os.kill(runner.pid, signal.SIGKILL)
    write_deltalake(source, pa.Table.from_pylist([row(n) for n in range(ROWS, ROWS + 9)]), mode="append")
    end(tmp_path, "delta")
    checked = typed(tmp_path, PYTHON, "verify", "lake", formats=["delta"])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    there, here = (
        sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda one: one["id"])
        for path in (source, tmp_path / "lake" / "t")
    )
    assert here == there
    assert len(here) == ROWS - 50 + 9


@pytest.mark.in_turn("a cluster")
def test_no_row_passes_the_driver_or_the_runner(two_workers: Cluster, tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    count = 30_000
    texts = pa.array([os.urandom(640).hex() for _ in range(count)])
    for part in range(3):
        rows = pa.table({"id": pa.array(range(part * count, (part + 1) * count)), "name": texts})
        pq.write_table(rows, tmp_path / "snapshot" / f"{part}.parquet", compression="none", use_dictionary=False)
    size = sum(file.stat().st_size for file in (tmp_path / "snapshot").iterdir())
    write_job(tmp_path, FILES, ICEBERG, two_workers, ("rate = 400", "rate = 1e9"), ONE_EXECUTOR)
    with began(tmp_path, PYTHON, "start", "--config", "job.toml", "--until", "caught-up") as runner:
        until(tmp_path, lambda job: job["state"] == "running")
        both = (psutil.Process(runner.pid), driver_of(runner.pid))
        before = passed = [moved(one) for one in both]
        while runner.poll() is None:
            passed = [moved(one) or last for one, last in zip(both, passed, strict=True)]
            time.sleep(0.05)
    assert runner.returncode == 0, (tmp_path / "said").read_text()
    assert size > 100e6
    assert [one["id"] for one in held(tmp_path)] == list(range(3 * count))
    # What they import and write down is 25 to 45 MB, whatever the size, by how much was imported before.
    assert sum(passed) - sum(before) < size / 2, (passed, before, size)


def moved(process: psutil.Process) -> int:
    """Bytes that a process read and wrote, files and sockets; 0 once it is gone."""
    try:
        found = process.io_counters()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
    return int(found.read_chars + found.write_chars)


def write_job(folder: Path, upstream: str, sink: str, on: Cluster, *other: tuple[str, str], **told: str) -> None:
    text = JOB.replace("{upstream}", upstream) + sink
    for old, new in other:
        assert old in text
        text = text.replace(old, new)
    (folder / "job.toml").write_text(text.format(folder=folder, master=on.address, **told))


def end(folder: Path, lake: str) -> None:
    config = folder / "job.toml"
    config.write_text(config.read_text().replace(*ONE_EXECUTOR))
    assert typed(folder, PYTHON, "throttle", "--rate", "none", formats=[lake]).returncode == 0
    ended = typed(folder, PYTHON, "start", "--config", "job.toml", "--until", "caught-up", formats=[lake])
    assert ended.returncode == 0, ended.stderr


def held(folder: Path) -> list[dict[str, Any]]:
    """By pyiceberg, which shares no code with what wrote it."""
    from pyiceberg.table import StaticTable

    found: list[dict[str, Any]] = (
        StaticTable.from_metadata(str(folder / "lake" / "t")).scan().to_arrow().to_pylist()
    )
    return sorted(found, key=lambda one: one["id"])


def driver_of(runner: int) -> psutil.Process:
    """The Java process of the runner's Spark session."""
    children = psutil.Process(runner).children(recursive=True)
    return next(one for one in children if "org.apache.spark.deploy.SparkSubmit" in one.cmdline())


def wait_for(holds: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, (folder / "said").read_text()
        time.sleep(0.3)


def until(folder: Path, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The job, once that holds of it, as `status --json` says: a command for each look took half a core."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        jobs = document(Jobs(read_jobs(Catalog(folder / "catalog.duckdb"), None)))["jobs"]
        if jobs and jobs[0].get("rows_read") is not None and holds(jobs[0]):
            found: dict[str, Any] = jobs[0]
            return found
        assert time.monotonic() < deadline, (jobs, (folder / "said").read_text())
        time.sleep(0.3)
