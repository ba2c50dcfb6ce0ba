"""A table's rows that a job may need, as SQL: see model/pushdown.py."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from backfill_cli.model.pushdown import WHOLE, Condition, Value, Wanted
from backfill_cli.upstreams.postgres.keys import literal
from backfill_cli.upstreams.postgres.types import Column, is_native, quoted, spark_type

_BYTEWISE = frozenset({25, 1043})
"""text, varchar: of other types that Spark has as text, equal values can have several texts."""

_TIMESTAMPTZ = 1184


def chosen(columns: Sequence[Column], wanted: Wanted) -> tuple[Column, ...]:
    """The columns that are read."""
    return tuple(column for column in columns if wanted.needs(column.name))


def decided(columns: Sequence[Column], wanted: Wanted) -> tuple[Condition, ...]:
    """The conditions that the server decides as Spark does."""
    return wanted.fitting(
        {"name": column.name, "type": spark_type(column)} for column in columns if _is_compared(column)
    )


def _is_compared(column: Column) -> bool:
    return column.base_oid in _BYTEWISE if spark_type(column) == "string" else _is_exact(column)


def _is_exact(column: Column) -> bool:
    """Numeric values are read as text, but those of a scale are decimals of Spark."""
    return is_native(column) or str(spark_type(column)).startswith("decimal(")


def condition(columns: Sequence[Column], wanted: Wanted) -> str:
    """SQL that the rows which are read meet."""
    by_name = {column.name: column for column in columns}
    return " AND ".join(_sql(one, by_name[one.column]) for one in decided(columns, wanted)) or "true"


def _sql(one: Condition, column: Column) -> str:
    kind = spark_type(column)
    # by bytes, as Spark compares: a collation of ICU can call other texts equal
    name = quoted(column.name) + (' COLLATE "C"' if kind == "string" else "")
    values = [_literal(value, column) for value in one.values]
    if one.op in ("IN", "NOT IN"):
        return f"{name} {one.op} ({', '.join(values)})"
    return " ".join((name, one.op, *values))


def _literal(value: Value, column: Column) -> str:
    kind = spark_type(column)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and kind in WHOLE:
        return f"{literal(str(value))}::bigint"
    if isinstance(value, Decimal):
        return f"{literal(f'{value:f}')}::numeric"
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ")
        aware = column.base_oid == _TIMESTAMPTZ
        return literal(f"{text}+00") + "::timestamptz" if aware else literal(text) + "::timestamp"
    if isinstance(value, date):
        return f"{literal(value.isoformat())}::date"
    return f"{literal(str(value))}::text"
