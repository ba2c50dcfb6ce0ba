"""Whether a row has exactly the columns that it should have."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from backfill_cli.model.schema import Columns

if TYPE_CHECKING:
    from pyspark.sql import Column


IN_ROW, IN_BLOCK = "in its row", "in its schema block"


def names_column(fault: "Column") -> "Column":
    """Whether a fault says that a column is new or missing."""
    return fault.startswith("column '") & (fault.endswith(f" {IN_ROW}") | fault.endswith(f" {IN_BLOCK}"))


def new_column(names: "Column", columns: Columns, others: Collection[str], where: str) -> "Column":
    """The fault for a name that is neither a column nor one of `others`; NULL for none, and without names."""
    from pyspark.sql import functions as F

    more = F.array_except(names, F.array(*(F.lit(name) for name in (*columns, *sorted(others)))))
    return F.when(F.size(more) > 0, F.concat(F.lit("column '"), F.get(more, F.lit(0)), F.lit(f"' is new {where}")))


def lacking(names: "Column", required: Collection[str]) -> "Column":
    """The fault for a required column that is not among the names; NULL for none, and without names."""
    from pyspark.sql import functions as F

    if not required:
        return F.lit(None).cast("string")
    less = F.array_except(F.array(*(F.lit(name) for name in sorted(required))), names)
    said = F.concat(F.lit("column '"), F.get(less, F.lit(0)), F.lit(f"' is not {IN_ROW}"))
    return F.when(F.size(less) > 0, said)
