"""Finds in a change log of Debezium that two rows had one key for a while: the source checks the key late.

`UPDATE t SET id = id + 1` then puts a row at the key of another one, which leaves that key afterwards. The log
names rows by their keys only: which of the two a delete removes is not in it, except by the images. It is proven
if, after a row was put at a key, the same transaction removes one that had other values, or is of another table.

Sources that check each row never write that, except by delivering a part of a transaction again: therefore the
place in its log must increase. Only PostgreSQL and Oracle can check late, and their connectors write the place.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER
from backfill_cli.formats import exact
from backfill_cli.formats.source_table import name_in
from backfill_cli.formats.unsent import unsent
from backfill_cli.formats.values import Encoding, raw_type
from backfill_cli.model.schema import Columns, SparkType, field
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.names import quoted

Sure = Callable[[str, Column], Column]
"""Whether a column's value in `before` is none of its `blanks`: never NULL, and false if these are not known."""

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
    return tuple(
        n for n in columns if n not in key and isinstance(raw_type(encodings[n], columns[n]["type"]), str)
    )


def fields() -> list[SparkType]:
    """What the parser reads from `source`."""
    return [field(name, "string") for name in PLACE]


def trace(
    at: str,
    images: Sequence[str],
    columns: Columns,
    encodings: Mapping[str, Encoding],
    place: Column,
    sure: Sure,
) -> Column:
    """`own.TRACE`, which `refusing` needs of each change: from an envelope, `own.OP` and `own.SUB`.

    at: the struct that holds the envelope; its `before` has `images` as text. place: what an error names.
    """
    after, before, source = (F.col(f"{at}.{part}") for part in ("after", "before", "source"))
    put, gone, known = [], [], []
    for name in images:
        how, kind = encodings[name], columns[name]["type"]
        text = before.getField(name)
        absent = unsent(text, how, kind)
        sent = text if absent is None else F.when(~absent, text)
        raw, new = sent.try_cast(str(raw_type(how, kind))), after.getField(name)
        gone.append(raw)
        known.append(sure(name, raw))
        put.append(new)
    tx, lsn, scn, record, row = (source.getField(name) for name in PLACE)
    removes = F.col(f"{at}.op").isin("u", "d") & (F.col(own.SUB) == 0)
    sure_of = F.when(removes, F.array(*known).cast("array<boolean>"))
    log = (tx, F.coalesce(lsn, scn), record, row, name_in(f"{at}.source"))
    return F.struct(*traced(log, put, gone, sure_of), place.alias("place")).alias(own.TRACE)


def traced(log: Sequence[Column], put: Sequence[Column], gone: Sequence[Column], sure: Column) -> list[Column]:
    """What `refusing` reads of `own.TRACE`. log: transaction, the three parts of the place in the log, and table.

    put, gone: values of the row that a change puts at a key, and of the one that it removes; NULL may be a column
    that did not exist yet, and has no hash. sure: whether each of `gone` is the row's, NULL if none is removed.
    """
    tx, told, record, row, table = log

    def hashes(values: Sequence[Column]) -> Column:
        return F.array(*(F.when(one.isNotNull(), F.xxhash64(one)) for one in values)).cast("array<bigint>")

    number = told.try_cast("decimal(38,0)")
    lsn = F.struct(number.alias("number"), record.alias("record"), row.try_cast("bigint").alias("row"))
    return [
        F.when(number.isNotNull(), tx).alias("tx"),
        table.alias("table"),
        lsn.alias("lsn"),
        F.when(F.col(own.OP) == "U", hashes(put)).alias("put"),
        F.when(sure.isNotNull(), hashes(gone)).alias("gone"),
        sure.alias("sure"),
    ]


def refusing(
    changes: DataFrame, key: Sequence[str], images: Sequence[str], with_block: bool, place: Column
) -> DataFrame:
    """The changes, without `own.TRACE`; a removal that proves that the source checks the key late raises.

    with_block: whether schema blocks say which values in `before` are not the row's. Without them, the values of a
    column are the rows' if the old rows of the transaction have two of them. place: names a change in errors.
    """
    from pyspark.sql.window import Window

    of_key = Window.partitionBy(*(quoted(name) for name in key)).orderBy(own.SEQ)
    rows = changes.withColumn(own.BEFORE, F.lag(own.TRACE).over(of_key))
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
    values = F.arrays_zip(now["gone"].alias("gone"), held["put"].alias("put"), sure.alias("sure"))
    other = (held["table"] != now["table"]) | F.coalesce(
        F.exists(values, lambda v: v["sure"] & (v["gone"] != v["put"])), F.lit(False)
    )
    both = held["put"].isNotNull() & now["gone"].isNotNull() & (held["tx"] == now["tx"])
    late = F.coalesce(both & (held["lsn"] < now["lsn"]) & other, F.lit(False))
    shown = F.concat_ws(", ", *(quoted(name).cast("string") for name in key))
    op = F.when(late, exact.refused(place, _LATE, shown, _LATE_HINT).cast("string")).otherwise(F.col(own.OP))
    return rows.withColumn(own.OP, op).drop(own.TRACE, own.BEFORE, own.HELD)
