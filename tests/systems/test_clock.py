"""The real command while somebody sets the clock a day back and two days ahead: in control, and at its rate."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_cli.catalog import Catalog

RATE, ROWS = 200, 400_000
DAY_S = 86_400

CONFIG = f"""
[job]
name = "clock"
[upstream]
type = "files"
snapshot = {{ path = "snapshot", format = "parquet" }}
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
[throttle]
rate = {RATE}
[spark]
master = "local[2]"
"""

SET = """
import time
def off(real=open):
    try:
        with real({file!r}) as told:
            return int(told.read() or 0)
    except OSError:
        return 0
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + off()
time.time_ns = lambda: _time_ns() + off() * 10**9
"""
"""Every process of ours has the time of day of a file that says how far it is off."""


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.off = folder / "off"
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(SET.format(file=str(self.off)))
        (folder / "job.toml").write_text(CONFIG)
        (folder / "snapshot").mkdir()
        table = pa.table({"id": pa.array(range(ROWS), pa.int64())})
        pq.write_table(table, folder / "snapshot" / "part.parquet", row_group_size=1_000)

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder / "site"), "BACKFILL_CATALOG": "catalog.duckdb"}

    def typed(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "backfill_cli", *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def rows(self) -> tuple[float, int]:
        """When, by a clock that nobody sets, and how many rows are in the sink."""
        (job,) = Catalog(self.folder / "catalog.duckdb").jobs()
        return time.monotonic(), 0 if job.progress is None else job.progress.rows_read

    def measured(self, seconds: float) -> float:
        """Rows per second, from one checkpoint to another."""
        (began, before), (ended, after) = self.moved(), (0.0, 0)
        while ended - began < seconds:
            ended, after = self.moved()
        return (after - before) / (ended - began)

    def moved(self) -> tuple[float, int]:
        """The moment at which the count of rows changes."""
        began, before = self.rows()
        while (now := self.rows())[1] == before:
            assert time.monotonic() < began + 120, "the job stands still"
            time.sleep(0.05)
        return now


def test_a_clock_that_is_set_changes_neither_the_rate_nor_when_a_command_acts(tmp_path: Path) -> None:
    place = Place(tmp_path)
    command = [sys.executable, "-m", "backfill_cli", "start", "--config", "job.toml"]
    with subprocess.Popen(command, cwd=tmp_path, env=place.environment, stderr=subprocess.PIPE) as runner:
        try:
            deadline = time.monotonic() + 120
            while not any(job.state == "running" for job in Catalog(place.folder / "catalog.duckdb").jobs()):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            place.moved()
            for off_s in (-DAY_S, DAY_S):
                place.off.write_text(str(off_s))
                # a busy machine stalls a window now and then; a limit that goes by the wall clock fails them all
                assert any(0.95 * RATE <= place.measured(5) <= 1.05 * RATE for _ in range(10))
                asked = place.typed("pause", "--wait", "--timeout", "10s")
                assert asked.returncode == 0, asked.stderr
                assert place.typed("resume", "--wait", "--timeout", "10s").returncode == 0
        finally:
            runner.terminate()
            runner.wait(60)
