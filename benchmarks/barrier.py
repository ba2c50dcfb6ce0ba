"""What a barrier costs the runner in CPU time: idle, with news from one partition or file, and in the catalog.

    python benchmarks/barrier.py                       everything
    python benchmarks/barrier.py --quick               100 moves, 10,000 files: only checks that it works
    python benchmarks/barrier.py --only catalog

It observes, plans and advances, as the loop does at each barrier, without the work of Spark and the sink. The
topic has moved 1,000 times before, in all of its partitions, and each move was applied. A transaction of the
catalog is measured beside the same one by a new instance of DuckDB.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import measure
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Figure, quartiles, scratch

if TYPE_CHECKING:
    from backfill_cli.model.upstream import Pin

SECTIONS = ("topic", "files", "catalog")
PARTITIONS = 400
BARRIERS = 30
TOPIC = "wide"
FILES = 100_000
IDLE_MS, ONE_NEW_MS, CATALOG_MS = 20.0, 50.0, 5.0
LINE = '{"op": "c", "before": null, "after": {"id": 1}, "source": {"ts_ms": 1}}\n'


def topic(folder: Path, moves: int) -> list[Figure]:
    """A topic of 400 partitions, followed live."""
    import broker  # in scripts/
    from confluent_kafka import Producer

    from backfill_cli.contracts import TableSpec
    from backfill_cli.model.job import Control
    from backfill_cli.model.pace import Budget
    from backfill_cli.model.plan import Staged
    from backfill_cli.strategies.source import SourceStrategy
    from backfill_cli.upstreams.kafka import connector

    with broker.running(folder / "broker") as kafka:
        kafka.create(TOPIC, PARTITIONS)
        options = {"bootstrap_servers": kafka.bootstrap, "topic": TOPIC, "value": {"format": "bytes"}}
        upstream = connector.open(connector.options.model_validate(options), [TableSpec("t", ())])
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5})
        pin = _patiently(upstream.pin)
        strategy = SourceStrategy(pin.splits, "t")
        state = strategy.start(pin, Control())

        def move(count: int) -> None:
            for partition in range(count):
                producer.produce(TOPIC, b"x", partition=partition)
            producer.flush()

        def barrier(now_ms: int) -> None:
            nonlocal state
            view = upstream.observe(state.position, snapshot_open=False)
            budget = Budget(now_ms, 1_000_000, 1000, now_ms)
            plan = strategy.plan(state, view, budget)
            staged = Staged("", changes_read=1, window=plan.window) if plan else None
            state = strategy.advance(state, plan, staged, budget)

        for turn in range(moves):
            move(PARTITIONS)
            barrier(turn)
        assert not upstream.observe(state.position, snapshot_open=False).pending, "the job does not follow"
        idle = _each(lambda n: barrier(moves + n))
        news = _each(lambda n: barrier(moves + n), lambda: move(1))
    return [
        Figure(
            "idle barrier, 400 partitions", idle, "ms CPU", "≤ 20", idle <= 20, (), f"after {moves} moves of all"
        ),
        Figure("barrier with news of one, 400 partitions", news, "ms CPU", "≤ 50", news <= 50),
    ]


def _patiently(pin: Callable[[], "Pin"]) -> "Pin":
    """Once every partition has a leader."""
    from backfill_cli.errors import Transient

    until_s = time.monotonic() + 60
    while True:
        try:
            return pin()
        except Transient:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.5)


def _each(barrier: Callable[[int], None], before: Callable[[], None] = lambda: None) -> float:
    """CPU of a barrier in ms, median."""
    took = []
    for number in range(BARRIERS):
        before()
        began = time.process_time()
        barrier(number)
        took.append((time.process_time() - began) * 1000)
    print(f"  {quartiles(took)} ms", file=sys.stderr)
    return statistics.median(took)


def cpu_ms(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return (time.process_time() - began) * 1000


def figure(name: str, runs: list[float], goal_ms: float, note: str) -> Figure:
    value = statistics.median(runs)
    return Figure(name, value, "ms CPU", f"≤ {goal_ms:.0f} ms", value <= goal_ms, tuple(runs), note)


def files(folder: Path, count: int) -> list[Figure]:
    """A landing zone of applied change files: nothing new, then one new file at each barrier."""
    from backfill_cli.contracts import TableSpec
    from backfill_cli.contracts.pair import Pair
    from backfill_cli.model.position import START, Position
    from backfill_cli.upstreams.files import connector

    (folder / "snapshot").mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), folder / "snapshot" / "0.parquet")
    landing = folder / "changes"
    landing.mkdir()
    for number in range(count):
        (landing / f"{number:012d}.json").write_text(LINE)
    os.utime(landing, (1, 1))
    told = {
        "snapshot": {"path": str(folder / "snapshot"), "format": "parquet"},
        "changes": {"path": str(landing), "format": "debezium"},
    }
    upstream = connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",))])
    assert isinstance(upstream, Pair)
    upstream.restore(replace(upstream.pin(), position=START))
    position = Position.of({"t": f"{count - 1:012d}.json"})
    first = cpu_ms(lambda: upstream.observe(position, False))
    idle = [cpu_ms(lambda: upstream.observe(position, False)) for _ in range(50)]
    busy = []
    for number in range(count, count + 20):
        (landing / f"_{number:012d}").write_text(LINE)
        (landing / f"_{number:012d}").rename(landing / f"{number:012d}.json")
        began = time.process_time()
        view = upstream.observe(position, False)
        assert len(view.pending) == 1
        position = view.latest
        memory = upstream.remembered(position)
        upstream.acknowledge(position)
        busy.append((time.process_time() - began) * 1000)
    note = f"first look of a process {first / 1000:.1f} s"
    size = f"{len(memory) / 1000:.0f} kB remembered in each checkpoint"
    return [
        figure(f"idle barrier, {count:,} files", idle, IDLE_MS, note),
        figure(f"one new file among {count:,}", busy, ONE_NEW_MS, size),
    ]


def catalog(folder: Path) -> list[Figure]:
    """A transaction that writes, in the catalog of this product: open, one row, commit, close."""
    import duckdb

    from backfill_cli.catalog.store import Store

    store = Store(folder / "catalog.duckdb")
    store.create()
    sql = "INSERT INTO catalog_version SELECT max(version) + 1, 0 FROM catalog_version"
    undone = "DELETE FROM catalog_version WHERE applied_ms = 0"

    def ours() -> None:
        with store.writing() as db:
            db.execute(sql)
            db.execute(undone)

    def new() -> None:
        with duckdb.connect(str(store.path), config={"threads": "1"}) as db:
            db.begin()
            db.execute(sql)
            db.execute(undone)
            db.commit()

    ours()
    runs = [(cpu_ms(ours), cpu_ms(new)) for _ in range(BARRIERS)]
    note = f"by a new instance {statistics.median(there for _, there in runs):.1f} ms"
    return [figure("transaction of the catalog", [here for here, _ in runs], CATALOG_MS, note)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 moves, 10,000 files")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    moves = 100 if given.quick else 1000
    figures: list[Figure] = []
    with scratch(given.folder) as folder:
        if "topic" in given.only:
            figures += topic(folder, moves)
        if "files" in given.only:
            figures += files(folder / "files", 10_000 if given.quick else FILES)
        if "catalog" in given.only:
            figures += catalog(folder / "catalog")
    return (
        0 if measure.report("barrier", figures, {"partitions": PARTITIONS, "moves": moves}) or given.quick else 1
    )


if __name__ == "__main__":
    sys.exit(main())
