"""Refuses values that a partition column of a Delta table cannot hold.

Delta's log holds them as text: two texts and empty bytes become NULL, other bytes are replaced, and times before
the year 1 lose their sign. A row with NULL in its key is found by no change.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.partitions import LONGEST_NAME, refuse_partitions
from backfill_cli.model.schema import columns_of
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NULL_IN_HIVE = "__HIVE_DEFAULT_PARTITION__"
YEAR_1_US = -62_135_596_800_000_000
_LOST = (
    f"'', {NULL_IN_HIVE}, U+0000, bytes that are not UTF-8, a time before the year 1, or what is too long for a "
    "folder's name"
)
_ESCAPED = r"""[\x01-\x1F\x7F"#%'*/:=?\\{\[\]^]"""
"""Characters for which a folder's name has three."""


def require_representable(frames: Iterable["DataFrame"], table: SinkTable, where: Where) -> None:
    """Raises BadData naming up to five rows with values that the table's partition columns cannot hold.

    frames: rows that are about to be written; those that are about to be deleted do not count.
    """
    opened = where.open()
    metadata, columns = opened.metadata(), columns_of(table.schema)
    there = {name.lower(): name for name in columns}
    parts = [there[name.lower()] for name in metadata.partition_columns if name.lower() in there]
    in_path = where.place.local and metadata.configuration.get("delta.columnMapping.mode", "none") == "none"
    tests = {name: test for name in parts if (test := _lost(name, columns[name]["type"], in_path)) is not None}
    refuse_partitions(frames, table, where.shown, tests, _LOST)


def _lost(name: str, kind: Any, in_path: bool) -> "Column | None":
    """Under which condition a value is lost; None if the type has no such value."""
    from pyspark.sql import functions as F

    if kind == "timestamp":
        return F.unix_micros(quoted(name)) < YEAR_1_US
    if kind not in ("string", "binary"):
        return None
    text = quoted(name).cast("string")
    lost = text.isin("", NULL_IN_HIVE) | ~F.is_valid_utf8(text) | text.contains("\0")
    if in_path:
        room = LONGEST_NAME - len(f"{name}=".encode())
        lost = lost | (F.octet_length(F.regexp_replace(text, _ESCAPED, "%00")) > room)
    return lost
