"""How long a job's snapshot takes on this machine: by what earlier runs took, or by the sample that was read."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig
from backfill_cli.model.checkpoint import EpochRecord

SPARK_S = 5.0
"""About what Spark and the first task take to start."""

ENOUGH_ROWS, ENOUGH_S = 20_000, 0.02
"""Less says nothing of a rate: what is done once takes most of it."""

EPOCHS = 1_000
"""The newest ones of a job are looked at."""

JOBS = 20
"""The newest ones of the catalog are looked at."""

SHARES = (1.0, 0.25)
"""Of the rate at which this process has read a sample, per core: a job writes the rows, too, and loads them."""


@dataclass(frozen=True, slots=True)
class Measured:
    """slow, quick: rows per second. by: where they were measured, for display."""

    slow: float
    quick: float
    by: str

    def seconds(self, rows: int, limit: float | None) -> tuple[float, float]:
        """(least, most) for a job that reads these rows, at most `limit` per second."""
        slow, quick = (min(rate, limit or rate) for rate in (self.slow, self.quick))
        return SPARK_S + rows / quick, SPARK_S + rows / slow


def of_earlier(config: JobConfig, catalog: Catalog) -> Measured | None:
    """By the newest job of this catalog with the same kinds of systems; by the job itself, if it has run."""
    own = kinds(config.tree)
    for row in sorted(catalog.jobs(), key=lambda row: (row.name != config.job.name, -row.epoch))[:JOBS]:
        if kinds(json.loads(catalog.definition(row.name).config)) == own:
            found = of_ledger(catalog.ledger(row.name, EPOCHS), row.name)
            if found is not None:
                return found
    return None


def kinds(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """The types and formats that a config names, which decide how rows are read and written."""
    upstream, sink = tree.get("upstream", {}), tree.get("sink", {})
    sides = [upstream, *(upstream.get(side) for side in ("snapshot", "value"))]
    told = [str(one.get(what, "")) for one in sides if isinstance(one, dict) for what in ("type", "format")]
    return (*told, str(sink.get("type", "")), "transform" * ("transform" in tree))


def of_ledger(ledger: Sequence[EpochRecord], job: str) -> Measured | None:
    """By the epochs that read a snapshot; without the first one, in which workers start, if there are others."""
    read = [line for line in ledger if line.snapshot_rows and line.stage_ms]
    read = read[1:] or read
    rows, ms = sum(line.snapshot_rows for line in read), sum(map(_took_ms, read))
    if rows < ENOUGH_ROWS or ms < ENOUGH_S * 1000:
        return None
    rates = sorted(line.snapshot_rows * 1000 / _took_ms(line) for line in read)
    slow, mean, quick = rates[len(rates) // 4], rows * 1000 / ms, rates[len(rates) * 3 // 4]
    return Measured(min(slow, mean), max(quick, mean), f"as job {job!r} took here")


def _took_ms(line: EpochRecord) -> int:
    """Staging goes on beside a commit."""
    return max(line.stage_ms, line.commit_ms, 1)


def of_sample(rows: int, seconds: float, cores: int | None = None) -> Measured | None:
    """By rows that one process has read; None if that was too little."""
    if rows < ENOUGH_ROWS or seconds < ENOUGH_S:
        return None
    most, least = (share * rows / seconds * (cores or os.cpu_count() or 1) for share in SHARES)
    return Measured(least, most, f"by a sample of {rows:,} rows; the first run here will tell better")
