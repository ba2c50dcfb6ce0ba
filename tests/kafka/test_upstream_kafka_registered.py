"""Topics in Avro with a registry's ids, by whole jobs into DuckDB."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from broker import Broker
from kafka_topics import new_topic
from oracle.topics import read
from toy_registry import ToyRegistry, running
from unit.decode import registered_avro

from backfill_cli.catalog import Catalog
from backfill_cli.config import from_stored
from backfill_cli.engine.loop.run import start
from backfill_cli.engine.verify.job import verify
from backfill_cli.upstreams.kafka import connector
from backfill_cli.upstreams.kafka.options import KafkaOptions

FIELDS = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
ROW = {"type": "record", "name": "Value", "fields": FIELDS}
KEY = {"type": "record", "name": "Key", "fields": FIELDS[:1]}


@pytest.fixture
def registry() -> Iterator[ToyRegistry]:
    with running() as made:
        yield made


def test_rows_by_the_key_of_their_records_with_tombstones(
    broker: Broker, registry: ToyRegistry, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    values = registered_avro.Topic(registry, f"{topic.name}-value")
    keys = registered_avro.Topic(registry, f"{topic.name}-key")
    ids = [1, 2, 3, 1, 2]
    told = [values.record(ROW, {"id": id, "name": f"n{n}"}) for n, id in enumerate(ids)]
    topic.write([*told, None], 0, [keys.record(KEY, {"id": id}) for id in (*ids, 3)])
    value, at = {"encoding": "avro"}, {"url": registry.url}
    upstream = {"bootstrap_servers": broker.bootstrap, "topic": topic.name, "value": value, "registry": at}
    upstream["key"] = {"format": "avro"}
    assert connector.primary_keys is not None
    assert connector.primary_keys(KafkaOptions.model_validate(upstream), ["t"], ["t"]) == {"t": ["id"]}
    found = read(topic, tmp_path / "job", value, keys="avro", registry=at)
    assert sorted((row["id"][1], row["name"][1]) for row in found.rows) == [(1, "n3"), (2, "n4")]


def test_events_with_one_that_names_no_schema(broker: Broker, registry: ToyRegistry, tmp_path: Path) -> None:
    topic = new_topic(broker)
    values = registered_avro.Topic(registry, f"{topic.name}-value")
    topic.write([values.record(ROW, {"id": 1, "name": None}), b"\0\0\0\0\x63", b"{}"])
    value = {"format": "events", "encoding": "avro"}
    found = read(topic, tmp_path / "job", value, registry={"url": registry.url})
    assert [(row["id"], row["name"]) for row in found.rows] == [(("int", 1), None)]
    assert sorted(found.aside) == [(0, 1), (0, 2)]
    assert found.aside[0, 1].startswith("schema id 99 is not in the registry")


NOTE = {"name": "note", "type": ["string", "null"], "default": "none"}
MORE = {"type": "record", "name": "Value", "fields": [*FIELDS, NOTE]}


@pytest.mark.parametrize("form", ["rows", "events"])
def test_a_column_that_is_added_is_one_of_the_table_from_its_record_on(
    broker: Broker, registry: ToyRegistry, tmp_path: Path, form: str
) -> None:
    topic = new_topic(broker)
    values = registered_avro.Topic(registry, f"{topic.name}-value")
    config = {
        "job": {"name": "orders", "staging": str(tmp_path / "staging")},
        "upstream": {
            "type": "kafka", "bootstrap_servers": broker.bootstrap, "topic": topic.name,
            "value": {"format": form, "encoding": "avro"}, "registry": {"url": registry.url},
        },
        "tables": [{"name": "t", **({"key": ["id"]} if form == "rows" else {})}],
        "sink": {"type": "duckdb", "path": str(tmp_path / "sink.duckdb")},
        "barrier": {"interval": "50ms"},
        "retry": {"limit": "0s"},
    }  # fmt: skip
    catalog = Catalog(tmp_path / "catalog.duckdb")

    def run() -> list[tuple[object, ...]]:
        start(from_stored(json.dumps(config)), catalog, "caught-up", False, None)
        with duckdb.connect(str(tmp_path / "sink.duckdb"), read_only=True) as db:
            names = [row[0] for row in db.execute("DESCRIBE t").fetchall() if not row[0].startswith("kafka_")]
            return db.execute(f"SELECT {', '.join(names)} FROM t ORDER BY id").fetchall()

    topic.write([values.record(ROW, {"id": 1, "name": "a"})])
    assert run() == [(1, "a")]
    old = values.record(ROW, {"id": 2, "name": "b"})
    topic.write([old, values.record(MORE, {"id": 3, "name": "c", "note": "new"})])
    topic.write([values.record(MORE, {"id": 4, "name": "d", "note": None})])
    expected = [(1, "a", None), (2, "b", None), (3, "c", "new"), (4, "d", None)]
    assert run() == expected
    topic.write([values.record(MORE, {"id": 5, "name": "e", "note": "x"})])
    assert run() == [*expected, (5, "e", "x")]
    assert verify("orders", catalog).equal
