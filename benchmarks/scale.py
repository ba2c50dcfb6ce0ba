"""What a barrier costs at sizes that no test has rows for: splits, files of one epoch, tables. No Spark, no rows.

    python benchmarks/scale.py                  1,000 to 100,000 splits, 10,000 files an epoch, 1,000 tables
    python benchmarks/scale.py --quick          a hundredth of it: only checks that it works

The real strategy plans and advances, the real catalog prepares and loads, the real DuckDB sink keeps the state
beside its marker. docs/scale.md discusses the results.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import measure
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Figure, quartiles, scratch

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.runner import RunnerStore
from backfill_cli.contracts import EpochCommit, JobDefinition, SavedJob, SinkTable
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord
from backfill_cli.model.job import Control, Mutations, Phase
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import START
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb.sink import DuckDBSink
from backfill_cli.strategies.snapshot import SnapshotStrategy

SECTIONS = ("splits", "files", "tables")
ROWS_PER_SPLIT = 10_000
BARRIERS = 20
COLUMNS = 20
PLAN_S, FILES_S = 1.0, 5.0


def schema(columns: int) -> str:
    fields = [{"name": f"c{n}", "type": "long", "nullable": True, "metadata": {}} for n in range(columns)]
    return json.dumps({"type": "struct", "fields": fields})


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def median(name: str, runs: list[float], goal_s: float, note: str = "") -> Figure:
    value = statistics.median(runs) * 1000
    shown = tuple(run * 1000 for run in runs)
    return Figure(name, value, "ms", f"≤ {goal_s * 1000:.0f} ms", value <= goal_s * 1000, shown, note)


@dataclass
class Job:
    """A job of many splits, of which a few are consumed at each barrier, in catalog and sink."""

    folder: Path
    tables: int
    splits: int

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.names = [f"t{n}" for n in range(self.tables)]
        per_table = self.splits // self.tables
        made = tuple(
            Split(name, f"part-{n:06d}.parquet", ROWS_PER_SPLIT, 1_000_000, detail='{"path": "x", "size": 1}')
            for name in self.names
            for n in range(per_table)
        )
        text = schema(COLUMNS)
        self.pin = Pin(START, None, None, made, dict.fromkeys(self.names, text))
        self.sinks = tuple(SinkTable(name, name, ("c0",), text) for name in self.names)
        self.strategy = SnapshotStrategy(made)
        self.definition = JobDefinition("wide", "{}", "{}", self.pin, "forever", "snapshot", self.sinks)
        self.state = self.strategy.start(self.pin, Control())
        self.catalog = Catalog(self.folder / "catalog.duckdb")
        self.sink = DuckDBSink(DuckDBOptions(path=str(self.folder / "w.duckdb")))
        self.now_ms = 1_000
        self.plan_s: list[float] = []
        self.prepare_s: list[float] = []
        self.commit_s: list[float] = []

    def create(self) -> float:
        return seconds(
            lambda: self.catalog.create_job(self.definition, Control(), self.checkpoint(0, Staged("-")))
        )

    def checkpoint(self, epoch: int, staged: Staged) -> Checkpoint:
        text = dict.fromkeys(self.names, schema(COLUMNS))
        state = self.strategy.freeze(self.state)
        return Checkpoint(
            epoch,
            0,
            1,
            staged.attempt,
            state,
            Phase.SNAPSHOT,
            START,
            schemas=text,
            sink_schemas=text,
            staged=staged,
        )

    def run(self, barriers: int, files: int = 1) -> None:
        """So many barriers, which read half of the splits; `files` files of one table are staged at each."""
        self.sink.prepare("wide", self.sinks, False)
        with self.catalog.claim("wide", "benchmark", 1) as claim:
            self.sink.fence("wide", claim.token)
            for number in range(1, barriers + 1):
                self.barrier(claim.store, claim.token, number, files)

    def barrier(self, store: RunnerStore, token: int, number: int, files: int) -> None:
        self.now_ms += 1_000
        budget = Budget(self.now_ms, self.splits * ROWS_PER_SPLIT // (2 * BARRIERS), 1_000, self.now_ms)
        began = time.perf_counter()
        state = self.strategy.apply(self.state, Mutations(Control()))
        plan = self.strategy.plan(state, UpstreamView("{}", START), budget)
        reads = tuple((read, ROWS_PER_SPLIT) for read in plan.reads)
        folder = self.folder / f"{number}"
        staged = Staged(f"a{number}", {plan.reads[0].table: self.staged(folder, files)}, reads)
        after = self.strategy.advance(state, replace(plan, reads=tuple(read for read, _ in reads)), staged, budget)
        self.plan_s.append(time.perf_counter() - began)
        moved = {key: value for key, value in after.splits.items() if state.splits.get(key) != value}
        self.state = after
        made = replace(self.checkpoint(number * 10, staged), token=token, splits=moved, plan=plan)
        last = EpochRecord((number - 1) * 10, 0, Phase.SNAPSHOT, self.now_ms) if number > 1 else None
        self.prepare_s.append(seconds(lambda: store.prepare(made, last, None)))
        commit = EpochCommit(
            "wide",
            number * 10,
            (number - 1) * 10,
            token,
            f"a{number}",
            self.sinks,
            str(folder),
            staged,
            (),
            SavedJob("{}", made),
        )
        self.commit_s.append(seconds(lambda: self.sink.commit(commit)))

    def staged(self, folder: Path, files: int) -> StagedTable:
        """Files without rows: their cost apart from that of rows."""
        folder.mkdir()
        empty = pa.table({f"c{n}": pa.array([], pa.int64()) for n in range(COLUMNS)})
        found = []
        for n in range(files):
            pq.write_table(empty, folder / f"{n}.parquet")
            found.append(StagedFile(f"{n}.parquet", (folder / f"{n}.parquet").stat().st_size))
        return StagedTable(inserts=tuple(found), rows=1)


def splits(folder: Path, counts: list[int]) -> list[Figure]:
    figures = []
    for count in counts:
        job = Job(folder / f"splits-{count}", 1, count)
        created = job.create()
        job.run(BARRIERS)
        loaded = seconds(lambda job=job: job.catalog.definition("wide"))  # type: ignore[misc]
        size = (job.folder / "catalog.duckdb").stat().st_size / 1e6
        note = f"created in {created:.1f} s, loaded in {loaded:.1f} s, catalog {size:.0f} MB"
        figures.append(median(f"plan and advance, {count:,} splits", job.plan_s, PLAN_S, note))
        figures.append(median(f"prepare, {count:,} splits", job.prepare_s, PLAN_S, quartiles(job.prepare_s)))
        figures.append(median(f"sink's commit, {count:,} splits", job.commit_s, PLAN_S, quartiles(job.commit_s)))
    return figures


def files(folder: Path, count: int) -> list[Figure]:
    job = Job(folder / "files", 1, 10_000)
    job.create()
    job.run(3, files=count)
    return [
        median(f"prepare, {count:,} staged files", job.prepare_s, FILES_S),
        median(f"sink's commit, {count:,} staged files without rows", job.commit_s, FILES_S),
    ]


def tables(folder: Path, count: int) -> list[Figure]:
    job = Job(folder / "tables", count, count * 10)
    created = job.create()
    prepared = seconds(lambda: job.sink.prepare("wide", job.sinks, False))
    job.run(BARRIERS)
    note = f"created in {created:.1f} s, the sink's tables made in {prepared:.1f} s"
    return [
        median(f"plan and advance, {count:,} tables", job.plan_s, PLAN_S, note),
        median(f"prepare, {count:,} tables of {COLUMNS} columns", job.prepare_s, PLAN_S),
        median(f"sink's commit, {count:,} tables", job.commit_s, PLAN_S),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of it")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    part = 100 if given.quick else 1
    figures: list[Figure] = []
    with scratch(given.folder) as folder:
        if "splits" in given.only:
            figures += splits(folder, [max(100, count // part) for count in (1_000, 10_000, 100_000)][part > 1 :])
        if "files" in given.only:
            figures += files(folder, 10_000 // part)
        if "tables" in given.only:
            figures += tables(folder, 1_000 // part)
    return 0 if measure.report("scale", figures, {"barriers": BARRIERS}) or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
