"""A folder with an upstream of orders and a config, and the real command typed in it, as a user has them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import kept_python
from demo_upstream import changes, land, write_snapshot
from kept_java import kept_java

from backfill_cli.catalog import Catalog
from backfill_cli.view.answers import document
from backfill_cli.view.model import Jobs, read_jobs

ROWS, FILES, CHANGE_FILES = 6_000, 3, 3
PATIENCE_S = 180.0

CONFIG = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "orders", format = "parquet" }
changes = { path = "changes", format = "debezium", decimals = "string", timestamps = "us" }
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "duckdb"
path = "warehouse.duckdb"
[barrier]
interval = "200ms"
[retry]
limit = "2m"
[throttle]
rate = 100
[spark]
master = "local[2]"
conf = { "spark.driver.memory" = "600m" }
"""

HOLD = """
import sys, time, duckdb
while True:
    try:
        con = duckdb.connect(sys.argv[1])
        break
    except duckdb.IOException:  # the job has it open just now
        time.sleep(0.01)
print("held", flush=True)
sys.stdin.read()
"""


def _named(told: dict[str, Any], name: str) -> dict[str, Any]:
    found = [job for job in told["jobs"] if job["name"] == name]
    return found[0] if found else {"state": "none"}


def rest(began: float) -> float:
    """The moment at which to look again: looks at a catalog have a fifth of a core, the runner has the others.

    began: when the last look did, by the monotonic clock.
    """
    time.sleep(min(0.5, max(0.1, 4 * (time.monotonic() - began))))
    return time.monotonic()


class Place:
    """The folder. Every method but `began` waits for the command's end.

    own_java: each runner starts one, as a user's does; else it finds one that is warm (`kept_java`), and, if the
    test waits for its end, the program imported (`kept_python`).
    """

    own_java = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_snapshot(folder / "orders", ROWS, FILES, row_group_rows=500)
        (folder / "changes").mkdir()
        for sequence in range(1, CHANGE_FILES + 1):
            land(folder / "changes", sequence, changes(sequence, 50, ROWS, time.time_ns() // 1_000_000))
        self.configured()

    def configured(self, *replaced: tuple[str, str], name: str = "job.toml") -> None:
        text = CONFIG
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        (self.folder / name).write_text(text)

    @property
    def _environment(self) -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if not key.startswith("BACKFILL_")}

    def _command(self, words: tuple[str, ...], java: Mapping[str, str]) -> dict[str, Any]:
        """What begins it in a Python of its own."""
        command = [sys.executable, "-P", "-m", "backfill_cli", *words]
        return {"args": command, "cwd": self.folder, "env": {**self._environment, **java}, "text": True}

    def typed(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A run in the background outlives its command, and has a Java of its own."""
        if self.own_java or "--detach" in words:
            return self.typed_in({}, *words)
        return kept_python.typed(self.folder, self._environment, *words)

    def java(self, script: str) -> dict[str, str]:
        """An environment in which Java, when it is started, is this script of `sh` and nothing else."""
        home = self.folder / "java"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
        (home / "bin/java").write_text(f"#!/bin/sh\n{script}\n")
        (home / "bin/java").chmod(0o755)
        return {"JAVA_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}

    def typed_in(self, env: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
        """In a Python of its own, with these variables."""
        return subprocess.run(**self._command(words, env), capture_output=True, timeout=240, check=False)

    @contextmanager
    def began(self, *words: str, env: Mapping[str, str] | None = None) -> "Iterator[subprocess.Popen[str]]":
        """The command goes on; what it says ends in one file, `says`. It is killed at the end of `with`.

        env: variables of a Java of its own, see `java`.
        """
        with nullcontext(env or {}) if self.own_java or env else kept_java() as java:
            with (self.folder / "said").open("w") as said:
                command = self._command(words, java)
                running = subprocess.Popen(**command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            try:
                yield running
            finally:
                running.kill()
                running.wait()

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    def job(self, name: str = "orders") -> dict[str, Any]:
        """What `status --json` says of it; its state is 'none' before it is there."""
        told = self.typed("status", "--json")
        assert told.returncode == 0, told.stderr
        return _named(json.loads(told.stdout), name)

    def looked(self, name: str = "orders") -> dict[str, Any]:
        """As `job`, by the read model in this process: a command for each look takes a core while others wait."""
        return _named(document(Jobs(read_jobs(Catalog(self.folder / ".backfill/catalog.duckdb"), None))), name)

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The job, once that holds of it."""
        deadline = time.monotonic() + PATIENCE_S
        began = time.monotonic()
        while not holds(job := self.looked()):
            assert time.monotonic() < deadline, (job, self.said)
            began = rest(began)
        return job

    def until_said(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def state(self, state: str) -> dict[str, Any]:
        return self.until(lambda job: job["state"] == state)

    @contextmanager
    def sink_held(self) -> Iterator[int]:
        """Somebody has the sink's file open; its process id."""
        command = [sys.executable, "-c", HOLD, str(self.folder / "warehouse.duckdb")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            try:
                yield holder.pid
            finally:
                holder.stdin.close()
                holder.wait()
