"""JSON objects that are no rows of a table: read as one they would be NULLs, or a deleted row would stay.

Each is told by names of fields that the table does not declare.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from backfill_cli.model.schema import Columns

if TYPE_CHECKING:
    from pyspark.sql import Column

_BLOCK = (
    "a row inside Kafka Connect's schema block: let its converter leave the block out (schemas.enable = false); "
    'Debezium\'s envelopes are read with value.format = "debezium"'
)
_ENVELOPE = 'an envelope of Debezium, and no row: read it with value.format = "debezium"'
_DELETED = (
    "a row that says __deleted, which would stay: let ExtractNewRecordState write tombstones "
    '(delete.tombstone.handling.mode = "tombstone"), or declare the column __deleted'
)
_KINDS = (
    (("schema", "payload"), _BLOCK, False),
    (("op", "before", "after"), _ENVELOPE, False),
    (("__deleted",), _DELETED, True),
)
"""(fields, what they tell, whether of rows with a key alone)"""


def _told(columns: Columns, keyed: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    for names, what, of_keys in _KINDS:
        if (keyed or not of_keys) and not columns.keys() & set(names):
            yield names, what


def texts(columns: Columns, keyed: bool) -> list[tuple[bytes, ...]]:
    """Groups of texts: a batch of records without all of one holds nothing foreign."""
    return [tuple(f'"{name}"'.encode() for name in names) for names, _ in _told(columns, keyed)]


def fault(text: str, columns: Columns, keyed: bool) -> "Column":
    """What an object is instead of a row; NULL for a row. keyed: rows have a key."""
    from functools import reduce

    from pyspark.sql import functions as F

    told, faults = F.col(text), []
    for names, what in _told(columns, keyed):
        near = reduce(lambda a, b: a & b, (told.contains(f'"{name}"') for name in names))
        keys = F.json_object_keys(told)
        all_there = reduce(lambda a, b: a & b, (F.array_contains(keys, name) for name in names))
        if names == ("__deleted",):
            all_there = F.get_json_object(told, "$.__deleted") == "true"
        faults.append(F.when(F.when(near, all_there), F.lit(what)))
    return F.coalesce(*faults) if faults else F.lit(None).cast("string")
