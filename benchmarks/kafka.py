"""A topic into DuckDB against Spark's own Kafka source, batch and streaming; the lag of following it.

    python benchmarks/kafka.py                       everything, 5 million records, about 10 minutes on 2 cores
    python benchmarks/kafka.py --quick               200,000 records: only checks that it works
    python benchmarks/kafka.py --only pairs
    python benchmarks/kafka.py --only debezium       2 million changes of a table, and with 1 % of odd ones
    python benchmarks/kafka.py --only avro           2 million changes in Avro against from_avro, and in JSON
    python benchmarks/kafka.py --only encodings      2 million rows in JSON, Avro, Protobuf and JSON Schema
    python benchmarks/kafka.py --only topics         the lag of 50 topics in one job
    python benchmarks/kafka.py --only sink           2 million rows into a topic, against the producer alone
    python benchmarks/kafka.py --only shown --quick  the lag that status shows against the lag from outside

A broker is started for it. Each variant parses the same JSON into the same columns, in one Spark session. The
plain way copies the ranges to Parquet with default settings, then DuckDB creates the table from the copy;
streaming does the same in foreachBatch with availableNow. Rounds alternate; the first one warms up.
"""

import argparse
import base64
import io
import json
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import kafka_encodings
import kafka_sink
import measure
import psutil
from control import wait_for
from measure import JOB, Figure, percentile, quartiles, scratch
from shown import Shown
from topic_job import CONFIG, PARTITIONS, TopicJob, in_turn, our_way, produce, registered

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import Column, DataFrame, SparkSession

SECTIONS = ("pairs", "debezium", "avro", "encodings", "live", "shown", "topics", "sink")
BATCH = 250
TOPIC = "orders"
TABLES = tuple(f"t{number}" for number in range(50))
COLUMNS = "id BIGINT, customer BIGINT, status STRING, amount DECIMAL(10,2), note STRING"
CHANGED = f"{COLUMNS}, created TIMESTAMP_NTZ, due DATE"
CHANGES = 2_000_000
PAID = f"{CHANGED}, paid BOOLEAN"


def record(number: int) -> bytes:
    """100 bytes of JSON."""
    status = ("new", "paid", "sent")[number % 3]
    body = f'{{"id":{number},"customer":{number * 7919 % 1_000_003},"status":"{status}",'
    body += f'"amount":{number % 100_000 / 100:.2f},"note":"'
    return (body + "x" * (98 - len(body)) + '"}').encode()


def envelope(number: int) -> bytes:
    """About 450 bytes: an insert as Debezium's connector for PostgreSQL writes it, without its schema block."""
    unscaled = number % 100_000
    amount = base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big")).decode()
    row = json.loads(record(number)) | {"amount": amount, "due": 20_000 + number % 365}
    source = {
        "version": "3.2.0.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_760_000_000_000 + number,
    }
    source |= {"snapshot": "false", "db": "shop", "schema": "public", "table": "orders", "sequence": None}
    source |= {"txId": 700 + number // 100, "lsn": 24_000_000 + 200 * number, "xmin": None}
    told = {"before": None, "after": row | {"created": 1_760_000_000_000_000 + number}, "source": source}
    return json.dumps({**told, "transaction": None, "op": "c", "ts_ms": 1_760_000_000_500 + number}).encode()


def odd(number: int) -> bytes:
    """Of a hundred, one has a number in a column of texts, which is read as its digits."""
    told = envelope(number)
    return told if number % 100 else re.sub(rb'"note": "x*"', b'"note": 5', told)


def paid(number: int) -> dict[str, Any]:
    """An envelope with a row of eight columns."""
    told: dict[str, Any] = json.loads(envelope(number))
    told["after"]["paid"] = number % 2 == 0
    return told


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": fields[one]} for one in fields]}


def _optional(kind: Any) -> list[Any]:
    return ["null", kind]


def _of_connect(kind: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, "connect.version": 1, **more}


_AMOUNT = {"scale": "2", "connect.decimal.precision": "10"}
_ROW = _record(
    "Value",
    id="long",
    customer=_optional("long"),
    status=_optional("string"),
    amount=_optional(
        _of_connect(
            "bytes",
            "org.apache.kafka.connect.data.Decimal",
            **{"connect.parameters": _AMOUNT, "logicalType": "decimal", "precision": 10, "scale": 2},
        )
    ),
    note=_optional("string"),
    due=_optional(_of_connect("int", "io.debezium.time.Date")),
    created=_optional(_of_connect("long", "io.debezium.time.MicroTimestamp")),
    paid=_optional("boolean"),
)
_SOURCE = {
    **dict.fromkeys(("version", "connector", "name"), "string"),
    "ts_ms": "long",
    "snapshot": _optional("string"),
    "db": "string",
    "schema": "string",
    "table": "string",
    "sequence": _optional("string"),
    **dict.fromkeys(("txId", "lsn", "xmin"), _optional("long")),
}
AVRO = {
    **_record(
        "Envelope",
        before=_optional(_ROW),
        after=_optional("Value"),
        source=_record("Source", **_SOURCE),
        transaction=_optional(
            _record("block", id="string", total_order="long", data_collection_order="long"),
        ),
        op="string",
        ts_ms=_optional("long"),
    ),
    "namespace": "shop.public.orders",
}
"""As Debezium writes it by Confluent's converter."""


def in_avro(id: int) -> Callable[[int], bytes]:
    """What writes envelopes with this schema's id in front."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
    head = b"\0" + id.to_bytes(4, "big")

    def make(number: int) -> bytes:
        told = paid(number)
        told["after"]["amount"] = base64.b64decode(told["after"]["amount"])
        into = io.BytesIO()
        fastavro.schemaless_writer(into, schema, told)
        return head + into.getvalue()

    return make


def of_events(bootstrap: str) -> dict[str, str]:
    """What a job over the topic of events has."""
    value = f'format = "events", schema = "{COLUMNS}"'
    return {"bootstrap": bootstrap, "topic": TOPIC, "value": value}


def parsed(records: "DataFrame") -> "DataFrame":
    """What all variants load: place and time of a record, and the columns of its value."""
    from pyspark.sql import functions as F

    row = F.from_json(F.col("value").cast("string"), COLUMNS).alias("row")
    return records.select(*placed(), row).select(*PLACE, "row.*")


PLACE = ("kafka_partition", "kafka_offset", "kafka_timestamp")


def placed() -> "list[Column]":
    """Where a record is, and its time."""
    from pyspark.sql import functions as F

    return [F.col(name.removeprefix("kafka_")).alias(name) for name in PLACE]


def from_avro(records: "DataFrame") -> "DataFrame":
    """What Spark's reader makes of the rows in envelopes, behind the header of the schema's id."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro as read

    envelope = read(F.expr("substring(value, 6)"), json.dumps(AVRO))
    row = records.select(*placed(), envelope.alias("told")).select(*PLACE, "told.after.*")
    moments = {"due": F.date_from_unix_date("due"), "created": F.timestamp_micros("created")}
    return row.withColumns({**moments, "created": moments["created"].cast("timestamp_ntz")})


def plain_way(spark: "SparkSession", bootstrap: str, folder: Path) -> float:
    """Seconds for copy, then load."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.perf_counter()
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    parsed(source.option("startingOffsets", "earliest").load()).write.parquet(str(folder / "copy"))
    with duckdb.connect(str(folder / "plain.duckdb")) as db:
        db.execute(f"CREATE TABLE orders AS SELECT * FROM read_parquet('{folder}/copy/*.parquet')")
    took = time.perf_counter() - began
    shutil.rmtree(folder)
    return took


def streaming_way(
    spark: "SparkSession",
    bootstrap: str,
    folder: Path,
    topic: str = TOPIC,
    read: "Callable[[DataFrame], DataFrame]" = parsed,
) -> float:
    """Seconds for Structured Streaming over all existing records, each batch copied and loaded."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def load(batch: "DataFrame", number: int) -> None:
        batch.write.parquet(str(folder / f"copy-{number}"))
        with duckdb.connect(str(folder / "streaming.duckdb")) as db:
            rows = f"SELECT * FROM read_parquet('{folder}/copy-{number}/*.parquet')"
            there = db.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'orders'").fetchone()
            db.execute(f"INSERT INTO orders {rows}" if there and there[0] else f"CREATE TABLE orders AS {rows}")

    began = time.perf_counter()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    records = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = read(records).writeStream.foreachBatch(load).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    took = time.perf_counter() - began
    shutil.rmtree(folder)
    return took


def pairs(folder: Path, bootstrap: str, records: int, count: int) -> list[Figure]:
    """Ours ÷ plain and ours ÷ streaming, in one session."""
    spark = session()
    job = TopicJob(folder / "ours", folder, **of_events(bootstrap))
    rounds: list[tuple[float, float, float]] = []
    read = 0
    for number in range(count + 1):
        plain = plain_way(spark, bootstrap, folder / "plain")
        streaming = streaming_way(spark, bootstrap, folder / "streaming")
        ours, read = our_way(job, records)
        took = f"plain {plain:.2f} s, streaming {streaming:.2f} s, ours {ours:.2f} s"
        print(f"  round {number}: {took}", file=sys.stderr)
        rounds.append((plain, streaming, ours))
    rounds = rounds[1:]
    by_plain = [o / p for p, _, o in rounds]
    by_streaming = [o / s for _, s, o in rounds]
    middle = statistics.median(o for _, _, o in rounds)
    first, second = statistics.median(by_plain), statistics.median(by_streaming)
    note = f"plain {quartiles([p for p, _, _ in rounds])} s, ours {quartiles([o for _, _, o in rounds])} s"
    beside = f"streaming {quartiles([s for _, s, _ in rounds])} s"
    return [
        Figure("topic ÷ plain batch read", first, "", "≤ 1.0", first <= 1.0, tuple(by_plain), note),
        Figure("topic ÷ Structured Streaming", second, "", "≤ 0.8", second <= 0.8, tuple(by_streaming), beside),
        Figure("records a second", records / middle, "records/s", "-", True, higher=True),
        Figure("records read and thrown away", read - records, "", "0", read == records),
    ]


def session() -> "SparkSession":
    """The one of all sections: a Java that runs finds no data source in jars that come later."""
    import maven_jars  # in scripts/

    from backfill_cli.spark.session import open_session

    folders = (maven_jars.spark_source(), maven_jars.spark_avro())
    jars = ",".join(sorted(str(jar) for one in folders for jar in one.glob("*.jar")))
    return open_session("local[*]", {"spark.jars": jars})


def debezium(folder: Path, kafka: "Broker", records: int, rounds: int) -> list[Figure]:
    """A table's changes, and the same with 1 % of records that Arrow's parser cannot take, in turn."""
    session()
    value = f'format = "debezium", schema = "{CHANGED}", timestamps = "us", decimals = "precise"'
    jobs = {}
    for topic, make in (("changes", envelope), ("odd", odd)):
        kafka.create(topic, PARTITIONS)
        produce(kafka.bootstrap, 0, records, topic, make)
        of = {"bootstrap": kafka.bootstrap, "topic": topic, "value": value, "key": 'key = ["id"]'}
        jobs[topic] = TopicJob(folder / topic, folder, **of)
    took, cpu = in_turn(jobs, records, rounds)
    rates = [records / seconds for seconds in took["changes"]]
    more = [some / none for some, none in zip(took["odd"], took["changes"], strict=True)]
    most = statistics.median(more)
    spent = [statistics.median(cpu[topic]) for topic in jobs]
    return [
        Figure("Debezium", statistics.median(rates), "records/s", "-", True, tuple(rates), higher=True),
        Figure("Debezium, CPU", spent[0], "s/million", "-", True, tuple(cpu["changes"])),
        Figure("Debezium, 1 % odd ÷ clean", most, "", "≤ 1.3", most <= 1.3, tuple(more)),
        Figure("Debezium, 1 % odd, CPU", spent[1], "s/million", "-", True, tuple(cpu["odd"])),
    ]


def avro(folder: Path, kafka: "Broker", records: int, count: int) -> list[Figure]:
    """A table's changes in Avro by Spark's own reader, by ours, and ours of the same rows in JSON, in turn."""
    import registry  # in scripts/

    spark = session()
    with registry.running(folder / "registry") as held:
        made = {
            "avro": in_avro(registered(held.url, "avro-value", "AVRO", json.dumps(AVRO))),
            "json": lambda n: json.dumps(paid(n)).encode(),
        }
        jobs = {}
        for topic, make in made.items():
            kafka.create(topic, PARTITIONS)
            produce(kafka.bootstrap, 0, records, topic, make)
            value = f'format = "debezium", schema = "{PAID}", timestamps = "us", decimals = "precise"'
            value = 'format = "debezium", encoding = "avro"' if topic == "avro" else value
            of = {"bootstrap": kafka.bootstrap, "topic": topic, "value": value, "key": 'key = ["id"]'}
            jobs[topic] = TopicJob(folder / topic, folder, registry=held.url if topic == "avro" else "", **of)
        rounds: list[dict[str, float]] = []
        cpu: dict[str, list[float]] = {topic: [] for topic in jobs}
        for number in range(count + 1):
            took = {"streaming": streaming_way(spark, kafka.bootstrap, folder / "streaming", "avro", from_avro)}
            for topic, job in jobs.items():
                before = measure.cpu_s(psutil.Process())
                took[topic], _ = our_way(job, records)
                cpu[topic].append((measure.cpu_s(psutil.Process()) - before) * 1e6 / records)
            told = ", ".join(f"{way} {seconds:.2f} s" for way, seconds in took.items())
            print(f"  round {number}: {told}", file=sys.stderr)
            rounds.append(took)
    rounds = rounds[1:]
    by_streaming = [one["streaming"] / one["avro"] for one in rounds]
    by_json = [one["json"] / one["avro"] for one in rounds]
    first, second = statistics.median(by_streaming), statistics.median(by_json)
    rate = records / statistics.median(one["avro"] for one in rounds)
    spent = {topic: statistics.median(found[1:]) for topic, found in cpu.items()}
    note = f"CPU {spent['avro']:.1f} s/million, of JSON {spent['json']:.1f}"
    return [
        Figure("Avro, rate ÷ from_avro", first, "", "≥ 1.5", first >= 1.5, tuple(by_streaming), note, higher=True),
        Figure("Avro, rate ÷ JSON", second, "", "≥ 0.8", second >= 0.8, tuple(by_json), higher=True),
        Figure("Avro", rate, "records/s", "-", True, higher=True),
    ]


def lags(job: TopicJob, send: Callable[[int], None], seconds: float) -> tuple[list[float], int]:
    """Seconds from a batch's acknowledgement, one each quarter second, to its commit; and how many records in all.

    send: writes BATCH records, of which the first has this number.
    """
    from backfill_cli.catalog import Catalog

    landed: list[tuple[int, float]] = []
    with job.runner("start", "--config", str(job.config)):
        wait_for(job, "running", "upstream")
        due = time.monotonic()
        end = due + seconds
        sent = 0
        while due < end:
            send(sent)
            sent += BATCH
            landed.append((sent, time.time() * 1000))
            due += 0.25
            time.sleep(max(0.0, due - time.monotonic()))
        time.sleep(5)
    done, commits = 0, []
    for line in sorted(Catalog(job.catalog).ledger(JOB, 10_000), key=lambda line: line.epoch):
        done += line.changes_read
        commits.append((done, line.committed_ms))
    assert done == sent, f"{done} of {sent} records committed"
    found = [(next(ms for rows, ms in commits if rows >= upto) - at) / 1000 for upto, at in landed]
    return found[len(found) // 5 :], sent  # the first ones meet a cold JVM


def live(folder: Path, bootstrap: str, records: int, seconds: float) -> list[Figure]:
    """The lag of following one topic of events."""
    job = TopicJob(folder / "live", folder, **of_events(bootstrap), begin="latest").write()
    found, sent = lags(job, lambda begin: produce(bootstrap, records + begin, BATCH, TOPIC, record), seconds)
    middle, most = statistics.median(found), percentile(found, 0.95)
    note = f"{sent} records, 1000 a second, over {seconds:.0f} s; p95 {most:.2f} s"
    return [Figure("live lag, median", middle, "s", "≤ 2", middle <= 2, (), note)]


@dataclass(frozen=True)
class TopicsJob(TopicJob):
    """A job of many tables, each with a topic of its own, whose rows have a key."""

    def write(self) -> "TopicsJob":
        super().write()
        head, sink = self.config.read_text().split("[[tables]]")[0], CONFIG[CONFIG.index("[sink]") :]
        tables = "".join(f'[[tables]]\nname = "{name}"\nkey = ["id"]\n' for name in TABLES)
        head = head.replace(f'topic = "{self.topic}"', 'topics = "shop.{table}"')
        self.config.write_text(head + tables + sink.format(folder=self.folder))
        return self


def topics(folder: Path, kafka: "Broker", seconds: float) -> list[Figure]:
    """The lag of following 50 topics of two partitions in one job: 1,000 records a second in all, rows by key."""
    from confluent_kafka import Producer

    for name in TABLES:
        kafka.create(f"shop.{name}", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5})

    def send(begin: int) -> None:
        for number in range(begin, begin + BATCH):
            producer.produce(f"shop.{TABLES[number % len(TABLES)]}", record(number), partition=number // 50 % 2)
        assert producer.flush(30) == 0

    value = f'format = "rows", schema = "{COLUMNS}"'
    job = TopicsJob(folder / "topics", folder, bootstrap=kafka.bootstrap, value=value).write()
    found, sent = lags(job, send, seconds)
    with duckdb.connect(str(job.warehouse), read_only=True) as db:
        counted = sum(db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in TABLES)
    assert counted == sent, f"{counted} of {sent} rows are in the sink"
    middle, most = statistics.median(found), percentile(found, 0.95)
    note = f"{len(TABLES)} topics, {sent} records, 1000 a second in all, over {seconds:.0f} s; p95 {most:.2f} s"
    return [Figure("lag of 50 topics in one job, median", middle, "s", "≤ 1.5", middle <= 1.5, (), note)]


def shown(folder: Path, bootstrap: str, records: int, seconds: float) -> list[Figure]:
    """The lag in `status` of a topic, against that of batches of 250 records."""
    job = TopicJob(folder / "shown", folder, **of_events(bootstrap), begin="latest").write()
    sent = count(records, BATCH)
    watched = Shown(job, lambda: produce(bootstrap, next(sent), BATCH, TOPIC, record), 1.0)
    with job.runner("start", "--config", str(job.config)) as process:
        wait_for(job, "running", "upstream")
        watched.measure(process, seconds)
    return watched.figures(lambda line: line.changes_read / BATCH)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="200,000 records, 1 round, 15 s")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--folder", type=Path, help="keep the data here")
    given = parser.parse_args()
    records, rounds, seconds = (200_000, 1, 15.0) if given.quick else (given.records, given.rounds, 60.0)
    import broker  # in scripts/

    figures: list[Figure] = []
    with scratch(given.folder) as folder, broker.running(folder / "broker") as kafka:
        kafka.create(TOPIC, PARTITIONS)
        if {"pairs", "live", "shown"} & set(given.only):
            produce(kafka.bootstrap, 0, records, TOPIC, record)
        if "debezium" in given.only:
            figures += debezium(folder, kafka, min(records, CHANGES), rounds)
        if "avro" in given.only:
            figures += avro(folder, kafka, min(records, CHANGES), rounds)
        if "pairs" in given.only:
            figures += pairs(folder, kafka.bootstrap, records, rounds)
        if "live" in given.only:
            figures += live(folder, kafka.bootstrap, records, seconds)
        if "shown" in given.only:
            figures += shown(folder, kafka.bootstrap, records, seconds)
        if "topics" in given.only:
            figures += topics(folder, kafka, seconds)
        if "encodings" in given.only:
            figures += kafka_encodings.encodings(folder, kafka, min(records, CHANGES), rounds)
        if "sink" in given.only:
            figures += kafka_sink.sink(folder, kafka, min(records, CHANGES), rounds)
    sizes = {"records": records, "bytes": len(record(0)), "partitions": PARTITIONS, "rounds": rounds}
    return 0 if measure.report("kafka", figures, sizes) or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
