"""A standalone Spark cluster, its executors with this package or without it, and Spark Connect: the same jobs."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from broker import free_port
from kafka_topics import new_topic
from postgres import Server
from postgres_database import database

if TYPE_CHECKING:
    from broker import Broker

SPARK = Path(pyspark.__file__).parent
FILES = """
[job]
name = "{name}"
staging = "{folder}/staging"
[upstream]
type = "files"
snapshot = {{ path = "{folder}/snapshot", format = "parquet" }}
[[tables]]
name = "t"
key = ["id"]
[throttle]
rate = 400
"""
TOPIC = """
[job]
name = "{name}"
staging = "{folder}/staging"
[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
value = {{ format = "json", schema = "id BIGINT" }}
[[tables]]
name = "t"
"""
TABLES = """
[job]
name = "{name}"
staging = "{folder}/staging"
[upstream]
type = "postgres"
dsn = "${{env:CLUSTER_DSN}}"
slot = "{slot}"
[[tables]]
name = "t"
"""
SINK = """
[sink]
type = "duckdb"
path = "{folder}/{name}.duckdb"
"""
CLUSTER = """
[spark]
master = "{master}"
conf = {{ "spark.driver.host" = "127.0.0.1", "spark.executor.memory" = "600m", "spark.cores.max" = "2" }}
"""


@contextmanager
def process(folder: Path, env: Mapping[str, str], *words: str) -> Iterator[Path]:
    """A part of the cluster; the file that it writes to."""
    log = folder / f"{words[0].rsplit('.', 1)[-1]}.log"
    with log.open("wb") as said:
        command = [str(SPARK / "bin" / "spark-class"), *words]
        running = subprocess.Popen(command, env=dict(env), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield log
    finally:
        running.terminate()
        running.wait(30)


def until_said(log: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.2)


def environment(python: Path) -> dict[str, str]:
    """This process's, less what it says of Spark and Python."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    return kept | {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master and a worker on loopback; which Python their executors run is told by each job's driver."""
    folder = tmp_path_factory.mktemp("cluster")
    port, env = str(free_port()), environment(Path(sys.executable))
    on = ("--host", "127.0.0.1", "--webui-port", "0")
    address = f"spark://127.0.0.1:{port}"
    with process(folder, env, "org.apache.spark.deploy.master.Master", *on, "--port", port) as master:
        until_said(master, "ALIVE")
        worker = ("org.apache.spark.deploy.worker.Worker", *on, "--cores", "2", "--memory", "1g")
        with process(folder, env, *worker, "--work-dir", str(folder / "work"), address) as log:
            until_said(log, "Successfully registered with master")
            yield address


def start(folder: Path, config: str, python: Path, **told: str) -> "subprocess.CompletedProcess[str]":
    (folder / "job.toml").write_text((config + SINK).format(folder=folder, **told))
    return typed(folder, python, "start", "--config", "job.toml", "--until", "caught-up")


def typed(folder: Path, python: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**environment(python), "PYSPARK_PYTHON": str(python), "BACKFILL_CATALOG": "catalog.duckdb"}
    command = [sys.executable, "-m", "backfill_cli", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has nothing of ours."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize("knows", [True, False], ids=["with the package", "without it"])
def test_a_job_runs_on_a_cluster_and_says_what_its_executors_lack(
    broker: "Broker",
    postgres: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    bare_python: Path,
    knows: bool,
) -> None:
    (tmp_path / "snapshot").mkdir()
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "snapshot" / "a.parquet", row_group_size=100)
    topic = new_topic(broker, 2)
    topic.write_json([{"id": n} for n in range(100)])
    python = Path(sys.executable) if knows else bare_python
    with database(postgres) as db:
        monkeypatch.setenv("CLUSTER_DSN", db.dsn)
        db("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT n FROM generate_series(1, 700) n")
        if knows:
            tables = start(tmp_path, TABLES + CLUSTER, python, name="tables", master=master, slot=db.name)
            assert tables.returncode == 0, tables.stderr
            assert count(tmp_path / "tables.duckdb") == 700
        files = start(tmp_path, FILES + CLUSTER, python, name="files", master=master)
        names = {"bootstrap": broker.bootstrap, "topic": topic.name}
        events = start(tmp_path, TOPIC + CLUSTER, python, name="events", master=master, **names)

    assert files.returncode == 0, files.stderr
    assert count(tmp_path / "files.duckdb") == 1000
    if knows:
        assert events.returncode == 0, events.stderr
        assert count(tmp_path / "events.duckdb") == 100
    else:
        assert events.returncode == 1, events.stderr
        assert "Spark's executors have no Python module" in events.stderr


def test_a_job_runs_and_is_verified_over_spark_connect(broker: "Broker", tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "snapshot" / "a.parquet", row_group_size=100)
    topic = new_topic(broker, 2)
    topic.write_json([{"id": n} for n in range(100)])
    python, port = Path(sys.executable), str(free_port())
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    conf = ["--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"]
    submit = (
        "org.apache.spark.deploy.SparkSubmit",
        "--class",
        server,
        "--master",
        "local[2]",
        *conf,
        "spark-internal",
    )
    remote = f'[spark]\nremote = "sc://127.0.0.1:{port}"\n'
    with process(tmp_path, environment(python), *submit) as log:
        until_said(log, "Spark Connect server started")
        names = {"bootstrap": broker.bootstrap, "topic": topic.name}
        for name, config in (("files", FILES), ("events", TOPIC)):
            ended = start(tmp_path, config + remote, python, name=name, **names)
            assert ended.returncode == 0, ended.stderr
            checked = typed(tmp_path, python, "verify", name)
            assert checked.returncode == 0, checked.stdout + checked.stderr
    assert (count(tmp_path / "files.duckdb"), count(tmp_path / "events.duckdb")) == (1000, 100)


def count(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as db:
        found = db.execute("SELECT count(*) FROM t").fetchone()
    return int(found[0]) if found else 0
