"""Names in Spark's SQL: the only place that quotes them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def backticked(name: str) -> str:
    """A name as SQL, whatever characters it contains."""
    return "`" + name.replace("`", "``") + "`"


def quoted(name: str, of: str = "") -> "Column":
    """A column by its exact name; `of`: the struct that holds it."""
    from pyspark.sql import functions as F

    return F.col(f"{of}.{backticked(name)}" if of else backticked(name))
