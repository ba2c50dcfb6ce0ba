"""A secret of the config, planted: whatever happens to a job, nothing that it leaves or says holds it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from kafka_secured import PASSWORD, properties
from kafka_topics import new_topic
from kept_java import kept_java
from toy_registry import ToyRegistry, basic, running

if TYPE_CHECKING:
    from broker import Broker

CONFIG = """
[job]
name = "secret"
[upstream]
type = "kafka"
bootstrap_servers = "{servers}"
topic = "{topic}"
value = {{ format = "events", encoding = "avro" }}
registry = {{ url = "{registry}", user = "app", password = "${{env:REGISTRY_PASSWORD}}" }}
[upstream.options]
{options}
[[tables]]
name = "t"
[sink]
type = "duckdb"
path = "sink.duckdb"
[retry]
limit = "2s"
[hooks]
on = ["failed", "done", "caught-up"]
command = ["sh", "-c", "cat >> hooked.jsonl"]
[spark]
master = "local[2]"
[spark.conf]
"spark.eventLog.enabled" = "true"
"spark.eventLog.compress" = "false"
"spark.eventLog.dir" = "file://{folder}/events"
"""


REGISTRY = "registry-4e90"
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


@pytest.fixture
def registry() -> Iterator[ToyRegistry]:
    with running() as toy:
        toy.needs = basic("app", REGISTRY)
        yield toy


class Job:
    """The real command in a folder; all that it says is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""

    def typed(self, *words: str, password: str = PASSWORD, registry: str = REGISTRY, failpoint: str = "") -> int:
        told = {"KAFKA_PASSWORD": password, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
        told["REGISTRY_PASSWORD"] = registry
        command = [sys.executable, "-m", "backfill_cli", *words]
        with nullcontext({}) if failpoint else kept_java() as java:  # that one leaves what a Java of its own does
            env = {**os.environ, **told, **java}
            done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=240)
        self.said += done.stdout + done.stderr
        return done.returncode

    def held(self, file: str) -> str:
        """All that a DuckDB file holds: in the file it may be compressed."""
        with duckdb.connect(str(self.folder / file), read_only=True) as db:
            tables = [name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
            return "\n".join(str(db.execute(f'FROM "{name}"').fetchall()) for name in tables)


def test_a_password_is_in_nothing_that_a_job_leaves_or_says(
    broker: "Broker", registry: ToyRegistry, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    registry.add(f"{topic.name}-value", SCHEMA)
    topic.write([b"\0\0\0\0\1\2"])
    (tmp_path / "events").mkdir()
    options = properties(broker) | {"sasl.password": "${env:KAFKA_PASSWORD}"}
    written = "\n".join(f'"{name}" = "{value}"' for name, value in options.items())
    told = {
        "servers": broker.secured,
        "topic": topic.name,
        "options": written,
        "folder": tmp_path,
        "registry": registry.url,
    }
    (tmp_path / "job.toml").write_text(CONFIG.format(**told))
    job = Job(tmp_path)
    start = ("start", "--config", "job.toml", "--until", "caught-up")

    assert job.typed("plan", "--config", "job.toml") == 0
    assert job.typed(*start, password=PASSWORD + "-wrong") == 1
    assert job.typed(*start, registry=REGISTRY + "-wrong") == 1
    assert job.typed(*start, failpoint="after-prepare") == -signal.SIGKILL
    assert job.typed("status") == 0
    assert job.typed(*start) == 0
    assert job.typed("verify") == 0
    topic.write([b"no object"])
    assert job.typed(*start) == 1

    assert "access denied" in job.said
    assert "access denied by the schema registry" in job.said
    assert "offset 1 cannot be read" in job.said
    secrets = (PASSWORD, REGISTRY, basic("app", REGISTRY).split()[1])
    assert [one for one in secrets if one in job.said] == []
    for file in ("catalog.duckdb", "sink.duckdb"):
        assert "${env:KAFKA_PASSWORD}" in job.held(file)
        assert "${env:REGISTRY_PASSWORD}" in job.held(file)
        assert [one for one in secrets if one in job.held(file)] == []
    log, hooked = (tmp_path / "logs/secret.log").read_text(), (tmp_path / "hooked.jsonl").read_text()
    assert [one for one in secrets if one in log] == []
    for said in ("offset 1 cannot be read", "rejected: none"):  # the start that was refused has left no log
        assert said in log
    assert '"event": "failed"' in hooked
    events = [file for file in (tmp_path / "events").rglob("*") if file.is_file()]
    assert any(b"SparkListenerApplicationStart" in file.read_bytes() for file in events)
    left = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [str(file) for file in left if any(one.encode() in file.read_bytes() for one in secrets)] == []
