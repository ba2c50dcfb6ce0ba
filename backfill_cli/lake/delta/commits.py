"""Reads the commits of a Delta table, one small file each."""

import json
import posixpath
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs as pafs

from backfill_cli.lake.damage import FROM_COPY, Stored
from backfill_cli.lake.delta.damage import damaged
from backfill_cli.lake.delta.edge import Where
from backfill_cli.spark.failures import reading
from backfill_cli.spark.object_store import store_errors

FEED = "delta.enableChangeDataFeed"
_BYTES_A_CHANGE = 60
"""A guess for writers that record no metrics. It only affects the size of epochs."""
AHEAD = 8
"""Versions that are looked for after one that is missing: a look costs 2 µs on a disk, a request on a store."""


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What a commit records about the table. id: of the table. schema: as Delta writes it."""

    id: str
    schema: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table. ms: when it was committed. operation: as its writer calls it.

    changes: about how many rows its change feed has. size_bytes: of the files with them. metadata: None if
    unchanged. crc: of its file.
    """

    version: int
    ms: int
    operation: str
    changes: int
    size_bytes: int
    metadata: TableMetadata | None
    crc: int = 0


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies a version's file in the log: a different file belongs to a different table."""

    mtime_ns: int
    size: int


def stamp(where: Where, version: int) -> Stamp | None:
    """The stamp of a version; None if the log has no file of it."""
    with reading(where.shown, "Delta log", FROM_COPY):
        info = where.place.fs.get_file_info(where.log_file(version))
    return None if info.type == pafs.FileType.NotFound else Stamp(info.mtime_ns or 0, info.size or 0)


def last_checkpoint(where: Where) -> int:
    """The version that can be read without those before it, according to the log; -1 without one."""
    path = f"{where.place.folder}/_delta_log/_last_checkpoint"
    with reading(where.shown, "Delta log", FROM_COPY):
        if where.place.fs.get_file_info(path).type == pafs.FileType.NotFound:
            return -1
        with where.place.fs.open_input_stream(path) as file:
            text = file.read()
    try:
        return int(json.loads(text)["version"])
    except (ValueError, KeyError, TypeError):
        return -1  # a hint only, which writers replace


def later(where: Where, version: int) -> int | None:
    """The first of the versions soon after this one of which the log has a file; None if it has none of them."""
    ahead = range(version + 1, version + 1 + (AHEAD if where.place.local else 1))
    with reading(where.shown, "Delta log", FROM_COPY):
        infos = where.place.fs.get_file_info([where.log_file(one) for one in ahead])
    return next((one for one, info in zip(ahead, infos, strict=True) if info.type != pafs.FileType.NotFound), None)


def commit(where: Where, version: int) -> Commit | None:
    """The commit of a version; None if the log has no file of it."""
    try:
        with store_errors(where.shown), where.place.fs.open_input_stream(where.log_file(version)) as file:
            text = file.read()
    except FileNotFoundError:
        return None
    found = stamp(where, version)
    if not text.strip():  # cut off before its first line; later, nothing shows it
        raise damaged(where, version)
    try:
        made = parsed(version, text, 0 if found is None else found.mtime_ns // 1_000_000)
        return replace(made, crc=zlib.crc32(text))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise damaged(where, version) from exc


def changed_files(where: Where, versions: Iterable[int]) -> list[Stored]:
    """The files with what these versions changed: of the change feed, or those that were added and removed."""
    made: list[Stored] = []
    for version in versions:
        try:
            with where.place.fs.open_input_stream(where.log_file(version)) as file:
                actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except (OSError, ValueError):
            continue  # what is wrong with the log is found in the log
        feed = [one["cdc"] for one in actions if "cdc" in one]
        moved = [one[name] for one in actions for name in ("add", "remove") if name in one]
        made += [stored(where, one["path"], one.get("size")) for one in feed or moved]
    return made


def stored(where: Where, path: str, size_bytes: int | None) -> Stored:
    """A file by its path in the log: relative to the table's folder, or a URI or absolute path."""
    parsed = urlsplit(path)
    if parsed.scheme:
        return Stored(unquote(parsed.path) if parsed.scheme == "file" else path, size_bytes)
    return Stored(posixpath.join(where.place.folder, unquote(path)), size_bytes)


def parsed(version: int, text: bytes, written_ms: int) -> Commit:
    """The commit in a file's text, one action per line. written_ms: its time if the commit has none."""
    info: Mapping[str, Any] = {}
    metadata: TableMetadata | None = None
    told = feed = 0
    added = removed = 0
    for line in text.splitlines():
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo") or info
        if (given := action.get("metaData")) is not None:
            metadata = TableMetadata(given["id"], given["schemaString"], dict(given.get("configuration") or {}))
        feed += (action.get("cdc") or {}).get("size") or 0
        if (add := action.get("add")) is not None and add.get("dataChange", True):
            added += add.get("size") or 0
            told += _records(add)
        if (gone := action.get("remove")) is not None and gone.get("dataChange", True):
            removed += gone.get("size") or 0
            told += _records(gone)
    size = feed or added + removed
    counted = _counted(info.get("operationMetrics") or {})
    changes = counted if counted is not None else (told if not feed and told else -(-size // _BYTES_A_CHANGE))
    ms = info.get("inCommitTimestamp") or info.get("timestamp") or written_ms
    return Commit(version, int(ms), str(info.get("operation", "")), changes if size else 0, size, metadata)


def schema_fields(schema: str) -> list[dict[str, Any]]:
    """The columns as Delta writes them, with their metadata."""
    fields: list[dict[str, Any]] = json.loads(schema)["fields"]
    return fields


def _records(file: Mapping[str, Any]) -> int:
    stats = file.get("stats")
    return int((json.loads(stats) if stats else {}).get("numRecords") or 0)


_COUNTS = {
    "numTargetRowsInserted": 1,
    "numTargetRowsUpdated": 2,
    "numTargetRowsDeleted": 1,
    "numUpdatedRows": 2,
    "numDeletedRows": 1,
}


def _counted(metrics: Mapping[str, Any]) -> int | None:
    """Rows of the change feed by the writer's metrics; an update is two. None for other kinds of commits."""
    found = {name: int(metrics[name]) for name in _COUNTS if str(metrics.get(name, "")).isdigit()}
    return sum(n * _COUNTS[name] for name, n in found.items()) if found else None
