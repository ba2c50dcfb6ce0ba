"""`kill -9` of the real command while it fills a topic from another one: each event is in it exactly once."""

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import kept_python
import pytest
from kafka_sink import SinkTopics
from kafka_topics import new_topic

if TYPE_CHECKING:
    from broker import Broker

CONFIG = """
[job]
name = "crash"
[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
value = {{ format = "events", schema = "id BIGINT" }}
[[tables]]
name = "t"
[sink]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topics = "{prefix}.{{table}}"
state_topic = "{prefix}_state_{{job}}"
partitions = 2
[barrier]
interval = "100ms"
[spark]
master = "local[2]"
"""


def run(folder: Path, failpoint: str) -> int:
    told = {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
    return kept_python.typed(folder, told, "start", "--config", "job.toml", "--until", "caught-up").returncode


@pytest.mark.in_turn("a topic under kills")
def test_two_deaths_lose_and_repeat_no_event(broker: "Broker", tmp_path: Path) -> None:
    topic, filled = new_topic(broker, 2), SinkTopics(broker)
    told = CONFIG.format(bootstrap=broker.bootstrap, topic=topic.name, prefix=filled.prefix)
    (tmp_path / "job.toml").write_text(told)
    expected = []
    for turn, point in enumerate(("before-commit", "after-commit", "")):
        for partition in range(2):
            numbers = range(100 * turn + 50 * partition, 100 * turn + 50 * partition + 20)
            topic.write_json([{"id": number} for number in numbers], partition)
            expected += list(numbers)
        assert run(tmp_path, point) == (-signal.SIGKILL if point else 0), point
    held = [json.loads(one.value()) for one in filled.records(f"{filled.prefix}.t")]
    assert sorted(row["id"] for row in held) == sorted(expected)
    assert len({(row["kafka_partition"], row["kafka_offset"]) for row in held}) == len(held)
