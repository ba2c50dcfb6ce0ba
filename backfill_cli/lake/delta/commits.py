"""Reads the log of a Delta table: its commits, one small file each; and finds what is wrong with it.

The library's words for a log that cannot be read name Rust's structures.
"""

import json
import posixpath
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs as pafs

from backfill_cli.errors import START_OVER, BackfillError, Fatal, HistoryGone, UsageError, in_config
from backfill_cli.lake import damage
from backfill_cli.lake.damage import FROM_COPY, Stored
from backfill_cli.model.schema import Columns, field
from backfill_cli.spark.failures import reading
from backfill_cli.spark.object_store import store_errors

if TYPE_CHECKING:
    from backfill_cli.lake.delta.edge import Where

FEED = "delta.enableChangeDataFeed"
PHYSICAL = "delta.columnMapping.physicalName"
_BYTES_A_CHANGE = 60
"""A guess for writers that record no metrics. It only affects the size of epochs."""
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(?:parquet|json)")
_PLAIN_NAME = re.compile(r"[\w.=-]+", re.ASCII)
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


def stamp(where: "Where", version: int) -> Stamp | None:
    """The stamp of a version; None if the log has no file of it."""
    with reading(where.shown, "Delta log", FROM_COPY):
        info = where.fs.get_file_info(where.log_file(version))
    return None if info.type == pafs.FileType.NotFound else Stamp(info.mtime_ns or 0, info.size or 0)


def last_checkpoint(where: "Where") -> int:
    """The version that can be read without those before it, according to the log; -1 without one."""
    path = f"{where.folder}/_delta_log/_last_checkpoint"
    with reading(where.shown, "Delta log", FROM_COPY):
        if where.fs.get_file_info(path).type == pafs.FileType.NotFound:
            return -1
        with where.fs.open_input_stream(path) as file:
            text = file.read()
    try:
        return int(json.loads(text)["version"])
    except (ValueError, KeyError, TypeError):
        return -1  # a hint only, which writers replace


def later(where: "Where", version: int) -> int | None:
    """The first of the versions soon after this one of which the log has a file; None if it has none of them."""
    ahead = range(version + 1, version + 1 + (AHEAD if where.local else 1))
    with reading(where.shown, "Delta log", FROM_COPY):
        infos = where.fs.get_file_info([where.log_file(one) for one in ahead])
    return next((one for one, info in zip(ahead, infos, strict=True) if info.type != pafs.FileType.NotFound), None)


def commit(where: "Where", version: int) -> Commit | None:
    """The commit of a version; None if the log has no file of it."""
    try:
        with store_errors(where.shown):
            text = where.read_log(version)
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


def _actions(where: "Where", version: int) -> list[dict[str, Any]]:
    """What a version's file says, a line each. Raises ValueError for one that is empty, or is not JSON."""
    actions = [json.loads(line) for line in where.read_log(version).splitlines() if line.strip()]
    if not actions:
        raise ValueError("it is empty")
    return actions


def wrote_no_row(where: "Where", version: int, app: str) -> bool:
    """Whether a version changed no row, or was written by an application whose name begins so.

    False if the log does not tell.
    """
    try:
        actions = _actions(where, version)
    except (OSError, ValueError):
        return False
    if any(str(one["txn"].get("appId")).startswith(app) for one in actions if "txn" in one):
        return True
    moved = [one[name] for one in actions for name in ("add", "remove") if name in one]
    return not any(one.get("dataChange", True) for one in moved)


def moved_files(where: "Where", versions: Iterable[int]) -> frozenset[str] | None:
    """The names of the files that these versions added or removed, or gave a deletion vector.

    None if the log does not tell, if a version changed more than rows, or for names that could be spelled twice.
    """
    names = set[str]()
    for version in versions:
        try:
            actions = _actions(where, version)
        except (OSError, ValueError):
            return None
        if any("metaData" in one or "protocol" in one for one in actions):
            return None
        paths = [str(one[name]["path"]) for one in actions for name in ("add", "remove") if name in one]
        names |= {posixpath.basename(urlsplit(path).path) for path in paths}
    return frozenset(names) if all(map(_PLAIN_NAME.fullmatch, names)) else None


def changed_files(where: "Where", versions: Iterable[int]) -> list[Stored]:
    """The files with what these versions changed: of the change feed, or those that were added and removed."""
    made: list[Stored] = []
    for version in versions:
        try:
            actions = _actions(where, version)
        except (OSError, ValueError):
            continue  # what is wrong with the log is found in the log
        feed = [one["cdc"] for one in actions if "cdc" in one]
        moved = [one[name] for one in actions for name in ("add", "remove") if name in one]
        made += [stored(where, one["path"], one.get("size")) for one in feed or moved]
    return made


def stored(where: "Where", path: str, size_bytes: int | None) -> Stored:
    """A file by its path in the log: relative to the table's folder, or a URI or absolute path."""
    parsed = urlsplit(path)
    if parsed.scheme:
        return Stored(unquote(parsed.path) if parsed.scheme == "file" else path, size_bytes)
    return Stored(posixpath.join(where.folder, unquote(path)), size_bytes)


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


def columns_of_delta(schema: str) -> tuple[Columns, dict[str, str]]:
    """The columns without Delta's metadata, and the name of each in the files."""
    told = schema_fields(schema)
    columns = {one["name"]: field(one["name"], _bare(one["type"])) for one in told}
    return columns, {one["name"]: str(one["metadata"].get(PHYSICAL, one["name"])) for one in told}


def _bare(kind: Any) -> Any:
    """The type without the metadata of nested fields."""
    if isinstance(kind, Mapping):
        return {name: {} if name == "metadata" else _bare(value) for name, value in kind.items()}
    return [_bare(one) for one in kind] if isinstance(kind, list) else kind


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


@dataclass(frozen=True, slots=True)
class Log:
    """The versions of which the log has a file, and the files of the checkpoints that it has, by version."""

    commits: frozenset[int]
    checkpoints: Mapping[int, Sequence[str]]

    def needed(self, version: int) -> range:
        """The versions whose commits have to be read for this one, itself included."""
        return range(max((one for one in self.checkpoints if one <= version), default=-1) + 1, version + 1)

    def missing(self, version: int) -> list[int]:
        return [one for one in self.needed(version) if one not in self.commits]


def found(where: "Where", version: int | None) -> BackfillError | None:
    """The error for a log in which a version (the newest, if None) cannot be read; None if its files are whole.

    A log without any commit is not examined.
    """
    try:
        log = listed(where)
    except OSError:
        return None
    if not log.commits:
        return None
    newest = max(log.commits)
    if version is not None and version > newest:
        return UsageError(
            f"{where.shown}: has no version {version}: its newest is {newest}",
            in_config('set upstream.version = "latest", or a version that exists'),
        )
    if hole := log.missing(newest):
        return lost(where, hole[0], newest)
    if version is not None and log.missing(version):
        return HistoryGone(
            f"{where.shown}: its log no longer has version {version}",
            START_OVER
            + ', with upstream.version = "latest" or a version that exists; delta.logRetentionDuration says how '
            "long versions are kept",
        )
    wanted = newest if version is None else version
    return next(chain(_damaged(where, log, wanted), _damaged_checkpoint(where, log, wanted)), None)


def lost(where: "Where", version: int, later: int) -> Fatal:
    """The error for a version that the log lacks, though it has later ones."""
    return Fatal(
        f"{where.shown}: version {version} is missing from its log, which has version {later}: what it changed is "
        f"unknown ({where.log_file(version)})",
        FROM_COPY,
    )


def listed(where: "Where") -> Log:
    """What is in the log's folder. Raises OSError."""
    folder = pafs.FileSelector(f"{where.folder}/_delta_log", allow_not_found=True)
    files = [info for info in where.fs.get_file_info(folder) if info.type == pafs.FileType.File]
    checkpoints: dict[int, list[str]] = {}
    for one in files:
        if (found := _CHECKPOINT.fullmatch(one.base_name)) is not None:
            checkpoints.setdefault(int(found[1]), []).append(one.path)
    commits = (_COMMIT.fullmatch(one.base_name) for one in files)
    return Log(frozenset(int(one[1]) for one in commits if one), checkpoints)


def _damaged(where: "Where", log: Log, version: int) -> Iterator[Fatal]:
    for one in log.needed(version):
        try:
            _actions(where, one)
        except ValueError:
            yield damaged(where, one)
        except OSError:
            return


def _damaged_checkpoint(where: "Where", log: Log, version: int) -> Iterator[Fatal]:
    """The error for a file of the checkpoint from which this version is read."""
    newest, hinted = max((one for one in log.checkpoints if one <= version), default=-1), -1
    with suppress(BackfillError):
        hinted = last_checkpoint(where)
    if newest < hinted <= version:
        yield Fatal(
            f"{where.shown}: the checkpoint of version {hinted} is missing from its log "
            f"({where.folder}/_delta_log/{hinted:020d}.checkpoint.*)",
            FROM_COPY,
        )
    files = [Stored(path) for path in log.checkpoints.get(newest, ())]
    if (fault := damage.unreadable(where.fs, files)) is not None:
        yield fault


def missing(where: "Where", path: str) -> BackfillError:
    return Fatal(f"{where.shown}: {path} is missing", FROM_COPY)


def faulty(
    where: "Where",
    files: Callable[[], Sequence[Stored]],
    gone: "Callable[[Where, str], BackfillError]" = missing,
) -> BackfillError | None:
    """What is wrong with the table's log, or with one of these data files; None if nothing is.

    gone: the error for one that does not exist.
    """
    try:
        if (fault := found(where, None)) is not None:
            return fault
        known = files()
    except BackfillError as fault:
        return fault
    return damage.faulty(where.fs, known, partial(gone, where))


def damaged(where: "Where", version: int) -> Fatal:
    """The error for a version whose file is not what a writer wrote."""
    return Fatal(f"{where.shown}: version {version} of its log is damaged: {where.log_file(version)}", FROM_COPY)
