"""A job's log: one file of bounded size beside the catalog, and the full file before it."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

LOG_BYTES = 10_000_000  # weeks of a busy job; one such file is kept beside the one that is written
POLL_S = 0.3


def log_of(catalog: Path, job: str) -> Path:
    """Where the job's log is."""
    return catalog.parent / "logs" / f"{job}.log"


class Unless:
    """The log of a job that need not come into being: `left_out` removes what was made for it since.

    Nothing is removed of a job that has a log already, nor a folder that is used by then.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._had_one = os.path.exists(log)  # False, not an error, in a folder that is closed to us
        self._folders = [folder for folder in log.parents if not os.path.exists(folder)]

    def left_out(self) -> None:
        """The job was not created."""
        if self._had_one:
            return
        for file in (self._log, error_of(self._log)):
            with suppress(OSError):  # its folder may be none
                file.unlink()
        for folder in self._folders:
            with suppress(OSError):
                folder.rmdir()


def error_of(log: Path) -> Path:
    """Where a run in the background leaves the error that ends it."""
    return log.with_suffix(".error.json")


def kept(log: Path) -> Path:
    """Where the previous, full log is."""
    return log.with_name(f"{log.name}.1")


def opened(log: Path) -> BinaryIO:
    """The log, for appending; only its owner reads it. Raises OSError."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    return os.fdopen(handle, "ab", buffering=0)


class JobLog:
    """A job's log as its runner writes it, from several threads; the file is created with the first line.

    complain: called once with the reason if the log cannot be written; the job continues.
    """

    def __init__(self, log: Path, complain: Callable[[str], None]) -> None:
        self._log = log
        self._complain = complain
        self._turn = threading.Lock()
        self._file: BinaryIO | None = None
        self._failed = False

    def write(self, lines: str) -> None:
        """The lines are in the log; a full log has been renamed first."""
        with self._turn:
            try:
                self._writable().write(f"{lines}\n".encode())
            except OSError as error:
                if not self._failed:
                    self._complain(f"log {self._log}: {error.strerror}; the job continues without a log")
                self._failed = True

    def close(self) -> None:
        with self._turn:
            if self._file is not None:
                self._file.close()
            self._file = None

    def _writable(self) -> BinaryIO:
        if self._file is None:
            self._file = opened(self._log)
        if os.fstat(self._file.fileno()).st_size >= LOG_BYTES:
            self._file.close()
            self._file = None
            os.replace(self._log, kept(self._log))
            self._file = opened(self._log)
        return self._file


def newest(log: Path, last: int) -> tuple[list[str], BinaryIO | None]:
    """The newest lines, oldest first, and the file with the last of them, to `follow`; None without a file."""
    file = _there(log)
    lines: deque[str] = deque(maxlen=last)
    # The newer file is opened first: if it is renamed meanwhile, both names lead to it.
    before = _there(kept(log))
    if before is not None:
        with before:
            if file is None or _identity(before) != _identity(file):
                lines.extend(_text(line) for line in before)
    for line in file or ():
        if not line.endswith(b"\n"):
            assert file is not None
            file.seek(-len(line), os.SEEK_CUR)  # a line that is still being written
            break
        lines.append(_text(line))
    return list(lines), file


def follow(log: Path, file: BinaryIO | None, sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Each line written after the file's current position, also when the log is renamed in between. Never ends."""
    part = b""
    while True:
        put_aside = _is_another(log, file)
        if put_aside:
            sleep(POLL_S)  # what its writer was still about to write
        if file is not None:
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)  # the file was truncated
            *whole, part = (part + file.read()).split(b"\n")
            yield from (_text(line) for line in whole)
        if put_aside:
            if file is not None:
                file.close()
            file = _there(log)
        else:
            sleep(POLL_S)


def _there(file: Path) -> BinaryIO | None:
    try:
        return file.open("rb")
    except FileNotFoundError:
        return None


def _identity(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


def _is_another(log: Path, file: BinaryIO | None) -> bool:
    """Whether the log's name leads to another file by now."""
    try:
        found = os.stat(log)
    except FileNotFoundError:
        return False
    return file is None or (found.st_dev, found.st_ino) != _identity(file)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\n")
