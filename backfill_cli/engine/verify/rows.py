"""The rows that differ between what the upstream says and what the sink holds, named."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable
from backfill_cli.engine.verify.digest import comparable, shown
from backfill_cli.model.schema import names_of
from backfill_cli.model.verify import DifferentRow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def different_rows(
    expected: "DataFrame", held: "DataFrame", table: SinkTable, limit: int
) -> tuple[DifferentRow, ...]:
    """At most `limit` differences: first rows that are not there once on both sides, then values; in key order."""
    found = _uneven(expected, held, table, limit)
    if len(found) < limit:
        keys = {row.key for row in found}
        values = _unequal(expected, held, table, limit)
        found += tuple(row for row in dict.fromkeys(values) if row.key not in keys)
    return found[:limit]


def _uneven(expected: "DataFrame", held: "DataFrame", table: SinkTable, limit: int) -> tuple[DifferentRow, ...]:
    """Keys that one side has more often than the other."""
    from pyspark.sql import functions as F

    ours = _keys(expected, table, "k").select("*", F.lit(1).alias("upstream"), F.lit(0).alias("sink"))
    theirs = _keys(held, table, "k").select("*", F.lit(0).alias("upstream"), F.lit(1).alias("sink"))
    keys = [F.col(f"k{at}") for at in range(len(table.key))]
    counted = ours.unionAll(theirs).groupBy(*keys).agg(F.sum("upstream").alias("u"), F.sum("sink").alias("s"))
    uneven = counted.where(F.col("u") != F.col("s")).orderBy(*keys).limit(limit)
    return tuple(
        DifferentRow(_key(row, table), None, _count(row["u"]), _count(row["s"]))
        for row in uneven.select(*_key_texts(table, "k"), "u", "s").toArrow().to_pylist()
    )


def _unequal(expected: "DataFrame", held: "DataFrame", table: SinkTable, limit: int) -> tuple[DifferentRow, ...]:
    """Values that differ where both sides have the key."""
    from pyspark.sql import functions as F

    names = names_of(table.schema)
    values = [name for name in names if name not in table.key]
    if not values:
        return ()
    ours, theirs = _side(expected, table, values, "u"), _side(held, table, values, "s")
    same = [F.col(f"u_k{at}").eqNullSafe(F.col(f"s_k{at}")) for at in range(len(table.key))]
    differs = [~F.col(f"u_c{at}").eqNullSafe(F.col(f"s_c{at}")) for at in range(len(values))]
    found = (
        ours.join(theirs, same)
        .where(reduce(or_, differs))
        .orderBy(*(F.col(f"u_k{at}") for at in range(len(table.key))))
        .limit(limit)
        .select(*_key_texts(table, "u_k"), *(_pair(at, differs[at]) for at in range(len(values))))
    )
    return tuple(
        DifferentRow(_key(row, table), name, row[f"v{at}"]["upstream"], row[f"v{at}"]["sink"])
        for row in found.toArrow().to_pylist()
        for at, name in enumerate(values)
        if row[f"v{at}"]["differs"]
    )


def _keys(rows: "DataFrame", table: SinkTable, prefix: str) -> "DataFrame":
    from pyspark.sql import functions as F

    return rows.select(
        *(F.expr(comparable(table, name)).alias(f"{prefix}{at}") for at, name in enumerate(table.key))
    )


def _side(rows: "DataFrame", table: SinkTable, values: list[str], side: str) -> "DataFrame":
    """`(k…, c… as they are compared, v… as text)`, prefixed by the side."""
    from pyspark.sql import functions as F

    keys = [F.expr(comparable(table, name)).alias(f"{side}_k{at}") for at, name in enumerate(table.key)]
    compared = [F.expr(comparable(table, name)).alias(f"{side}_c{at}") for at, name in enumerate(values)]
    texts = [F.expr(shown(table, name)).alias(f"{side}_v{at}") for at, name in enumerate(values)]
    return rows.select(*keys, *compared, *texts)


def _pair(at: int, differs: "Column") -> "Column":
    from pyspark.sql import functions as F

    pair = F.struct(differs.alias("differs"), F.col(f"u_v{at}").alias("upstream"), F.col(f"s_v{at}").alias("sink"))
    return pair.alias(f"v{at}")


def _key_texts(table: SinkTable, prefix: str) -> "list[Column]":
    """t0…: the key as text."""
    from pyspark.sql import functions as F

    return [F.expr(shown(table, name, f"{prefix}{at}")).alias(f"t{at}") for at, name in enumerate(table.key)]


def _key(row: dict[str, Any], table: SinkTable) -> tuple[tuple[str, str | None], ...]:
    return tuple((name, row[f"t{at}"]) for at, name in enumerate(table.key))


def _count(rows: int) -> str:
    return f"{rows} row{'' if rows == 1 else 's'}"
