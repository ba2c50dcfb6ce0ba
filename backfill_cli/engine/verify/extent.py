"""The comparison of a part of a table, for a refill and `verify --range`: its rows on both sides, what differs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_cli.contracts import SinkCopy, SinkTable, own
from backfill_cli.engine.staging.files import observed, write
from backfill_cli.engine.verify.progress import Steps
from backfill_cli.engine.verify.table import changes, comparable, differences
from backfill_cli.model.digest import DigestSpec, KeyRanges, Word, spec_of
from backfill_cli.model.pushdown import WHOLE, Condition, Op, Value
from backfill_cli.model.refill import Extent
from backfill_cli.model.schema import columns_of, names_of
from backfill_cli.model.verify import TableVerdict
from backfill_cli.spark.names import quoted

FARTHEST = 2**60
"""Of bounds that a sink is given: their distance does not overflow."""


@dataclass(frozen=True)
class Part:
    """Rows of both sides whose keys are the same set, whatever is in them."""

    table: SinkTable
    expected: DataFrame
    held: DataFrame
    found: TableVerdict | None = None

    @property
    def verdict(self) -> TableVerdict:
        """What was found; as long as nobody has looked, they are taken to differ: what makes them equal tells."""
        return self.found or TableVerdict(self.table.name, self.table.target, False, 0, 0)

    def changes(self) -> DataFrame:
        return changes(self.expected, self.held, self.table)


def comparing(extent: Extent, folder: Path) -> "Callable[..., Part]":
    """As `table.compare`, of a part of the table. folder: for rows, shared with Spark."""
    return partial(_part, extent, folder)


def judging(extent: Extent) -> "Callable[..., Part]":
    """As `table.compare`, of a range of keys: row by row, in one pass over both sides."""
    return partial(_judged, extent)


def _judged(
    extent: Extent,
    spark: SparkSession,
    expected: DataFrame,
    copy: SinkCopy,
    table: SinkTable,
    limit: int,
    sample: float | None,
    steps: Steps,
) -> Part:
    part = _part(extent, Path(), spark, expected, copy, table, limit, sample, steps)
    with steps.work(f"comparing table {table.target}, keys {extent.keys}"):
        (ours, upstream), (theirs, sink) = observed(part.expected, {}), observed(part.held, {})
        found = differences(ours, theirs, table, limit, "0L")
    verdict = TableVerdict(
        table.name,
        table.target,
        not found,
        upstream()["rows"],
        sink()["rows"],
        rows=found.rows,
        missing=found.missing,
        extra=found.extra,
        changed=found.changed,
    )
    return replace(part, found=verdict)


def _part(
    extent: Extent,
    folder: Path,
    spark: SparkSession,
    expected: DataFrame,
    copy: SinkCopy,
    table: SinkTable,
    _limit: int,
    _sample: float | None,
    steps: Steps,
) -> Part:
    names = names_of(table.schema)
    held = copy.frame(spark, table, names, _words(extent, table))
    if (between := bounds(extent, table)) is not None:
        expected, held = expected.where(between), held.where(between)
    if not extent.where:
        return Part(table, expected, held)
    with steps.work(f"reading the rows of {table.target} that match"):
        return _matching(extent.where, spark, expected, held, table, folder)


def _matching(
    where: str, spark: SparkSession, expected: DataFrame, held: DataFrame, table: SinkTable, folder: Path
) -> Part:
    """Rows that match on either side, with the row that the other side has of their keys: a row that matches no
    longer is not removed."""
    keys = [own.numbered(own.KEY, at) for at in range(len(table.key))]
    keyed = [F.expr(comparable(table, name)).alias(key) for name, key in zip(table.key, keys, strict=True)]
    theirs = held.where(where).select(*keyed).distinct().withColumn(own.MARK, F.lit(True))
    ours = expected.select(F.expr(f"coalesce(({where}), false)").alias(own.HELD), *keyed, "*")
    ours = ours.join(theirs, keys, "left").where(f"{own.HELD} OR {own.MARK}")
    write(ours.drop(own.MARK, *keys), folder)  # once: the sink's side has to know which keys match here
    found = spark.read.parquet(str(folder))
    matched = found.where(own.HELD).select(*keyed).distinct().withColumn(own.MARK, F.lit(True))
    there = held.select(F.expr(f"coalesce(({where}), false)").alias(own.HELD), *keyed, "*")
    there = there.join(matched, keys, "left").where(f"{own.HELD} OR {own.MARK}")
    return Part(table, found.select(*_names(table)), there.select(*_names(table)))


def _names(table: SinkTable) -> list[Column]:
    return [quoted(name) for name in names_of(table.schema)]


def pushed(extent: Extent, table: SinkTable, key: str) -> tuple[Condition, ...]:
    """What the upstream can leave out, see model/pushdown.py. key: the first key column's name there."""
    kind = str(columns_of(table.schema)[table.key[0]]["type"])
    told: tuple[tuple[Op, str | None], ...] = ((">=", extent.first), ("<=", extent.last))
    return tuple(Condition(key, op, (_value(bound, kind),)) for op, bound in told if bound is not None)


def _value(bound: str, kind: str) -> Value:
    if kind in WHOLE:
        return int(bound)
    return Decimal(bound) if kind.startswith("decimal(") else bound


def bounds(extent: Extent, table: SinkTable, key: str = "") -> Column | None:
    """Whether a row's first key column is between the bounds; None without any. key: its name, not in the sink."""
    first = quoted(key or table.key[0])
    found = [
        first >= F.lit(extent.first).cast(_type(table)) if extent.first is not None else None,
        first <= F.lit(extent.last).cast(_type(table)) if extent.last is not None else None,
    ]
    known = [one for one in found if one is not None]
    return (known[0] if len(known) == 1 else known[0] & known[1]) if known else None


def _type(table: SinkTable) -> str:
    import json

    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(table.schema))[table.key[0]].dataType.simpleString()


def _words(extent: Extent, table: SinkTable) -> tuple[DigestSpec, KeyRanges, Sequence[int]] | None:
    """What the sink itself can leave out: for whole numbers between two bounds."""
    spec = spec_of(table.schema, table.key, frozenset())
    if spec is None or spec.columns[0].word is not Word.INTEGER or extent.first is None or extent.last is None:
        return None
    low, high = int(extent.first), int(extent.last)
    if not -FARTHEST < low <= high < FARTHEST:
        return None
    key = DigestSpec(spec.key, spec.columns[: len(spec.key)])
    width = high - low + 1
    return key, KeyRanges(low - width, width, 3), [1]  # what is below and above falls into the outer two
