"""How `verify` reads a DuckDB sink: between two commits, without delaying the runner, whose file it copies.

If the file system can share blocks, the copy is an instant clone. Otherwise the file is copied without blocking
the job, and what changed meanwhile is copied again, until nothing changed. A job that commits too often for that
is blocked for one comparison of the file with its copy, which writes only what differs.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import Fatal, Transient, command, free_space
from backfill_cli.model.digest import Word, WordColumn
from backfill_cli.sinks.duckdb.derived import DuckDBDerives
from backfill_cli.sinks.duckdb.dialect import DUCKDB, State, exported_columns, quoted
from backfill_cli.sinks.duckdb.file import Connection, Limits, opened, translate_errors
from backfill_cli.sinks.sql.dialect import Target, literal
from backfill_cli.sinks.sql.verify import FEW_VALUES, SqlCopy

# The longest commit seen took 2 s; even a runner that commits without pause releases the file in between.
PATIENCE_S = 60.0
RETRY_S = 0.02
FICLONE = 0x40049409
FREE_TRIES = 3
"""The second and third try compare more than they write, so each is quicker than the one before."""
CHUNK = 4 << 20
HEADERS = 12_288

Between = Callable[[], AbstractContextManager[Any]]
"""Holds the file while the block runs, so that nobody can commit."""


class DuckDBCopy(SqlCopy[State]):
    """`contracts.SinkCopy` over one file that nobody can write while it is read."""

    xor = "xor({}, {})"
    quotient = "({} // {})"

    derives = DuckDBDerives()

    def __init__(self, con: Connection, path: Path, job: str, folder: Path) -> None:
        super().__init__(job, folder)
        self._con, self._path = con, path

    @contextmanager
    def asking(self, doing: str) -> Iterator[State]:
        with translate_errors(self._path), self._con.cursor() as con:
            yield State(con, DUCKDB.schema)

    def blocks(self) -> str:
        """DuckDB lets nobody write to a file that another process reads."""
        return "" if self._path.parent == self.folder else f"no runner can write to {self._path}"

    def mark(self) -> str | None:
        """The file's inode, size and times, while we hold it; None for a copy, as its original keeps changing.

        ctime is included because it cannot be set back.
        """
        if self._path.parent == self.folder:
            return None
        known = [file.stat() for file in (self._path, Path(f"{self._path}.wal")) if file.exists()]
        return json.dumps([[s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for s in known])

    def few(self, state: State, target: Target, columns: Sequence[str]) -> frozenset[str]:
        def distinct(column: str) -> int:
            found = state.con.rows(f"SELECT stats({quoted(column)}) FROM {target.sql} LIMIT 1")
            return int(found[0][0].get("approx_unique", FEW_VALUES + 1)) if found else 0

        return frozenset(column for column in columns if distinct(column) <= FEW_VALUES)

    def words(self, state: State, name: str, words: Mapping[str, int]) -> str:
        state.con.run(
            f"CREATE OR REPLACE TEMP TABLE {name} AS "
            "SELECT unnest($1::VARCHAR[]) AS value, unnest($2::BIGINT[]) AS word",
            *(list(words), list(words.values())),
        )
        return name

    def word(self, column: WordColumn, of: str) -> str:
        """Infinite dates and times become the numbers that DuckDB, Parquet and Spark use."""
        match column.word:
            case Word.DAYS:
                return _finite(of, f"CAST({of} - DATE '1970-01-01' AS BIGINT)", 2**31 - 1)
            case Word.MICROS:
                return _finite(of, f"epoch_us({of})", 2**63 - 1)
            case Word.UNSCALED:
                # DuckDB multiplies decimals of up to 18 digits in 64 bits, and fails if the product has more.
                fits = column.precision + column.scale < 18
                value = of if fits else f"CAST({of} AS DECIMAL(38, {column.scale}))"
                return f"CAST({value} * {10**column.scale} AS BIGINT)"
            case _:
                return f"CAST({of} AS BIGINT)"

    def selected(self, table: SinkTable, columns: Sequence[str]) -> str:
        types = {column.name: column.type for column in exported_columns(table.name, table.schema)}
        return ", ".join(f"CAST(t.{quoted(c)} AS {types[c]}) AS {quoted(c)}" for c in columns)

    def export(self, state: State, rows: str, table: SinkTable, columns: Sequence[str], folder: Path) -> None:
        state.con.run(f"COPY ({rows}) TO {literal(str(folder))} (FORMAT parquet, PER_THREAD_OUTPUT)")


def _finite(name: str, word: str, endless: int) -> str:
    sign = f"CASE WHEN {name} > '1970-01-01' THEN {endless} ELSE -{endless} END"
    return f"CASE WHEN isinf({name}) THEN {sign} ELSE {word} END"


@contextmanager
def copied(path: Path, limits: Limits, job: str, live: bool, folder: Path) -> Iterator[DuckDBCopy]:
    """The file as it is between two commits: a copy of it for a live job, otherwise the file itself.

    Raises Transient if the file is held for longer than PATIENCE_S, or there is no room for the copy.
    """
    if not path.exists():
        raise Fatal(
            f"the DuckDB file {path} does not exist", "see what the job last did: " + command(f"status {job}")
        )
    read = path
    if live:
        read = folder / "copy.duckdb"
        copy_file(path, read, lambda: _between_commits(path, limits, folder))
    with _between_commits(read, limits, folder) as con:
        yield DuckDBCopy(con, read, job, folder)


@contextmanager
def _between_commits(path: Path, limits: Limits, folder: Path) -> Iterator[Connection]:
    """The file, opened for reading as soon as no commit holds it."""
    deadline = time.monotonic() + PATIENCE_S
    with ExitStack() as stack:
        while True:
            try:
                con = stack.enter_context(opened(path, limits, reads=folder, read_only=True))
                break
            except Transient:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_S)
        yield con


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
