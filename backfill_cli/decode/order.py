"""What formats/debezium_order.py, which finds keys that a source checks late, needs of each change of a topic."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.formats import debezium_order
from backfill_cli.formats.debezium_order import PLACE
from backfill_cli.formats.source_table import source_of
from backfill_cli.model.schema import Columns, SparkType, field
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.names import quoted

_PARTS = ("tx", "number", "record", "row", "table")


def beside(images: Sequence[str], columns: Columns) -> Columns:
    """`own.TRACE`, which `refusing` needs of each change.

    Its transaction, place and table, and of the row that it removes, if it removes one, the values of `images`:
    `gone`, NULL where they are not known, and `sure`, whether each is the row's, and not what stands for none.
    """
    old: SparkType = {
        "type": "struct",
        "fields": [field(f"c{i}", columns[name]["type"]) for i, name in enumerate(images)],
    }
    texts = [field(name, "string") for name in _PARTS]
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
    """See debezium_order.refusing."""
    told = F.col(own.TRACE)
    log = [told[name] for name in _PARTS]
    put, gone = [quoted(name) for name in images], [told["gone"][f"c{i}"] for i in range(len(images))]
    trace = F.struct(*debezium_order.traced(log, put, gone, told["sure"]))
    return debezium_order.refusing(changes.withColumn(own.TRACE, trace), key, images, with_block, place)
