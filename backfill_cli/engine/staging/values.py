"""Refuses, while rows are staged, NULL keys, and values that Spark and pyarrow let through and no sink takes.

Once staged, an epoch must commit, and text that is not UTF-8 would fail every commit of it. Spark accepts bytes as
text unchecked, from Parquet files and by `CAST(… AS STRING)`; so does pyarrow.
"""

from collections.abc import Mapping, Sequence
from operator import and_
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import Source, own
from backfill_cli.errors import START_OVER, BadData, Hint
from backfill_cli.model.balanced import balanced
from backfill_cli.model.units import spell_count
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.failures import CHANGES_HINT, MARK, ending
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa

HINT = (
    "correct it upstream and resume the job, or "
    + START_OVER
    + ', with the column read as bytes in the transform: select = ["CAST(x AS BINARY) AS x", …]'
)
SHOWN_BYTES = 40


def storable(frame: DataFrame) -> DataFrame:
    """The same rows; text that is not UTF-8 fails the job as BadData, naming the column and the bytes."""
    columns = []
    for field in frame.schema.fields:
        column = quoted(field.name)
        good = _is_text(column, field.dataType)
        if good is not None:
            column = F.when(good, column).otherwise(_raised(field.name, column, field.dataType.typeName()))
            column = column.alias(field.name, metadata=field.metadata)
        columns.append(column)
    return frame.select(*columns)


def _raised(name: str, column: Column, kind: str) -> Column:
    shown = F.lit("")
    if kind == "string":
        shown = F.concat(F.lit(": 0x"), F.left(F.hex(column.cast("binary")), F.lit(2 * SHOWN_BYTES)))
    said = F.concat(F.lit(f"{MARK} column {name!r}: text that is not UTF-8"), shown)
    return F.raise_error(F.concat(said, F.lit(ending(HINT))))


def _is_text(column: Column, kind: Any) -> Column | None:
    """Whether all text in the column is UTF-8, true for NULL; None for a type without text."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StringType | T.CharType | T.VarcharType):
        return F.coalesce(F.is_valid_utf8(column), F.lit(True))
    parts: list[Column] = []
    if isinstance(kind, T.StructType):
        inner = (_is_text(column.getField(field.name), field.dataType) for field in kind.fields)
        parts = [part for part in inner if part is not None]
    elif isinstance(kind, T.ArrayType):
        parts = _all(column, kind.elementType)
    elif isinstance(kind, T.MapType):
        parts = [*_all(F.map_keys(column), kind.keyType), *_all(F.map_values(column), kind.valueType)]
    if not parts:
        return None
    return balanced(and_, parts)


def _all(items: Column, kind: Any) -> list[Column]:
    probe = _is_text(F.lit(None), kind)
    if probe is None:
        return []
    return [F.coalesce(F.forall(items, lambda item: _known(item, kind)), F.lit(True))]


def _known(item: Column, kind: Any) -> Column:
    good = _is_text(item, kind)
    assert good is not None
    return good


def require_storable(batch: "pa.RecordBatch", what: Any, before: int) -> None:
    """Every value of the batch is valid for its column's type: text is UTF-8, a decimal fits its precision.

    what: the source of the rows, before: how many of its rows preceded these; both only for the error.
    Raises BadData naming them, the column and the row.
    """
    import pyarrow as pa

    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            row = _first_bad(column)
            if row is not None:
                at = f"{what}, row {before + row + 1} of it"
                raise BadData(f"{at}: column {name!r}: {_why(column, row)}", HINT) from None


def _first_bad(column: "pa.Array") -> int | None:
    """The first row of a column whose value is invalid for its type, found by bisection; None if there is none."""
    if _are_good(column, 0, len(column)):
        return None
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _are_good(column, low, middle) else (low, middle)
    return low


def _are_good(column: "pa.Array", low: int, high: int) -> bool:
    """Uses take, not slice: a slice of arrays still holds all their items, and validation covers those."""
    import pyarrow as pa

    try:
        column.take(list(range(low, high))).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _why(column: "pa.Array", row: int) -> str:
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        held = column.slice(row, 1).cast(pa.binary())[0].as_py()
        return f"text that is not UTF-8: 0x{held[:SHOWN_BYTES].hex().upper()}"
    try:
        column.take([row]).validate(full=True)
    except pa.ArrowInvalid as exc:
        return str(exc)
    return "a value that its type cannot hold"


def null_keys(key: Sequence[str]) -> dict[str, Column]:
    """By name, for each key column an expression that is not NULL where the column is NULL: for counting."""
    return {f"null_{i}": F.when(quoted(column).isNull(), 1) for i, column in enumerate(key)}


def null_keys_of_log(key: Sequence[str]) -> dict[str, Column]:
    """As `null_keys`, for changes: a truncate is of no row."""
    return {name: F.when(F.col(own.OP) != "T", one) for name, one in null_keys(key).items()}


def refuse_null_keys(
    table: str, key: Sequence[str], nulls: Sequence[int | None], where: str, hint: Hint | str
) -> None:
    """nulls: the number of NULLs in each key column. Raises BadData naming the first column that has any."""
    for column, count in zip(key, nulls, strict=True):
        if count:
            raise BadData(
                f"table {table!r}: key column {column!r} is NULL in {spell_count(count, 'row')} of {where}", hint
            )


def refuse_null_keys_of_snapshot(table: str, key: Sequence[str], nulls: Sequence[int | None]) -> None:
    """As `refuse_null_keys`, for rows of the snapshot."""
    over = START_OVER + ", with the snapshot corrected or with a key without NULLs"
    refuse_null_keys(table, key, nulls, "the snapshot", over)


def refuse_null_keys_of_log(log: Source, table: str, key: Sequence[str], counted: Mapping[str, int]) -> None:
    """As `refuse_null_keys`, for changes: what is in a log stays there, unless it can be corrected.

    counted: by the names of `null_keys`.
    """
    over = (
        "correct these rows upstream, then "
        + START_OVER
        + ", from a snapshot taken after that: the change log keeps such changes"
    )
    hint = CHANGES_HINT if log.capabilities.correctable_log else over
    refuse_null_keys(table, key, [counted[f"null_{i}"] for i in range(len(key))], "the change log", hint)
