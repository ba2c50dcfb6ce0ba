"""A real Kafka broker on loopback, for demos and tests: one Java process, its data in one folder.

python scripts/broker.py --port 9092 --topic orders:4

Its jars are fetched with Maven, once (maven_jars.py). `scripts/broker` also installs what is missing first.
"""

import argparse
import base64
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import maven_jars
from server_process import ServerProcess, free_port, is_taken, last_lines

from backfill_cli.errors import BackfillError
from backfill_cli.spark.java import find_java

START_LIMIT_S = 180.0
"""A start takes 2 to 3 s here, and ten times as long on a busy machine."""

_JVM = (
    "-Xmx768m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


class NoBroker(Exception):
    """Why no broker can run here; the text ends with what to do."""


class Broker:
    """One broker. It can be stopped and started again: its data and its address stay the same."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        secured: Mapping[str, str] | None = None,
    ) -> None:
        """secured: settings of a second listener, SECURED, which accepts only SASL_SSL."""
        self.folder = folder
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.secured = f"127.0.0.1:{free_port()}" if secured else None
        self._secured = {f"listener.name.secured.{name}": value for name, value in (secured or {}).items()}
        self._settings = dict(settings or {})
        self._controller = free_port()
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """The broker answers. Raises NoBroker if it does not within START_LIMIT_S."""
        try:
            jars = maven_jars.broker()
        except maven_jars.NoJars as error:
            raise NoBroker(str(error)) from error
        java = [str(find_java(os.environ).path), *_JVM, "-cp", f"{jars}/*"]
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        log = self.folder / "broker.log"
        if not (self.folder / "data" / "meta.properties").exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            made = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties)]
            with log.open("ab") as written:
                subprocess.run(made, check=True, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
        self._process = ServerProcess([*java, "kafka.Kafka", str(properties)], log)
        self._until_it_answers(self._process)

    def stop(self) -> None:
        """The broker has ended, its data complete."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """A new topic exists, its partitions led. config: `_` stands for `.`: `cleanup_policy="compact"`."""
        from confluent_kafka.admin import NewTopic

        told = {name.replace("_", "."): value for name, value in config.items()}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=told)
        self.admin.create_topics([wanted])[topic].result(30)
        self.until_led(topic, partitions)

    def until_led(self, topic: str, partitions: int) -> None:
        """Every partition answers: for some ms after it was created its broker denies being its leader."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
        until = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self.admin.list_topics(topic, timeout=10)  # refreshes what the client knows
                for answer in self.admin.list_offsets(asked, request_timeout=10).values():
                    answer.result()
                return
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    @cached_property
    def admin(self) -> Any:
        """One client for the broker's life: one that is garbage-collected in its own thread ends the process."""
        from confluent_kafka.admin import AdminClient

        told = {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500}
        return AdminClient(told, logger=_silent())

    def _properties(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://{self.bootstrap}" + (f",SECURED://{self.secured}" if self.secured else "")
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._secured,
            **self._settings,
        }

    def _until_it_answers(self, process: ServerProcess) -> None:
        from confluent_kafka import KafkaException

        until = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until:
            if process.ended:
                break
            with contextlib.suppress(KafkaException):
                if self.admin.list_topics(timeout=1).brokers:
                    return
        said = last_lines(self.folder / "broker.log")
        self.stop()
        raise NoBroker(f"the broker at {self.bootstrap} did not start; its log ends:\n{said}")


@contextlib.contextmanager
def running(
    folder: Path,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    secured: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """A broker that runs until the end of the block."""
    broker = Broker(folder, port, settings, secured)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _silent() -> Any:
    """A logger that drops messages: connections are refused while a broker starts."""
    import logging

    logger = logging.getLogger("broker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A Kafka broker on loopback, until Ctrl-C.")
    parser.add_argument("--port", type=int, default=9092, help="port to listen on, on 127.0.0.1 (default 9092)")
    parser.add_argument("--folder", type=Path, help="where to keep its data (default: a temporary folder)")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="create this topic if it does not exist",
    )
    told = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as held:
        folder = told.folder or Path(held.enter_context(tempfile.TemporaryDirectory(prefix="backfill-broker-")))
        try:
            if is_taken(told.port):
                raise NoBroker(f"port {told.port} on 127.0.0.1 is in use: choose another one with --port")
            broker = held.enter_context(running(folder.absolute(), told.port))
            _create(broker, told.topic)
        except (NoBroker, BackfillError) as error:
            print(f"broker: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        with contextlib.suppress(KeyboardInterrupt):  # whoever reads the address may end it at once
            print(broker.bootstrap, flush=True)
            print("broker: running; Ctrl-C ends it", file=sys.stderr)
            signal.pause()
    return 0


def _create(broker: Broker, topics: Sequence[str]) -> None:
    from confluent_kafka import KafkaError, KafkaException

    for topic in topics:
        name, _, partitions = topic.partition(":")
        try:
            broker.create(name, int(partitions or 1))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise NoBroker(f"topic {name!r}: {error.args[0].str()}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
