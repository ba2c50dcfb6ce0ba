"""The folder that a `verify` copies into: gone at its end, and swept by whoever comes next if it was killed.

Beside `verify-ID` lies `verify-ID.lock`, made before the folder, held while the process lives and removed after
the folder: whoever can take it finds a dead one's.
"""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def folder_of(parent: Path) -> Iterator[Path]:
    """A folder of our own in `parent`, which is made when it is not there; what dead ones left is gone."""
    made = not parent.exists()
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
        if made:
            with suppress(OSError):  # somebody else uses it by now
                parent.rmdir()


def sweep(parent: Path) -> None:
    """No folder is in `parent` whose process is dead."""
    for folder in {path.with_suffix("") for path in parent.glob("verify-*")}:
        held = _taken(folder, 0)
        if held is not None or not _lock(folder).exists():
            _gone(folder)
        if held is not None:
            os.close(held)


def _lock(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _taken(folder: Path, flags: int) -> int | None:
    """The lock's descriptor; None when it is not there or a living process has it."""
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
        except FileNotFoundError:  # swept between opening and taking it
            pass
        os.close(descriptor)


def _gone(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _lock(folder).unlink(missing_ok=True)
