"""Ranges of the log as Arrow batches, read by confluent-kafka in Spark's Python workers.

Messages become columns by lists, and rows by the formats of their values and keys.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks, Piece, RangeTasks
from backfill_cli.contracts.decoder import InOrder
from backfill_cli.errors import of_table
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import client
from backfill_cli.kafka.messages import BATCH_BYTES, MESSAGES, read, whole
from backfill_cli.kafka.ranges import Range, Span, Wanted, together
from backfill_cli.model.schema import schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.upstreams.kafka.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa

_BATCHES = 4
"""So many are held of a task that reads several partitions: small ones cost nearly as much as large ones."""

Skips = defaultdict[tuple[str, Span], Counter[str]]
"""What was skipped for a table, by kind, of each span."""


def tasks(connection: Connection, topic: str, ranges: Sequence[Range], reading: Reading, cores: int) -> ArrowTasks:
    """The rows of these ranges, columns `reading.columns`. Executors need this package's extra."""
    pieces = [(Piece(one.read, one), one.up_to - one.after) for one in ranges]
    make = partial(rows, connection, topic, reading)
    return ArrowTasks(make, arrow_tasks.packed(pieces, cores), schema_text(reading.columns))


def range_tasks(
    connection: Connection, wanted: Sequence[Wanted], readings: Mapping[str, Reading], cores: int
) -> RangeTasks:
    """What is wanted, for several tables and of several topics, with one consumer a task. readings: by table."""
    parts = together(wanted, cores)
    schemas = {name: schema_text(reading.columns) for name, reading in readings.items()}
    offsets = sum(span.up_to - span.after for part in parts for span in part)
    edges = {name: one.decode.edges for name, one in readings.items() if isinstance(one.decode, InOrder)}
    return RangeTasks(partial(rows_together, connection, dict(readings)), parts, schemas, offsets, edges)


def rows(connection: Connection, topic: str, reading: Reading, task: Range) -> "Iterator[pa.RecordBatch]":
    """The rows of one range in order of their offsets. Raises as `kafka.messages.read`."""
    wanted = Wanted("", topic, task)
    for _, batch in rows_together(connection, {"": reading}, [whole(wanted)]):
        yield batch


def rows_together(
    connection: Connection, readings: Mapping[str, Reading], spans: Sequence[Span]
) -> "Iterator[tuple[int, pa.RecordBatch]]":
    """The rows of all spans, each batch with the read that it is of, in order of a read's offsets. As `read`."""
    held: dict[int, list[Any]] = {}
    skipped: Skips = defaultdict(Counter)
    size, most = 0, BATCH_BYTES * min(len(spans), _BATCHES)
    for at, found in read(connection, spans):
        held.setdefault(at, []).extend(found)
        size += sum(map(len, found)) + BATCH_BYTES // MESSAGES * len(found)
        if len(spans) == 1 or size > most:
            for one, messages_of in held.items():
                yield from _rows(readings, spans[one], messages_of, skipped)
            held, size = {}, 0
    for one, messages_of in held.items():
        yield from _rows(readings, spans[one], messages_of, skipped)
    for (table, span), counts in skipped.items():
        if (place := readings[table].skips) is not None:
            place.tell(f"{span.partition}-{span.after}", counts)


def _rows(
    readings: Mapping[str, Reading], span: Span, found: Sequence[Any], skipped: Skips
) -> "Iterator[tuple[int, pa.RecordBatch]]":
    """The rows of some messages of a span, for everybody who wants them; `skipped` grows."""
    import pyarrow as pa

    of = client().Message
    first, last = found[0].offset(), found[-1].offset()
    for one in span.wanted:
        mine, begin, end = found, one.range.after, one.range.up_to
        if first < begin or last >= end:
            mine = [message for message in found if begin <= message.offset() < end]
        if mine:
            number = pa.repeat(pa.scalar(one.range.read, pa.int32()), len(mine))
            keys, values = list(map(of.key, mine)), list(map(of.value, mine))
            at, told = place(mine, span.partition), skipped[one.table, span]
            with of_table(one.table):
                rows = readings[one.table].rows(number, at, keys, values, told)
            yield one.range.read, rows


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
