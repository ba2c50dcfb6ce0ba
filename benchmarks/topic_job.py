"""A job over a topic of a broker, its records, and how long the job takes."""

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import duckdb
import measure
import psutil
from measure import JOB, Job

PARTITIONS = 4

CONFIG = """\
[job]
name = "{job}"
staging = "{folder}/staging"

[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
from = "{begin}"
value = {{ {value} }}

[[tables]]
name = "orders"
{key}
{registry}
[sink]
type = "duckdb"
path = "{folder}/warehouse.duckdb"
"""


def registered(url: str, subject: str, kind: str, schema: str) -> int:
    """The id of the schema, which the registry has now. kind: AVRO, PROTOBUF, JSON."""
    asked = urllib.request.Request(
        f"{url}/subjects/{subject}/versions",
        json.dumps({"schemaType": kind, "schema": schema}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60) as answer:
        return int(json.load(answer)["id"])


def produce(bootstrap: str, begin: int, count: int, topic: str, make: Callable[[int], bytes]) -> None:
    """Records `begin` to `begin + count - 1`, to the partitions in turn; all are acknowledged at the end."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number in range(begin, begin + count):
        while True:
            try:
                producer.produce(topic, make(number), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


@dataclass(frozen=True)
class TopicJob(Job):
    """A job over a topic. bootstrap: the broker. begin: where history begins. value, key: in the config."""

    bootstrap: str = ""
    begin: str = "earliest"
    topic: str = ""
    value: str = ""
    key: str = ""
    registry: str = ""

    def write(self) -> "TopicJob":
        self.folder.mkdir(parents=True, exist_ok=True)
        told = {"folder": self.folder, "bootstrap": self.bootstrap, "begin": self.begin}
        told |= {"topic": self.topic, "value": self.value, "key": self.key}
        told["registry"] = f'[upstream.registry]\nurl = "{self.registry}"\n' if self.registry else ""
        self.config.write_text(CONFIG.format(job=JOB, **told))
        return self


def our_way(job: Job, records: int) -> tuple[float, int]:
    """Seconds for the whole job in this process, and the rows that its epochs read."""
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import load
    from backfill_cli.engine.loop.run import start

    job.forget()
    job.write()
    began = time.perf_counter()
    start(load(job.config), Catalog(job.catalog), "caught-up", False, None)
    took = time.perf_counter() - began
    with duckdb.connect(str(job.warehouse), read_only=True) as db:
        found = db.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchone()
    assert found == (records, records), found
    lines = Catalog(job.catalog).ledger(JOB, 10_000)
    return took, sum(line.snapshot_rows + line.changes_read for line in lines)


def in_turn(
    jobs: Mapping[str, Job], records: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """(seconds, CPU seconds a million records) of each job, a run in each round; the first round warms up."""
    took: dict[str, list[float]] = {name: [] for name in jobs}
    cpu: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            before = measure.cpu_s(psutil.Process())
            seconds, _ = our_way(job, records)
            spent = measure.cpu_s(psutil.Process()) - before
            print(f"  round {number}: {name} {seconds:.2f} s, CPU {spent:.2f} s", file=sys.stderr)
            if number:
                took[name].append(seconds)
                cpu[name].append(spent * 1e6 / records)
    return took, cpu
