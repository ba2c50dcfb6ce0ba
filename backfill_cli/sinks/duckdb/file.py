"""Opens the DuckDB file for the length of a `with` block, and turns DuckDB's errors into ours.

DuckDB lets one process at a time write to a file, so no connection outlives its block: between two commits anybody
can query the file. What reads staged files has an instance of DuckDB to itself, the rest shares one that stays.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import duckdb

from backfill_cli.duckdb_errors import ErrorKind, classify, holder, text
from backfill_cli.duckdb_instance import Instance, moved, only
from backfill_cli.errors import (
    CORRECT,
    NEWER_DUCKDB,
    RETRIED,
    START_OVER,
    BackfillError,
    BadData,
    Fatal,
    Transient,
    UsageError,
    free_space,
    in_config,
    shell,
)
from backfill_cli.sinks.sql.dialect import literal

# Load no extension from disk or network: what we need is built in.
SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_unsigned_extensions": "false",
    "preserve_insertion_order": "false",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What DuckDB may use. memory: as DuckDB writes it ('1GB'). threads: None for one per core."""

    memory: str = "1GB"
    threads: int | None = None

    @property
    def config(self) -> dict[str, str]:
        """DuckDB's options."""
        threads = {} if self.threads is None else {"threads": str(self.threads)}
        return {**SETTINGS, "memory_limit": self.memory, **threads}


class Connection:
    """`sql.state.Connection` to a DuckDB database."""

    def __init__(self, raw: duckdb.DuckDBPyConnection) -> None:
        self._raw = raw

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._raw.execute(sql, parameters).fetchall()

    def run(self, sql: str, *parameters: Any) -> None:
        self._raw.execute(sql, parameters)

    @contextmanager
    def cursor(self) -> "Iterator[Connection]":
        """Another connection to the same database, for another thread."""
        with self._raw.cursor() as raw:
            yield Connection(raw)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.run("BEGIN TRANSACTION")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            # A fatal error has already ended transaction and connection; the file reopens as it was before.
            with suppress(duckdb.Error):
                self.run("ROLLBACK")
            raise

    @contextmanager
    def ddl(self) -> Iterator[None]:
        """A transaction, then a checkpoint: replay of a log that mixes DDL and rows has been seen to fail."""
        with self.transaction():
            yield
        self.run("CHECKPOINT")


@contextmanager
def opened(path: Path, limits: Limits, reads: Path | None = None, read_only: bool = False) -> Iterator[Connection]:
    """A connection to the file at `path`, closed at the end; it can read other files only in the folder `reads`.

    Raises Transient for a full disk, or if another program holds the file, which it names; UsageError for a path
    that cannot be opened or written; BadData for rows that cannot be applied; Fatal for any other DuckDB error.
    """
    with translate_errors(path):
        raw = duckdb.connect(str(path), read_only=read_only, config=dict(limits.config))
        try:
            con = Connection(raw)
            con.run("SET TimeZone = 'UTC'")
            con.run(only([path]))
            if reads is not None:
                con.run(f"SET allowed_directories = [{literal(str(reads))}]")
            con.run("SET enable_external_access = false")
            con.run("SET lock_configuration = true")
            yield con
        finally:
            raw.close()


class Kept:
    """The file at `path`, opened as `opened` does, by an instance that stays; it can read no other file."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._instance: Instance | None = None

    @contextmanager
    def opened(self, read_only: bool = False) -> Iterator[Connection]:
        file = Path(os.path.realpath(self._path))  # a link can name another file by now
        if self._instance is None or self._instance.files != [file]:
            self._instance = Instance([file], {**self._limits.config, "temp_directory": f"{file}.tmp"})
        with translate_errors(self._path), self._instance.attached(file, read_only) as raw:
            yield Connection(raw)


_SCRATCH, _SCRATCH_TURN = Instance((), SETTINGS), RLock()


@contextmanager
def scratch() -> Iterator[Connection]:
    """A connection to an empty database in memory, for what only DuckDB can tell. Raises DuckDB's errors."""
    with _SCRATCH_TURN, _SCRATCH.scratch() as raw:
        yield Connection(raw)


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """DuckDB's errors in the block become ours; our own errors pass unchanged."""
    try:
        yield
    except duckdb.Error as exc:
        raise _translated(path, exc) from exc


def _translated(path: Path, exc: duckdb.Error) -> BackfillError:
    told, quoted = text(exc), shlex.quote(str(path))
    match classify(exc):
        case ErrorKind.HELD:
            if (own := writer_of(path)) is not None:
                return Transient(
                    f"{path} is held by {own}", "wait until it has ended, or: " + shell(f"kill {own.pid}")
                )
            if (other := holder(exc)) is None:
                return Transient(f"{path} is held by a process that is ending", RETRIED)
            return Transient(
                f"{path} is held by {other}", "close the program that holds it: " + shell(f"lsof {quoted}")
            )
        case ErrorKind.OPEN_HERE:
            return Transient(f"{path} is already open in this process", RETRIED)
        case ErrorKind.NO_ROOM:
            return Transient(f"no room to write {path}: {told}", free_space(path.parent))
        case ErrorKind.MEMORY:
            return Transient(f"DuckDB needs more memory for {path}: {told}", in_config("raise sink.memory_limit"))
        case ErrorKind.NEWER:
            return UsageError(f"{path} was written by a newer DuckDB: {told}", NEWER_DUCKDB)
        case ErrorKind.FOREIGN:
            return UsageError(f"{path} is not a DuckDB file: {told}", f"move it away: {moved(path, 'foreign')}")
        case ErrorKind.REFUSED:
            seen = quoted if path.exists() else shlex.quote(str(path.parent))
            return UsageError(
                f"the DuckDB file {path} cannot be used: {told}",
                in_config(f"let this user write it, or name another file in sink.path: ls -ld {seen}"),
            )
        case ErrorKind.ROWS:
            return BadData(f"{path} cannot store these rows: {told}", CORRECT)
        case ErrorKind.DAMAGED:
            return Fatal(
                f"{path} is damaged: {told}",
                f"put a copy of it in its place; or move it away: {moved(path, 'damaged')}; then " + START_OVER,
            )
        case _:
            return Fatal(f"DuckDB failed on {path}: {told}", "change back in the file what the message names")


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


PLAIN = "leave out --independent"
"""The hint where only the job's own readers can read what the job read."""


def write_query(sql: str, path: Path, table: str) -> None:
    """The Parquet file `path` holds the rows of `sql`. Raises BadData if DuckDB cannot read the files it names."""
    with duckdb.connect(config={**SETTINGS}) as con:
        con.execute("SET TimeZone = 'UTC'")
        try:
            con.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet)")
        except duckdb.Error as exc:
            raise BadData(
                f"table {table!r}: DuckDB cannot read its snapshot as the job did: {exc}",
                PLAIN,
            ) from exc
