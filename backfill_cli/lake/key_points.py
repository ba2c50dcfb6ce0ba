"""Keys of a lake table as points that can be calculated with, and Spark's condition for a range of them.

A point is a whole number (numbers; decimals unscaled; dates as days, timestamps as microseconds since 1970), or a
text, ordered by code points, which is the order of Spark's bytes.
"""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal

Point = int | str

WHOLE = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_EPOCH = datetime(1970, 1, 1)
_FIRST, _LAST = ((at - _EPOCH) // timedelta(microseconds=1) for at in (datetime.min, datetime.max))
"""Times without a zone that can be written as a literal; a file's statistics can be outside this range."""
_EXACT = Context(prec=80)  # Spark's decimals have 38 digits at most


def predicate(column: str, spark_type: str, low: Point | None, high: Point | None) -> str | None:
    """Spark's condition for the rows with `low <= key < high`; without `low` also for NULL keys. None: all rows.

    column: as SQL. spark_type: of that column, as Spark writes it in a schema. Spark folds the bounds to literals
    of that type, and the column is plain, so that statistics can skip files and row groups.
    """
    above = None if low is None else f"{column} >= {_literal(low, spark_type)}"
    below = None if high is None else f"{column} < {_literal(high, spark_type)}"
    if below is None:
        return above
    return f"({column} IS NULL OR {below})" if above is None else f"({above} AND {below})"


def _literal(point: Point, spark_type: str) -> str:
    if isinstance(point, str):
        return f"CAST(X'{point.encode().hex()}' AS STRING)"
    if spark_type == "date":
        return f"DATE_FROM_UNIX_DATE({point})"
    if spark_type == "timestamp":
        return f"TIMESTAMP_MICROS({point}L)"
    if spark_type == "timestamp_ntz":
        return f"TIMESTAMP_NTZ'{_EPOCH + timedelta(microseconds=point)}'"
    if (scale := _scale(spark_type)) is not None:
        return f"CAST('{Decimal(point).scaleb(-scale, _EXACT):f}' AS {spark_type})"
    return f"CAST('{point}' AS {WHOLE[spark_type]})"


def point_of(value: object, spark_type: str) -> Point | None:
    """A statistic as a point; None if there is none, or if keys of its type are not cut.

    value: in Python's type; dates and timestamps can be numbers already. Keys are not cut if they are binary or
    boolean (not all writers keep statistics), float (no agreed place for NaN) or collated (order unknown here).
    """
    if value is None or isinstance(value, bool):
        return None
    if spark_type in WHOLE and isinstance(value, int):
        return value
    if spark_type == "string" and isinstance(value, str):
        return value
    if spark_type in ("date", "timestamp", "timestamp_ntz"):
        point = _moment(value)
        return point if point is None or spark_type != "timestamp_ntz" or _FIRST <= point <= _LAST else None
    scale = _scale(spark_type)
    if scale is not None and isinstance(value, Decimal | int | str):
        return int(Decimal(value).scaleb(scale, _EXACT).to_integral_value(ROUND_FLOOR, _EXACT))
    return None


def _scale(spark_type: str) -> int | None:
    found = re.fullmatch(r"decimal\((\d+),\s*(-?\d+)\)", spark_type)
    return int(found[2]) if found else None


def _moment(value: object) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        since = value.astimezone(UTC).replace(tzinfo=None) - _EPOCH if value.tzinfo else value - _EPOCH
        return since // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else None
