"""Which of our own processes holds a DuckDB file: the system knows its lock, and the process its command."""

import os
from dataclasses import dataclass
from pathlib import Path

LOCKS, PROCESSES = Path("/proc/locks"), Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of backfill's. verb: what it was called with, such as `verify`."""

    pid: int
    verb: str

    def __str__(self) -> str:
        return f"backfill {self.verb} (pid {self.pid})"


def writer_of(path: Path) -> Process | None:
    """The process of backfill's that has a lock on the file; None for any other, and where it cannot be known."""
    try:
        found = path.stat()
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    # `1: POSIX  ADVISORY  WRITE 4711 fe:00:131 0 EOF`; a lock that is waited for has `->` after its number
    fields = (line.split() for line in lines)
    pids = [int(field[4]) for field in fields if len(field) > 5 and field[1] != "->" and field[5] == file]
    return next((Process(pid, verb) for pid in pids if pid != os.getpid() and (verb := _verb(pid))), None)


def _verb(pid: int) -> str:
    """The command that the process runs; empty if it is not backfill's, or belongs to somebody else."""
    try:
        line = (PROCESSES / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    words = [word.decode(errors="replace") for word in line.split(b"\0")]
    names = [Path(word).name for word in words]
    at = next((at for at, name in enumerate(names) if name in ("backfill", "backfill_cli")), None)
    return "" if at is None else next((word for word in words[at + 1 :] if word and not word.startswith("-")), "")
