"""An instance of DuckDB that stays, for the catalog and the sink: a file is open for the length of a `with` block.

An ATTACH costs 0.5 ms of CPU, an instance 16; a job opens its catalog some twenty times before its first row, and
its sink seven times. Between two blocks the file is closed: another process can open it.
"""

import atexit
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as DuckDBPyConnection
else:
    DuckDBPyConnection = Any  # for annotations: DuckDB is loaded when a file is opened

CONFINED: Mapping[str, str] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
"""Confines SQL in a tampered file to that file, together with what `Instance` sets."""

NAME = "_backfill_file"
"""Of the attached file as a database: no schema in it has this name, which would make `a.b` ambiguous."""

_BESIDE = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
"""What DuckDB appends to the name of the file itself and of those that it makes beside it."""


class Instance:
    """An instance of DuckDB that can use these files and no others; started by the first use.

    files: as they are named in `attached`, without symbolic links. config: DuckDB's options. Times of day are UTC.
    """

    def __init__(self, files: Sequence[Path], config: Mapping[str, str]) -> None:
        self.files = files
        self._config = {**CONFINED, **config}
        self._running: DuckDBPyConnection | None = None

    @contextmanager
    def attached(self, file: Path, read_only: bool) -> "Iterator[DuckDBPyConnection]":
        """A connection whose default database is the file; an open transaction is rolled back at the end.

        One at a time. Raises DuckDB's errors.
        """
        with self._attached(f"{_literal(file)} AS {NAME} (TYPE duckdb{', READ_ONLY' if read_only else ''})") as db:
            yield db

    @contextmanager
    def scratch(self) -> "Iterator[DuckDBPyConnection]":
        """As `attached`, to an empty database in memory, which is gone at the end."""
        with self._attached(f"':memory:' AS {NAME}") as db:
            yield db

    @contextmanager
    def _attached(self, what: str) -> "Iterator[DuckDBPyConnection]":
        import duckdb

        running = self._running or self._started()
        try:
            running.execute(f"ATTACH {what}")
        except duckdb.IOException:  # about the file, as when another program holds it
            raise
        except duckdb.Error:
            self._end(running)
            raise
        try:
            with running.cursor() as db:
                db.execute(f"USE {NAME}")
                yield db
        except duckdb.IOException:  # as when somebody removed the folder of what memory cannot hold
            self._end(running)
            raise
        finally:
            if self._running is running:
                self._detach(running)
            if (spilled := self._config.get("temp_directory")) and Path(spilled).exists():
                self._end(running)  # which removes it

    def _started(self) -> "DuckDBPyConnection":
        import duckdb

        running = duckdb.connect(config=dict(self._config))
        running.execute("SET GLOBAL TimeZone = 'UTC'")
        running.execute(self._allowed())
        running.execute("SET enable_external_access = false")
        running.execute("SET lock_configuration = true")
        self._running = running
        _INSTANCES.add(self)
        return running

    def _allowed(self) -> str:
        return only(self.files)

    def _detach(self, running: "DuckDBPyConnection") -> None:
        """What was committed is safe in the log: if it cannot be checkpointed, as on a full disk, the next use
        replays it."""
        import duckdb

        try:
            running.execute(f"DETACH {NAME}")
        except duckdb.Error:
            self._end(running)

    def _end(self, running: "DuckDBPyConnection") -> None:
        """The next use starts another one: a fatal error makes an instance useless."""
        import duckdb

        self._running = None
        with suppress(duckdb.Error):
            running.close()


_INSTANCES: "WeakSet[Instance]" = WeakSet()


@atexit.register
def _all_ended() -> None:
    """A thread that outlives the main one can hold an instance: DuckDB would print 60 lines about what leaked."""
    for instance in list(_INSTANCES):
        instance._running = None


def only(files: Sequence[Path]) -> str:
    """The statement that lets DuckDB use these files, once it has no external access, with those beside them."""
    return f"SET allowed_paths = [{', '.join(_literal(one) for file in files for one in beside(file))}]"


def beside(file: Path) -> tuple[Path, ...]:
    """The file, and those that DuckDB can have made for it."""
    return tuple(Path(_beside(file, end)) for end in _BESIDE)


def moved(file: Path, why: str) -> str:
    """What to type to have the file away, with its log: DuckDB refuses the next file beside the log of another."""
    pairs = zip(beside(file), beside(Path(f"{file}.{why}")), strict=True)
    moves = (shlex.join(["mv", str(one), str(other)]) for one, other in pairs if one == file or one.exists())
    return " && ".join(moves)


def _beside(file: Path, suffix: str) -> str:
    """DuckDB takes what follows a `?` for the query of a URL, in the name of a file, too."""
    name, mark, query = str(file).partition("?")
    return f"{name}{suffix}{mark}{query}"


def _literal(path: object) -> str:
    return "'" + str(path).replace("'", "''") + "'"
