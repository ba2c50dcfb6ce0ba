"""Values in plain Python as Arrow arrays, each of the Arrow type of its column's Spark type.

A value's stored form: whole numbers and booleans as themselves, a decimal as its unscaled whole number, a date as
days and a timestamp (with or without zone) as microseconds since 1970, so that years beyond Python's calendar fit;
arrays as lists, maps as lists of pairs, structs as tuples of their fields' values.
"""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import Columns, SparkType

if TYPE_CHECKING:
    import pyarrow as pa


def array(values: Sequence[Any], kind: SparkType) -> "pa.Array":
    """The values in their stored form, None for NULL, as an array of the type."""
    import pyarrow as pa

    if isinstance(kind, dict):
        return _nested(values, kind)
    if kind.startswith("decimal"):
        return _decimals(values, arrow_type(kind))
    if kind == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind in ("timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int64()).cast(arrow_type(kind))
    return pa.array(values, arrow_type(kind))


def _decimals(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Without Python's Decimal on the way, which costs ten times as much."""
    import pyarrow as pa

    none = bytes(16)
    raw = b"".join([none if value is None else value.to_bytes(16, "little", signed=True) for value in values])
    mask = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(kind, len(values), [mask.buffers()[1], pa.py_buffer(raw)])


def _nested(values: Sequence[Any], kind: dict[str, Any]) -> "pa.Array":
    import pyarrow as pa

    mask = pa.array([value is None for value in values], pa.bool_())
    if kind["type"] == "struct":
        fields = [pa.field(one["name"], arrow_type(one["type"])) for one in kind["fields"]]
        parts = [
            array([None if value is None else value[i] for value in values], one["type"])
            for i, one in enumerate(kind["fields"])
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or ()))
    offsets = pa.array(ends, pa.int32())
    flat = list(chain.from_iterable(value for value in values if value is not None))
    if kind["type"] == "array":
        items = array(flat, kind["elementType"])
        return pa.ListArray.from_arrays(offsets, items, type=arrow_type(kind), mask=mask)
    keys = array([key for key, _ in flat], kind["keyType"])
    items = array([item for _, item in flat], kind["valueType"])
    starts = pa.array(
        [None if value is None else end for value, end in zip(values, ends, strict=False)] + ends[-1:]
    )
    return pa.MapArray.from_arrays(starts.cast(pa.int32()), keys, items)


def nulls(columns: Columns, rows: int) -> "dict[str, pa.Array]":
    """The columns for rows that have none of them."""
    import pyarrow as pa

    return {name: pa.nulls(rows, arrow_type(column["type"])) for name, column in columns.items()}
