"""JSON objects that are not rows of a table: read as rows they would be NULLs, or a deleted row would stay.

Each kind is recognised by names of fields that the table does not declare.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from backfill_cli.model.schema import Columns

if TYPE_CHECKING:
    from pyspark.sql import Column

_BLOCK = (
    "a row wrapped in Kafka Connect's schema block: let its converter omit the block (schemas.enable = false); "
    'Debezium\'s envelopes are read with value.format = "debezium"'
)
_ENVELOPE = 'an envelope of Debezium, not a row: read it with value.format = "debezium"'
_DELETED = (
    "a row marked __deleted, which would stay: let ExtractNewRecordState write tombstones "
    '(delete.tombstone.handling.mode = "tombstone"), or declare the column __deleted'
)
_KINDS = (
    (("schema", "payload"), _BLOCK, False),
    (("op", "before", "after"), _ENVELOPE, False),
    (("__deleted",), _DELETED, True),
)
"""(fields, what they indicate, whether only in rows with a key)"""


def _told(columns: Columns, keyed: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    for names, what, of_keys in _KINDS:
        if (keyed or not of_keys) and not columns.keys() & set(names):
            yield names, what


def texts(columns: Columns, keyed: bool) -> list[tuple[bytes, ...]]:
    """Groups of texts: a batch that has no group complete holds nothing foreign."""
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
