"""Which files of a Delta version hold its rows as they are, by its log alone. Workers can read those directly."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import FileType

from backfill_cli.contracts import own
from backfill_cli.formats.compute import pc
from backfill_cli.lake.damage import Stored
from backfill_cli.lake.delta.commits import schema_fields, stored
from backfill_cli.lake.delta.edge import Where, delta_errors
from backfill_cli.lake.key_ranges import point_of
from backfill_cli.lake.plain_files import DataFile, PlainFiles
from backfill_cli.model.schema import Columns, same_type

COUNTED_ROWS = 50_000_000
"""Deleted rows are counted from deletion vectors (one bit per row) up to this many; beyond, no total is given."""

HARMLESS = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
)
"""Reader features that leave a file readable by itself, or that show in its columns or its deletion vector."""
_TELLING = HARMLESS - {"columnMapping", "deletionVectors", "typeWidening"}
MOST_FILES = 200
"""Of a version that is read by its files: Spark asks for each, by a job of its own for more than 32."""
_PLAIN = re.compile(r"(?:[a-z0-9]+:/)?[\w./=-]+")
"""A path or URI that is written as it is, and starts no pattern."""
_HIDDEN = re.compile(r"(?:.*/)?(?:[_.][^/]*|[^/]*\._COPYING_)")
"""A file that Spark leaves out by its name alone, as one that is not complete. Delta reads it."""


def add_actions(opened: DeltaTable) -> pa.Table:
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


def rows_met(opened: DeltaTable, column: str, bounds: tuple[int, int] | None) -> int | None:
    """How many rows are in files that can hold a value within the bounds, by their statistics; None if unknown.

    bounds: points, see key_ranges.
    """
    actions = add_actions(opened)
    counts = column_values(actions, "num_records")
    if bounds is None or "." in column:  # statistics of `a.b` can be those of a field `b` in a column `a`
        return None if None in counts else sum(counts)
    least, most = bounds
    lows, highs = (column_values(actions, f"{what}.{column}") for what in ("min", "max"))
    met = [
        count
        for count, low, high in zip(counts, lows, highs, strict=True)
        if low is None or high is None or (low <= most and high >= least)
    ]
    return None if None in met else sum(met)


def deleted_rows(where: Where, opened: DeltaTable) -> Mapping[str, int] | None:
    """How many rows of which files deletion vectors remove; None if the table is too large to count them."""
    if "deletionVectors" not in (opened.protocol().reader_features or ()):
        return {}
    if (pc.sum(add_actions(opened).column("num_records")).as_py() or 0) > COUNTED_ROWS:
        return None
    found = {}
    with delta_errors(where.shown):
        for batch in pa.RecordBatchReader.from_stream(opened.deletion_vectors()):
            paths = batch.column("filepath").to_pylist()
            for path, live in zip(paths, batch.column("selection_vector"), strict=True):
                found[stored(where, path, None).path] = len(live) - (pc.sum(live.values).as_py() or 0)
    return found


def plain_files(
    where: Where, version: int | None, key: str, columns: Columns, more: Sequence[DataFile] = ()
) -> PlainFiles | None:
    """The version's files, the newest one's without it, and `more`.

    None if the files are not on this machine, or need not hold these columns as the table does.
    """
    if not where.local or "." in key:  # statistics of `a.b` can be those of a field `b` in a column `a`
        return None
    opened = where.open(version)
    if not _shows_all(opened, HARMLESS):
        return None
    files = list(_files(where, opened, key, columns))
    deleted = deleted_rows(where, opened)
    if deleted is None or not deleted.keys() <= {file.path for file in files}:
        return None
    return PlainFiles(where.fs, [*files, *more], key, columns, apart=frozenset(deleted))


def whole_files(where: Where, version: int | None, columns: Columns) -> tuple[list[str], set[str]] | None:
    """URIs for Spark of Parquet files whose rows are those of the version, and which of these columns it has.

    Spark then reads no log, for which Delta runs jobs whenever a table is opened, and whenever it is read. None if
    the files do not show by themselves what the version holds, or are many, or if one is gone: Delta says more.
    """
    opened = where.open(version)
    kinds = {one["name"]: one["type"] for one in schema_fields(opened.schema().to_json())}
    there = {name for name in columns if name in kinds}
    paths = column_values(add_actions(opened), "path")
    if (
        not _shows_all(opened, _TELLING)
        or len(there) < len({own.fold(name) for name in columns} & set(map(own.fold, kinds)))
        or any(not same_type(kinds[name], columns[name]["type"]) for name in there)
        or not 0 < len(paths) <= MOST_FILES
        or not all(_PLAIN.fullmatch(path) for path in (where.uri, *paths))
        or any(_HIDDEN.fullmatch(path) for path in paths)
    ):
        return None
    infos = where.fs.get_file_info([f"{where.folder}/{path}" for path in paths])
    if any(info.type is not FileType.File for info in infos):
        return None
    return [f"{where.uri}/{path}" for path in paths], there


def _shows_all(opened: DeltaTable, harmless: frozenset[str]) -> bool:
    """Whether the files hold all columns under their names. harmless: features that change nothing of that."""
    fields = schema_fields(opened.schema().to_json())
    features = set(opened.protocol().reader_features or ())
    noted = any(set(one["metadata"]) - {"comment"} for one in fields)
    return not (noted or opened.metadata().partition_columns or not features <= harmless)


def _files(where: Where, opened: DeltaTable, key: str, columns: Columns) -> Iterator[DataFile]:
    actions = add_actions(opened)
    kind = columns[key]["type"]
    text = kind if isinstance(kind, str) else ""
    lows, highs, nulls = (column_values(actions, f"{what}.{key}") for what in ("min", "max", "null_count"))
    for path, low, high, null in zip(column_values(actions, "path"), lows, highs, nulls, strict=True):
        bounds = (point_of(low, text), point_of(high, text)) if null == 0 else (None, None)
        yield DataFile(stored(where, path, None).path, *bounds)
