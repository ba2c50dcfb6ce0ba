"""Refuses values that a partition of a lake table cannot hold, before a row is written."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from backfill_cli.contracts import SinkTable, own
from backfill_cli.errors import START_OVER, BadData
from backfill_cli.lake.merge import NAMED_KEYS, shown_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LONGEST_NAME = 255
"""Bytes of a folder's name on this machine's disks."""


def refuse_partitions(
    frames: Iterable["DataFrame"], table: SinkTable, place: str, tests: Mapping[str, "Column"], what: str
) -> None:
    """Raises BadData naming up to five rows with values that the table's partitions cannot hold.

    frames: rows that are about to be written; those that are about to be deleted do not count. place: the table,
    for the message. tests: by column, under which condition its value cannot be held; never NULL for one that can.
    what: which values that are, for the hint.
    """
    for frame in frames if tests else ():
        _refuse(frame, table, place, tests, what)


def _refuse(frame: "DataFrame", table: SinkTable, place: str, tests: Mapping[str, "Column"], what: str) -> None:
    from pyspark.sql import functions as F

    written = frame.where(F.col(own.OP) == "U") if own.OP in frame.columns else frame
    first = F.coalesce(*(F.when(test, F.lit(name)) for name, test in tests.items()))
    lost = written.select(shown_key(table).alias("key"), first.alias("part")).where("part IS NOT NULL")
    found = lost.limit(NAMED_KEYS).toArrow().to_pylist()
    if found:
        name = found[0]["part"]
        keys = sorted(f"({one['key']})" for one in found if one["part"] == name)
        raise BadData(
            f"table {table.name!r}: {place} is partitioned by {name!r}, and cannot hold its value in the rows "
            f"with the key ({', '.join(table.key)}): {'; '.join(keys)}",
            f"a partition cannot hold {what}: {START_OVER}, into a table that is not partitioned "
            f"by {name!r}, or with other values for these in the transform's select, or without these rows by its "
            "where",
        )
