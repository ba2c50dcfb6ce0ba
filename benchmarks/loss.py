"""The loss that strategy chain prevents: a log that keeps a minute, under a snapshot of five.

    python benchmarks/loss.py                 a little over five minutes, at low load
    python benchmarks/loss.py --seconds 60    a shorter snapshot; the log keeps a fifth of it

Two logs, a topic with a retention and a landing zone that is swept, each under strategy snapshot and under chain,
all four in parallel. The source is a dict that changes every second while its export is read. Expected: exit code
7 with snapshot, naming what is gone; 0 with chain, and the sink equals the dict, row by row.
"""

import argparse
import datetime as dt
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import measure
import pyarrow as pa
import pyarrow.parquet as pq
from demo_upstream import land
from measure import Figure, scratch

if TYPE_CHECKING:
    from broker import Broker

KEYS, FILES, PARTITIONS, CHANGES_A_SECOND = 6_000, 3, 3, 20

CONFIG = """\
[job]
name = "{strategy}"
strategy = "{strategy}"
staging = "{folder}/staging"
[upstream.snapshot]
type = "files"
path = "{export}"
format = "parquet"
[upstream.changes]
{changes}
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "duckdb"
path = "{folder}/sink.duckdb"
[throttle]
rate = {rate}
[spark]
master = "local[1]"
{more}"""

FILES_LOG = 'type = "files"\npath = "{zone}"\nformat = "debezium"'
TOPIC_LOG = 'type = "kafka"\nbootstrap_servers = "{bootstrap}"\ntopic = "t"\nfrom = "{began}"'


class Source:
    """A table as a dict; every change is a Debezium record that `send` gets: `(key, record)`."""

    def __init__(self, send: Callable[[list[tuple[int, bytes]]], None]) -> None:
        self.rows = {key: {"id": key, "v": key} for key in range(KEYS)}
        self._send, self._draw, self._changes = send, random.Random(3), 0

    def change(self) -> None:
        records = []
        for _ in range(CHANGES_A_SECOND):
            self._changes += 1
            key = self._draw.randrange(KEYS + 500)
            before = self.rows.get(key)
            if before is not None and self._draw.random() < 0.3:
                del self.rows[key]
            else:
                self.rows[key] = {"id": key, "v": self._changes + KEYS}
            records.append((key, _record(before, self.rows.get(key))))
        self._send(records)

    def export(self, folder: Path) -> None:
        folder.mkdir()
        schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
        for file in range(FILES):
            held = [row for key, row in sorted(self.rows.items()) if key % FILES == file]
            pq.write_table(pa.Table.from_pylist(held, schema), folder / f"{file}.parquet", row_group_size=500)
            self.change()


def _record(before: dict[str, int] | None, after: dict[str, int] | None) -> bytes:
    op = "d" if after is None else "c" if before is None else "u"
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "ts_ms": 5}
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 6}).encode()


def to_topic(broker: "Broker", kept_s: float) -> Callable[[list[tuple[int, bytes]]], None]:
    """A topic with this retention, and the function that sends to it."""
    from confluent_kafka import Producer

    kept_ms = str(int(kept_s * 1000))
    broker.create("t", PARTITIONS, retention_ms=kept_ms, segment_ms="1000", file_delete_delay_ms="1000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(records: list[tuple[int, bytes]]) -> None:
        for key, value in records:
            producer.produce("t", value, json.dumps({"id": key}).encode(), key % PARTITIONS)
        producer.flush()

    return send


def to_zone(zone: Path, kept_s: float) -> Callable[[list[tuple[int, bytes]]], None]:
    """A landing zone whose files are removed at this age, and the function that writes to it."""
    zone.mkdir()
    numbers = count(1)

    def send(records: list[tuple[int, bytes]]) -> None:
        land(zone, next(numbers), b"\n".join(record for _, record in records) + b"\n")
        for path in zone.glob("*.json"):
            if time.time() - path.stat().st_mtime > kept_s:
                path.unlink()

    return send


@dataclass
class Try:
    """One strategy over one log."""

    log: str
    strategy: str
    source: Source
    folder: Path
    process: "subprocess.Popen[str]"

    def ended(self) -> Figure:
        """Waits for it. Chain: 0, and the sink is the dict. Snapshot: 7, and the error says what is gone."""
        _, said = self.process.communicate()
        code, name = self.process.returncode, f"{self.strategy}, a {self.log} that forgets: exit code"
        if self.strategy == "snapshot":
            error = next((line for line in said.splitlines() if line.startswith("error:")), "")
            return Figure(name, code, "", "7", code == 7, (), error)
        with duckdb.connect(str(self.folder / "sink.duckdb"), read_only=True) as db:
            held = db.execute("SELECT id, v FROM t ORDER BY id").fetchall()
        wrong = len(set(held) ^ {(row["id"], row["v"]) for row in self.source.rows.values()})
        is_equal = wrong == 0 and len(held) == len(self.source.rows)
        return Figure(name, code, "", "0", code == 0 and is_equal, (), f"{len(held)} rows, {wrong} of them wrong")


def begin(log: str, strategy: str, source: Source, folder: Path, changes: str, seconds: int) -> Try:
    """The job as a process; its snapshot is throttled to take this long."""
    place = folder / f"{log.replace(' ', '-')}-{strategy}"
    place.mkdir()
    spool = f'[spool]\npath = "{place}/spool"\n' if strategy == "chain" else ""
    export = folder / f"{log}-export"
    rate = KEYS / seconds
    told = CONFIG.format(strategy=strategy, folder=place, export=export, changes=changes, rate=rate, more=spool)
    (place / "job.toml").write_text(told)
    command = [sys.executable, "-m", "backfill_cli", "start", "--config", str(place / "job.toml")]
    command += ["--until", "caught-up", "--catalog", str(place / "catalog.duckdb")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    return Try(log, strategy, source, place, process)


def tries(folder: Path, broker: "Broker", seconds: int) -> list[Figure]:
    kept_s = seconds / 5
    began = dt.datetime.now(dt.UTC).isoformat()
    topic, zone = Source(to_topic(broker, kept_s)), Source(to_zone(folder / "zone", kept_s))
    logs = {
        "topic": (topic, TOPIC_LOG.format(bootstrap=broker.bootstrap, began=began)),
        "landing zone": (zone, FILES_LOG.format(zone=folder / "zone")),
    }
    for log, (source, _) in logs.items():
        source.export(folder / f"{log}-export")
    begun = [
        begin(log, strategy, source, folder, changes, seconds)
        for log, (source, changes) in logs.items()
        for strategy in ("snapshot", "chain")
    ]
    until = time.monotonic() + 0.9 * seconds  # the source is still when its snapshot ends: what is right is known
    while time.monotonic() < until:
        time.sleep(1)
        for source, _ in logs.values():
            source.change()
    return [one.ended() for one in begun]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300, help="how long the snapshot takes")
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    from broker import running  # in scripts/

    with scratch(given.folder) as folder:
        forgetful = {"log.retention.check.interval.ms": "1000"}
        with running(folder / "broker", settings=forgetful) as broker:
            figures = tries(folder, broker, given.seconds)
    return 0 if measure.report("loss", figures, {"seconds": given.seconds}) else 1


if __name__ == "__main__":
    sys.exit(main())
