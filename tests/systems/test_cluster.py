"""A standalone Spark cluster, its executors with this package or without it, and Spark Connect: the same jobs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import cluster, environment, process, typed, until_said
from deltalake import DeltaTable
from kafka_topics import new_topic
from postgres import Server
from postgres_database import database
from server_process import free_port

from backfill_cli.lake.merge import INTERPRETED
from backfill_cli.spark.session import UNSEEN
from backfill_cli.spark.table_formats import session_settings

if TYPE_CHECKING:
    from broker import Broker

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
value = {{ format = "events", schema = "id BIGINT" }}
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
LAKE = """
[sink]
type = "delta"
table = "{folder}/lake/{{table}}"
"""
CLUSTER = """
[spark]
master = "{master}"
[spark.conf]
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "600m"
"spark.cores.max" = "2"
"spark.sql.shuffle.partitions" = "2"
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=1, cores=2, memory="1g") as made:
        yield made.address


def start(folder: Path, config: str, python: Path, **told: str) -> "subprocess.CompletedProcess[str]":
    (folder / "job.toml").write_text((config + SINK).format(folder=folder, **told))
    return typed(folder, python, "start", "--config", "job.toml", "--until", "caught-up")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has nothing of ours."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.in_turn("a cluster")
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
        else:
            files = start(tmp_path, FILES + CLUSTER, python, name="files", master=master)
            assert files.returncode == 0, files.stderr
            assert count(tmp_path / "files.duckdb") == 1000
            names = {"bootstrap": broker.bootstrap, "topic": topic.name}
            events = start(tmp_path, TOPIC + CLUSTER, python, name="events", master=master, **names)
            assert events.returncode == 1, events.stderr
            assert "Spark's executors have no Python module" in events.stderr
            assert "let spark.conf.'spark.pyspark.python' name that Python" in events.stderr
            named = f'{CLUSTER}"spark.pyspark.python" = "{sys.executable}"\n'
            events = start(tmp_path, TOPIC + named, python, name="events", master=master, **names)
            assert events.returncode == 0, events.stderr
            assert count(tmp_path / "events.duckdb") == 100


@pytest.mark.in_turn("a cluster")
def test_a_job_runs_and_is_verified_over_spark_connect(broker: "Broker", tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "snapshot" / "a.parquet", row_group_size=100)
    topic = new_topic(broker, 2)
    topic.write_json([{"id": n} for n in range(100)])
    python, port = Path(sys.executable), str(free_port())
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    few = {**INTERPRETED, **UNSEEN, "spark.sql.shuffle.partitions": "2"}  # its jobs have a thousand rows
    settings = session_settings(
        ("delta",), {**few, "spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false"}
    )
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
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
        ended = start(tmp_path, TOPIC + remote, python, name="events", **names)
        assert ended.returncode == 0, ended.stderr
        checked = typed(tmp_path, python, "verify", "events")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        lake = (FILES + remote + LAKE).format(name="lake", folder=tmp_path)
        (tmp_path / "job.toml").write_text(lake)
        for words in (("start", "--config", "job.toml", "--until", "caught-up"), ("verify", "lake")):
            ended = typed(tmp_path, python, *words)
            assert ended.returncode == 0, ended.stdout + ended.stderr
    assert count(tmp_path / "events.duckdb") == 100
    ids = DeltaTable(tmp_path / "lake" / "t").to_pyarrow_table()["id"].to_pylist()
    assert sorted(ids) == list(range(1000))


def count(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as db:
        found = db.execute("SELECT count(*) FROM t").fetchone()
    return int(found[0]) if found else 0
