"""The embedded sink: one DuckDB file; all tables of an epoch and their markers are written in one transaction.

Reading order: `tables` creates tables and writes an epoch's rows into them, `dialect` spells names, types and side
tables, `file` opens the file and turns its errors into ours.
"""

import os
import shlex
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SinkCapabilities, SinkExtras, SinkTable
from backfill_cli.errors import UsageError, of_table, shell
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb.derived import DuckDBDerives
from backfill_cli.sinks.duckdb.dialect import DUCKDB, Names, State
from backfill_cli.sinks.duckdb.file import Connection, Kept, Limits, opened, scratch, translate_errors
from backfill_cli.sinks.duckdb.tables import Tables, apply, check_unique
from backfill_cli.sinks.sql.sink import SqlSink
from backfill_cli.sinks.sql.transition import TransitionTable

if TYPE_CHECKING:
    from backfill_cli.sinks.duckdb.verify import DuckDBCopy


class DuckDBSink(SqlSink[State]):
    """`contracts.Sink` over one file. Each call opens and closes it; calls of one process take turns."""

    holder = "file"
    tables = Tables
    names = Names
    capabilities = SinkCapabilities(True, True, frozenset(DUCKDB.logical))

    def __init__(self, options: DuckDBOptions) -> None:
        self.path = Path(options.path).absolute()
        self.limits = Limits(options.memory_limit, options.threads)
        self._kept = Kept(self.path, self.limits)
        self._turn = threading.Lock()
        derives = DuckDBDerives(self.opened, self.is_there)
        self.extras = SinkExtras(copied=self.copied, cutover=self, derives=derives)

    @contextmanager
    def opened(
        self,
        doing: str,
        tables: Sequence[SinkTable] | None = None,
        read_only: bool = False,
        folder: str | None = None,
    ) -> Iterator[State]:
        with self._turn, self._open(read_only, folder) as con:
            yield State(con, DUCKDB.schema)

    def _open(self, read_only: bool, folder: str | None) -> AbstractContextManager[Connection]:
        if folder is None:
            return self._kept.opened(read_only)
        return opened(self.path, self.limits, Path(folder).absolute(), read_only)

    def is_there(self) -> bool:
        return self.path.exists()

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        if not self.path.exists():  # a refusal must not leave a file
            _try(job, tables)
        super().prepare(job, tables, into_existing)

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with translate_errors(self.path):
            _try(job, tables)
        if self.path.exists():
            super().check(job, tables, into_existing)
        place = self.path if self.path.exists() else self.path.parent
        quoted = shlex.quote(str(place))
        if not place.exists():
            raise UsageError(f"the DuckDB file {self.path}: {place} does not exist", shell(f"mkdir -p {quoted}"))
        if not _is_writable(place):
            raise UsageError(
                f"the DuckDB file {self.path}: {place} cannot be written",
                "name a file in another folder, or let this user write there: " + shell(f"ls -ld {quoted}"),
            )

    def write(
        self, state: State, commit: EpochCommit, due: Sequence[SinkTable], taken: Mapping[str, TransitionTable]
    ) -> None:
        for table in due:
            with of_table(table.name), translate_errors(self.path):
                apply(state.con, commit, table, taken.get(table.name))
        for table in due:
            if table.name in commit.unique:
                with of_table(table.name):
                    check_unique(state, table)

    def copied(self, job: str, live: bool, folder: Path) -> "AbstractContextManager[DuckDBCopy]":
        from backfill_cli.sinks.duckdb.verify import copied

        return copied(self.path, self.limits, job, live, folder)


def _is_writable(place: Path) -> bool:
    """Whether this user can write the file, or make one in the folder: `access` alone says yes of /sys."""
    try:
        if place.is_dir():
            tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return False
    return os.access(place, os.W_OK)


def _try(job: str, tables: Sequence[SinkTable]) -> None:
    """The tables are created in memory: what only that can tell is raised."""
    with scratch() as con:
        Tables(State(con, DUCKDB.schema)).prepare(job, tables, into_existing=False)
