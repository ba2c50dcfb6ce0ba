"""Kafka Connect in one Java process, which runs Debezium: topics of changes of PostgreSQL and MariaDB."""

import json
import os
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def of_mariadb(port: int, database: str, name: str, folder: Path, **more: str) -> dict[str, str]:
    """As `of_postgres`, of Debezium's connector for MySQL; topics are `<name>.<database>.<table>`."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "name": name,
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "root",
        "database.password": "",
        "database.server.id": str(2 + zlib.crc32(name.encode()) % 10**9),  # each reader's own
        "database.include.list": database,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / f"{name}.history"),
        "include.schema.changes": "false",
        "snapshot.locking.mode": "none",
    }
    return told | {key.replace("_", "."): value for key, value in more.items()}


def converters(form: str, **more: str) -> dict[str, str]:
    """Settings of a connector: the class of its converters, and their settings."""
    told = {"": form, **{f".{key.replace('_', '.')}": value for key, value in more.items()}}
    return {f"{part}.converter{key}": value for part in ("key", "value") for key, value in told.items()}


class Worker:
    """Kafka Connect, which runs the connectors that it is given."""

    def __init__(self, process: ServerProcess, port: int, log: Path) -> None:
        self._process, self._url, self._log = process, f"http://127.0.0.1:{port}/connectors", log

    @contextmanager
    def running(self, *connectors: Mapping[str, str]) -> Iterator[None]:
        """The connectors run until the end of the block."""
        wanted = {one["name"]: "RUNNING" for one in connectors}
        for one in connectors:
            self.ask("POST", "", {"name": one["name"], "config": one})
        try:
            self.until(lambda: self._states().items() >= wanted.items())
            yield
            assert self._states().items() >= wanted.items(), last_lines(self._log)
        finally:
            for name in wanted:
                self.ask("DELETE", f"/{name}")

    def until(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + START_LIMIT_S
        while not is_so():
            assert not self._process.ended, last_lines(self._log)
            assert time.monotonic() < until, last_lines(self._log)
            time.sleep(0.2)

    def answers(self) -> bool:
        try:
            self.ask("GET", "")
        except OSError:  # nobody listens, or, for a moment, 404
            return False
        return True

    def ask(self, method: str, path: str, told: object = None) -> Any:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        body = None if told is None else json.dumps(told).encode()
        asked = urllib.request.Request(self._url + path, body, {"Content-Type": "application/json"}, method=method)
        with direct.open(asked, timeout=60) as answer:
            said = answer.read()
        return json.loads(said) if said else None

    def _states(self) -> dict[str, str]:
        """The state of each connector's task."""
        found = self.ask("GET", "?expand=status")
        return {name: task["state"] for name, one in found.items() for task in one["status"]["tasks"]}


@contextmanager
def running(folder: Path, broker: Broker) -> Iterator[Worker]:
    """A worker without connectors runs until the end of the block. Raises NoJars."""
    port, log = free_port(), folder / "connect.log"
    plugins = folder / "plugins"
    plugins.mkdir(parents=True)
    for one in maven_jars.plugins():
        (plugins / one.name).symlink_to(one)
    told = {
        "bootstrap.servers": broker.bootstrap,
        "plugin.path": str(plugins),
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{port}",
        **converters("org.apache.kafka.connect.json.JsonConverter"),
    }
    settings = folder / "worker.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
    java = [str(find_java(os.environ).path), *_JVM, "-cp", f"{maven_jars.connect()}/*"]
    process = ServerProcess([*java, "org.apache.kafka.connect.cli.ConnectStandalone", settings], log)
    try:
        worker = Worker(process, port, log)
        worker.until(worker.answers)
        yield worker
    finally:
        process.stop()
