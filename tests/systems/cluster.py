"""A standalone Spark cluster, and commands typed beside it, for tests."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark
from kept_java import archive_flags, kept_java
from server_process import free_port

SPARK = Path(pyspark.__file__).parent


@contextmanager
def process(folder: Path, env: Mapping[str, str], *words: str) -> Iterator[Path]:
    """A part of the cluster; the file that it writes to."""
    log = folder / f"{words[0].rsplit('.', 1)[-1]}.log"
    with log.open("wb") as said:
        command = [str(SPARK / "bin" / "spark-class"), *words]
        running = subprocess.Popen(command, env=dict(env), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield log
    finally:
        running.terminate()
        running.wait(30)


def until_said(log: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.2)


def environment(python: Path) -> dict[str, str]:
    """This process's, less what it says of Spark and Python."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    java = " ".join(
        [kept.get("JDK_JAVA_OPTIONS", ""), *archive_flags()]
    )  # master, workers and executors start sooner
    told = {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    return {**kept, **told, "JDK_JAVA_OPTIONS": java}


@dataclass(frozen=True)
class Cluster:
    """A master and its workers on loopback. address: for `[spark] master`. runs: what holds the processes."""

    address: str
    folder: Path

    def executors(self) -> list[psutil.Process]:
        """The Java processes that run tasks."""
        return [one for one in psutil.process_iter(["cmdline"]) if self._is_executor(one)]

    def _is_executor(self, one: psutil.Process) -> bool:
        backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
        try:  # it works in a folder of its worker's
            return backend in (one.info["cmdline"] or []) and str(self.folder) in one.cwd()
        except psutil.NoSuchProcess:
            return False


@contextmanager
def cluster(folder: Path, workers: int, cores: int, memory: str) -> Iterator[Cluster]:
    """So many workers, each with a port of its own; which Python executors run is told by each job's driver."""
    port, env = str(free_port()), environment(Path(sys.executable))
    on = ("--host", "127.0.0.1", "--webui-port", "0")
    address = f"spark://127.0.0.1:{port}"
    with process(folder, env, "org.apache.spark.deploy.master.Master", *on, "--port", port) as master:
        until_said(master, "ALIVE")
        with _workers(folder, env, workers, (*on, "--cores", str(cores), "--memory", memory, address)):
            yield Cluster(address, folder)


@contextmanager
def _workers(folder: Path, env: Mapping[str, str], count: int, told: tuple[str, ...]) -> Iterator[None]:
    if not count:
        yield
        return
    own = folder / f"worker-{count}"
    own.mkdir()
    words = ("org.apache.spark.deploy.worker.Worker", "--work-dir", str(own / "work"), *told)
    with process(own, env, *words) as log:
        until_said(log, "Successfully registered with master")
        with _workers(folder, env, count - 1, told):
            yield


def typed(
    folder: Path, python: Path, *words: str, formats: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """A command, ended; a driver of its job is in the Java that is kept. python: what executors run."""
    with kept_java(formats) as java:
        env = {**_typing(python), **java}
        return subprocess.run(
            _command(words), cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )


@contextmanager
def began(folder: Path, python: Path, *words: str) -> "Iterator[subprocess.Popen[str]]":
    """A command that goes on, its driver a process of its own; killed at the end of `with`."""
    with (folder / "said").open("w") as said:
        running = subprocess.Popen(
            _command(words),
            cwd=folder,
            env=_typing(python),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            text=True,
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "backfill_cli", *words]


def _typing(python: Path) -> dict[str, str]:
    return {**environment(python), "PYSPARK_PYTHON": str(python), "BACKFILL_CATALOG": "catalog.duckdb"}
