"""Real Debezium with Apicurio's converters: Avro becomes the table that its JSON with a schema block becomes."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import connect_worker
import mariadb_server
import maven_jars
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from mariadb_server import MariaDB
from postgres_database import Database, database
from registry_job import Job

from backfill_cli.errors import BackfillError
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


def missing(why: Exception) -> None:
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(why))


@pytest.fixture(scope="module")
def worker(broker: "Broker", tmp_path_factory: pytest.TempPathFactory) -> Iterator[connect_worker.Worker]:
    held = connect_worker.running(tmp_path_factory.mktemp("connect"), broker)
    try:
        worker = held.__enter__()
    except maven_jars.NoJars as reason:
        missing(reason)
    yield worker
    held.__exit__(None, None, None)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    held = mariadb_server.running(tmp_path_factory.mktemp("mariadb"))
    try:
        server = held.__enter__()
    except mariadb_server.NoMariaDB as reason:
        missing(reason)
    yield server
    held.__exit__(None, None, None)


@pytest.fixture(scope="module")
def forms(schema_registry: "Registry") -> dict[str, dict[str, str]]:
    """Settings of a connector, by how it writes. The registry's global ids are not those of contents."""
    known = SchemaRegistry.of(RegistryOptions(url=schema_registry.url), "upstream.registry")
    for n in range(3):
        known.register(f"other-{n}", "AVRO", '"string"')
    told = {"apicurio_registry_url": f"{schema_registry.server}/apis/registry/v2"}
    told |= {"apicurio_registry_auto-register": "true", "apicurio_registry_headers_enabled": "false"}
    return {"json": connect_worker.converters(JSON), "avro": connect_worker.converters(AVRO, **told)}


@pytest.fixture
def jobs(
    broker: "Broker", schema_registry: "Registry", tmp_path: Path
) -> Callable[[dict[str, str]], dict[str, Job]]:
    """A job for each topic, by how its connector writes."""
    read = {
        "json": {"value": {"format": "debezium"}},
        "avro": {
            "key": {"format": "avro"},
            "value": {"format": "debezium", "encoding": "avro"},
            "registry": {"url": schema_registry.url, "id_bytes": 8, "global_ids": True},
        },
    }

    def made(topics: dict[str, str]) -> dict[str, Job]:
        return {
            name: Job(broker.bootstrap, topic, tmp_path / topic, **read[name]) for name, topic in topics.items()
        }

    return made


@pytest.fixture
def shop(postgres: "Server") -> Iterator[Database]:
    with database(postgres) as made:
        made(
            f"CREATE TABLE customers ({COLUMNS})",
            "ALTER TABLE customers REPLICA IDENTITY FULL",
            "CREATE TABLE debezium_signal (id text PRIMARY KEY, type text NOT NULL, data text)",
        )
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
    broker: "Broker",
    worker: connect_worker.Worker,
    forms: dict[str, dict[str, str]],
    jobs: Callable[[dict[str, str]], dict[str, Job]],
    postgres: "Server",
    shop: Database,
) -> None:
    signals = {"signal_data_collection": "public.debezium_signal", "incremental_snapshot_chunk_size": "50"}
    connectors = [
        connect_worker.of_postgres(postgres, shop.name, f"{shop.name}_{name}", **signals) | one
        for name, one in forms.items()
    ]
    topics = {name: f"{shop.name}_{name}.public.customers" for name in forms}
    for topic in (*topics.values(), *(one.replace("customers", "debezium_signal") for one in topics.values())):
        broker.create(topic)
    shop(ROWS.format(first=1, last=150))
    read = jobs(topics)
    with worker.running(*connectors):
        for topic in topics.values():
            until_written(broker, topic, 150)
        first = {name: job.rows() for name, job in read.items()}
        assert len(first["json"]) == 150
        assert first["avro"] == first["json"]
        shop(
            "UPDATE customers SET name = 'later', l = NULL WHERE id % 10 = 3",
            "DELETE FROM customers WHERE id % 50 = 1",
            "UPDATE customers SET id = 1000 WHERE id = 7",
            ROWS.format(first=200, last=220),
        )
        written = 150 + 15 + 3 * 2 + 3 + 21
        for topic in topics.values():
            until_written(broker, topic, written)
        shop(
            "INSERT INTO debezium_signal VALUES ('1', 'execute-snapshot', "
            """'{"data-collections": ["public.customers"], "type": "incremental"}')"""
        )
        (rows,) = shop("SELECT count(*)::int FROM customers")[0]
        for topic in topics.values():
            until_written(broker, topic, written + rows)
        shop("UPDATE customers SET name = 'last' WHERE id % 20 = 4", "DELETE FROM customers WHERE id % 50 = 2")
        for topic in topics.values():
            until_written(broker, topic, written + rows + 9 + 4 * 2)
    then = {name: job.rows() for name, job in read.items()}
    assert [row["id"] for row in then["json"]] == [id for (id,) in shop("SELECT id FROM customers ORDER BY id")]
    assert then["avro"] == then["json"]


WARES = """
CREATE TABLE wares (
    id INT, u8 BIGINT UNSIGNED, u4 INT UNSIGNED, u1 TINYINT UNSIGNED, i8 BIGINT, i3 MEDIUMINT, i1 TINYINT(1),
    d DECIMAL(38,10), f8 DOUBLE, f4 FLOAT, at DATETIME(6), at0 DATETIME, ts TIMESTAMP(6) NULL, t TIME(6), day DATE,
    y YEAR, b1 BIT(1), b8 BIT(8), e ENUM('x','größer','z'), s SET('a','b','c'), j JSON, bl BLOB, b16 BINARY(16),
    vb VARBINARY(20), c CHAR(10), v VARCHAR(100), tx LONGTEXT, g POINT, region CHAR(2), PRIMARY KEY (region, id)
)
"""
HOSTILE = (
    """18446744073709551615, 4294967295, 255, -9223372036854775808, -8388608, 1,
    9999999999999999999999999999.9999999999, 1.7976931348623157e308, 3.4e38, '9999-12-31 23:59:59.999999',
    '1000-01-01 00:00:00', '2038-01-19 03:14:07.999999', '-838:59:59', '9999-12-31', 2155, b'1', b'10100101',
    'größer', 'a,c', '{"a": [1, 2.50, "x"]}', x'00ff00', x'0102', x'', 'abc  ', 'nöte 🦆\\t\\n\\0\\\\', 'long',
    POINT(1.5, -2.25)""",
    """9223372036854775808, 0, 0, 9223372036854775807, 8388607, -128, -0.0000000001, -5e-324, -1.5,
    '1969-12-31 23:59:59.999999', '2024-02-29 12:00:00', '1970-01-01 00:00:01.000001', '838:59:58.999999',
    '1000-01-01', 1901, b'0', b'0', 'x', '', 'null', '', x'00', x'2020', '', 'NULL  ', '', POINT(0, -0.0)""",
    ", ".join(["NULL"] * 27),
    """0, 0, 0, 0, 0, 0, 0, 0, 0, '0000-00-00 00:00:00', '2024-00-00 00:00:00', '2001-02-03', '-00:00:00.000001',
    '0000-00-00', NULL, 0, 127, '', 'a,b,c', '[]', 'a', 'a', 'a', 'ß', '__', 'x', NULL""",
    """1, 1, 1, 1, 1, 1, 1, 1, 1.1, '2000-01-01 00:00:00.1', '2000-01-01', '2000-01-01', '24:00:00.5',
    '2000-01-01', 1970, 1, 1, 2, 3, '1', 'a', 'a', 'a', 'a', 'a', 'a', NULL""",
)
SAID = {
    **{name: name for name in ("u8", "u4", "u1", "i8", "i3", "i1", "d", "f8")},
    "f4": "f4 + 0e0",  # MariaDB shows six digits of a FLOAT
    # Debezium makes NULL of a zero date
    **{name: f"IF(MONTH({name}) = 0, NULL, {name})" for name in ("at", "at0")},
    "ts": "ts",
    "t": "CAST(TIME_TO_SEC(t) * 1000000 AS SIGNED)",
    "day": "IF(day = 0, NULL, day)",
    "y": "y",
    "b1": "b1 + 0",
    "b8": "CONCAT('x', LPAD(HEX(b8 + 0), 2, '0'))",
    **{name: f"CONCAT('x', HEX({name}))" for name in ("e", "s", "j", "bl", "b16", "vb", "c", "v", "tx")},
    "g": "CONCAT('x', HEX(ST_AsWKB(g)))",
    "region": "CONCAT('x', HEX(region))",
    "id": "id",
}
"""The sink's columns as texts, by MariaDB itself: bytes and texts in hexadecimal digits, points in WKB."""


def as_said(column: str, value: Any) -> str | None:
    """The sink's value in the form of SAID."""
    match value:
        case None:
            return None
        case bool() | int():
            return str(int(value))
        case bytes() | str():
            held = value.encode() if isinstance(value, str) else value
            return "x" + held.hex().upper()
        case dict():
            return as_said(column, value["wkb"])
        case datetime():
            naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return naive.isoformat(" ", "seconds" if column == "at0" else "microseconds")
        case Decimal():
            return format(value, "f")
    return str(value)


def of_mariadb(server: MariaDB, *more: str) -> list[dict[str, str | None]]:
    said = {**SAID, **{name: f"CONCAT('x', HEX({name}))" for name in more}}
    found = server.rows(f"SELECT {', '.join(said.values())} FROM shop.wares ORDER BY id, BINARY region")
    rows = [dict(zip(said, row, strict=True)) for row in found]
    return [row | {name: row[name] and str(float(row[name])) for name in ("f4", "f8")} for row in rows]


def of_sink(job: Job, *more: str) -> list[dict[str, str | None]]:
    rows = sorted(job.rows(), key=lambda row: (row["id"], row["region"]))
    assert {*rows[0]} == {*SAID, *more}
    return [{name: as_said(name, row[name]) for name in (*SAID, *more)} for row in rows]


def hostile(first_id: int) -> list[str]:
    """Two rows have one id, in two regions."""
    names = ", ".join(name for name in SAID)
    return [
        f"INSERT INTO wares ({names}) VALUES ({values}, '{('ab', 'CD')[n % 2]}', {first_id + n // 2})"
        for n, values in enumerate(HOSTILE)
    ]


def test_mariadb_becomes_what_its_own_client_shows(
    broker: "Broker",
    worker: connect_worker.Worker,
    forms: dict[str, dict[str, str]],
    jobs: Callable[[dict[str, str]], dict[str, Job]],
    mariadb: MariaDB,
    tmp_path: Path,
) -> None:
    whole = {"skipped_operations": "none", "bigint_unsigned_handling_mode": "precise"}
    connectors = [
        connect_worker.of_mariadb(mariadb.port, "shop", f"mariadb_{name}", tmp_path, **whole) | one
        for name, one in forms.items()
    ]
    topics = {name: f"mariadb_{name}.shop.wares" for name in forms}
    rates = {name: f"mariadb_{name}.shop.rates" for name in forms}
    for topic in (*topics.values(), *rates.values()):
        broker.create(topic)
    mariadb.run(
        "SET sql_mode = ''",  # zero dates are stored
        "CREATE DATABASE shop",
        "USE shop",
        WARES,
        *hostile(1),
        "CREATE TABLE rates (id INT PRIMARY KEY, rate DECIMAL(65,30))",
        "INSERT INTO rates VALUES (1, 1.5)",
    )
    read, refused = jobs(topics), jobs(rates)

    def until_all(records: int) -> None:
        for topic in topics.values():
            until_written(broker, topic, records)

    with worker.running(*connectors):
        until_all(5)
        assert of_sink(read["avro"]) == of_mariadb(mariadb)
        mariadb.run(
            "SET sql_mode = ''",
            "USE shop",
            "UPDATE wares SET v = 'later 🦆', t = NULL, u8 = 9223372036854775808 WHERE id = 1 AND region = 'ab'",
            "DELETE FROM wares WHERE id = 1 AND region = 'CD'",
            "UPDATE wares SET id = 3, region = 'zz' WHERE id = 2 AND region = 'ab'",
            "ALTER TABLE wares ADD COLUMN extra VARCHAR(20) AFTER id",
            *hostile(10),
            "UPDATE wares SET extra = 'nöte' WHERE id = 2",
        )
        until_all(5 + 1 + 2 + 3 + 5 + 1)
        for job in read.values():  # a job of JSON would stop at a column that comes later
            assert of_sink(job, "extra") == of_mariadb(mariadb, "extra")
        mariadb.run("USE shop", "TRUNCATE TABLE wares", "INSERT INTO wares (region, id) VALUES ('ab', 7)")
        until_all(17 + 1 + 1)
        for job in read.values():
            assert of_sink(job, "extra") == of_mariadb(mariadb, "extra")
        for job in refused.values():
            with pytest.raises(BackfillError, match=r"rate.*65 digits"):
                job.rows()
