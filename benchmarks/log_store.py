"""Catching up with many upstream epochs, folded together, against one commit each.

    python benchmarks/log_store.py              500 epochs of 2,000 changes over 1 million rows
    python benchmarks/log_store.py --quick      40 epochs over 50,000 rows

One commit each: the same job, caught up, gets one change file at a time, the next one as soon as the previous one
is committed, at the shortest possible interval; a few epochs are enough to know what each takes.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import measure
from demo_upstream import changes, land, write_snapshot
from measure import JOB, Figure, Job, scratch


def folded(job: Job, epochs: int, count: int, rows: int) -> tuple[float, int]:
    """Seconds of the log-store phase for this many upstream epochs, and the commits that it took."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.model.job import Phase

    for sequence in range(1, epochs + 1):
        land(job.changes, sequence, changes(sequence, count, rows, time.time_ns() // 1_000_000))
    job.run("start", "--config", str(job.config), "--until", "caught-up")
    lines = Catalog(job.catalog).ledger(JOB, 10_000)
    drained = [line for line in lines if line.phase is Phase.LOG_STORE]
    assert sum(line.upstream_epochs for line in lines) == epochs
    snapshot_end = max(line.committed_ms for line in lines if line.phase is Phase.SNAPSHOT)
    return (max(line.committed_ms for line in drained) - snapshot_end) / 1000, len(drained)


def one_by_one(job: Job, first: int, epochs: int, count: int, rows: int) -> list[float]:
    """Seconds that each of these upstream epochs took, from its arrival to its commit."""
    from backfill_cli.catalog import Catalog

    catalog = Catalog(job.catalog)
    took = []
    with job.runner("start", "--config", str(job.config)):
        wait_until(lambda: job.status()["state"] == "running", 120)
        for sequence in range(first, first + epochs):
            (before,) = catalog.ledger(JOB, 1)
            content = changes(sequence, count, rows, time.time_ns() // 1_000_000)
            began = time.time() * 1000
            land(job.changes, sequence, content)
            wait_until(lambda seen=before: catalog.ledger(JOB, 1)[0].epoch != seen.epoch, 60)
            (line,) = catalog.ledger(JOB, 1)
            assert line.upstream_epochs == 1, line
            took.append((line.committed_ms - began) / 1000)
    return took


def wait_until(reached, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"not reached within {limit_s:.0f} s")
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    rows, epochs, singles = (50_000, 40, 5) if given.quick else (given.rows, given.epochs, 25)
    with scratch(given.folder) as folder:
        write_snapshot(folder / "orders", rows, 8)
        job = Job(folder / "job", folder / "orders", '[barrier]\ninterval = "50ms"\n').write()
        took, commits = folded(job, epochs, given.changes, rows)
        each = one_by_one(job, epochs + 1, singles, given.changes, rows)[2:]  # the first two warm up
    single = statistics.median(each)
    faster = single * epochs / took
    note = f"{epochs} epochs in {took:.1f} s, {commits} commits; one each: {measure.quartiles(each)} s"
    figures = [
        Figure(
            "log store: times as fast as one commit each",
            faster,
            "×",
            "≥ 10",
            faster >= 10,
            tuple(each),
            note,
            higher=True,
        ),
        Figure("changes a second", epochs * given.changes / took, "changes/s", "-", True, higher=True),
    ]
    sizes = {"rows": rows, "epochs": epochs, "changes": given.changes}
    return 0 if measure.report("log_store", figures, sizes) or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
