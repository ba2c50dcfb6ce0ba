"""Small files beside a lake's tables, each written once and completely: the state that a sink keeps of its jobs.

They have no format and need no Spark job: a barrier that commits rows writes one, in a millisecond on a disk.
"""

import errno
import os
import re
import shlex
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import BinaryIO

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from backfill_cli.errors import RETRIED, Fatal, Transient, free_space
from backfill_cli.spark.object_store import store_errors

_TRIES = 10
OLD_S = 3600.0
"""Older drafts are abandoned: one is written in milliseconds, and clocks of machines differ by less than this."""
_DRAFT = re.compile(r"\.[0-9a-f]{32}")


@contextmanager
def storing(path: str) -> Iterator[None]:
    """What fails in the block becomes ours, which names the path; not that a file exists, or does not."""
    try:
        with store_errors(path):
            yield
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as exc:
        said = f"{path}: {' '.join((exc.strerror or str(exc)).split())}"
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Transient(said, free_space(os.path.dirname(path))) from exc
        if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            raise Fatal(said, f"let this user write there: ls -ld {shlex.quote(os.path.dirname(path))}") from exc
        raise Transient(said, RETRIED) from exc


class Announced(FileExistsError):
    """Another process began to create the file, and may have died since. Its argument: what to delete then."""


class Blobs:
    """Files in or below one folder. Names are relative, with `/`; those that begin with `.` are not listed."""

    def __init__(self, files: FileSystem, root: str) -> None:
        self._files, self.root = files, root.rstrip("/")

    def below(self, name: str) -> "Blobs":
        return Blobs(self._files, f"{self.root}/{name}")

    def names(self) -> list[str]:
        """The names of files and folders, sorted; empty if there is no folder."""
        return sorted(one.base_name for one in self._listed() if not one.base_name.startswith("."))

    def _listed(self) -> list[FileInfo]:
        with storing(self.root):
            found: list[FileInfo] = self._files.get_file_info(FileSelector(self.root, allow_not_found=True))
            return found

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""
        path = f"{self.root}/{name}"
        with storing(path), self._files.open_input_file(path) as file:
            content: bytes = file.read()
            return content

    def create(self, name: str, content: bytes) -> None:
        """The file exists, complete and durable. Raises FileExistsError if one of that name exists.

        Atomic on a disk. On an object store, two writers at once can both return: names have to differ by writer,
        or a lost write must not matter; else see `create_alone`.
        """
        path = f"{self.root}/{name}"
        if isinstance(self._files, LocalFileSystem):
            with storing(path):
                _create_on_disk(path, content)
            return
        with storing(path):
            there = self._files.get_file_info(path).type != FileType.NotFound
        if there:
            raise FileExistsError(path)
        self._write(path, content)

    def create_alone(self, name: str, content: bytes) -> None:
        """As `create`, and of several writers at once no more than one returns, on an object store too.

        Each writer announces itself before it looks for others, so of two at least one sees the other and gives
        way. Raises Announced, a FileExistsError, if it does.
        """
        if isinstance(self._files, LocalFileSystem):
            self.create(name, content)
            return
        ours = f".{name}.{uuid.uuid4().hex}"
        self._write(f"{self.root}/{ours}", b"")
        try:
            for other in self._announced(name):
                if other != ours:
                    raise Announced(f"{self.root}/{other}")
            self.create(name, content)
        finally:
            self.delete(ours)

    def _announced(self, name: str) -> list[str]:
        """The announcements of this name that are not abandoned."""
        drafts = [one for one in self._listed() if _DRAFT.fullmatch(one.base_name.removeprefix(f".{name}"))]
        return [one.base_name for one in drafts if time.time() - (one.mtime_ns or 0) / 1e9 < OLD_S]

    def _write(self, path: str, content: bytes) -> None:
        with storing(path), self._files.open_output_stream(path) as file:
            file.write(content)

    def delete(self, name: str) -> None:
        """The file does not exist any more, if it did."""
        with suppress(FileNotFoundError), storing(self.root):
            self._files.delete_file(f"{self.root}/{name}")

    def delete_all(self) -> None:
        """The folder and everything in it do not exist any more, if they did."""
        with suppress(FileNotFoundError), storing(self.root):
            self._files.delete_dir(self.root)

    def delete_empty(self) -> None:
        """The folder does not exist any more if it is empty. An object store has no empty folders."""
        if isinstance(self._files, LocalFileSystem):
            with suppress(OSError):  # not empty, or gone
                os.rmdir(self.root)


def _sweep(folder: str) -> None:
    """Remove drafts left by killed processes; a draft that is being written is younger."""
    with suppress(OSError), os.scandir(folder) as found:
        for one in found:
            if _DRAFT.fullmatch(one.name) and time.time() - one.stat().st_mtime > OLD_S:
                os.unlink(one.path)


def _begun(folder: str, draft: str) -> BinaryIO:
    """A new file in this folder, which is created; again if another process removes it meanwhile as empty."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            os.makedirs(folder, exist_ok=True)
            _sweep(folder)
            return open(draft, "xb")
    raise FileNotFoundError(folder)


def _create_on_disk(path: str, content: bytes) -> None:
    """Write under another name and link it to its own, which fails if that name is taken; then sync."""
    folder = str(PurePosixPath(path).parent)
    draft = f"{folder}/.{uuid.uuid4().hex}"
    try:
        with _begun(folder, draft) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """The names of the files in it are durable."""
    held = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
