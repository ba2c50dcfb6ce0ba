"""Real Debezium with Apicurio's converters: Avro becomes the table that its JSON with a schema block becomes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import connect_worker
import maven_jars
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from postgres_database import Database, database
from registry_job import Job

from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry

if TYPE_CHECKING:
    from broker import Broker
    from postgres import Server
    from registry import Registry

AVRO = "io.apicurio.registry.utils.converter.AvroConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
COLUMNS = (
    "id int PRIMARY KEY, name text, credit numeric(12,2), raw bytea, day date, at timestamp, tz timestamptz, "
    "t time, flag boolean NOT NULL, small smallint, l bigint, f4 real, f8 double precision, u uuid, j jsonb, "
    "tags text[], n int[], mood text DEFAULT 'ok'"
)
ROWS = """
INSERT INTO customers SELECT g, CASE WHEN g % 7 > 0 THEN 'nöte ' || g END, g * -1.25,
decode(lpad(to_hex(g), 8, '0'), 'hex'), date '1969-12-01' + g,
timestamp '1999-12-31 23:59:59.123456' + g * interval '1 hour',
timestamptz '2001-02-03 04:05:06.789012+00' + g * interval '1 day', time '00:00:01.5' + g * interval '1 second',
g % 2 = 0, -g, g * 10000000000::bigint, g / 3.0, g / 7.0, md5(g::text)::uuid, jsonb_build_object('a', g),
ARRAY['x', 'y' || g, NULL], ARRAY[g, g + 1] FROM generate_series({first}, {last}) g
"""


@pytest.fixture
def shop(postgres: "Server") -> Iterator[Database]:
    with database(postgres) as made:
        made(f"CREATE TABLE customers ({COLUMNS})", "ALTER TABLE customers REPLICA IDENTITY FULL")
        yield made


def until_written(broker: "Broker", topic: str, records: int) -> None:
    until = time.monotonic() + 120
    where = TopicPartition(topic, 0)
    while True:
        (end,) = broker.admin.list_offsets({where: OffsetSpec.latest()}).values()
        found = end.result(30).offset
        if found >= records:
            assert found == records
            return
        assert time.monotonic() < until, f"{topic}: {found} records, not {records}"
        time.sleep(0.2)


def test_avro_becomes_what_json_becomes(
    broker: "Broker", schema_registry: "Registry", postgres: "Server", shop: Database, tmp_path: Path
) -> None:
    known = SchemaRegistry.of(RegistryOptions(url=schema_registry.url), "upstream.registry")
    for n in range(3):  # from here on a global id is not that of its content
        known.register(f"{shop.name}-{n}", "AVRO", '"string"')
    told = {"apicurio_registry_url": f"{schema_registry.server}/apis/registry/v2"}
    told |= {"apicurio_registry_auto-register": "true", "apicurio_registry_headers_enabled": "false"}
    forms = {"json": connect_worker.converters(JSON), "avro": connect_worker.converters(AVRO, **told)}
    connectors = [
        connect_worker.of_postgres(postgres, shop.name, f"{shop.name}_{name}") | one for name, one in forms.items()
    ]
    topics = {name: f"{shop.name}_{name}.public.customers" for name in forms}
    for topic in topics.values():
        broker.create(topic)
    shop(ROWS.format(first=1, last=150))
    encoded = {
        "value": {"format": "debezium", "encoding": "avro"},
        "registry": {"url": schema_registry.url, "id_bytes": 8, "global_ids": True},
    }
    jobs = {
        name: Job(broker.bootstrap, topics[name], tmp_path / name, ["id"], **one)
        for name, one in {"json": {"value": {"format": "debezium"}}, "avro": encoded}.items()
    }
    try:
        with connect_worker.running(tmp_path / "connect", broker, *connectors):
            for topic in topics.values():
                until_written(broker, topic, 150)
            first = {name: job.rows() for name, job in jobs.items()}
            assert len(first["json"]) == 150
            assert first["avro"] == first["json"]
            shop(
                "UPDATE customers SET name = 'later', l = NULL WHERE id % 10 = 3",
                "DELETE FROM customers WHERE id % 50 = 1",
                "UPDATE customers SET id = 1000 WHERE id = 7",
                ROWS.format(first=200, last=220),
            )
            for topic in topics.values():
                until_written(broker, topic, 150 + 15 + 3 * 2 + 3 + 21)
    except maven_jars.NoJars as reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(reason))
    then = {name: job.rows() for name, job in jobs.items()}
    assert [row["id"] for row in then["json"]] == [id for (id,) in shop("SELECT id FROM customers ORDER BY id")]
    assert then["avro"] == then["json"]
