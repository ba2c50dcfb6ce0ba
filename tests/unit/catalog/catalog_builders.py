"""Small jobs and checkpoints, and processes of their own, for the catalog's tests."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from backfill_cli.catalog import Catalog, Claim
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Progress
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split, SplitKey, SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin

FIRST = Checkpoint(0, 0, 0, "", '{"phase": "snapshot"}', Phase.SNAPSHOT, Position())


class Clock:
    """Time that stands still until it is told."""

    def __init__(self, ms: int = 1_763_692_800_000) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def definition(name: str = "orders", splits: int = 3) -> JobDefinition:
    pin = Pin(
        position=Position.of({"changes": "0001.json"}),
        position_ms=5,
        complete_at=None,
        splits=tuple(Split("orders", split_id(i), 10, 1000, detail=f'{{"mtime": {i}}}') for i in range(splits)),
        schema={"orders": "{}"},
        identity='{"files": 3}',
    )
    table = SinkTable("orders", "main.orders", ("id",), "{}")
    return JobDefinition(name, '{"job": {}}', '{"key": ["id"]}', pin, "forever", "snapshot", (table,))


PARTITIONS: dict[SplitKey, SplitProgress] = {
    ("orders", "1"): SplitProgress(SplitStatus.BACKFILLING, 70, 12, 900, 140),
    ("orders", "2"): SplitProgress(SplitStatus.FINISHED, 200, 0, 900),
    ("orders", "10"): SplitProgress(SplitStatus.FINISHED, 5, 0, 900),
}
"""Of a topic whose partitions 2 and 10 came after the pin."""


def partitioned() -> JobDefinition:
    """A job over a topic with two partitions, their histories [40, 40) and [40, 140)."""
    splits = (Split("orders", "0", 0, 0, first=40), Split("orders", "1", 100, 0, first=40))
    return replace(definition(), pin=replace(definition().pin, splits=splits), strategy="source")


def split_id(number: int) -> str:
    return f"part-{number:06d}.parquet"


def checkpoint(epoch: int, moved: Mapping[SplitKey, SplitProgress] | None = None) -> Checkpoint:
    """A prepared epoch that read the splits `moved`."""
    moved = moved or {}
    reads = tuple(SnapshotRead(table, split, 0, progress.cursor) for (table, split), progress in moved.items())
    return Checkpoint(
        epoch=epoch,
        prev_ms=epoch - 1,
        token=1,
        attempt=f"try-{epoch}",
        state=f'{{"at": {epoch}}}',
        phase=Phase.SNAPSHOT,
        position=Position.of({"changes": f"{epoch:04d}.json"}),
        splits=moved,
        plan=EpochPlan(reads),
        staged=Staged(f"try-{epoch}"),
    )


def consumed(number: int, epoch: int) -> dict[SplitKey, SplitProgress]:
    return {("orders", split_id(number)): SplitProgress(SplitStatus.CONSUMED, 10, 10, epoch)}


def record(epoch: int, mutations: str = "") -> EpochRecord:
    return EpochRecord(epoch, epoch - 1, Phase.SNAPSHOT, epoch, rows_written=1, mutations=mutations)


def progress(rows_read: int = 0) -> Progress:
    return Progress(
        Phase.SNAPSHOT, 1, rows_read, 30, 0, 3000, {"consumed": 0}, 0, None, 5.0, (1.0, 2.0), Limit("nothing")
    )


def with_job(path: Path, clock: Clock, name: str = "orders", splits: int = 3) -> Catalog:
    catalog = Catalog(path, clock)
    catalog.create_job(definition(name, splits), Control(), FIRST)
    return catalog


def claimed(catalog: Catalog, clock: Clock, job: str = "orders") -> Claim:
    return catalog.claim(job, "me", clock())


def start_python(code: str, *args: object) -> "subprocess.Popen[str]":
    """A process of its own that runs `code`; what it prints can be read line by line."""
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def said(process: "subprocess.Popen[str]") -> str:
    """The next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def leave_log_behind(path: Path) -> None:
    """A process committed to the catalog and was killed before it closed the file."""
    code = """if True:
        import os, sys
        from pathlib import Path
        from backfill_cli.catalog.store import Store
        with Store(Path(sys.argv[1])).writing() as db:
            db.execute("UPDATE jobs SET reason = 'left in the log'")
            db.commit()
            os.kill(os.getpid(), 9)
    """
    died = start_python(code, path)
    assert died.wait() == -signal.SIGKILL
    end(died)
    assert Path(f"{path}.wal").exists()
