"""Finds in a change log of Debezium that two rows had one key for a while: the source checks the key late.

`UPDATE t SET id = id + 1` then puts a row at the key of another one, which leaves that key afterwards. The log
names rows by their keys only: which of the two a delete removes is not in it, except by the images. It is proven
if, after a row was put at a key, the same transaction removes one that had other values, or is of another table.

Sources that check each row never write that, except by delivering a part of a transaction again: therefore the
place in its log must increase. Only PostgreSQL and Oracle can check late, and their connectors write the place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.formats import exact
from backfill_cli.formats.debezium_order import LATE_KEY_HINT
from backfill_cli.formats.source_table import source_of
from backfill_cli.model.schema import Columns, SparkType, field
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.names import quoted

PLACE = ("txId", "lsn", "scn", "rs_id", "ssn")
"""What a source says of a change's transaction and place in its log: numbers or texts."""

_LATE = "one transaction put a row at this key and then removed another row from it; key"


def beside(images: Sequence[str], columns: Columns) -> Columns:
    """`own.TRACE`, which `refusing` needs of each change.

    Its transaction, place and table, and of the row that it removes, if it removes one, the values of `images`:
    `gone`, NULL where they are not known, and `sure`, whether each is the row's, and not what stands for none.
    """
    old: SparkType = {
        "type": "struct",
        "fields": [field(f"c{i}", columns[name]["type"]) for i, name in enumerate(images)],
    }
    texts = [field(name, "string") for name in ("tx", "number", "record", "row", "table")]
    sure: SparkType = {"type": "array", "elementType": "boolean", "containsNull": True}
    parts = [*texts, *([field("gone", old)] if images else []), field("sure", sure)]
    return {own.TRACE: field(own.TRACE, {"type": "struct", "fields": parts})}


def place_of(source: Mapping[str, Any]) -> tuple[str | None, ...]:
    """(tx, number, record, row, table) by an envelope's `source`."""
    tx, lsn, scn, record, row = (None if source.get(name) is None else str(source[name]) for name in PLACE)
    return tx, scn if lsn is None else lsn, record, row, source_of({"source": source})


def refusing(
    changes: DataFrame, key: Sequence[str], images: Sequence[str], with_block: bool, place: Column
) -> DataFrame:
    """The changes, without `own.TRACE`; a removal that proves that the source checks the key late raises.

    with_block: whether schema blocks say which values in `before` are not the row's. Without them, the values of a
    column are the rows' if the old rows of the transaction have two of them. place: names a change in errors.
    """
    from pyspark.sql.window import Window

    of_key = Window.partitionBy(*(quoted(name) for name in key)).orderBy(own.SEQ)
    traced = changes.withColumn(own.TRACE, _trace(images))
    traced = traced.withColumn(own.BEFORE, F.lag(own.TRACE).over(of_key))
    now, held = F.col(own.TRACE), F.col(own.BEFORE)
    sure = now["sure"]
    if not with_block:
        image = F.coalesce(now["tx"].isNotNull() & F.exists(now["gone"], lambda v: v.isNotNull()), F.lit(False))
        apart = [F.when(~image, quoted(name)) for name in key]  # the other rows stay spread over the tasks
        of_images = Window.partitionBy(F.when(image, now["tx"]), F.when(image, now["table"]), *apart)
        one = [now["gone"][i] for i in range(len(images))]
        two = [F.min(value).over(of_images) != F.max(value).over(of_images) for value in one]
        traced = traced.withColumn(own.HELD, F.array(*two).cast("array<boolean>"))
        sure = F.col(own.HELD)
    values = F.arrays_zip(now["gone"].alias("gone"), held["put"].alias("put"), sure.alias("sure"))
    other = (held["table"] != now["table"]) | F.coalesce(
        F.exists(values, lambda v: v["sure"] & (v["gone"] != v["put"])), F.lit(False)
    )
    both = held["put"].isNotNull() & now["gone"].isNotNull() & (held["tx"] == now["tx"])
    late = F.coalesce(both & (held["lsn"] < now["lsn"]) & other, F.lit(False))
    shown = F.concat_ws(", ", *(quoted(name).cast("string") for name in key))
    op = F.when(late, exact.refused(place, _LATE, shown, LATE_KEY_HINT).cast("string")).otherwise(F.col(own.OP))
    return traced.withColumn(own.OP, op).drop(own.TRACE, own.BEFORE, own.HELD)


def _trace(images: Sequence[str]) -> Column:
    """`own.TRACE` with hashes instead of values. NULL may be a column that did not exist yet: it has no hash."""
    told = F.col(own.TRACE)

    def hashes(values: Sequence[Column]) -> Column:
        return F.array(*(F.when(one.isNotNull(), F.xxhash64(one)) for one in values)).cast("array<bigint>")

    number = told["number"].try_cast("decimal(38,0)")
    lsn = F.struct(
        number.alias("number"), told["record"].alias("record"), told["row"].try_cast("bigint").alias("row")
    )
    gone = hashes([told["gone"][f"c{i}"] for i in range(len(images))])
    return F.struct(
        F.when(number.isNotNull(), told["tx"]).alias("tx"),
        told["table"].alias("table"),
        lsn.alias("lsn"),
        F.when(F.col(own.OP) == "U", hashes([quoted(name) for name in images])).alias("put"),
        F.when(told["sure"].isNotNull(), gone).alias("gone"),
        told["sure"].alias("sure"),
    )
