"""What the benchmarks share: a scratch folder, a job over generated orders, the CLI as a process, figures."""

import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT / "scripts"))

JOB = "orders"

CONFIG = """\
[job]
name = "{job}"
staging = "{folder}/staging"

[upstream]
type = "files"
snapshot = {{ path = "{orders}", format = "parquet" }}
changes = {{ path = "{folder}/changes", format = "debezium", decimals = "string", timestamps = "us" }}

[[tables]]
name = "orders"
key = ["id"]

[sink]
type = "duckdb"
path = "{folder}/warehouse.duckdb"

{more}
[spark]
master = "local[*]"
"""


@dataclass(frozen=True)
class Figure:
    """One measured figure. goal: in words; reached: whether it is met; runs: the values behind it; higher: whether
    more is better.
    """

    name: str
    value: float
    unit: str
    goal: str
    reached: bool
    runs: tuple[float, ...] = ()
    note: str = ""
    higher: bool = False


@dataclass(frozen=True)
class Job:
    """A job's files in a folder of its own. orders: the snapshot it reads, which jobs may share."""

    folder: Path
    orders: Path
    more: str = ""

    def write(self) -> "Job":
        (self.folder / "changes").mkdir(parents=True, exist_ok=True)
        self.config.write_text(CONFIG.format(job=JOB, folder=self.folder, orders=self.orders, more=self.more))
        return self

    @property
    def config(self) -> Path:
        return self.folder / "job.toml"

    @property
    def catalog(self) -> Path:
        return self.folder / "catalog.duckdb"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse.duckdb"

    @property
    def changes(self) -> Path:
        return self.folder / "changes"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "backfill_cli", *arguments, "--catalog", str(self.catalog)]

    def run(self, *arguments: str) -> float:
        """Seconds that a command took. Raises CalledProcessError, its stderr shown, when it failed."""
        began = time.perf_counter()
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
        done.check_returncode()
        return time.perf_counter() - began

    @contextmanager
    def runner(self, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The job running in a process of its own, ended with SIGTERM, then SIGKILL, if it still runs."""
        with (self.folder / "runner.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def status(self) -> dict:
        """The job as `status --json` says, read through the catalog without starting a process."""
        from backfill_cli.catalog import Catalog
        from backfill_cli.view.answers import document
        from backfill_cli.view.model import Jobs, read_jobs

        return document(Jobs(read_jobs(Catalog(self.catalog), JOB)))["jobs"][0]

    def forget(self) -> None:
        """Everything except the snapshot is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def scratch(given: Path | None) -> Iterator[Path]:
    """A folder for a benchmark's data: removed afterwards unless the user gave it."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="backfill-benchmark-") as made:
            yield Path(made)


def quartiles(values: Sequence[float]) -> str:
    """Median and range, for people."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all are at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and of its descendants that are alive or have been waited for."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if one != process:
            total += times.children_user + times.children_system
    return total


def report(benchmark: str, figures: Sequence[Figure], sizes: Mapping[str, object]) -> bool:
    """Print the figures and save them in benchmarks/results/. True if all goals are reached."""
    table = Table(title=f"{benchmark}: {', '.join(f'{k} {v}' for k, v in sizes.items())}")
    for column in ("figure", "measured", "goal", "reached", "each run", "note"):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for one in figures:
        runs = " ".join(f"{run:.3g}" for run in one.runs[:12])
        reached = "yes" if one.reached else "NO"
        table.add_row(one.name, f"{one.value:.3g} {one.unit}".strip(), one.goal, reached, runs, one.note)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "benchmark": benchmark,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "sizes": dict(sizes),
        "figures": [asdict(one) for one in figures],
    }
    (RESULTS / f"{benchmark}.json").write_text(json.dumps(kept, indent=1) + "\n")
    return all(one.reached for one in figures)
