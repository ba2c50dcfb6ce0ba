"""Which rows and row groups of Parquet can meet a job's conditions: see model/pushdown.py. Runs in workers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backfill_cli.model.pushdown import Condition

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def meeting(batch: pa.RecordBatch, where: Sequence[Condition]) -> pa.RecordBatch:
    """The rows that meet all of these. The columns have the types that the conditions were fitted to."""
    for one in where:
        batch = batch.filter(_met(batch.column(one.column), one))
    return batch


def _met(column: pa.Array, one: Condition) -> pa.Array:
    """NULL, which a filter drops, where the condition is."""
    if one.op in ("IS NULL", "IS NOT NULL"):
        return pc.is_null(column) if one.op == "IS NULL" else pc.is_valid(column)
    constants = [_constant(value, column.type) for value in one.values]
    if one.op in _COMPARE:
        return _COMPARE[one.op](column, constants[0])
    found = pc.equal(column, constants[0])
    for constant in constants[1:]:
        found = pc.or_(found, pc.equal(column, constant))
    return found if one.op == "IN" else pc.invert(found)


def _constant(value: Any, kind: pa.DataType) -> pa.Scalar:
    """In a type that holds it: Arrow compares numbers and times of different widths exactly."""
    if pa.types.is_integer(kind):
        return pa.scalar(value, pa.int64())
    if pa.types.is_timestamp(kind):
        return pa.scalar(value, pa.timestamp("us", kind.tz))
    return pa.scalar(value) if pa.types.is_decimal(kind) else pa.scalar(value, kind)


def groups_meeting(
    metadata: Any, schema: pa.Schema, where: Sequence[Condition], groups: Sequence[int]
) -> list[int]:
    """Those of the row groups that can have a row which meets all of these, by their statistics.

    metadata, schema: of the file, which can have other types than the table.
    """
    leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    asked = [(one, leaves[one.column]) for one in where if one.column in leaves and _is_compared(schema, one)]
    return [
        group
        for group in groups
        if all(_can(metadata.row_group(group).column(i).statistics, one) for one, i in asked)
    ]


def _is_compared(schema: pa.Schema, one: Condition) -> bool:
    """Whether statistics of this type are exact, and read as Python's values."""
    kind = schema.field(one.column).type
    micros = pa.types.is_timestamp(kind) and kind.unit in ("ms", "us")
    return micros or pa.types.is_integer(kind) or pa.types.is_date32(kind)


def _can(known: Any, one: Condition) -> bool:
    if known is None or not known.has_min_max or one.op not in ("=", "IN", "<", "<=", ">", ">="):
        return True
    try:
        return _in_range(_naive(known.min), _naive(known.max), one)
    except (OverflowError, ValueError, TypeError):  # a time that Python has not, or another type in the file
        return True


def _in_range(low: Any, high: Any, one: Condition) -> bool:
    values: Sequence[Any] = one.values
    match one.op:
        case "<":
            return bool(low < values[0])
        case "<=":
            return bool(low <= values[0])
        case ">":
            return bool(high > values[0])
        case ">=":
            return bool(high >= values[0])
    return any(low <= value <= high for value in values)


def _naive(value: Any) -> Any:
    """A timestamp with a zone is one of UTC."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
