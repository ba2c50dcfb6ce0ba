"""Kafka Connect in one Java process, which runs connectors of Debezium: topics of a PostgreSQL table's changes."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import maven_jars
from broker import Broker
from postgres import Server
from server_process import ServerProcess, free_port, last_lines

from backfill_cli.spark.java import find_java

START_LIMIT_S = 120.0

_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def of_postgres(server: Server, database: str, name: str, **more: str) -> dict[str, str]:
    """Settings of a connector whose topics, `<name>.<schema>.<table>`, exist. more: with `_` for `.`."""
    told = {
        "name": name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": database,
        "plugin.name": "pgoutput",
        "slot.name": name,
        "slot.drop.on.stop": "true",
        "publication.name": name,
        "publication.autocreate.mode": "all_tables",
    }
    return told | {key.replace("_", "."): value for key, value in more.items()}


def converters(form: str, **more: str) -> dict[str, str]:
    """Settings of a connector: the class of its converters, and their settings."""
    told = {"": form, **{f".{key.replace('_', '.')}": value for key, value in more.items()}}
    return {f"{part}.converter{key}": value for part in ("key", "value") for key, value in told.items()}


@contextmanager
def running(folder: Path, broker: Broker, *connectors: Mapping[str, str]) -> Iterator[None]:
    """The connectors run until the end of the block. Raises NoJars."""
    port, log = free_port(), folder / "connect.log"
    plugins = folder / "plugins"
    plugins.mkdir(parents=True)
    for one in maven_jars.plugins():
        (plugins / one.name).symlink_to(one)
    worker = {
        "bootstrap.servers": broker.bootstrap,
        "plugin.path": str(plugins),
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{port}",
        **converters("org.apache.kafka.connect.json.JsonConverter"),
    }
    files = [_written(folder / "worker.properties", worker)]
    files += [_written(folder / f"{one['name']}.properties", one) for one in connectors]
    java = [str(find_java(os.environ).path), *_JVM, "-cp", f"{maven_jars.connect()}/*"]
    process = ServerProcess([*java, "org.apache.kafka.connect.cli.ConnectStandalone", *files], log)
    try:
        until = time.monotonic() + START_LIMIT_S
        while _states(port) != {one["name"]: "RUNNING" for one in connectors}:
            assert not process.ended, last_lines(log)
            assert time.monotonic() < until, last_lines(log)
            time.sleep(0.2)
        yield
    finally:
        process.stop()


def _written(file: Path, told: Mapping[str, str]) -> str:
    file.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
    return str(file)


def _states(port: int) -> dict[str, str]:
    """The state of each connector's task."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://127.0.0.1:{port}/connectors?expand=status", timeout=10) as answer:
            told = json.load(answer)
    except OSError:
        return {}
    return {name: task["state"] for name, one in told.items() for task in one["status"]["tasks"]}
