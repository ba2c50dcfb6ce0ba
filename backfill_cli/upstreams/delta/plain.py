"""Which files of a Delta version hold its rows as they are, by its log alone: workers read those by themselves."""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from backfill_cli.formats.delta.edge import Where, delta_errors
from backfill_cli.formats.key_points import point_of
from backfill_cli.formats.lake.plain_files import DataFile, PlainFiles
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.delta.table import COUNTED_ROWS, add_actions, selections

if TYPE_CHECKING:
    from deltalake import DeltaTable

HARMLESS = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
)
"""Reader features that leave a file readable by itself, or that show in its columns or its deletion vector."""


def plain_files(where: Where, version: int, key: str, columns: Columns) -> PlainFiles | None:
    """The version's files; None where its columns are not as the files have them, or the files are elsewhere."""
    if not where.place.local:
        return None
    opened = where.open(version)
    fields = json.loads(opened.schema().to_json())["fields"]
    features = set(opened.protocol().reader_features or ())
    noted = any(set(one["metadata"]) - {"comment"} for one in fields)
    if noted or opened.metadata().partition_columns or not features <= HARMLESS:
        return None
    files = list(_files(where, opened, key, columns))
    deleted = _with_deleted(where, opened) if "deletionVectors" in features else frozenset()
    if deleted is None or not deleted <= {file.path for file in files}:
        return None
    return PlainFiles(where.place.fs, files, key, columns, apart=deleted)


def _files(where: Where, opened: "DeltaTable", key: str, columns: Columns) -> Iterator[DataFile]:
    held = add_actions(opened).to_pydict()
    nothing: list[Any] = [None] * len(held["path"])
    kind = columns[key]["type"]
    text = kind if isinstance(kind, str) else ""
    lows, highs, nulls = (held.get(f"{what}.{key}", nothing) for what in ("min", "max", "null_count"))
    for path, low, high, null in zip(held["path"], lows, highs, nulls, strict=True):
        bounds = (point_of(low, text), point_of(high, text)) if null == 0 else (None, None)
        yield DataFile(_local(where, path), *bounds)


def _local(where: Where, path: str) -> str:
    """Where a file of the log is: below the table's folder, or anywhere by a URI or an absolute path."""
    parsed = urlsplit(path)
    if parsed.scheme:
        return unquote(parsed.path) if parsed.scheme == "file" else path
    return os.path.join(where.place.folder, unquote(path))


def _with_deleted(where: Where, opened: "DeltaTable") -> frozenset[str] | None:
    """The files that have a deletion vector; None where the table is too large to be asked."""
    counts = add_actions(opened).column("num_records").to_pylist()
    if sum(count or 0 for count in counts) > COUNTED_ROWS:
        return None
    with delta_errors(where.shown):
        return frozenset(
            _local(where, path) for batch in selections(opened) for path in batch.column("filepath").to_pylist()
        )
