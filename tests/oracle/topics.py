"""Records through a real broker and a whole job into DuckDB: what became of each, by partition and offset."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from kafka_topics import Topic, new_topic

from backfill_cli.catalog import Catalog
from backfill_cli.config import from_stored
from backfill_cli.engine.loop.run import start
from oracle import plain

if TYPE_CHECKING:
    from broker import Broker

COVERS = {
    "staging.stage._latest_of:changes": "test_kafka_json.py, keyed; test_kafka_debezium.py",
    "kafka.archive.format=json": "test_kafka_json.py, archive",
    "kafka.archive.format=parquet": "test_kafka_json.py, archive",
    "kafka.reader=confluent": "test_kafka_json.py",
    "kafka.value.format=rows": "test_kafka_json.py",
    "kafka.value.format=events": "test_kafka_json.py",
    "kafka.value.format=debezium": "test_kafka_debezium.py",
}
"""Ways of records, which are judged one by one and not as inputs of a route, and where."""

PLACE = ("kafka_partition", "kafka_offset")


@dataclass(frozen=True)
class Message:
    """A record to write: its value (None: a tombstone), its key, the partition that it is written to."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0


@dataclass(frozen=True)
class Found:
    """rows: the sink's table `t`. aside: what was set aside, reasons by (partition, offset). types: DuckDB's."""

    rows: list[plain.Row]
    aside: dict[tuple[int, int], str]
    types: dict[str, str]


def written(broker: "Broker", messages: Sequence[Message], partitions: int = 1) -> Topic:
    """A topic of these records, each partition's in their order."""
    topic = new_topic(broker, partitions)
    for partition in range(partitions):
        of_it = [m for m in messages if m.partition == partition]
        topic.write([m.value for m in of_it], partition, [m.key for m in of_it])
    return topic


def read(
    topic: Topic,
    folder: Path,
    value: Mapping[str, Any],
    on_error: str = "quarantine",
    key: Sequence[str] = (),
    transform: Mapping[str, Any] | None = None,
    keys: str = "json",
    **upstream: Any,
) -> Found:
    """What a job makes of the topic's records, run until it is caught up. Raises what the job raises."""
    folder.mkdir(parents=True)
    config = {
        "job": {"name": "oracle", "staging": str(folder / "staging")},
        "upstream": {
            "type": "kafka", "bootstrap_servers": topic.broker.bootstrap, "topic": topic.name,
            "value": dict(value),
            "key": {"format": keys}, "on_error": on_error, **upstream,
        },
        "tables": [{"name": "t", **({"key": list(key)} if key else {})}],
        "sink": {"type": "duckdb", "path": str(folder / "sink.duckdb")},
        "barrier": {"interval": "50ms"},
        "retry": {"limit": "0s"},
        **({"transform": dict(transform)} if transform else {}),
    }  # fmt: skip
    start(from_stored(json.dumps(config)), Catalog(folder / "catalog.duckdb"), "caught-up", False, None)
    sink = folder / "sink.duckdb"
    types, rows = plain.of_duckdb(sink, "t")
    with duckdb.connect(str(sink), read_only=True) as db:
        told = db.execute("SELECT kafka_partition, kafka_offset, reason FROM _backfill_quarantine_t").fetchall()
    shutil.rmtree(folder)
    return Found(rows, {(partition, offset): reason for partition, offset, reason in told}, types)
