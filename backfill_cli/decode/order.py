"""Finds in a change log of Debezium that two rows had one key for a while: the source checks the key late.

`UPDATE t SET id = id + 1` then puts a row at the key of another one, which leaves that key afterwards. The log
names rows by their keys only: which of the two a delete removes is not in it, except by the images. It is proven
if, after a row was put at a key, the same transaction removes one that had other values, or is of another table.

Sources that check each row never write that, except by delivering a part of a transaction again: therefore the
place in its log must increase. Only PostgreSQL and Oracle can check late, and their connectors write the place.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.source_table import source_of
from backfill_cli.errors import START_OVER
from backfill_cli.model.schema import Columns, SparkType, field
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.failures import refused
from backfill_cli.spark.names import quoted

PLACE = ("txId", "lsn", "scn", "rs_id", "ssn")
"""What a source says of a change's transaction and place in its log: numbers or texts."""

_LATE = "one transaction put a row at this key and then removed another row from it; key"
_LATE_HINT = (
    "which rows are left is not in such a log: use a key that the source checks row by row "
    "(PostgreSQL: add the constraint again, NOT DEFERRABLE; Oracle: exchange no keys in a "
    "transaction), and in tables that are read as one, a key of which one row exists; then "
    + START_OVER
    + " from a new snapshot, and a log that begins after it"
)

_PARTS = ("tx", "number", "record", "row", "table", "has")


def is_placed(envelope: Mapping[str, Any]) -> bool:
    """Whether an envelope has its transaction and its place in the source's log."""
    source = envelope.get("source")
    told = source if isinstance(source, dict) else {}
    return told.get("txId") is not None and (told.get("lsn") or told.get("scn")) is not None


def can_be_late(envelopes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the log that has these envelopes can prove it: a few suffice, as all changes are placed, or none."""
    changes = [one for one in envelopes if is_placed(one) or one.get("op") in ("c", "u", "d")]
    return not changes or any(is_placed(one) for one in changes)


def blanks(told: Mapping[str, Any]) -> frozenset[str] | None:
    """What `before` has in a column whose value it lacks, beside NULL, by its field in the schema block.

    None if the field does not say it. An old row is whole (REPLICA IDENTITY FULL), or it has the values of some
    columns only, and in each other one its default, NULL or zero.
    """
    if told.get("default") is not None:
        default = told["default"]
        return frozenset({str(default).lower() if isinstance(default, bool) else str(default)})
    if "optional" not in told or (not told["optional"] and told.get("name")):
        return None
    zero = "" if told.get("type") in ("string", "bytes") else "0"
    return frozenset() if told["optional"] else frozenset({zero})


def comparable(key: Sequence[str], columns: Columns, encodings: Mapping[str, Encoding]) -> tuple[str, ...]:
    """The columns beside the key that are simple values as they are written."""
    simple = (n for n, c in columns.items() if isinstance(c["type"], str) and encodings[n].kind != "variable")
    return tuple(name for name in simple if name not in key)


def beside(images: Sequence[str], columns: Columns) -> Columns:
    """`own.TRACE`, which `refusing` needs of each change.

    Its transaction, place and table; `has`, which of `images` its schema has, see `had`; and of the row that it
    removes, if it removes one, the values of `images`: `gone`, NULL where they are not known, and `sure`, whether
    each is the row's, and not what stands for none.
    """
    old: SparkType = {
        "type": "struct",
        "fields": [field(f"c{i}", columns[name]["type"]) for i, name in enumerate(images)],
    }
    texts = [field(name, "string") for name in _PARTS]
    sure: SparkType = {"type": "array", "elementType": "boolean", "containsNull": True}
    parts = [*texts, *([field("gone", old)] if images else []), field("sure", sure)]
    return {own.TRACE: field(own.TRACE, {"type": "struct", "fields": parts})}


def had(images: Sequence[str], names: Collection[str] | None) -> str | None:
    """Of each of `images` 1 or 0, whether it is among these names; None without a schema, which says nothing.

    A column that a row's schema has is NULL in the row if it is told so, and not because it came later.
    """
    return None if names is None else "".join("01"[name in names] for name in images)


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
    hashed = changes.withColumn(own.TRACE, _hashed(changes, images))
    rows = hashed.withColumn(own.BEFORE, F.lag(own.TRACE).over(of_key))
    now, held = F.col(own.TRACE), F.col(own.BEFORE)
    sure = now["sure"]
    if not with_block:
        image = F.coalesce(now["tx"].isNotNull() & F.exists(now["gone"], lambda v: v.isNotNull()), F.lit(False))
        apart = [F.when(~image, quoted(name)) for name in key]  # the other rows stay spread over the tasks
        of_images = Window.partitionBy(F.when(image, now["tx"]), F.when(image, now["table"]), *apart)
        one = [now["gone"][i] for i in range(len(images))]
        two = [F.min(value).over(of_images) != F.max(value).over(of_images) for value in one]
        rows = rows.withColumn(own.HELD, F.array(*two).cast("array<boolean>"))
        sure = F.col(own.HELD)
    old, new = now["gone"].alias("gone"), held["put"].alias("put")
    values = F.arrays_zip(old, new, sure.alias("sure"), held["nulls"].alias("is_null"))
    other = (held["table"] != now["table"]) | F.coalesce(
        F.exists(values, lambda v: v["sure"] & ((v["gone"] != v["put"]) | (v["gone"].isNotNull() & v["is_null"]))),
        F.lit(False),
    )
    both = held["put"].isNotNull() & now["gone"].isNotNull() & (held["tx"] == now["tx"])
    late = F.coalesce(both & (held["lsn"] < now["lsn"]) & other, F.lit(False))
    shown = F.concat_ws(", ", *(quoted(name).cast("string") for name in key))
    op = F.when(late, refused(place, _LATE, shown, _LATE_HINT).cast("string")).otherwise(F.col(own.OP))
    return rows.withColumn(own.OP, op).drop(own.TRACE, own.BEFORE, own.HELD)


def _hashed(changes: DataFrame, images: Sequence[str]) -> Column:
    """`own.TRACE` as it is compared: its place as numbers, and hashes of values, which NULLs have none of.

    put: of the row that a change puts at a key. gone: of the one that it removes. NULL where there is none; a NULL
    in either may be a column that did not exist yet. nulls: which values of a row that is put are surely NULL.
    """
    told = F.col(own.TRACE)
    number, sure = told["number"].try_cast("decimal(38,0)"), told["sure"]
    lsn = F.struct(number.alias("number"), told["record"], told["row"].try_cast("bigint").alias("row"))

    def hashes(values: Sequence[Column]) -> Column:
        return F.array(*(F.when(one.isNotNull(), F.xxhash64(one)) for one in values)).cast("array<bigint>")

    def is_null(at: int, name: str) -> Column:
        unsent = F.array_contains(own.UNSENT, name) if own.UNSENT in changes.columns else F.lit(False)
        has = F.substring(told["has"], at + 1, 1) == "1"
        return F.coalesce(quoted(name).isNull() & has & ~F.coalesce(unsent, F.lit(False)), F.lit(False))

    nulls = F.array(*(is_null(at, name) for at, name in enumerate(images))).cast("array<boolean>")
    put, gone = [quoted(name) for name in images], [told["gone"][f"c{i}"] for i in range(len(images))]
    return F.struct(
        F.when(number.isNotNull(), told["tx"]).alias("tx"),
        told["table"].alias("table"),
        lsn.alias("lsn"),
        F.when(F.col(own.OP) == "U", hashes(put)).alias("put"),
        F.when(F.col(own.OP) == "U", nulls).alias("nulls"),
        F.when(sure.isNotNull(), hashes(gone)).alias("gone"),
        sure.alias("sure"),
    )
