"""Keys that are NULL, while rows are staged; and whether a few rows have unique keys, before a sink has any."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks, SinkTable, Upstream
from backfill_cli.contracts.bad_rows import as_json, duplicate_keys
from backfill_cli.engine.staging.values import require_storable
from backfill_cli.errors import START_OVER, BadData
from backfill_cli.model.plan import StagedFile
from backfill_cli.spark.failures import CHANGES_HINT, raising_in_worker
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

NAMED = 5
"""This many keys are named, as by the sinks."""

ROWS, BYTES = 500_000, 32 << 20
"""About the keys of this many rows, of this size, are compared: it takes less than a second, and 100 MB."""

PART = "the rows at its beginning"
"""What was looked at of a large snapshot, for messages."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The key columns of some rows, in the key's order. whole: there are no more rows."""

    rows: "pa.Table"
    whole: bool = True


def made_here(tasks: ArrowTasks, key: Sequence[str]) -> Keys:
    """Of rows that workers would produce, produced in this process: they are few.

    Raises BadData for a value that no sink takes; our own errors are raised as a worker raises them.
    """

    def made() -> "Iterator[pa.RecordBatch]":
        for piece in (piece for part in tasks.parts for piece in part):
            before = 0
            for batch in tasks.make(piece.what):
                require_storable(batch, piece.what, before)
                before += batch.num_rows
                yield batch

    with raising_in_worker():
        return _few(made(), key)


def staged_here(folder: Path, files: Sequence[StagedFile], key: Sequence[str]) -> Keys:
    """Of staged files."""
    import pyarrow.parquet as pq

    def staged() -> "Iterator[pa.RecordBatch]":
        for file in files:
            with pq.ParquetFile(folder / file.path) as parquet:
                yield from parquet.iter_batches(columns=list(key))

    return _few(staged(), key)


def _few(batches: "Iterator[pa.RecordBatch]", key: Sequence[str]) -> Keys:
    """No further batch is read once there are more rows than are compared."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = size = 0
    while rows <= ROWS and size <= BYTES and (batch := next(batches, None)) is not None:
        held.append(batch.select(list(key)))
        rows, size = rows + batch.num_rows, size + held[-1].nbytes
    whole = rows <= ROWS and size <= BYTES
    return Keys(pa.Table.from_batches(held) if held else pa.table({name: [] for name in key}), whole)


def require_unique(table: SinkTable, keys: Keys) -> None:
    """No key occurs twice, and none is NULL.

    Raises BadData as staging and the sink would. A key of a nested type passes: only the sink compares it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = keys.rows.columns
    refuse_null_keys_of_snapshot(table.name, table.key, [column.null_count for column in columns])
    if not keys.rows.num_rows:
        return
    names = [str(index) for index in range(len(columns))]
    try:
        grouped = pa.table([_as_compared(column) for column in columns], names).group_by(names)
        counted = grouped.aggregate([([], "count_all")])
    except pa.ArrowNotImplementedError:
        return
    twice = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, NAMED).to_pylist()
    if twice:
        shown = sorted((", ".join(_shown(row[name]) for name in names), row["count_all"]) for row in twice)
        raise duplicate_keys(table, shown, "the snapshot" if keys.whole else PART)


def _as_compared(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """0 and -0 are one key in every sink, but not for Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column


def _shown(value: Any) -> str:
    return as_json(value) if isinstance(value, bytes) else str(value)


def null_keys(key: Sequence[str]) -> "dict[str, Column]":
    """By name, for each key column an expression that is not NULL where the column is NULL: for counting."""
    from pyspark.sql import functions as F

    return {f"null_{i}": F.when(quoted(column).isNull(), 1) for i, column in enumerate(key)}


def refuse_null_keys(table: str, key: Sequence[str], nulls: Sequence[int | None], where: str, hint: str) -> None:
    """nulls: the number of NULLs in each key column. Raises BadData naming the first column that has any."""
    for column, count in zip(key, nulls, strict=True):
        if count:
            raise BadData(f"table {table!r}: key column {column!r} is NULL in {count} row(s) of {where}", hint)


def refuse_null_keys_of_snapshot(table: str, key: Sequence[str], nulls: Sequence[int | None]) -> None:
    """As `refuse_null_keys`, for rows of the snapshot."""
    over = f"{START_OVER}, with the snapshot corrected or with a key without NULLs"
    refuse_null_keys(table, key, nulls, "the snapshot", over)


def refuse_null_keys_of_log(log: Upstream, table: str, key: Sequence[str], counted: Mapping[str, int]) -> None:
    """As `refuse_null_keys`, for changes: what is in a log stays there, unless it can be corrected.

    counted: by the names of `null_keys`.
    """
    over = (
        f"correct these rows upstream, then {START_OVER}, from a snapshot taken after that: the "
        "change log keeps such changes"
    )
    hint = CHANGES_HINT if log.capabilities.correctable_log else over
    refuse_null_keys(table, key, [counted[f"null_{i}"] for i in range(len(key))], "the change log", hint)
