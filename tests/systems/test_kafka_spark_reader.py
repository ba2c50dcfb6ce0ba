"""`reader = "spark"`: the same job read by Spark's own Kafka source, whose jars the config gives."""

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import kept_python
import pytest
from kafka_topics import new_topic
from maven_jars import NoJars, spark_source

if TYPE_CHECKING:
    from broker import Broker

CONFIG = """
[job]
name = "orders"
[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
reader = "spark"
value = {{ format = "events", schema = "id BIGINT" }}
[[tables]]
name = "orders"
[sink]
type = "duckdb"
path = "sink.duckdb"
[spark]
master = "local[2]"
conf = {{ "spark.jars" = "{jars}" }}
"""


@pytest.fixture(scope="module")
def jars() -> str:
    try:
        return ",".join(str(jar) for jar in sorted(spark_source().glob("*.jar")))
    except NoJars as reason:
        return str((pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no Kafka source: {reason}"))


def typed(folder: Path, jars: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return kept_python.typed(folder, {**os.environ, "BACKFILL_CATALOG": "catalog.duckdb"}, *words, jars=jars)


def test_a_topic_is_filled_followed_and_verified(broker: "Broker", tmp_path: Path, jars: str) -> None:
    topic = new_topic(broker, 2)
    told = {"bootstrap": broker.bootstrap, "topic": topic.name, "jars": jars}
    (tmp_path / "job.toml").write_text(CONFIG.format(**told))
    start = ("start", "--config", "job.toml", "--until", "caught-up")
    expected: list[tuple[int, int]] = []
    for turn in range(2):
        for partition in range(2):
            numbers = range(100 * turn, 100 * turn + 30)
            topic.write_json([{"id": n} for n in numbers], partition)
            topic.transaction([json.dumps({"id": -n}).encode() for n in numbers], partition, "abort")
            expected += [(partition, n) for n in numbers]
        ended = typed(tmp_path, jars, *start)
        assert ended.returncode == 0, ended.stderr
    assert typed(tmp_path, jars, "verify").returncode == 0
    with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
        held: list[Any] = db.execute("SELECT kafka_partition, id FROM orders ORDER BY ALL").fetchall()
    assert held == sorted(expected)

    topic.write_json([{"id": 1}] * 5)
    topic.delete_before(126)
    gone = typed(tmp_path, jars, *start)
    assert gone.returncode == 7, gone.stderr
    assert "partition 0" in gone.stderr
