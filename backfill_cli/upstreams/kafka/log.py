"""Ranges of the log as Arrow batches, read by confluent-kafka in Spark's Python workers, a task a range.

A table function over one number a range, as for slices of Parquet files: planning a Python data source starts
processes of its own. Messages become columns by lists, 10,000 at once; values are decoded elsewhere.
"""

import sys
import time
import zipimport
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import HistoryGone, Transient
from backfill_cli.upstreams.formats.edge import raising_in_worker
from backfill_cli.upstreams.kafka import fast_json
from backfill_cli.upstreams.kafka.cluster import Connection
from backfill_cli.upstreams.kafka.edge import Heard, asking, client, ours
from backfill_cli.upstreams.kafka.fast_json import ShortWay
from backfill_cli.upstreams.kafka.tasks import Range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_MESSAGES = 10_000
_BATCH_BYTES = 8 << 20
"""A batch is smaller where messages are large, so that a task's memory is bounded."""

_POLL_S = 0.1
"""A poll waits this long for messages that never come: offsets of markers and of what compaction took."""

NOT_PLAIN = "not all records are plain objects of the table's types: they are read again with care"

SILENCE_S = 30.0
"""No message and no end of the log for this long: the broker is gone."""

RECORDS = (
    "_read INT, kafka_partition INT, kafka_offset BIGINT, kafka_timestamp TIMESTAMP, _key BINARY, _value BINARY"
)
"""Spark schema of records as they come from the log."""


PLAIN = "_read INT, kafka_partition INT, kafka_offset BIGINT, kafka_timestamp TIMESTAMP"
"""What is left of them where every value is expected to go the short way."""


def schema_of(way: ShortWay | None) -> str:
    """Spark schema of records: RECORDS, and with a short way what it adds."""
    if way is None:
        return RECORDS
    return f"{PLAIN}, {way.spark_columns()}" if way.alone else f"{RECORDS}, {way.spark_fields()}"


def frame(
    spark: "SparkSession", connection: Connection, topic: str, tasks: Sequence[Range], way: ShortWay | None
) -> "DataFrame":
    """The records of these ranges, columns `schema_of(way)`, one task each. Executors need this package's extra.

    Raises when computed, as text that `failure` takes apart: HistoryGone for offsets that the log no longer has,
    Transient where the broker is silent or the log ends before a range does.
    """
    from pyspark.sql.functions import arrow_udtf

    wanted = tuple(tasks)

    class Log:
        def eval(self, numbers: Any) -> Iterator[Any]:
            return _of_numbers(connection, topic, wanted, way, numbers.column(0).to_pylist())

    numbers = spark.range(0, len(wanted), 1, len(wanted))
    read: Any = arrow_udtf(Log, returnType=schema_of(way))
    found: DataFrame = read(numbers.asTable())
    return found


def _of_numbers(
    connection: Connection, topic: str, tasks: Sequence[Range], way: ShortWay | None, numbers: Sequence[int]
) -> Iterator["pa.RecordBatch"]:
    """Runs in a worker: the records of the ranges whose numbers it is given."""
    for number in numbers:
        with raising_in_worker():
            yield from batches(connection, topic, tasks[number], way)
    _forget_zips()


def _forget_zips() -> None:
    """Drop Python's open archives, as it finds them again by itself: they cost a reused worker 0.1 s a task."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def batches(
    connection: Connection, topic: str, task: Range, way: ShortWay | None = None
) -> Iterator["pa.RecordBatch"]:
    """The records of one range in order of their offsets.

    Raises HistoryGone when the log begins after `task.after`, asked again when all is read: what was deleted
    meanwhile may have been left out without a word.
    """
    kafka = client()
    heard = Heard()
    where = kafka.TopicPartition(topic, task.partition, task.after)
    with asking(connection, f"reading partition {task.partition}", heard):
        consumer = kafka.Consumer({**_settings(connection, task), **heard.settings()})
        try:
            consumer.assign([where])
            for messages in _messages(consumer, connection, task, heard):
                yield _as_batch(messages, task, way)
            _still_there(consumer, where, task)
        finally:
            consumer.close()


def _settings(connection: Connection, task: Range) -> dict[str, Any]:
    return {
        # no more is fetched ahead than the range holds
        "queued.min.messages": min(100_000, task.up_to - task.after),
        # the default, 1 s, leaves the task waiting whenever its queue was full: 2.5 times as slow (measured)
        "fetch.queue.backoff.ms": 1,
        # the default, 500 ms, is what a range that ends in a marker waited for to hear that nothing follows
        "fetch.wait.max.ms": 20,
        **connection.settings(),
        # no group: nothing is committed to the broker, and what is read is decided here
        "group.id": "backfill",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": connection.isolation,
    }


def _messages(consumer: Any, connection: Connection, task: Range, heard: Heard) -> Iterator[list[Any]]:
    """The range's messages in lists. Ends when the reader stands at `up_to` or beyond, messages or not."""
    kafka = client()
    reached, size, quiet_since = task.after, 1_000, time.monotonic()
    while reached < task.up_to:
        messages = consumer.consume(min(size, task.up_to - reached), _POLL_S)
        if not messages:
            if time.monotonic() - quiet_since > SILENCE_S:
                raise _silent(connection, task, reached, heard)
            continue
        ended = None
        if messages[-1].error() or any(map(kafka.Message.error, messages)):
            messages, ended = _without_events(messages, connection, task, heard)
        if messages:
            quiet_since = time.monotonic()
            reached = messages[-1].offset() + 1
            size = _next_size(messages)
            while messages and messages[-1].offset() >= task.up_to:
                messages.pop()
            if messages:
                yield messages
        if ended is not None:
            reached = max(reached, ended)
            if reached < task.up_to and time.monotonic() - quiet_since > SILENCE_S:
                raise _ends_early(connection, task, reached)


def _without_events(
    messages: list[Any], connection: Connection, task: Range, heard: Heard
) -> tuple[list[Any], int | None]:
    """The messages alone, and the offset that the log's end was told at. Raises what the client reports."""
    error_of = client().KafkaError
    ended = None
    for message in messages:
        error = message.error()
        if error is None:
            continue
        if error.code() == error_of._PARTITION_EOF:
            ended = message.offset()
        elif error.code() in (error_of._AUTO_OFFSET_RESET, error_of.OFFSET_OUT_OF_RANGE):
            raise gone(task.partition, task.after, None)
        elif error.fatal() or not error.retriable():
            raise ours(error, connection, f"reading partition {task.partition}", heard)
    return [message for message in messages if message.error() is None], ended


def _next_size(messages: Sequence[Any]) -> int:
    """How many messages the next poll may bring, by the size of the first of these."""
    average = sum(len(m.value() or b"") for m in messages[:10]) / len(messages[:10]) + 100
    return max(1, min(_MESSAGES, int(_BATCH_BYTES / average)))


def _as_batch(messages: Sequence[Any], task: Range, way: ShortWay | None) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    of, count = client().Message, len(messages)
    ms = pa.array(list(map(itemgetter(1), map(of.timestamp, messages))), pa.int64())
    at = pc.if_else(pc.less(ms, 0), pa.scalar(None, pa.int64()), ms).cast(pa.timestamp("ms", "UTC"))
    values = list(map(of.value, messages))
    columns: dict[str, pa.Array] = {
        "_read": pa.repeat(pa.scalar(task.read, pa.int32()), count),
        "kafka_partition": pa.repeat(pa.scalar(task.partition, pa.int32()), count),
        "kafka_offset": pa.array(list(map(of.offset, messages)), pa.int64()),
        "kafka_timestamp": at.cast(pa.timestamp("us", "UTC")),
    }
    if way is not None and way.alone:
        return pa.RecordBatch.from_pydict(columns | _plain(values, way, task, messages[0].offset()))
    columns["_key"] = pa.array(list(map(of.key, messages)), pa.binary())
    columns["_value"] = pa.array(values, pa.binary())
    if way is not None:
        columns |= _short(columns["_value"], values, way)
    return pa.RecordBatch.from_pydict(columns)


def _plain(values: Sequence[bytes | None], way: ShortWay, task: Range, offset: int) -> "dict[str, pa.Array]":
    """The way's columns alone. Raises Transient, told by NOT_PLAIN, where the batch has to go the long way."""
    found = fast_json.read(values, way)
    if found is None:
        raise Transient(f"partition {task.partition}, from offset {offset} on: {NOT_PLAIN}", "nothing to do")
    return {f"_c{i}": column for i, column in enumerate(found)}


def _short(value: "pa.Array", values: Sequence[bytes | None], way: ShortWay) -> "dict[str, pa.Array]":
    """`_short` and the way's columns, all NULL where the batch goes the long way.

    A value that went the short way is not sent to Spark too: all it needs to know is whether there was one.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = fast_json.read(values, way)
    count = len(values)
    told = {"_short": pa.repeat(pa.scalar(found is not None), count)}
    if found is None:
        return told | {f"_c{i}": pa.nulls(count, kind) for i, kind in enumerate(way.arrow_types())}
    there = pc.if_else(pc.is_valid(value), pa.scalar(b""), pa.scalar(None, pa.binary()))
    return told | {"_value": there} | {f"_c{i}": column for i, column in enumerate(found)}


def _still_there(consumer: Any, where: Any, task: Range) -> None:
    oldest, _ = consumer.get_watermark_offsets(where, timeout=SILENCE_S)
    if oldest > task.after:
        raise gone(task.partition, task.after, oldest)


def gone(partition: int, needed: int, oldest: int | None) -> HistoryGone:
    """The error for offsets that the log no longer has."""
    begins = "" if oldest is None else f": its log begins at {oldest}"
    return HistoryGone(
        f"partition {partition} no longer has offset {needed}{begins}",
        "keep the topic longer (retention.ms), drop the job and start anew, or give an archive of what is gone",
    )


def _silent(connection: Connection, task: Range, reached: int, heard: Heard) -> Transient:
    because = f" ({connection.scrubbed(heard.last)})" if heard.last else ""
    return Transient(
        f"{connection.servers}: partition {task.partition} says nothing for {SILENCE_S:.0f} s at offset {reached}"
        f"{because}",
        "start the broker, or mend upstream.bootstrap_servers",
    )


def _ends_early(connection: Connection, task: Range, reached: int) -> Transient:
    return Transient(
        f"{connection.servers}: partition {task.partition} ends at offset {reached}, and did not end before "
        f"{task.up_to} when it was planned",
        "its leader may have changed: wait for it; if records were lost, drop the job and start anew",
    )
