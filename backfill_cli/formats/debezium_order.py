"""Finds in a change log of Debezium that two rows had one key for a while: the source checks the key late.

`UPDATE t SET id = id + 1` then puts a row at the key of another one, which leaves that key afterwards. The log
names rows by their keys only: which of the two a delete removes is not in it, except by the images. It is proven
if, after a row was put at a key, the same transaction removes one that had other values, or is of another table.

Sources that check each row never write that, except by delivering a part of a transaction again: therefore the
place in its log must increase. Only PostgreSQL and Oracle can check late, and their connectors write the place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER
from backfill_cli.formats import exact
from backfill_cli.formats.source_table import name_in, source_of
from backfill_cli.formats.unsent import UNAVAILABLE, unsent
from backfill_cli.formats.values import Encoding, raw_type
from backfill_cli.model.schema import Columns, SparkType, field
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Event = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]] | None]
"""An envelope, and the fields of its row in the schema block, None without one."""

_PLACE = ("txId", "lsn", "scn", "rs_id", "ssn")
_LATE = "one transaction put a row at this key and then removed another row from it; key"
_HINT = (
    "which rows are left is not in such a log: use a key that the source checks row by row (PostgreSQL: add the "
    "constraint again, NOT DEFERRABLE; Oracle: exchange no keys in a transaction), and in tables that are read as "
    f"one, a key of which one row exists; then {START_OVER} from a new snapshot, and a log that begins after it"
)


def is_placed(envelope: Mapping[str, Any]) -> bool:
    """Whether an envelope has its transaction and its place in the source's log."""
    source = envelope.get("source")
    told = source if isinstance(source, dict) else {}
    return told.get("txId") is not None and (told.get("lsn") or told.get("scn")) is not None


def images_in(events: Iterable[Event], key: Sequence[str], several: bool) -> frozenset[str] | None:
    """The columns beside the key whose values the images in `before` hold; of other columns they hold a constant.

    several: whether tables are read as one. Returns None if no order needs a check: none of these events removes a
    row and says where in the source's log, or none of the images tells two rows of one key apart.

    An image is whole (REPLICA IDENTITY FULL), or it has the values of some columns only, and in each other column
    its default, NULL or zero. So a column is known to have its values by one that is none of these, as far as the
    schema block tells them, or by two that differ.
    """
    found: dict[str, dict[str, set[Any]]] = {}
    for envelope, told in events:
        before = envelope.get("before")
        if envelope.get("op") not in ("u", "d") or not isinstance(before, dict) or not is_placed(envelope):
            continue
        values = found.setdefault(source_of(envelope), {})
        for name, value in before.items():
            if name not in key and isinstance(value, str | int | float) and value != UNAVAILABLE:
                known = _stands_for_none((told or {}).get(name))
                values.setdefault(name, set()).update([value, *known])
    of_tables = [{name for name, seen in values.items() if len(seen) > 1} for values in found.values()]
    common = frozenset(set.intersection(*of_tables)) if of_tables else frozenset[str]()
    return common if common or (several and of_tables) else None


def _stands_for_none(told: Mapping[str, Any] | None) -> list[Any]:
    """What an image has in a column whose value it does not have; empty if that is not known."""
    if told is None or "optional" not in told:
        return []
    if isinstance(told.get("default"), str | int | float):
        return [told["default"]]
    if told["optional"]:
        return [None]
    return ["" if told.get("type") == "string" else 0] if not told.get("name") else []


def comparable(
    images: frozenset[str] | None, columns: Columns, encodings: Mapping[str, Encoding]
) -> tuple[str, ...] | None:
    """Those of the columns that are simple values as they are written."""
    if images is None:
        return None
    return tuple(n for n in columns if n in images and isinstance(raw_type(encodings[n], columns[n]["type"]), str))


def fields() -> list[SparkType]:
    """What the parser reads from `source`."""
    return [field(name, "string") for name in _PLACE]


def trace(
    at: str,
    key: Sequence[str],
    images: Sequence[str],
    columns: Columns,
    encodings: Mapping[str, Encoding],
    place: "Column",
) -> "Column":
    """`own.TRACE`, which `refusing` needs of each change: from an envelope, `own.OP` and `own.SUB`.

    at: the struct that holds the envelope; its `before` has `images` as text. place: what an error names.
    """
    from pyspark.sql import functions as F

    after, before, op = (F.col(f"{at}.{part}") for part in ("after", "before", "op"))
    put, gone = [], []
    for name in images:
        how, kind = encodings[name], columns[name]["type"]
        text = before.getField(name)
        absent = unsent(text, how, kind)
        known = text if absent is None else F.when(~absent, text)
        raw = known.try_cast(str(raw_type(how, kind)))
        gone.append(F.when(raw.isNotNull(), F.xxhash64(raw)))
        put.append(F.xxhash64(after.getField(name)))
    number = F.coalesce(F.col(f"{at}.source.lsn"), F.col(f"{at}.source.scn")).try_cast("decimal(38,0)")
    ssn = F.col(f"{at}.source.ssn").try_cast("bigint")
    lsn = F.struct(number.alias("number"), F.col(f"{at}.source.rs_id").alias("record"), ssn.alias("row"))
    removes = op.isin("u", "d") & (F.col(own.SUB) == 0)
    return F.struct(
        F.when(number.isNotNull(), F.col(f"{at}.source.txId")).alias("tx"),
        name_in(f"{at}.source").alias("table"),
        lsn.alias("lsn"),
        F.when(F.col(own.OP) == "U", F.array(*put).cast("array<bigint>")).alias("put"),
        F.when(removes, F.array(*gone).cast("array<bigint>")).alias("gone"),
        place.alias("place"),
        F.concat_ws(", ", *(F.coalesce(before.getField(n), after.getField(n)).cast("string") for n in key)).alias(
            "key"
        ),
    ).alias(own.TRACE)


def refusing(changes: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The changes, without `own.TRACE`; a removal that proves that the source checks the key late raises."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    of_key = Window.partitionBy(*(quoted(name) for name in key)).orderBy(own.SEQ)
    told = changes.withColumn(own.BEFORE, F.lag(own.TRACE).over(of_key))
    now, held = F.col(own.TRACE), F.col(own.BEFORE)
    values = F.arrays_zip(now["gone"].alias("gone"), held["put"].alias("put"))
    other = (held["table"] != now["table"]) | F.coalesce(
        F.exists(values, lambda v: v["gone"] != v["put"]), F.lit(False)
    )
    both = held["put"].isNotNull() & now["gone"].isNotNull() & (held["tx"] == now["tx"])
    late = F.coalesce(both & (held["lsn"] < now["lsn"]) & other, F.lit(False))
    op = F.when(late, exact.refused(now["place"], _LATE, now["key"], _HINT).cast("string")).otherwise(
        F.col(own.OP)
    )
    return told.withColumn(own.OP, op).drop(own.TRACE, own.BEFORE)
