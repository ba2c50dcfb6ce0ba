"""A topic of 20 records a partition, and an archive of it in Parquet files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker import Broker
from kafka_topics import Topic, new_topic

from backfill_cli.contracts import Source

SCHEMA = pa.schema(
    [
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("ms", "UTC")),
        ("id", pa.int64()),
        ("name", pa.string()),
    ]
)


@pytest.fixture
def topic(broker: Broker) -> Topic:
    """Two partitions of 20 records each."""
    made = new_topic(broker, 2)
    for partition in (0, 1):
        made.write_json([{"id": i, "name": f"log {i}"} for i in range(20)], partition)
    return made


def rows(partition: int, offsets: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"kafka_partition": partition, "kafka_offset": o, "kafka_timestamp": o, "id": o, "name": f"file {o}"}
        for o in offsets
    ]


def store(folder: Path, name: str, *parts: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist([r for part in parts for r in part], schema), folder / name, row_group_size=4
    )


def archived(topic: Topic, folder: Path, **options: Any) -> Source:
    archive = {"path": str(folder), **options.pop("archive", {})}
    options.setdefault("value", {"format": "rows"})
    return topic.open(archive=archive, **options)
