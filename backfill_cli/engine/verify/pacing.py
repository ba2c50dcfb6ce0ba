"""What a refill reads of its upstream, at a rate that can change meanwhile: the runner writes it into a file.

All processes that read share one token bucket, in a file beside that one.
"""

import fcntl
import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.config.sections import Transform
from backfill_cli.contracts import Source, own
from backfill_cli.engine.loop.refills import RATE
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.files import observed, write
from backfill_cli.model.pace import Allowance, Allowed, Budget, Sizer
from backfill_cli.model.split import Split, SplitKey, SplitProgress
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.strategies.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa

BURST_MS = 1_000
POLL_S = 0.1
SLICE_MS = 1_000
"""About how long the reads of a slice take: another rate acts after it."""

FIRST_ROWS = 50_000

WIDEST = 16
"""Times as many rows are passed where the upstream leaves all of them out: more of a range than that is a debt."""


def pacing_of(folder: Path) -> "Pacing | None":
    """The limit on a comparison whose folder this is; None without one."""
    file = folder / RATE
    return Pacing(str(file)) if file.exists() else None


def _wall_ms() -> int:
    """Processes on several machines share the bucket."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Pacing:
    """file: with rows per second as JSON, null for no limit."""

    file: str
    now_ms: Callable[[], int] = _wall_ms
    sleep: Callable[[float], None] = time.sleep

    def allowed(self, most: int, least_ms: int = 0) -> int:
        """How many rows may be read now, at most that many: they are taken out of the bucket.

        least_ms: 0 instead of fewer than the rate allows in that time, or than `most`.
        """
        with self._bucket() as shared:
            if shared.rate is None:
                return most
            rows = max(0, min(most, int(shared.tokens.tokens)))
            rows = 0 if rows < min(most, shared.rate * least_ms / 1000) else rows
            shared.spend(rows)
            return rows

    def awaited(self, most: int, least_ms: int = 0) -> int:
        """As `allowed`, once it is at least one row."""
        while not (rows := self.allowed(most, least_ms)):
            self.sleep(POLL_S)
        return rows

    def spend(self, rows: int) -> None:
        """So many more rows were read than were taken; fewer, if negative."""
        with self._bucket() as shared:
            shared.spend(rows)

    @contextmanager
    def _bucket(self) -> "Iterator[_Shared]":
        """The bucket as it is now. No other process has it meanwhile."""
        with open(f"{self.file}.bucket", "a+", encoding="utf-8") as kept:
            fcntl.flock(kept, fcntl.LOCK_EX)
            kept.seek(0)
            told, rate = kept.read(), json.loads(Path(self.file).read_text("utf-8"))
            bucket = Allowance(*json.loads(told)) if told else Allowance()
            shared = _Shared(rate, bucket.fill(rate, BURST_MS, self.now_ms()))
            yield shared
            kept.seek(0)
            kept.truncate()
            kept.write(json.dumps([shared.tokens.tokens, shared.tokens.at_ms]))

    def frame(self, rows: DataFrame) -> DataFrame:
        """The same rows, produced no faster. Not limited where the workers lack this package."""
        if not arrow_tasks.workers_know_us(rows.sparkSession):
            return rows
        return arrow_tasks.mapped(rows, partial(_at_rate, self.file), rows.schema)


@dataclass
class _Shared:
    rate: float | None
    tokens: Allowance

    def spend(self, rows: int) -> None:
        if self.rate is not None:
            self.tokens = self.tokens.spend(rows)


def _at_rate(file: str, batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    pacing, at = Pacing(file), 0
    while at < batch.num_rows:
        rows = pacing.awaited(batch.num_rows - at)
        yield batch.slice(at, rows)
        at += rows


@dataclass(frozen=True)
class Slices:
    """A table that is read as it is now, whole, at a rate: in transactions that are short however low it is.

    splits: the table's, in the order of its keys.
    """

    splits: tuple[Split, ...]
    pace: Pacing

    def write(self, spark: SparkSession, upstream: Source, shape: Transform, folder: Path) -> None:
        """The table's rows are files in folders below `folder`, one for each slice."""
        table, reading, size = self.splits[0].table, Reading(self.splits, estimated=True), Sizer(FIRST_ROWS)
        done: dict[SplitKey, SplitProgress] = {}
        wider = 1
        for number in itertools.count():
            if next(reading.open(done), None) is None:
                return
            most, began_ms = self.pace.awaited(size.rows, SLICE_MS // 2), self.pace.now_ms()
            limit = most * wider
            asked = tuple(reading.reads(done, Allowed(limit), Budget(0, limit, SLICE_MS, began_ms)))
            reads = upstream.closed(table, asked)
            rows, counted = observed(upstream.scan(spark, table, reads).drop(own.READ), {})
            write(transform.rows(rows, shape), folder / f"{own.PART}={number}")
            found = counted()["rows"]
            wider = 1 if found else min(WIDEST, 2 * wider)
            self.pace.spend(found - most)
            done = dict(reading.consumed(done, [(read, found // len(reads)) for read in reads], number))
            size = size.after(found, self.pace.now_ms() - began_ms, SLICE_MS)
