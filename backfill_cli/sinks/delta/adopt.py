"""Adds staged files to the table as they are: an epoch of plain inserts is only a commit to the log, with no copy.

Done only if Spark would have written the same: for a table on the same disk as the staging folder, without
partitions, column mapping, constraints, or features that demand more than a file and its statistics.
"""

import json
import os
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyarrow.parquet import FileMetaData, Statistics, read_metadata

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.lake.blobs import sync_folder
from backfill_cli.lake.delta.commits import schema_fields
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.merge import size_bytes
from backfill_cli.model.plan import StagedFile
from backfill_cli.model.schema import columns_of, same_type

CHECKED = ("checkConstraints", "generatedColumns", "columnMapping")
PLAIN = frozenset(("appendOnly", "invariants", "changeDataFeed", "timestampNtz", "deletionVectors", *CHECKED))
"""Writer features that a table can have. Whether it uses those of CHECKED, which restrict rows, is checked too."""

LEAST_BYTES = 2**20
"""Mean size of the files; smaller ones are rewritten as fewer. A first epoch of 500,000 rows has files of 2 MB."""

LONGEST = 32
"""Characters of a text in statistics, as Spark writes them; longer texts get no statistics here."""


def adoptable(opened: DeltaTable, where: Where, commit: EpochCommit, table: SinkTable) -> bool:
    """Whether the staged inserts can become files of the table, and are large enough for its readers."""
    files = commit.staged.tables[table.name].inserts
    small = len(files) > 1 and size_bytes(files) < len(files) * LEAST_BYTES
    if not where.local or small or not _same_disk(where, commit, files) or _has_rights_of_its_own(where):
        return False
    metadata, protocol = opened.metadata(), opened.protocol()
    checked = any(name.startswith("delta.constraints.") for name in metadata.configuration)
    mapped = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    if metadata.partition_columns or checked or mapped or set(protocol.writer_features or ()) - PLAIN:
        return False
    fields = {one["name"]: one for one in schema_fields(opened.schema().to_json())}
    wanted = columns_of(table.schema)
    return all(
        name in fields and not fields[name]["metadata"] and same_type(fields[name]["type"], one["type"])
        for name, one in wanted.items()
    ) and all(one["nullable"] or name in wanted for name, one in fields.items())


def _same_disk(where: Where, commit: EpochCommit, files: Sequence[StagedFile]) -> bool:
    try:
        return os.stat(where.folder).st_dev == os.stat(Path(commit.folder, files[0].path)).st_dev
    except OSError:
        return False


def linked(where: Where, commit: EpochCommit, table: SinkTable) -> list[AddAction] | None:
    """The staged inserts are linked into the table's folder, durably; they count once a commit names them.

    If no commit follows VACUUM removes them, like the orphans of any writer. Returns None if the system refuses:
    across mounts of one disk, for files of another user, on a file system without links.
    """
    made: list[Path] = []
    try:
        return _linked(where, commit, table, made)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        return None


def _linked(where: Where, commit: EpochCommit, table: SinkTable, paths: list[Path]) -> list[AddAction]:
    made = []
    for index, file in enumerate(commit.staged.tables[table.name].inserts):
        name = f"part-{index:05d}-{uuid.uuid4()}.parquet"
        source = Path(commit.folder, file.path)
        os.link(source, Path(where.folder, name))
        paths.append(Path(where.folder, name))
        os.chmod(source, 0o666 & ~_umask())
        _give_to_group(Path(where.folder), source)
        stats = statistics(read_metadata(source), columns_of(table.schema))
        ms = int(source.stat().st_mtime * 1000)
        made.append(AddAction(name, file.size_bytes, {}, ms, True, json.dumps(stats)))
    sync_folder(where.folder)
    return made


def _has_rights_of_its_own(where: Where) -> bool:
    """Whether files created in the folder inherit permissions from it (a default ACL), which a link would not."""
    try:
        return "system.posix_acl_default" in os.listxattr(where.folder)
    except (AttributeError, OSError):  # a system without extended attributes
        return False


def _give_to_group(folder: Path, file: Path) -> None:
    """The file has the folder's group if the folder has setgid, as a new file would. Raises OSError if refused."""
    held = folder.stat()
    if held.st_mode & stat.S_ISGID and file.stat().st_gid != held.st_gid:
        os.chown(file, -1, held.st_gid)


def _umask() -> int:
    """The umask, from /proc if possible: reading it by setting it affects files that other threads create."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    before = os.umask(0o077)
    os.umask(before)
    return before


@dataclass(slots=True)
class _Column:
    """low, high: as in JSON, None if unknown. told: whether every part of the file has statistics."""

    nulls: int = 0
    low: Any = None
    high: Any = None
    told: bool = True


def statistics(found: FileMetaData, columns: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The footer's statistics in the form of Delta's log; columns without exact statistics are omitted."""
    held: dict[str, _Column] = {}
    for name, chunk in _chunks(found, columns):
        column = held.setdefault(name, _Column())
        said = chunk.statistics
        if said is None or said.null_count is None:
            column.told = False
            continue
        column.nulls += said.null_count
        if said.null_count == chunk.num_values:
            continue
        low, high = _bounds(said)
        if low is None or high is None:
            column.told = False
            continue
        column.low = low if column.low is None else min(column.low, low)
        column.high = high if column.high is None else max(column.high, high)
    known = {name: one for name, one in held.items() if one.told}
    return {
        "numRecords": found.num_rows,
        "minValues": {name: one.low for name, one in known.items() if one.low is not None},
        "maxValues": {name: one.high for name, one in known.items() if one.high is not None},
        "nullCount": {name: one.nulls for name, one in known.items()},
    }


def _bounds(said: Statistics) -> tuple[Any, Any]:
    try:
        return (_told(said.min), _told(said.max)) if said.has_min_max else (None, None)
    except (UnicodeDecodeError, OverflowError, ValueError):
        return None, None  # Spark can write strings that are not UTF-8, and dates that Python does not have


_BOUNDED = ("byte", "short", "integer", "long", "date", "string")


def _chunks(found: FileMetaData, columns: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    for group in (found.row_group(index) for index in range(found.num_row_groups)):
        for chunk in (group.column(index) for index in range(group.num_columns)):
            name = chunk.path_in_schema  # has a dot for a nested column
            if "." not in name and name in columns and columns[name]["type"] in _BOUNDED:
                yield name, chunk


def _told(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat() if 1 <= value.year <= 9999 else None
    if isinstance(value, str):
        return value if len(value) <= LONGEST else None
    return value if isinstance(value, int) else None
