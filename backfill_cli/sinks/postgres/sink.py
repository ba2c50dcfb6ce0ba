"""The PostgreSQL sink: all tables of an epoch and their markers are written in one transaction of the database.

Reading order: `tables` creates tables, and refuses unsuitable ones (`existing`); `apply` writes an epoch's rows
(`staged` and `values` send them) as the table's shape requires; `state` keeps the side tables, `session` connects,
`edge` translates the database's errors, `explain` names the rows that the database refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SavedJob, SinkTable
from backfill_cli.contracts.cutover import Swap
from backfill_cli.contracts.marker import gone, is_due, refuse_old_token
from backfill_cli.errors import BackfillError
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.cutover import Lives
from backfill_cli.sinks.postgres import PostgresOptions, live
from backfill_cli.sinks.postgres.apply import apply, check_unique
from backfill_cli.sinks.postgres.dialect import LOGICAL, Target
from backfill_cli.sinks.postgres.edge import client
from backfill_cli.sinks.postgres.explain import deferred, explained
from backfill_cli.sinks.postgres.session import Connection, Place, opened, rows_of, run
from backfill_cli.sinks.postgres.staged import Refused
from backfill_cli.sinks.postgres.state import State, side_targets
from backfill_cli.sinks.postgres.tables import check, create_state, drop_state, drop_tables, places, prepare

if TYPE_CHECKING:
    from backfill_cli.sinks.postgres.verify import PostgresCopy


class PostgresSink:
    """`contracts.Sink` over one database. Each call opens a connection and closes it."""

    transactional = True
    partial = True
    logical_types = frozenset(LOGICAL)

    def __init__(self, options: PostgresOptions) -> None:
        self.place = Place.of(options.dsn)
        self.schema = options.in_schema

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with opened(self.place, f"preparing the tables of job {job!r}", self._names(tables)) as con:
            prepare(con, self.place, self.schema, job, tables, into_existing)

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with opened(self.place, f"checking the tables of job {job!r}", self._names(tables)) as con:
            check(con, self.place, self.schema, job, tables, into_existing)

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        with opened(self.place, "locating the job's tables", self._names(tables)) as con:
            return places(con, tables, self.schema)

    def owner(self, job: str) -> Owner | None:
        with self._state(f"reading the owner of job {job!r}") as (_, state):
            return state.owner(job) if state.exists() else None

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        if owner == instead_of:
            return
        with self._state(f"writing the owner of job {job!r}") as (con, state):
            create_state(con, self.schema)
            state.own(job, owner, instead_of)
            con.commit()

    def fence(self, job: str, token: int) -> None:
        with self._state(f"fencing job {job!r}") as (con, state):
            if not state.exists():
                return
            markers = state.markers(job, lock=True)
            for table, marker in markers.items():
                refuse_old_token(job, table, token, marker)
            if any(marker.token < token for marker in markers.values()):
                state.raise_token(job, token)
                con.commit()

    def committed(self, job: str) -> Mapping[str, Marker]:
        with self._state(f"reading the markers of job {job!r}") as (_, state):
            return state.markers(job) if state.exists() else {}

    def commit(self, commit: EpochCommit) -> None:
        tables = [table for table in commit.tables if commit.only is None or table.name in commit.only]
        with self._state(f"committing epoch {commit.epoch} of job {commit.job!r}", tables) as (con, state):
            if not state.exists():
                raise gone(commit, tables[0].name, "database")
            markers = state.markers(commit.job, lock=True)
            due = [table for table in tables if is_due(commit, table.name, markers.get(table.name), "database")]
            if not due:
                return
            run(con, "SET CONSTRAINTS ALL DEFERRED")
            for table in due:
                self._apply(con, commit, table)
            self._require_constraints(con)
            state.record(commit, [table.name for table in due])
            hit("sink-before-commit")
            con.commit()
            hit("sink-before-close")

    def saved(self, job: str) -> SavedJob | None:
        with self._state(f"reading the saved state of job {job!r}") as (_, state):
            return state.saved(job) if state.exists() else None

    def copied(self, job: str, live: bool, folder: Path) -> "AbstractContextManager[PostgresCopy]":
        from backfill_cli.sinks.postgres.verify import copied

        return copied(self.place, self.schema, job, folder)

    @property
    def in_place(self) -> bool:
        return False

    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        with opened(self.place, "checking the names that people query") as con:
            return live.live(con, self.schema, job, swaps)

    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        with opened(self.place, f"cutting over to job {job!r}") as con:
            live.cut_over(con, self.schema, job, swaps, epoch, now_ms, until_ms)

    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        with opened(self.place, f"reversing the cutover to job {job!r}") as con:
            live.reverse(con, self.schema, job, swaps)

    def drop(self, tables: Sequence[SinkTable]) -> None:
        with opened(self.place, "dropping the job's tables", self._names(tables)) as con:
            drop_tables(con, [Target.of(table, self.schema) for table in tables])
            con.commit()

    def forget(self, job: str) -> None:
        with self._state(f"forgetting job {job!r}") as (con, state):
            if state.exists():
                state.remove(job)
                live.remove(con, self.schema, job)
                con.commit()
        with suppress(BackfillError), self._state("removing the side tables") as (con, _):
            drop_state(con, self.schema)

    def clock_ms(self) -> int:
        with opened(self.place, "reading its clock") as con:
            ((now_ms,),) = rows_of(con, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            return int(now_ms)

    @contextmanager
    def _state(self, doing: str, tables: Sequence[SinkTable] = ()) -> Iterator[tuple[Connection, State]]:
        with opened(self.place, doing, self._names(tables)) as con:
            yield con, State(con, self.schema)

    def _names(self, tables: Sequence[SinkTable]) -> list[Target]:
        """The tables that a call may write. An error of the database names a table without its schema."""
        return [*(Target.of(table, self.schema) for table in tables), *side_targets(self.schema)]

    def _apply(self, con: Connection, commit: EpochCommit, table: SinkTable) -> None:
        try:
            apply(con, commit, table, self.schema)
            if table.name in commit.unique:
                check_unique(con, table, self.schema)
        except (client().Error, Refused) as exc:
            told = explained(con, commit, table, self.schema, exc)
            if told is None:
                raise
            raise told from exc

    def _require_constraints(self, con: Connection) -> None:
        try:
            run(con, "SET CONSTRAINTS ALL IMMEDIATE")
        except client().Error as exc:
            told = deferred(exc)
            if told is None:
                raise
            raise told from exc
