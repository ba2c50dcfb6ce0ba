"""Copies a DuckDB file while its job keeps committing.

If the file system can share blocks, the copy is an instant clone. Otherwise the file is copied without blocking
the job, and what changed meanwhile is copied again, until nothing changed. A job that commits too often for that
is blocked for one comparison of the file with its copy, which writes only what differs.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from backfill_cli.errors import Transient, free_space

FICLONE = 0x40049409
FREE_TRIES = 3
"""The second and third try compare more than they write, so each is quicker than the one before."""
CHUNK = 4 << 20
HEADERS = 12_288

Between = Callable[[], AbstractContextManager[Any]]
"""Holds the file while the block runs, so that nobody can commit."""


def copy_file(path: Path, copy: Path, between: Between) -> None:
    """`copy`, with its log beside it, equals the file at `path` as it was between two commits.

    Raises Transient if there is no room for the copy.
    """
    try:
        with between():
            if _cloned(path, copy):
                return
        with between():  # again: closing the files released this process's lock on them
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
        raise Transient(f"{path} cannot be copied to {copy.parent}: {exc}", free_space(copy.parent)) from exc


def _log(path: Path) -> Path:
    return Path(f"{path}.wal")


def _mark(path: Path) -> tuple[object, ...]:
    """A value that changes with each commit: DuckDB writes the log, or the headers that count its checkpoints."""
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
    """Clones the file, and a log that a crash may have left. Returns whether the file system can share blocks."""
    with ExitStack() as stack:
        for source, target in ((path, copy), (_log(path), _log(copy))):
            # All files stay open until both are cloned: closing one releases this process's lock on it.
            if source.exists():
                held, new = stack.enter_context(source.open("rb")), stack.enter_context(_private(target))
                try:
                    fcntl.ioctl(new, FICLONE, held.fileno())
                except OSError:
                    return False
    return True


def _alike(path: Path, copy: Path) -> None:
    """The copy has the bytes read from the file and its log; bytes that are equal are not written."""
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
