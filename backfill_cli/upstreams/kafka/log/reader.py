"""Ranges of the log as Arrow batches, read by confluent-kafka in Spark's Python workers, one task per range.

Messages become columns by lists, and rows by the formats of their values and keys.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks, Piece
from backfill_cli.kafka.cluster import Connection
from backfill_cli.kafka.edge import client
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.schema import schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.upstreams.kafka.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa


def tasks(connection: Connection, topic: str, ranges: Sequence[Range], reading: Reading, cores: int) -> ArrowTasks:
    """The rows of these ranges, columns `reading.columns`. Executors need this package's extra."""
    pieces = [(Piece(one.read, one), one.up_to - one.after) for one in ranges]
    make = partial(rows, connection, topic, reading)
    return ArrowTasks(make, arrow_tasks.packed(pieces, cores), schema_text(reading.columns))


def rows(connection: Connection, topic: str, reading: Reading, task: Range) -> "Iterator[pa.RecordBatch]":
    """The rows of one range in order of their offsets. Raises as `messages`."""
    import pyarrow as pa

    of = client().Message
    for found in messages(connection, topic, task):
        read = pa.repeat(pa.scalar(task.read, pa.int32()), len(found))
        where = place(found, task.partition)
        yield reading.rows(read, where, list(map(of.key, found)), list(map(of.value, found)))


def place(messages: Sequence[Any], partition: int) -> "dict[str, pa.Array]":
    """Where each row's record is: partition, offset, and time or NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of = client().Message
    ms = pa.array(list(map(itemgetter(1), map(of.timestamp, messages))), pa.int64())
    at = pc.if_else(pc.less(ms, 0), pa.scalar(None, pa.int64()), ms).cast(pa.timestamp("ms", "UTC"))
    return {
        "kafka_partition": pa.repeat(pa.scalar(partition, pa.int32()), len(messages)),
        "kafka_offset": pa.array(list(map(of.offset, messages)), pa.int64()),
        "kafka_timestamp": at.cast(pa.timestamp("us", "UTC")),
    }
