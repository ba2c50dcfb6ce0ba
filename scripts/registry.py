"""A real schema registry on loopback, for demos and tests: Apicurio, one Java process, its schemas in memory.

python scripts/registry.py --port 8081

It is fetched with Maven, once (maven_jars.py). `scripts/registry` also installs what is missing first.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import maven_jars
from server_process import ServerProcess, free_port, is_taken, last_lines

from backfill_cli.spark.java import find_java

START_LIMIT_S = 120.0
"""A start takes 5 to 11 s here, and ten times as long on a busy machine."""

_JVM = ("-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class NoRegistry(Exception):
    """Why no registry can run here; the text ends with what to do."""


class Registry:
    """One registry. Stopped and started again it has no schemas, and counts ids from 1.

    server: its address. url: what speaks Confluent's protocol there.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.server = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.server}/apis/ccompat/v7"
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """The registry answers. Raises NoRegistry if it does not within START_LIMIT_S."""
        try:
            (jar,) = maven_jars.registry().glob("*-runner.jar")
        except maven_jars.NoJars as error:
            raise NoRegistry(str(error)) from error
        self.folder.mkdir(parents=True, exist_ok=True)
        told = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}", "-Dquarkus.log.level=WARN")
        log = self.folder / "registry.log"
        self._process = ServerProcess([find_java(os.environ).path, *_JVM, *told, "-jar", jar], log)
        until = time.monotonic() + START_LIMIT_S
        while not self._answers():
            if self._process.ended or time.monotonic() > until:
                self.stop()
                raise NoRegistry(f"the registry at {self.url} did not start; its log ends:\n{last_lines(log)}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _answers(self) -> bool:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError), direct.open(f"{self.url}/subjects", timeout=10) as answer:
            return bool(answer.status == 200)
        return False


@contextlib.contextmanager
def running(folder: Path, port: int | None = None) -> Iterator[Registry]:
    """A registry that runs until the end of the block."""
    registry = Registry(folder, port)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A schema registry on loopback, until Ctrl-C.")
    parser.add_argument("--port", type=int, default=8081, help="port to listen on, on 127.0.0.1 (default 8081)")
    told = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="backfill-registry-")))
        try:
            if is_taken(told.port):
                raise NoRegistry(f"port {told.port} on 127.0.0.1 is in use: choose another one with --port")
            registry = held.enter_context(running(folder, told.port))
        except NoRegistry as error:
            print(f"registry: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        with contextlib.suppress(KeyboardInterrupt):  # whoever reads the address may end it at once
            print(registry.url, flush=True)
            print("registry: running; Ctrl-C ends it", file=sys.stderr)
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
