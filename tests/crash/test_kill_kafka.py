"""`kill -9` of the real command over a real topic, again and again: each offset is in the sink exactly once."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import kept_python
import pytest
from kafka_topics import Topic, new_topic

if TYPE_CHECKING:
    from broker import Broker

CONFIG = """
[job]
name = "crash"
[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
value = {{ format = "{form}", schema = "id BIGINT" }}
[[tables]]
name = "t"
{key}
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "100ms"
[spark]
master = "local[2]"
"""

POINTS = (
    "table-staged:2",  # after that of the sample
    "after-prepare",
    "recovery-before-commit",
    "before-commit",
    "sink-before-commit",
    "recovery-committed",
    "sink-before-close",
    "after-commit",
    "commit-known",
    "after-mark",
)
"""In this order: those of a recovery come after a death that leaves an epoch promised."""

IN_TURN = (
    "table-staged:2",  # after that of the sample
    "after-prepare",
    "sink-before-commit",
    "after-mark",
)
"""Those where a topic differs from files; test_kill.py has them all in turn, and --all has all of them here."""


def run(folder: Path, failpoint: str) -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
    return kept_python.typed(folder, told, "start", "--config", "job.toml", "--until", "caught-up")


def write(topic: Topic, numbers: range, partition: int) -> list[tuple[int, int]]:
    """Records with these ids, then as many that are aborted; (partition, id) of those that count."""
    topic.write_json([{"id": n} for n in numbers], partition)
    topic.transaction([json.dumps({"id": -n}).encode() for n in numbers], partition, "abort")
    return [(partition, n) for n in numbers]


@pytest.mark.in_turn("a topic under kills")
def test_four_deaths_lose_and_repeat_no_offset(broker: "Broker", tmp_path: Path) -> None:
    topic = new_topic(broker, 2)
    (tmp_path / "job.toml").write_text(
        CONFIG.format(bootstrap=broker.bootstrap, topic=topic.name, key="", form="events")
    )
    expected: list[tuple[int, int]] = []
    for turn, point in enumerate(IN_TURN):
        if turn == len(IN_TURN) // 2:
            topic.grow(3)
        for partition in range(2 + (turn >= len(IN_TURN) // 2)):
            expected += write(topic, range(100 * turn, 100 * turn + 20), partition)
        died = run(tmp_path, point)
        assert died.returncode == -signal.SIGKILL, f"{point}: {died.stderr}"
    ended = run(tmp_path, "")
    assert ended.returncode == 0, ended.stderr
    with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
        held: list[Any] = db.execute("SELECT kafka_partition, id, kafka_offset FROM t ORDER BY 1, 3").fetchall()
    assert [(partition, number) for partition, number, _ in held] == sorted(expected)
    assert len({(partition, offset) for partition, _, offset in held}) == len(held)


@pytest.mark.long
@pytest.mark.parametrize("key", ["", 'key = ["id"]'], ids=["events", "rows by key"])
@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_any_point_loses_and_repeats_nothing(
    broker: "Broker", tmp_path: Path, point: str, key: str
) -> None:
    topic = new_topic(broker, 2)
    (tmp_path / "job.toml").write_text(
        CONFIG.format(bootstrap=broker.bootstrap, topic=topic.name, key=key, form="rows" if key else "events")
    )
    expected = write(topic, range(50), 0) + write(topic, range(50, 90), 1)
    if point.startswith("recovery"):
        assert run(tmp_path, "after-prepare").returncode == -signal.SIGKILL
    assert run(tmp_path, point).returncode == -signal.SIGKILL
    expected += write(topic, range(100, 120), 0)
    ended = run(tmp_path, "")
    assert ended.returncode == 0, ended.stderr
    with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
        held: list[Any] = db.execute("SELECT kafka_partition, id FROM t ORDER BY ALL").fetchall()
    assert held == sorted(expected)


TOPICS = """
[job]
name = "crash"
[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topics = {{ a = "{a}", b = "{b}" }}
value = {{ format = "rows", schema = "id BIGINT" }}
[[tables]]
name = "a"
key = ["id"]
[[tables]]
name = "b"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "100ms"
[spark]
master = "local[2]"
"""


@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(point, marks=pytest.mark.long) for point in POINTS if point != "sink-before-commit"),
        "sink-before-commit",  # one table is in the transaction, the other is not yet
    ],
)
def test_two_topics_commit_together_whatever_dies(broker: "Broker", tmp_path: Path, point: str) -> None:
    """Each table holds every record once; of an epoch, the sink has both tables or none."""
    topics = {"a": new_topic(broker, 2), "b": new_topic(broker, 1)}
    told = {name: topic.name for name, topic in topics.items()}
    (tmp_path / "job.toml").write_text(TOPICS.format(bootstrap=broker.bootstrap, **told))
    expected = {"a": write(topics["a"], range(30), 0) + write(topics["a"], range(30, 50), 1)}
    expected["b"] = write(topics["b"], range(40), 0)
    if point.startswith("recovery"):
        assert run(tmp_path, "after-prepare").returncode == -signal.SIGKILL
    assert run(tmp_path, point).returncode == -signal.SIGKILL
    with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
        there = {name for (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        held = [db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in told if name in there]
    assert held in ([], [0, 0], [50, 40])
    expected["a"] += write(topics["a"], range(100, 110), 0)
    expected["b"] += write(topics["b"], range(100, 105), 0)
    ended = run(tmp_path, "")
    assert ended.returncode == 0, ended.stderr
    with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
        for name, rows in expected.items():
            found: list[Any] = db.execute(f"SELECT kafka_partition, id FROM {name} ORDER BY ALL").fetchall()
            assert found == sorted(rows)
