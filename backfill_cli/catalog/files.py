"""The catalog's files: private, no links, our own errors for those of the system."""

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.duckdb_instance import beside, moved
from backfill_cli.errors import NEWER_DUCKDB, StateConflict, Transient, UsageError, command, shell

if TYPE_CHECKING:
    import duckdb

_FULL = frozenset({ENOSPC, EDQUOT, EFBIG})


def make_folder(path: Path) -> tuple[Path, ...]:
    """The catalog's folder exists; those created here are returned; they are their owner's only (0700)."""
    lacking = tuple(folder for folder in reversed([path.parent, *path.parent.parents]) if not folder.exists())
    for folder in lacking:
        folder.mkdir(mode=0o700, exist_ok=True)
    return lacking


def refuse_unsafe(path: Path) -> None:
    """Raise UsageError if another user could have put this file here, or could write to it."""
    for file in (path, Path(f"{path}.wal")):
        try:
            seen = file.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(seen.st_mode):
            real = shlex.quote(os.path.realpath(file))
            raise UsageError(f"catalog {file} is a symbolic link", f"--catalog {real}")
        if not stat.S_ISREG(seen.st_mode):
            raise UsageError(f"catalog {file} is not a file", "name a file with --catalog")
        if seen.st_mode & stat.S_IWOTH:
            raise UsageError(
                f"catalog {file} is writable by everybody", shell(f"chmod o-w {shlex.quote(str(file))}")
            )
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        raise UsageError(
            f"everybody can replace files in the catalog's folder, {path.parent}",
            shell(f"chmod o-w {shlex.quote(str(path.parent))}"),
        )


def make_private(path: Path) -> None:
    """Only the owner can read and write the catalog and its log (DuckDB creates them by the umask)."""
    for file in (path, Path(f"{path}.wal")):
        if file.exists() and stat.S_IMODE(file.stat().st_mode) != 0o600:
            file.chmod(0o600)


def set_log_aside(path: Path) -> None:
    """No log is left of a catalog that is not there: DuckDB would take it for that of the next one.

    It is kept, for who puts the catalog back.
    """
    for file in beside(path):
        if file != path and file.exists():
            os.replace(file, f"{file}.left")


def sync_folder(folder: Path) -> None:
    """Renames in this folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def our_errors(path: Path) -> Iterator[None]:
    """Turns errors of the system and of DuckDB about the catalog's file into our own; other errors pass."""
    import duckdb

    try:
        yield
    except OSError as exc:
        raise _of_system(exc, path) from exc
    except duckdb.Error as exc:
        ours = _of_duckdb(exc, path)
        if ours is None:
            raise
        raise ours from exc


def _of_system(exc: OSError, path: Path) -> Transient | UsageError:
    if exc.errno in _FULL:
        return _full(path, str(exc))
    if exc.errno == EIO:
        return Transient(f"catalog {path}: {exc}", "check the disk")
    return UsageError(f"catalog {path}: {exc.strerror or exc}", "name another file with --catalog")


def _of_duckdb(exc: "duckdb.Error", path: Path) -> Transient | UsageError | StateConflict | None:
    from backfill_cli.duckdb_errors import ErrorKind, classify

    message = str(exc).splitlines()[0]
    match classify(exc):
        case ErrorKind.HELD:
            return Transient(
                f"catalog {path} is open in another program: {message}", "close that program and try again"
            )
        case ErrorKind.NO_ROOM:
            return _full(path, message)
        case ErrorKind.NEWER:
            return UsageError(f"catalog {path} was written by a newer DuckDB: {message}", NEWER_DUCKDB)
        case ErrorKind.DAMAGED:
            return StateConflict(
                f"catalog {path} is damaged: {message}",
                f"put a backup in its place; or move it away: {moved(path, 'damaged')}; then rebuild each job: "
                + command("resume --from-sink job.toml"),
            )
        case ErrorKind.FOREIGN | ErrorKind.REFUSED:
            return UsageError(f"catalog {path}: {message}", "name another file with --catalog")
        case _:
            return None


def _full(path: Path, message: str) -> Transient:
    return Transient(
        f"catalog {path} could not be written: {message}", f"free disk space in {path.parent} and try again"
    )
