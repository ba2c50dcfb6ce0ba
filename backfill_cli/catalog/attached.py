"""Opens a DuckDB file for the length of a `with` block, by an instance of DuckDB that stays.

A transaction costs 3 ms of CPU, by an instance of its own 11 (`benchmarks/barrier.py --only catalog`); a job has
some forty before its first row. Between two blocks the file is closed: another process can open it.
"""

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# One thread and little memory start faster; the rest confines SQL in a tampered file to that file.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "memory_limit": "512MB",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_BESIDE = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
"""The file itself and those that DuckDB makes beside it."""


class Instance:
    """An instance of DuckDB that can use these files and no others; started by the first use."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._running: DuckDBPyConnection | None = None

    @contextmanager
    def attached(self, file: Path, read_only: bool) -> "Iterator[DuckDBPyConnection]":
        """A connection whose default database is the file; an open transaction is rolled back at the end.

        One at a time. Raises DuckDB's errors.
        """
        import duckdb

        running = self._running or self._started()
        try:
            running.execute(f"ATTACH {_literal(file)} AS catalog{' (READ_ONLY)' if read_only else ''}")
        except duckdb.IOException:  # about the file, as when another program holds it
            raise
        except duckdb.Error:
            self._end(running)
            raise
        try:
            with running.cursor() as db:
                db.execute("USE catalog")
                yield db
        finally:
            self._detach(running)

    def _started(self) -> "DuckDBPyConnection":
        import duckdb

        running = duckdb.connect(config=_CONFIG)
        paths = ", ".join(_literal(f"{file}{suffix}") for file in self._files for suffix in _BESIDE)
        running.execute(f"SET allowed_paths = [{paths}]")
        running.execute("SET enable_external_access = false")
        running.execute("SET lock_configuration = true")
        self._running = running
        _INSTANCES.add(self)
        return running

    def _detach(self, running: "DuckDBPyConnection") -> None:
        """What was committed is safe in the log: if it cannot be checkpointed, as on a full disk, the next use
        replays it."""
        import duckdb

        try:
            running.execute("DETACH catalog")
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


def _literal(path: object) -> str:
    return "'" + str(path).replace("'", "''") + "'"
