"""The rows that differ between upstream and sink: counted, listed, and corrected.

Each takes one pass over both sides: rows are grouped by key, and the row of each side is compared per key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import or_
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable, own
from backfill_cli.engine.verify.digest import comparable, shown
from backfill_cli.model.balanced import balanced
from backfill_cli.model.digest import RANGES
from backfill_cli.model.schema import names_of
from backfill_cli.model.verify import DifferentRow
from backfill_cli.spark.names import backticked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Differences:
    """missing, extra, changed: as in TableVerdict. rows: the first of them.

    columns: by range, those that differ in rows that both sides have once.
    """

    missing: int
    extra: int
    changed: int
    rows: tuple[DifferentRow, ...]
    columns: Mapping[int, tuple[str, ...]]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)


def differences(expected: "DataFrame", held: "DataFrame", table: SinkTable, limit: int, part: str) -> Differences:
    """All differences counted, at most `limit` listed: first rows not occurring once on each side, then values.

    Each in key order. The job that finds the first ones also counts them. part: SQL for a row's range, of which
    there are at most 64: for each column, the ranges in which it differs are the bits of a number.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    more = F.col("upstream") - F.col("sink")
    counted = {
        "missing": F.sum(F.greatest(more, F.lit(0))),
        "extra": F.sum(F.greatest(-more, F.lit(0))),
        "changed": F.sum(F.when(more == 0, 1).otherwise(0)),
    }
    names = names_of(table.schema)
    bit = F.expr("shiftleft(1L, CAST(part AS INT))")
    for at in range(len(names)):
        counted[f"c{at}"] = F.bit_or(F.when((more == 0) & _differs(at), bit))
    keys = [F.col(f"k{at}") for at in range(len(table.key))]
    first = (
        _different(expected, held, table, part)
        .observe(seen, *(count.alias(name) for name, count in counted.items()))
        .orderBy(more == 0, *keys)
        .limit(limit)
        .select(
            *(F.expr(shown(table, name, f"k{at}")).alias(f"t{at}") for at, name in enumerate(table.key)),
            "upstream",
            "sink",
            *(_pair(at, table, name) for at, name in enumerate(names)),
        )
    )
    found = [row for one in first.toArrow().to_pylist() for row in _named(one, table, names)]
    told = seen.get
    missing, extra, changed, *bits = (int(told.get(name) or 0) for name in counted)
    columns = {at: tuple(n for n, b in zip(names, bits, strict=True) if b >> at & 1) for at in range(RANGES)}
    return Differences(missing, extra, changed, tuple(found[:limit]), columns)


def changes(expected: "DataFrame", held: "DataFrame", table: SinkTable) -> "DataFrame":
    """What makes the sink's rows those of `expected`: `(own.OP 'U'|'D', row…)`, unique by key, like net changes.

    All rows of a duplicate key are deleted, and one is written.
    """
    from pyspark.sql import functions as F

    names = names_of(table.schema)
    there = F.col("upstream") > 0
    row, key = F.col("row"), F.col("key")
    columns = [
        F.when(there, row.getField(name)).otherwise(key.getField(name)).alias(name)
        if name in table.key
        else row.getField(name).alias(name)
        for name in names
    ]
    op = F.when(there, "U").otherwise("D").alias(own.OP)
    return _different(expected, held, table, "0L").select(op, *columns)


def _different(expected: "DataFrame", held: "DataFrame", table: SinkTable, part: str) -> "DataFrame":
    """The keys that differ, one row each: `(k…, part, upstream, sink, ours, theirs, row, key)`.

    part: the key's range, by the given SQL. upstream, sink: row counts. ours, theirs: a row of each in comparable
    form. row: the upstream's, unchanged. key: the sink's.
    """
    from pyspark.sql import functions as F

    keys = [F.expr(comparable(table, name)).alias(f"k{at}") for at, name in enumerate(table.key)]
    names = names_of(table.schema)
    compared = F.struct(*(F.expr(comparable(table, name)).alias(f"c{at}") for at, name in enumerate(names)))
    row = F.struct(*(F.col(backticked(name)) for name in names))
    key = F.struct(*(F.col(backticked(name)) for name in table.key))
    keys.append(F.expr(part).alias("part"))
    ours = expected.select(*keys, compared.alias("ours"), row.alias("row"))
    theirs = held.select(*keys, compared.alias("theirs"), key.alias("key"))
    together = (
        ours.unionByName(theirs, allowMissingColumns=True)
        .groupBy(*(f"k{at}" for at in range(len(table.key))))
        .agg(
            F.count("ours").alias("upstream"),
            F.count("theirs").alias("sink"),
            *(F.first(name, ignorenulls=True).alias(name) for name in ("part", "ours", "theirs", "row", "key")),
        )
    )
    return together.where(balanced(or_, [F.col("upstream") != F.col("sink"), *map(_differs, range(len(names)))]))


def _differs(at: int) -> "Column":
    """Whether a value differs. Done per column: single columns can be comparable when whole rows are not."""
    from pyspark.sql import functions as F

    return ~F.col(f"ours.c{at}").eqNullSafe(F.col(f"theirs.c{at}"))


def _pair(at: int, table: SinkTable, name: str) -> "Column":
    """`v<at>`: whether a value differs, and both as text."""
    from pyspark.sql import functions as F

    ours, theirs = (F.expr(shown(table, name, f"{side}.c{at}")) for side in ("ours", "theirs"))
    return F.struct(_differs(at).alias("differs"), ours.alias("upstream"), theirs.alias("sink")).alias(f"v{at}")


def _named(found: dict[str, Any], table: SinkTable, names: list[str]) -> Iterator[DifferentRow]:
    """The differences of one key."""
    key = tuple((name, found[f"t{at}"]) for at, name in enumerate(table.key))
    if found["upstream"] != found["sink"]:
        yield DifferentRow(key, None, _count(found["upstream"]), _count(found["sink"]))
        return
    for at, name in enumerate(names):
        pair = found[f"v{at}"]
        if pair["differs"]:
            yield DifferentRow(key, name, pair["upstream"], pair["sink"])


def _count(rows: int) -> str:
    return f"{rows} row{'' if rows == 1 else 's'}"
