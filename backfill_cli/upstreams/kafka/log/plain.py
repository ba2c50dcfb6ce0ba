"""Events whose columns need no expression of Spark's: the worker that reads the messages makes their rows.

That is what most topics hold: plain JSON objects of the declared types, or bytes. A batch with anything else fails
the read, which is then repeated on the checked path in Spark (decode/), where each fault is found in its record.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from backfill_cli.contracts import ArrowTasks, Piece
from backfill_cli.formats import fast_json
from backfill_cli.formats.fast_json import FastPath
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.upstreams.kafka.decode.events import BYTES, PLACE
from backfill_cli.upstreams.kafka.log import reader
from backfill_cli.upstreams.kafka.log.cluster import Connection
from backfill_cli.upstreams.kafka.log.edge import client
from backfill_cli.upstreams.kafka.tasks import Range

if TYPE_CHECKING:
    import pyarrow as pa


_NOT_PLAIN = "backfill-not-plain"
"""Marks a task's failure, which passes through Spark as text."""


class _NotPlain(Exception):
    """Records that only Spark can check: not an error, the tasks' `not_plain` recognises it."""


def tasks(
    connection: Connection,
    topic: str,
    value: Columns,
    fast: FastPath | None,
    ranges: Sequence[Range],
    cores: int,
    trip: Callable[[], None],
) -> ArrowTasks:
    """The rows of these ranges, `(kafka columns, the value's)`.

    fast: how values are read, None for bytes as they are. trip: called when they turn out not to be plain.
    The tasks raise what `reader.messages` does.
    """

    def not_plain(exc: Exception) -> bool:
        found = _NOT_PLAIN in str(exc)
        if found:
            trip()
        return found

    parts = arrow_tasks.packed([(Piece(one.read, one), one.up_to - one.after) for one in ranges], cores)
    return ArrowTasks(partial(_rows, connection, topic, fast), parts, schema_text({**PLACE, **value}), not_plain)


def _rows(connection: Connection, topic: str, fast: FastPath | None, task: Range) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    import pyarrow as pa

    of = client().Message
    for messages in reader.messages(connection, topic, task):
        values = list(map(of.value, messages))
        if fast is None:
            told = {name: pa.array(values, pa.binary()) for name in BYTES}
        else:
            told = _values(values, fast, task, messages[0].offset())
        yield pa.RecordBatch.from_pydict(reader.place(messages, task.partition) | told)


def _values(values: Sequence[bytes | None], fast: FastPath, task: Range, offset: int) -> "dict[str, pa.Array]":
    found = fast_json.read(values, fast)
    if found is None:
        raise _NotPlain(f"{_NOT_PLAIN}: partition {task.partition}, from offset {offset} on")
    return {name: column for (name, _), column in zip(fast.kinds, found, strict=True)}
