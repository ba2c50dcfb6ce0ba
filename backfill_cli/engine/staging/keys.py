"""Whether the keys of a few rows are unique and complete, before a sink has any of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ArrowTasks, SinkTable
from backfill_cli.contracts.bad_rows import as_json, duplicate_keys
from backfill_cli.engine.staging.stage import refuse_null_keys_of_snapshot
from backfill_cli.engine.staging.values import require_storable
from backfill_cli.model.plan import StagedFile
from backfill_cli.spark.failures import raising_in_worker

if TYPE_CHECKING:
    import pyarrow as pa

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
