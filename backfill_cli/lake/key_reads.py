"""Reads of key ranges: closes open ones, and returns the rows of several as one Spark frame."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.lake.key_points import Point, predicate
from backfill_cli.lake.key_ranges import KeyRange, slice_end
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Held:
    """A closed read and its range."""

    read: SnapshotRead
    range: KeyRange

    @property
    def low(self) -> Point | None:
        return self.range.low if self.read.after is None else self.read.after

    @property
    def high(self) -> Point | None:
        return self.range.high if self.read.up_to is None else self.read.up_to


def closed_read(read: SnapshotRead, of: KeyRange) -> SnapshotRead:
    """The read with its end: a key inside the range, or the range's end. Nothing is read for it."""
    if read.limit_rows is None:
        return read
    return replace(read, up_to=slice_end(of, read.after, read.limit_rows), limit_rows=None)


def frame_of(table: "DataFrame", key: str, key_type: str, reads: Sequence[Held]) -> "DataFrame":
    """The rows of these reads, and `own.READ INT`. Adjacent reads share a condition: one scan reads them."""
    from pyspark.sql import functions as F

    column = backticked(key)
    bounds = [predicate(column, key_type, one.low, one.high) for one in reads]
    if len(reads) == 1:
        kept = table if bounds[0] is None else table.where(bounds[0])
        return kept.withColumn(own.READ, F.lit(0))
    wanted = [predicate(column, key_type, low, high) for low, high in _joined(reads)]
    if None not in wanted:
        table = table.where(" OR ".join(one for one in wanted if one is not None))
    read = "CASE " + " ".join(f"WHEN {bound} THEN {n}" for n, bound in enumerate(bounds)) + " END"
    return table.withColumn(own.READ, F.expr(read))


def _joined(reads: Sequence[Held]) -> list[tuple[Point | None, Point | None]]:
    """The ranges of these reads in the order of keys, with adjacent ones joined."""
    first = [one for one in reads if one.low is None]
    rest = sorted((one for one in reads if one.low is not None), key=_low)  # type: ignore[arg-type]
    joined: list[tuple[Point | None, Point | None]] = []
    for one in (*first, *rest):
        if joined and joined[-1][1] is not None and joined[-1][1] == one.low:
            joined[-1] = (joined[-1][0], one.high)
        else:
            joined.append((one.low, one.high))
    return joined


def _low(one: Held) -> Point | None:
    return one.low
