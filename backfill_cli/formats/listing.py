"""Lists a folder or glob on any file system, again only when it may have changed.

Names that begin with `_` or `.` (folders too) and `*.tmp` are ignored, as not complete yet; but not a folder
`_column=value`. A file's name is its path below the place's folder, with `/`; names are ordered as text.
"""

import fnmatch
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backfill_cli.errors import BadData, Hint, UsageError, command, in_config
from backfill_cli.spark.failures import reading
from backfill_cli.spark.object_store import on_s3, store_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_MAGIC = re.compile(r"[*?\[]")
_FILE_URI = re.compile(r"^file:(//(localhost)?)?/(?!/)")
_SETTLED_NS = 1_000_000_000
"""A folder's listing is final if taken this long after the folder last changed: file timestamps are coarse."""


@dataclass(frozen=True, slots=True)
class File:
    """One file as listed. name: below its place's folder. path: within its file system.

    inode: identifies the file on a local disk, whatever its name; 0 elsewhere.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int = field(default=0, compare=False)

    def same_as(self, other: "File") -> bool:
        return (self.size, self.mtime_ns) == (other.size, other.mtime_ns)


def touched(path: str, mtime_ns: int) -> str:
    """The command that gives a local file this modification time."""
    return f"touch -d @{mtime_ns // 10**9}.{mtime_ns % 10**9:09d} {shlex.quote(path)}"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder and optionally a pattern below it; a single file is a place whose pattern is its name.

    shown: for messages. uri: the folder's URI for Spark, without a trailing `/`. valued: whether folders below it
    may hold values of columns in their names: see hive.py.
    """

    fs: "FileSystem"
    folder: str
    pattern: tuple[str, ...]
    shown: str
    uri: str
    local: bool
    valued: bool = False

    def matches(self, name: str) -> bool:
        if not self.pattern:
            return True
        parts = name.split("/")
        return len(parts) == len(self.pattern) and all(
            fnmatch.fnmatchcase(part, wanted) for part, wanted in zip(parts, self.pattern, strict=True)
        )

    def spark_path(self, file: File) -> str:
        """The path for a Spark reader, which takes every path for a pattern: special characters are escaped."""
        return re.sub(r"([\\\[\]{}*?])", r"\\\1", f"{self.uri}/{file.name}")


def place(template: str, table: str) -> Place:
    """The place that an option's path names for one table.

    Raises UsageError for a scheme without a file system.
    """
    from pyarrow import fs as pafs

    literal = template.replace("{table}", table)
    local = local_path(literal)
    if "://" in local:
        return _remote_place(literal)
    absolute = os.path.abspath(local)
    pattern: tuple[str, ...]
    if os.path.isdir(absolute):
        folder, pattern = absolute, ()
    elif os.path.isfile(absolute):
        folder, pattern = os.path.dirname(absolute), (re.sub(r"([*?\[])", r"[\1]", os.path.basename(absolute)),)
    else:
        folder, pattern = _split(absolute)
    return Place(pafs.LocalFileSystem(), folder or "/", pattern, literal, f"file://{folder}", True)


def local_path(told: str) -> str:
    """The path in a URI of this machine's files: `file:/x` and `file://localhost/x` are `/x`; others unchanged."""
    return _FILE_URI.sub("/", told, count=1)


def _remote_place(literal: str) -> Place:
    import pyarrow as pa
    from pyarrow import fs as pafs

    base, pattern = _split(literal)
    if on_s3(base):
        found = store_of(base)
        return Place(found.files(), base.partition("://")[2], pattern, literal, base, False)
    try:
        system, folder = pafs.FileSystem.from_uri(base)
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise UsageError(
            f"{literal}: no file system for this path: {exc}", "set a local path, or a URI such as s3://…"
        ) from exc
    return Place(system, folder.rstrip("/"), pattern, literal, base, False)


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """The folder before the first pattern part, and the parts from there on."""
    parts = path.rstrip("/").split("/")
    first = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return "/".join(parts[:first]), tuple(parts[first:])


@dataclass(slots=True)
class Listing:
    """The files of one place, by name in order. Kept between barriers: `files()` lists again only if necessary."""

    place: Place
    _files: dict[str, File] = field(default_factory=dict)
    _folders: dict[str, int] = field(default_factory=dict)
    _taken_ns: int = 0

    def files(self) -> Mapping[str, File]:
        """All current files, by name in text order; the same object as long as nothing was added or removed.

        A missing folder holds no files. A file that is written in place does not change its folder: see `again`.
        """
        if not self._settled():
            taken, folders = time.time_ns(), dict[str, int]()
            with reading(self.place.shown, "folder"):
                found = sorted(_walk(self.place, folders) if self.place.local else _remote(self.place), key=_name)
            files = {file.name: file for file in found}
            if files != self._files:
                self._files = files
            self._folders, self._taken_ns = folders, taken
        return self._files

    def exists(self) -> bool:
        """Whether the folder exists; always true on an object store, where a folder comes with its first file."""
        return not self.place.local or os.path.isdir(self.place.folder)

    def again(self, file: File) -> File | None:
        """The current state of one file; None if it is gone."""
        with reading(file.path, "listed"):
            if self.place.local:
                try:
                    stat = os.stat(file.path)
                except FileNotFoundError:
                    return None
                return File(file.name, file.path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
            info = self.place.fs.get_file_info(file.path)
            return None if not info.is_file else File(file.name, file.path, info.size or 0, info.mtime_ns or 0)

    def forget(self) -> None:
        """The next `files()` lists again."""
        self._folders = {}

    def _settled(self) -> bool:
        if not self._folders:
            return False
        for folder, mtime_ns in self._folders.items():
            try:
                now_ns = os.stat(folder).st_mtime_ns
            except OSError:
                return False
            if now_ns != mtime_ns or self._taken_ns - now_ns < _SETTLED_NS:
                return False
        return True


def _name(file: File) -> str:
    return file.name


def hidden(name: str, folder: bool) -> bool:
    """Whether an entry is ignored. A folder that holds a column's value is not, whatever the column's name."""
    if folder and "=" in name:
        return name.startswith(".")
    return name.startswith(("_", ".")) or name.endswith(".tmp")


def _walk(where: Place, folders: dict[str, int]) -> Iterator[File]:
    pending = [(where.folder, "")]
    while pending:
        folder, prefix = pending.pop()
        try:
            folders[folder] = os.stat(folder).st_mtime_ns
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            continue
        for entry in entries:
            name = prefix + entry.name
            refuse_table(where, folder, entry.name)
            if hidden(entry.name, "=" in entry.name and entry.is_dir()):
                continue
            if entry.is_dir():
                pending.append((entry.path, f"{name}/"))
            elif where.matches(name):
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    continue
                yield readable(where, File(name, entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino))


def _remote(where: Place) -> Iterator[File]:
    from pyarrow.fs import FileSelector

    selector = FileSelector(where.folder, allow_not_found=True, recursive=True)
    for info in where.fs.get_file_info(selector):
        name = info.path[len(where.folder) :].lstrip("/")
        for folder, entry in _steps(info.path, name):
            refuse_table(where, folder, entry)
        *folders, own = name.split("/")
        ignored = hidden(own, folder=False) or any(hidden(part, folder=True) for part in folders)
        if info.is_file and not ignored and where.matches(name):
            yield readable(where, File(name, info.path, info.size or 0, info.mtime_ns or 0))


_TABLES = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_ICEBERG = ".metadata.json"


def refuse_table(where: Place, folder: str, entry: str) -> None:
    """Raises UsageError if an entry of a folder shows that the files belong to a table with its own log."""
    kind = _TABLES.get(entry)
    if entry.endswith(_ICEBERG) and folder.rpartition("/")[2] == "metadata":
        kind = "Iceberg"
    if kind is not None:
        raise UsageError(
            f"{where.shown}: holds {_a(kind)} table ({folder}/{entry}): its files alone do not show its rows",
            _as_tables(kind),
        )


def _as_tables(kind: str) -> Hint:
    if kind in ("Delta", "Iceberg"):
        kind = kind.lower()
        return f'read it as a table: [upstream] type = "{kind}"; or: ' + command(f"init --upstream {kind}")
    other = f"export the rows as plain Parquet with an engine that reads {kind}, and set that folder as the path"
    return Hint.of(other)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "AEIOU" else f"a {kind}"


def _steps(path: str, name: str) -> Iterator[tuple[str, str]]:
    """(folder, entry) of each part of a name below the place that shows a table's own log."""
    parts = name.split("/")
    base = path[: len(path) - len(name)].rstrip("/")
    for index, part in enumerate(parts):
        if part in _TABLES or part.endswith(_ICEBERG):
            yield "/".join((base, *parts[:index])), part


def refuse_part_of_table(where: Place) -> None:
    """Raises UsageError if the folder belongs to a table: Iceberg's `data`, a partition of Delta or Hudi."""
    above, _, own = where.folder.rpartition("/")
    if not above or where.pattern:
        return
    from pyarrow.fs import FileSelector, FileType

    with reading(where.shown, "folder"):
        for entry in _TABLES:
            if where.fs.get_file_info(f"{above}/{entry}").type != FileType.NotFound:
                refuse_table(where, above, entry)
        if own == "data":
            metadata = f"{above}/metadata"
            for info in where.fs.get_file_info(FileSelector(metadata, allow_not_found=True)):
                refuse_table(where, metadata, info.base_name)


_CONNECT = re.compile(r"partition=[0-9]+")


class ValueInFolder(BadData):
    """A folder's name holds a column's value. connect: one is a topic's partition, as Kafka Connect writes it."""

    def __init__(self, message: str, hint: Hint, folders: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.connect = any(map(_CONNECT.fullmatch, folders))


def readable(where: Place, file: File) -> File:
    """The file. Raises BadData for a name that its reader would misread."""
    if where.local and ":" in file.name:
        raise BadData(f"{file.path}: Spark cannot read a name with a colon", "rename the file")
    valued = [part for part in file.name.split("/")[:-1] if "=" in part]
    if where.valued and valued:
        return file
    if valued and _CONNECT.fullmatch(valued[-1]):
        raise ValueInFolder(
            f"{file.path}: '{valued[-1]}/' is a topic's partition as Kafka Connect writes it, and each partition "
            "has its own order",
            in_config(
                'read the topic itself (upstream.type = "kafka"), or set the path to the folder of one partition'
            ),
            valued,
        )
    if valued:
        raise ValueInFolder(
            f"{file.path}: a folder name holds a column's value ('{valued[0]}', a Hive-style partition), but only "
            "the contents of files are read",
            in_config(
                "rewrite the files with that column in them, for example spark.read.parquet(…).write.parquet(…), "
                "or set the path to one such folder"
            ),
            valued,
        )
    return file
