"""What a barrier costs the runner, in CPU of its process: idle, and with news of one partition or file.

    python benchmarks/barrier.py                       all of it
    python benchmarks/barrier.py --quick               100 moves: whether it works, not how much it costs

Observing, planning and advancing, as the loop does at each barrier; what Spark and the sink do is not in it. The
topic has moved 1,000 times before, in all of its partitions, and each move was applied.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import measure
from measure import Figure, quartiles, scratch

if TYPE_CHECKING:
    from backfill_cli.model.upstream import Pin

SECTIONS = ("topic",)
PARTITIONS = 400
BARRIERS = 30
TOPIC = "wide"


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
            budget = Budget(now_ms, 1_000_000, 1000)
            plan = strategy.plan(state, view, budget)
            staged = Staged("", changes_read=1) if plan else None
            state = strategy.advance(state, plan, staged, budget)

        for turn in range(moves):
            move(PARTITIONS)
            barrier(turn)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 moves")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    moves = 100 if given.quick else 1000
    figures: list[Figure] = []
    with scratch(given.folder) as folder:
        if "topic" in given.only:
            figures += topic(folder, moves)
    return (
        0 if measure.report("barrier", figures, {"partitions": PARTITIONS, "moves": moves}) or given.quick else 1
    )


if __name__ == "__main__":
    sys.exit(main())
