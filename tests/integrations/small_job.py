"""A small job over files, and commands that are typed from outside while a scheduler runs it."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backfill_cli import Job

CONFIG = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "snapshot", format = "json", schema = "id BIGINT, status STRING" }
changes = { path = "changes", format = "change-feed", file_format = "json" }
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "duckdb"
path = "warehouse.duckdb"
[throttle]
rate = 0
"""
PATIENCE_S = 300.0


def made(folder: Path, rows: int) -> Path:
    """The config of a job with that many rows in its snapshot, which waits for a throttle before it reads them."""
    for name in ("snapshot", "changes"):
        (folder / name).mkdir()
    lines = (f'{{"id": {number}, "status": "new"}}\n' for number in range(rows))
    (folder / "snapshot/part-1.json").write_text("".join(lines))
    config = folder / "job.toml"
    config.write_text(CONFIG)
    return config


def typed(folder: Path, *words: str) -> str:
    """A command from outside, in that folder."""
    command = [sys.executable, "-m", "backfill_cli", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def until(job: Job, holds: Callable[[Job], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds(job):
        assert time.monotonic() < deadline, job.status()
        time.sleep(0.2)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Somebody does this while the block runs; what goes wrong there is raised at its end."""
    wrong: list[BaseException] = []

    def go() -> None:
        try:
            act()
        except BaseException as error:
            wrong.append(error)
            raise

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE_S)
    assert not wrong, wrong
    assert not thread.is_alive()
