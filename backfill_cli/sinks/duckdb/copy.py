"""A DuckDB file is copied while its job goes on committing.

At once where the file system shares blocks. Else it is copied while nobody is held up, and what changed meanwhile
once more, until nothing did; a job that commits more often than that takes is held up for one comparison of the
file with its copy, which writes what differs alone.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from backfill_cli.errors import Transient

FICLONE = 0x40049409
FREE_TRIES = 3
"""The second and the third compare more than they write: each is quicker than the one before."""
CHUNK = 4 << 20
HEADERS = 12_288

Between = Callable[[], AbstractContextManager[Any]]
"""Holds the file: nobody commits in it."""


def copy_file(path: Path, copy: Path, between: Between) -> None:
    """`copy`, and its log beside it, are the file at `path` as it was between two commits.

    Raises Transient when the copy finds no room.
    """
    try:
        with between():
            if _cloned(path, copy):
                return
        with between():  # anew: closing the files ended this process's lock on them
            marked = _mark(path)
        for _ in range(FREE_TRIES):
            _alike(path, copy)
            with between():
                before, marked = marked, _mark(path)
            if before == marked:
                return
        with between():
            _alike(path, copy)
    except OSError as exc:
        raise Transient(f"{path} cannot be copied to {copy.parent}: {exc}", f"df -h {copy.parent}") from exc


def _log(path: Path) -> Path:
    return Path(f"{path}.wal")


def _mark(path: Path) -> tuple[object, ...]:
    """Differs after each commit: DuckDB writes the log, or the headers that count its checkpoints."""
    told: list[object] = []
    for file in (path, _log(path)):
        if file.exists():
            with file.open("rb") as held:
                found = os.fstat(held.fileno())
                told += [found.st_ino, found.st_size, found.st_mtime_ns, held.read(HEADERS)]
        else:
            told.append(None)
    return tuple(told)


def _cloned(path: Path, copy: Path) -> bool:
    """Whether the file system shares the blocks of the file, and of the log that a crash may have left."""
    with ExitStack() as stack:
        for source, target in ((path, copy), (_log(path), _log(copy))):
            # Both are opened before and closed after: closing one ends this process's lock on it.
            if source.exists():
                held, new = stack.enter_context(source.open("rb")), stack.enter_context(_private(target))
                try:
                    fcntl.ioctl(new, FICLONE, held.fileno())
                except OSError:
                    return False
    return True


def _alike(path: Path, copy: Path) -> None:
    """The copy has the bytes that were read of the file and its log; what is there already is left."""
    with ExitStack() as stack:
        for source, target in ((path, copy), (_log(path), _log(copy))):
            try:
                held = stack.enter_context(source.open("rb"))
            except FileNotFoundError:
                target.unlink(missing_ok=True)
                continue
            _update(held, stack.enter_context(_private(target)))


def _update(held: BinaryIO, copy: BinaryIO) -> None:
    while chunk := held.read(CHUNK):
        at = copy.tell()
        if copy.read(len(chunk)) != chunk:
            copy.seek(at)
            copy.write(chunk)
    copy.truncate()


def _private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
