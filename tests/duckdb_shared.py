"""Instances of DuckDB that the tests of one process share.

To start one takes 14 ms of CPU, to attach a file less than one. A job starts two for hours; a test with commands
started twenty, for a quarter of its CPU. These can use every file of the run's tests: what one of a user can use
is tested where `confined` is asked for, and by each command that runs in a process of its own.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import duckdb

from backfill_cli.duckdb_instance import Instance

OWN = (Instance._attached, Instance._allowed)
_names = count()


def share(folder: Path) -> None:
    """From now on, for files in this folder."""
    free: defaultdict[tuple[tuple[str, str], ...], list[duckdb.DuckDBPyConnection]] = defaultdict(list)
    own_attached, own_allowed = OWN
    files, spilled = str(folder).replace("'", "''"), str(folder / "spilled")

    def shares(instance: Instance) -> bool:
        return all(file.is_relative_to(folder) for file in instance.files)

    @contextmanager
    def attached(self: Instance, what: str) -> Iterator[duckdb.DuckDBPyConnection]:
        if not shares(self):
            with own_attached(self, what) as db:
                yield db
            return
        self._config = {**self._config, "temp_directory": spilled}
        kept = free[tuple(self._config.items())]
        self._running = kept.pop() if kept else None
        try:
            with own_attached(self, what) as db:
                yield db
        finally:
            if self._running is not None:  # no error has ended it
                kept.append(self._running)
                self._running = None

    def allowed(self: Instance) -> str:
        return f"SET allowed_directories = ['{files}']" if shares(self) else own_allowed(self)

    Instance._attached, Instance._allowed = attached, allowed  # type: ignore[method-assign]


@contextmanager
def opened(file: Path, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """As `duckdb.connect(file)`, by an instance that nothing of the product uses."""
    name = f"opened_{next(_names)}"
    _plain().execute(f"ATTACH '{str(file).replace(chr(39), chr(39) * 2)}' AS {name}" + " (READ_ONLY)" * read_only)
    try:
        with _plain().cursor() as db:
            db.execute(f"USE {name}")
            yield db
    finally:
        _plain().execute(f"DETACH {name}")


@cache
def _plain() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()
