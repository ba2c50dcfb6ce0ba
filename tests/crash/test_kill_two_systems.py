"""`kill -9` of a job over files and a topic of their changes: the sink equals the source, row by row.

The source is a dict, changed while its export is taken: each file holds the rows as they were when it was written.
"""

import datetime as dt
import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import kept_python
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka_topics import Topic, new_topic

if TYPE_CHECKING:
    from broker import Broker

PARTITIONS, KEYS, FILES = 3, 3_000, 3

CONFIG = """
[job]
name = "two"
[upstream.snapshot]
type = "files"
path = "export"
format = "parquet"
[upstream.changes]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
from = "{began}"
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
[barrier]
interval = "200ms"
[throttle]
rate = 400
[spark]
master = "local[2]"
"""

POINTS = ("after-prepare", "sink-before-close:2")
"""Those of a recovery are in test_kill.py: it is the same whatever the upstream."""


class Source:
    """A table whose every change is in the topic, as Debezium writes it, a key's in one partition."""

    def __init__(self, topic: Topic) -> None:
        self.topic, self.draw, self.changes = topic, random.Random(7), 0
        self.rows: dict[int, dict[str, Any]] = {}
        for key in range(KEYS):
            self.rows[key] = {"id": key, "v": key, "note": None}

    def change(self, count: int) -> None:
        written: list[list[tuple[int, bytes | None]]] = [[] for _ in range(PARTITIONS)]
        for _ in range(count):
            self.changes += 1
            key = self.draw.randrange(KEYS + 300)
            before = self.rows.get(key)
            kind = self.draw.choice(["write", "write", "delete", "move"])
            if kind == "delete" and before is not None:
                self._gone(written, key)
            elif kind == "move" and before is not None:
                self._gone(written, key)
                self._written(written, self.draw.randrange(KEYS + 300))
            else:
                self._written(written, key)
        for partition, records in enumerate(written):
            keys = [json.dumps({"id": key}).encode() for key, _ in records]
            self.topic.write([value for _, value in records], partition, keys)

    def _gone(self, written: list[list[tuple[int, bytes | None]]], key: int) -> None:
        written[key % PARTITIONS] += [(key, envelope("d", self.rows.pop(key), None)), (key, None)]

    def _written(self, written: list[list[tuple[int, bytes | None]]], key: int) -> None:
        before = self.rows.get(key)
        self.rows[key] = {"id": key, "v": self.changes, "note": self.draw.choice([None, "", "ü"])}
        op = "c" if before is None else "u"
        written[key % PARTITIONS].append((key, envelope(op, before, self.rows[key])))

    def export(self, folder: Path) -> None:
        """A file for each third of the keys, changes between them."""
        folder.mkdir()
        schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("note", pa.string())])
        for file in range(FILES):
            share = range(file * KEYS // FILES, (file + 1) * KEYS // FILES + (300 if file == FILES - 1 else 0))
            held = [self.rows[key] for key in share if key in self.rows]
            pq.write_table(pa.Table.from_pylist(held, schema), folder / f"{file}.parquet", row_group_size=200)
            self.change(200)


def envelope(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "ts_ms": 5}
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 6}).encode()


def backfill(folder: Path, *words: str, failpoint: str = "") -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "BACKFILL_FAILPOINT": failpoint, "BACKFILL_CATALOG": "catalog.duckdb"}
    return kept_python.typed(folder, told, *words)


@pytest.mark.long
def test_two_deaths_and_a_source_that_changes_all_the_while(broker: "Broker", tmp_path: Path) -> None:
    topic = new_topic(broker, PARTITIONS)
    source = Source(topic)
    source.change(300)  # what the export has already, before `from`
    began = dt.datetime.now(dt.UTC).isoformat()
    source.change(50)
    source.export(tmp_path / "export")
    (tmp_path / "job.toml").write_text(CONFIG.format(bootstrap=broker.bootstrap, topic=topic.name, began=began))
    for point in POINTS:
        died = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint=point)
        assert died.returncode == -signal.SIGKILL, f"{point}: {died.stderr}"
        source.change(100)
    assert backfill(tmp_path, "throttle", "--rate", "none").returncode == 0
    ended = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == 0, ended.stderr
    with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
        held = db.execute("SELECT id, v, note FROM t ORDER BY id").fetchall()
    assert held == [tuple(source.rows[key].values()) for key in sorted(source.rows)]
    verified = backfill(tmp_path, "verify", "two", "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["converging"] is False


def forgotten(topic: Topic) -> None:
    """Retention takes all that the topic has."""
    for partition in range(PARTITIONS):
        topic.delete_before(-1, partition)


@pytest.mark.parametrize(("strategy", "code"), [("snapshot", 7), pytest.param("chain", 0, marks=pytest.mark.long)])
def test_a_topic_that_forgets_while_the_snapshot_is_read(
    broker: "Broker", tmp_path: Path, strategy: str, code: int
) -> None:
    """The loss that strategy chain prevents: what changed meanwhile is in its spool when the topic forgets it."""
    topic = new_topic(broker, PARTITIONS)
    source = Source(topic)
    began = dt.datetime.now(dt.UTC).isoformat()
    source.change(50)
    source.export(tmp_path / "export")
    text = CONFIG.format(bootstrap=broker.bootstrap, topic=topic.name, began=began).replace(
        "rate = 400", "rate = 50"
    )
    (tmp_path / "job.toml").write_text(text.replace('name = "two"', f'name = "two"\nstrategy = "{strategy}"'))
    died = backfill(
        tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint="commit-known:8"
    )  # some intervals have passed
    assert died.returncode == -signal.SIGKILL, died.stderr
    forgotten(topic)
    source.change(100)
    assert backfill(tmp_path, "throttle", "--rate", "none").returncode == 0
    ended = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == code, ended.stderr
    if code:
        assert "are needed but gone" in ended.stderr
        return
    with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
        held = db.execute("SELECT id, v, note FROM t ORDER BY id").fetchall()
    assert held == [tuple(source.rows[key].values()) for key in sorted(source.rows)]
