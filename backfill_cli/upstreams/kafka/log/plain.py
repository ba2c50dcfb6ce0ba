"""Events that no transform touches: the worker that reads the messages writes their rows, as Arrow batches.

A record that cannot be read fails the task, and the range is read again with each fault beside its record
(reading.py), to be counted, named or quarantined.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from backfill_cli.contracts import ArrowTasks, Piece, own
from backfill_cli.model.schema import columns_of, schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.upstreams.kafka.log import reader
from backfill_cli.upstreams.kafka.log.cluster import Connection
from backfill_cli.upstreams.kafka.reading import PLACE, Reading
from backfill_cli.upstreams.kafka.tasks import Range

if TYPE_CHECKING:
    import pyarrow as pa


_NOT_PLAIN = "backfill-not-plain"
"""Marks a task's failure, which passes through Spark as text."""


class _NotPlain(Exception):
    """Records that cannot be read: not an error, the tasks' `not_plain` recognises it."""


def tasks(
    connection: Connection,
    topic: str,
    reading: Reading,
    ranges: Sequence[Range],
    cores: int,
    trip: Callable[[], None],
) -> ArrowTasks:
    """The rows of these ranges, `(kafka columns, the value's)`.

    trip: called when a record cannot be read. The tasks raise what `reader.messages` does.
    """

    def not_plain(exc: Exception) -> bool:
        found = _NOT_PLAIN in str(exc)
        if found:
            trip()
        return found

    parts = arrow_tasks.packed([(Piece(one.read, one), one.up_to - one.after) for one in ranges], cores)
    schema = schema_text({**PLACE, **columns_of(reading.schema)})
    return ArrowTasks(partial(_rows, connection, topic, reading), parts, schema, not_plain)


def _rows(connection: Connection, topic: str, reading: Reading, task: Range) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    names = [*PLACE, *columns_of(reading.schema)]
    for batch in reader.rows(connection, topic, reading, task):
        if batch.column(own.ERROR).null_count < batch.num_rows:
            first = batch.column("kafka_offset")[0].as_py()
            raise _NotPlain(f"{_NOT_PLAIN}: partition {task.partition}, from offset {first} on")
        yield batch.select(names)
