"""Which files of a Delta version hold its rows as they are, by its log alone. Workers can read those directly."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from backfill_cli.lake.damage import Stored
from backfill_cli.lake.delta.commits import schema_fields, stored
from backfill_cli.lake.delta.edge import Where, delta_errors
from backfill_cli.lake.key_points import point_of
from backfill_cli.lake.plain_files import DataFile, PlainFiles
from backfill_cli.model.schema import Columns

if TYPE_CHECKING:
    from deltalake import DeltaTable

EPOCH = date(1970, 1, 1)
COUNTED_ROWS = 50_000_000
"""Deleted rows are counted from deletion vectors (one bit per row) up to this many; beyond, no total is given."""

HARMLESS = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
)
"""Reader features that leave a file readable by itself, or that show in its columns or its deletion vector."""


def add_actions(opened: "DeltaTable") -> pa.Table:
    """The version's files, one per row: path, sizes, and their statistics as `min.COLUMN` and so on."""
    return pa.table(opened.get_add_actions(flatten=True))


def version_files(where: Where, version: int | None = None) -> list[Stored]:
    """The data files of the version, or the newest, as the log has them."""
    actions = add_actions(where.open(version))
    names = zip(column_values(actions, "path"), column_values(actions, "size_bytes"), strict=True)
    return [stored(where, path, size) for path, size in names]


def column_values(actions: pa.Table, name: str) -> list[Any]:
    """One column of the actions; None for each file if there is no such column.

    Dates are in days and times in microseconds, because Python lacks some of them.
    """
    if name not in actions.column_names:
        return [None] * actions.num_rows
    column = actions.column(name)
    if pa.types.is_date32(column.type):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(column.type) and column.type.unit == "us":
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def rows_met(opened: "DeltaTable", column: str, bounds: tuple[Any, Any] | None) -> int | None:
    """How many rows are in files that can hold a value within the bounds, by their statistics; None if unknown.

    bounds: whole numbers or dates.
    """
    actions = add_actions(opened)
    counts = column_values(actions, "num_records")
    if bounds is None or "." in column:  # statistics of `a.b` can be those of a field `b` in a column `a`
        return None if None in counts else sum(counts)
    least, most = ((one - EPOCH).days if isinstance(one, date) else one for one in bounds)
    lows, highs = (column_values(actions, f"{what}.{column}") for what in ("min", "max"))
    met = [
        count
        for count, low, high in zip(counts, lows, highs, strict=True)
        if low is None or high is None or (low <= most and high >= least)
    ]
    return None if None in met else sum(met)


def selections(opened: "DeltaTable") -> Iterator[pa.RecordBatch]:
    """The files that have a deletion vector: `filepath`, a URI; `selection_vector`, true for live rows."""
    yield from pa.RecordBatchReader.from_stream(opened.deletion_vectors())


def plain_files(
    where: Where, version: int | None, key: str, columns: Columns, more: Sequence[DataFile] = ()
) -> PlainFiles | None:
    """The version's files, the newest one's without it, and `more`.

    None if the files are not on this machine, or need not hold these columns as the table does.
    """
    if not where.place.local or "." in key:  # statistics of `a.b` can be those of a field `b` in a column `a`
        return None
    opened = where.open(version)
    fields = schema_fields(opened.schema().to_json())
    features = set(opened.protocol().reader_features or ())
    noted = any(set(one["metadata"]) - {"comment"} for one in fields)
    if noted or opened.metadata().partition_columns or not features <= HARMLESS:
        return None
    files = list(_files(where, opened, key, columns))
    deleted = _with_deleted(where, opened) if "deletionVectors" in features else frozenset()
    if deleted is None or not deleted <= {file.path for file in files}:
        return None
    return PlainFiles(where.place.fs, [*files, *more], key, columns, apart=deleted)


def _files(where: Where, opened: "DeltaTable", key: str, columns: Columns) -> Iterator[DataFile]:
    actions = add_actions(opened)
    kind = columns[key]["type"]
    text = kind if isinstance(kind, str) else ""
    lows, highs, nulls = (column_values(actions, f"{what}.{key}") for what in ("min", "max", "null_count"))
    for path, low, high, null in zip(column_values(actions, "path"), lows, highs, nulls, strict=True):
        bounds = (point_of(low, text), point_of(high, text)) if null == 0 else (None, None)
        yield DataFile(stored(where, path, None).path, *bounds)


def _with_deleted(where: Where, opened: "DeltaTable") -> frozenset[str] | None:
    """The files that have a deletion vector; None if the table is too large to list them."""
    counts = add_actions(opened).column("num_records").to_pylist()
    if sum(count or 0 for count in counts) > COUNTED_ROWS:
        return None
    with delta_errors(where.shown):
        return frozenset(
            stored(where, path, None).path
            for batch in selections(opened)
            for path in batch.column("filepath").to_pylist()
        )
