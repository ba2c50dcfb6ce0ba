"""Rows into a topic by the sink's commits, against confluent-kafka's producer alone: a section of kafka.py.

Both write the same records: their keys, values and headers. Ours reads them from staged Parquet files, makes the
records, and commits in transactions of 500,000 rows; the other one has them in lists, and flushes.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from measure import Figure, quartiles

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.position import START
from backfill_cli.model.schema import field, schema_text
from backfill_cli.sinks.kafka import KafkaSinkOptions, connector

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import SparkSession

EPOCH_ROWS = 500_000
JOB = "sink"
PARTITIONS = 4
KINDS = {
    "id": ("long", pa.int64()),
    "customer": ("long", pa.int64()),
    "status": ("string", pa.string()),
    "amount": ("decimal(10,2)", pa.decimal128(10, 2)),
    "created": ("timestamp", pa.timestamp("us", "UTC")),
    "due": ("date", pa.date32()),
    "paid": ("boolean", pa.bool_()),
    "note": ("string", pa.string()),
}
"""Eight columns: Spark's type, Arrow's."""


def staged(folder: Path, begin: int, rows: int) -> StagedFile:
    """One staged file with the rows from `begin` on."""
    numbers = range(begin, begin + rows)
    told = {
        "id": pa.array(numbers, pa.int64()),
        "customer": pa.array([n * 7919 % 1_000_003 for n in numbers], pa.int64()),
        "status": pa.array([("new", "paid", "sent")[n % 3] for n in numbers]),
        "amount": pa.array([n % 100_000 for n in numbers], pa.int64()).cast(pa.decimal128(19, 0)),
        "created": pa.array([1_760_000_000_000_000 + n for n in numbers], pa.int64()).cast(KINDS["created"][1]),
        "due": pa.array([20_000 + n % 365 for n in numbers], pa.int32()).cast(pa.date32()),
        "paid": pa.array([n % 3 == 1 for n in numbers]),
        "note": pa.array(["x" * 20] * rows),
    }
    told["amount"] = told["amount"].cast(pa.decimal128(21, 2)).cast(KINDS["amount"][1])
    path = folder / f"{begin}.parquet"
    pq.write_table(pa.table(told), path)
    return StagedFile(path.name, path.stat().st_size)


def records(path: Path) -> tuple[list[bytes], list[bytes]]:
    """(keys, values) of a staged file's rows, as the sink writes them, made by its own code."""
    from backfill_cli.sinks.kafka.json_rows import objects

    keys: list[bytes] = []
    values: list[bytes] = []
    for batch in pq.ParquetFile(path).iter_batches(10_000):
        keys += objects(batch, ["id"]).cast(pa.binary()).to_pylist()
        values += objects(batch, list(KINDS)).cast(pa.binary()).to_pylist()
    return keys, values


def alone(bootstrap: str, topic: str, keys: list[bytes], values: list[bytes]) -> float:
    """Seconds that the client's producer takes for these records, its settings those of the sink."""
    from confluent_kafka import Producer

    headers = [("backfill.job", JOB.encode()), ("backfill.epoch", b"1760000000000"), ("backfill.op", b"r")]
    told = {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"}
    told |= {"queue.buffering.max.messages": 200_000, "enable.idempotence": True, "partitioner": "murmur2_random"}
    began = time.perf_counter()
    producer = Producer(told)
    produce = producer.produce
    for key, value in zip(keys, values, strict=True):
        while True:
            try:
                produce(topic, value, key, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    return time.perf_counter() - began


def ours(spark: "SparkSession", bootstrap: str, topic: str, folder: Path, files: list[StagedFile]) -> float:
    """Seconds that the sink's commits of these files take, one epoch each."""
    kinds = {name: field(name, kind) for name, (kind, _) in KINDS.items()}
    table = SinkTable("orders", topic, ("id",), schema_text(kinds))
    told = {"bootstrap_servers": bootstrap, "partitions": PARTITIONS, "state_topic": f"{topic}_state_{{job}}"}
    sink = connector.open(KafkaSinkOptions.model_validate(told))
    sink.use(lambda: spark)
    sink.prepare(JOB, (table,), into_existing=False)
    took = 0.0
    for number, file in enumerate(files, 1):
        attempt = f"a{number}"
        rows = Staged(attempt, {"orders": StagedTable(inserts=(file,), rows=EPOCH_ROWS)})
        checkpoint = Checkpoint(number, number - 1, 1, attempt, "{}", Phase.SNAPSHOT, START)
        commit = EpochCommit(
            *(JOB, number, number - 1, 1, attempt, (table,), str(folder), rows, ()), SavedJob("{}", checkpoint)
        )
        began = time.perf_counter()
        sink.commit(commit)
        took += time.perf_counter() - began
    return took


def sink(folder: Path, kafka: "Broker", rows: int, rounds: int) -> list[Figure]:
    """Ours ÷ the producer alone, records a second; rounds alternate, the first one warms up."""
    from backfill_cli.spark.session import open_session

    spark = open_session("local[2]", {})
    files = [staged(folder, begin, EPOCH_ROWS) for begin in range(0, max(rows, EPOCH_ROWS), EPOCH_ROWS)]
    rows = EPOCH_ROWS * len(files)
    pairs: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        kafka.create(f"alone{number}", PARTITIONS)
        plain = 0.0
        for file in files:
            keys, values = records(folder / file.path)
            assert json.loads(values[-1])["id"] == json.loads(keys[-1])["id"]
            plain += alone(kafka.bootstrap, f"alone{number}", keys, values)
        del keys, values
        mine = ours(spark, kafka.bootstrap, f"ours{number}", folder, files)
        print(f"  round {number}: producer alone {plain:.2f} s, ours {mine:.2f} s", file=sys.stderr)
        pairs.append((rows / plain, rows / mine))
    pairs = pairs[1:]
    ratios = [mine / plain for plain, mine in pairs]
    middle = statistics.median(ratios)
    note = f"alone {quartiles([p for p, _ in pairs])}, ours {quartiles([m for _, m in pairs])} records/s"
    return [
        Figure(
            "rows into a topic ÷ the producer alone",
            middle,
            "",
            "≥ 0.7",
            middle >= 0.7,
            tuple(ratios),
            note,
            higher=True,
        )
    ]
