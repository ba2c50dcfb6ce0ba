"""The folder that a `verify` copies into: removed at its end, or by the next verify or run if it was killed.

Beside `verify-ID` lies `verify-ID.lock`, created before the folder, locked while the process lives and removed
after the folder: a folder whose lock can be taken belongs to a dead process.
"""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backfill_cli.engine.staging.files import nothing_left


@contextmanager
def folder_of(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is created for it if missing; folders of dead processes are removed."""
    with nothing_left(parent):
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(parent)
        folder = parent / f"verify-{uuid.uuid4().hex[:12]}"
        held = _taken(folder, os.O_CREAT)
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            _gone(folder)
            if held is not None:
                os.close(held)


def sweep(parent: Path) -> None:
    """Removes all folders of dead processes from `parent`."""
    for folder in {path.with_suffix("") for path in parent.glob("verify-*")}:
        held = _taken(folder, 0)
        if held is not None or not _lock(folder).exists():
            _gone(folder)
        if held is not None:
            os.close(held)


def _lock(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _taken(folder: Path, flags: int) -> int | None:
    """The lock's descriptor; None if the lock does not exist or a living process holds it."""
    while True:
        try:
            descriptor = os.open(_lock(folder), os.O_RDWR | flags, 0o600)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(_lock(folder)).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:  # removed between opening and locking it
            pass
        os.close(descriptor)


def _gone(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _lock(folder).unlink(missing_ok=True)
