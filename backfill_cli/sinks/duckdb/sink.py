"""The embedded sink: one DuckDB file; all tables of an epoch and their markers are written in one transaction.

Reading order: `tables` creates tables, `apply` writes an epoch's rows, `state` keeps the side tables, `file` opens
the file and turns its errors into ours.
"""

import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable
from backfill_cli.contracts.cutover import Swap
from backfill_cli.contracts.marker import gone, is_due, refuse_old_token
from backfill_cli.errors import UsageError
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.cutover import Lives
from backfill_cli.sinks.duckdb import DuckDBOptions, live
from backfill_cli.sinks.duckdb import owner as owners
from backfill_cli.sinks.duckdb.apply import apply, check_unique
from backfill_cli.sinks.duckdb.dialect import LOGICAL, Target
from backfill_cli.sinks.duckdb.file import Limits, opened, ours, transaction
from backfill_cli.sinks.duckdb.forgetting import forget
from backfill_cli.sinks.duckdb.state import has_state, markers_of, raise_token, record, saved_of
from backfill_cli.sinks.duckdb.tables import check, drop_tables, prepare

if TYPE_CHECKING:
    from backfill_cli.sinks.duckdb.verify import DuckDBCopy


class DuckDBSink:
    """`contracts.Sink` over one file. Each call opens and closes it; calls of one process take turns."""

    transactional = True
    partial = True
    logical_types = frozenset(LOGICAL)

    def __init__(self, options: DuckDBOptions) -> None:
        self.path = Path(options.path).absolute()
        self.limits = Limits(options.memory_limit, options.threads)
        self._turn = threading.Lock()

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        if not self.path.exists():  # a refusal must not leave a file
            _try(job, tables)
        with self._turn, opened(self.path, self.limits) as con:
            prepare(con, job, tables, into_existing)

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with ours(self.path):
            _try(job, tables)
        if self.path.exists():
            with self._turn, opened(self.path, self.limits, read_only=True) as con:
                check(con, job, tables, into_existing)
        place = self.path if self.path.exists() else self.path.parent
        if not os.access(place, os.W_OK):
            why, see = ("cannot be written", "ls -ld") if place.exists() else ("does not exist", "mkdir -p")
            raise UsageError(f"the DuckDB file {self.path}: {place} {why}", f"{see} {shlex.quote(str(place))}")

    def owner(self, job: str) -> Owner | None:
        if not self.path.exists():
            return None
        with self._turn, opened(self.path, self.limits, read_only=True) as con:
            return owners.owner_of_job(con, job)

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        if owner == instead_of:
            return
        with self._turn, opened(self.path, self.limits) as con:
            owners.own(con, job, owner, instead_of)

    def fence(self, job: str, token: int) -> None:
        if not self.path.exists():
            return
        with self._turn, opened(self.path, self.limits) as con:
            if not has_state(con):
                return
            with transaction(con):
                markers = markers_of(con, job)
                for table, marker in markers.items():
                    refuse_old_token(job, table, token, marker)
                if any(marker.token < token for marker in markers.values()):
                    raise_token(con, job, token)

    def committed(self, job: str) -> Mapping[str, Marker]:
        if not self.path.exists():
            return {}
        with self._turn, opened(self.path, self.limits, read_only=True) as con:
            return markers_of(con, job) if has_state(con) else {}

    def commit(self, commit: EpochCommit) -> None:
        tables = [table for table in commit.tables if commit.only is None or table.name in commit.only]
        if not self.path.exists():
            raise gone(commit, tables[0].name, "file")
        with self._turn, opened(self.path, self.limits, reads=Path(commit.folder).absolute()) as con:
            if not has_state(con):
                raise gone(commit, tables[0].name, "file")
            with transaction(con):
                markers = markers_of(con, commit.job)
                due = [table for table in tables if is_due(commit, table.name, markers.get(table.name), "file")]
                if not due:
                    return
                for table in due:
                    apply(con, commit, table)
                for table in due:
                    if table.name in commit.unique:
                        check_unique(con, table)
                record(con, commit, [table.name for table in due])
                hit("sink-before-commit")
            hit("sink-before-close")

    def saved(self, job: str) -> SavedJob | None:
        if not self.path.exists():
            return None
        with self._turn, opened(self.path, self.limits, read_only=True) as con:
            return saved_of(con, job) if has_state(con) else None

    def copied(self, job: str, live: bool, folder: Path) -> "AbstractContextManager[DuckDBCopy]":
        from backfill_cli.sinks.duckdb.verify import copied

        return copied(self.path, self.limits, job, live, folder)

    @property
    def in_place(self) -> bool:
        return False

    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        with self._turn, opened(self.path, self.limits, read_only=True) as con:
            return live.live(con, job, swaps)

    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        with self._turn, opened(self.path, self.limits) as con:
            live.cut_over(con, job, swaps, epoch, now_ms, until_ms)

    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        with self._turn, opened(self.path, self.limits) as con:
            live.reverse(con, job, swaps)

    def drop(self, tables: Sequence[SinkTable]) -> None:
        if self.path.exists():
            with self._turn, opened(self.path, self.limits) as con, transaction(con):
                drop_tables(con, [Target.of(table) for table in tables])

    def forget(self, job: str) -> None:
        if not self.path.exists():
            return
        with self._turn, opened(self.path, self.limits) as con:
            if has_state(con):
                forget(con, job)


def _try(job: str, tables: Sequence[SinkTable]) -> None:
    """The tables are created in memory: what only that can tell is raised."""
    import duckdb

    with duckdb.connect() as new:
        prepare(new, job, tables, into_existing=False)
