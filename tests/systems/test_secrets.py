"""A secret of the config, planted: whatever happens to a job, nothing that it leaves or says holds it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import kept_python
import pytest
from kafka_secured import PASSWORD, properties
from kafka_sink import SinkTopics
from kafka_topics import new_topic
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
type = "kafka"
bootstrap_servers = "{servers}"
topics = "{prefix}.{{table}}"
state_topic = "{prefix}_state_{{job}}"
encoding = "avro"
registry = {{ url = "{of_sink}", user = "app", password = "${{env:SINK_PASSWORD}}" }}
[sink.options]
{options}
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


REGISTRY, SINK = "registry-4e90", "sink-71c2"
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


@pytest.fixture
def registry() -> Iterator[ToyRegistry]:
    with running() as toy:
        toy.needs = basic("app", REGISTRY)
        yield toy


@pytest.fixture
def of_sink() -> Iterator[ToyRegistry]:
    with running() as toy:
        toy.needs = basic("app", SINK)
        yield toy


class Job:
    """The real command in a folder; all that it says is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""

    def typed(self, *words: str, failpoint: str = "", **secrets: str) -> int:
        """secrets: those that differ from the right ones, by the names of their variables."""
        told = {"KAFKA_PASSWORD": PASSWORD, "REGISTRY_PASSWORD": REGISTRY, "SINK_PASSWORD": SINK, **secrets}
        told |= {"BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
        env = {**os.environ, **told}
        if failpoint:  # that one leaves what a Java of its own does
            command = [sys.executable, "-m", "backfill_cli", *words]
            done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=240)
        else:
            done = kept_python.typed(self.folder, env, *words)
        self.said += done.stdout + done.stderr
        return done.returncode

    def held(self, file: str) -> str:
        """All that a DuckDB file holds: in the file it may be compressed."""
        with duckdb.connect(str(self.folder / file), read_only=True) as db:
            tables = [name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
            return "\n".join(str(db.execute(f'FROM "{name}"').fetchall()) for name in tables)


def test_a_password_is_in_nothing_that_a_job_leaves_or_says(
    broker: "Broker", registry: ToyRegistry, of_sink: ToyRegistry, tmp_path: Path
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
        "of_sink": of_sink.url,
        "prefix": (filled := SinkTopics(broker)).prefix,
    }
    (tmp_path / "job.toml").write_text(CONFIG.format(**told))
    job = Job(tmp_path)
    start = ("start", "--config", "job.toml", "--until", "caught-up")

    assert job.typed("plan", "--config", "job.toml") == 0
    assert job.typed(*start, KAFKA_PASSWORD=PASSWORD + "-wrong") == 1
    assert job.typed(*start, REGISTRY_PASSWORD=REGISTRY + "-wrong") == 1
    assert job.typed(*start, SINK_PASSWORD=SINK + "-wrong") == 1
    assert job.typed(*start, failpoint="after-prepare") == -signal.SIGKILL
    assert job.typed("status") == 0
    assert job.typed(*start) == 0
    assert job.typed("verify") == 0
    topic.write([b"no object"])
    assert job.typed(*start) == 1

    assert "access denied" in job.said
    assert f"{registry.url}: access denied by the schema registry" in job.said
    assert f"{of_sink.url}: access denied by the schema registry" in job.said
    assert "offset 1 cannot be read" in job.said
    secrets = (PASSWORD, REGISTRY, SINK, *(basic("app", one).split()[1] for one in (REGISTRY, SINK)))
    assert [one for one in secrets if one in job.said] == []
    kept = b"".join(one.value() or b"" for one in filled.records(f"{filled.prefix}_state_secret")).decode()
    for held in (job.held("catalog.duckdb"), kept):
        assert "${env:KAFKA_PASSWORD}" in held
        assert "${env:REGISTRY_PASSWORD}" in held
        assert "${env:SINK_PASSWORD}" in held
        assert [one for one in secrets if one in held] == []
    log, hooked = (tmp_path / "logs/secret.log").read_text(), (tmp_path / "hooked.jsonl").read_text()
    assert [one for one in secrets if one in log] == []
    for said in ("offset 1 cannot be read", "rejected: none"):  # the start that was refused has left no log
        assert said in log
    assert '"event": "failed"' in hooked
    events = [file for file in (tmp_path / "events").rglob("*") if file.is_file()]
    assert any(b"SparkListenerApplicationStart" in file.read_bytes() for file in events)
    left = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [str(file) for file in left if any(one.encode() in file.read_bytes() for one in secrets)] == []
