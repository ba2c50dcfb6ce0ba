"""Whether the keys of a few rows are unique and complete, before a sink has any of them."""

from collections.abc import Sequence
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

PART = "the rows at its beginning"
"""What was looked at of a large snapshot, for messages."""


def made_here(tasks: ArrowTasks, key: Sequence[str]) -> "pa.Table":
    """The key columns of rows that workers would produce, produced in this process: they are few.

    Raises BadData for a value that no sink takes; our own errors are raised as a worker raises them.
    """
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for piece in (piece for part in tasks.parts for piece in part):
        before = 0
        with raising_in_worker():
            for batch in tasks.make(piece.what):
                require_storable(batch, piece.what, before)
                before += batch.num_rows
                held.append(batch.select(list(key)))
    return pa.Table.from_batches(held) if held else pa.table({name: [] for name in key})


def staged_here(folder: Path, files: Sequence[StagedFile], key: Sequence[str]) -> "pa.Table":
    """The key columns of staged files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    read = [pq.read_table(folder / file.path, columns=list(key), partitioning=None) for file in files]
    return pa.concat_tables(read) if read else pa.table({name: [] for name in key})


def require_unique(table: SinkTable, keys: "pa.Table", whole: bool) -> None:
    """No key occurs twice, and none is NULL. whole: the rows are all of the snapshot's.

    Raises BadData as staging and the sink would. A key of a nested type passes: only the sink compares it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [keys.column(name) for name in table.key]
    refuse_null_keys_of_snapshot(table.name, table.key, [column.null_count for column in columns])
    if not keys.num_rows:
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
        raise duplicate_keys(table, shown, "the snapshot" if whole else PART)


def _as_compared(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """0 and -0 are one key in every sink, but not for Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column


def _shown(value: Any) -> str:
    return as_json(value) if isinstance(value, bytes) else str(value)
