"""A sink in a database: all tables of an epoch and their markers are written in one transaction."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from backfill_cli.contracts import (
    Cutover,
    EpochCommit,
    SavedJob,
    Sink,
    SinkTable,
    Swap,
)
from backfill_cli.contracts.refusals import is_due, marker_gone, refuse_old_token
from backfill_cli.failpoint import hit
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.cutover import Lives
from backfill_cli.sinks.sql.derived import SqlDerives
from backfill_cli.sinks.sql.live import SqlNames
from backfill_cli.sinks.sql.state import SqlState
from backfill_cli.sinks.sql.tables import SqlTables
from backfill_cli.sinks.sql.transition import TransitionTable

S = TypeVar("S", bound=SqlState)


class SqlSink(Sink, Cutover, Generic[S]):
    """What `contracts.Sink` and `Cutover` ask. holder: "file" or "database", for messages."""

    holder: ClassVar[str]
    tables: ClassVar[type[SqlTables[Any]]]
    names: ClassVar[type[SqlNames]]

    @abstractmethod
    def opened(
        self,
        doing: str,
        tables: Sequence[SinkTable] | None = None,
        read_only: bool = False,
        folder: str | None = None,
    ) -> AbstractContextManager[S]:
        """A connection for the length of a block; only what is in its transactions has an effect.

        doing: what the block does, for messages. tables: those that it may write, beside side tables; None: not
        even these. folder: of staged files.
        """

    @abstractmethod
    def write(
        self, state: S, commit: EpochCommit, due: Sequence[SinkTable], taken: Mapping[str, TransitionTable]
    ) -> None:
        """These tables hold the epoch's rows, and each of `commit.unique` has no duplicate key.

        taken: by a table's name, what its changed rows are taken to, for derived tables (`SqlDerives.takes`).
        """

    def is_there(self) -> bool:
        """Whether there is a database."""
        return True

    @contextmanager
    def known(
        self, doing: str, tables: Sequence[SinkTable] = (), read_only: bool = False, folder: str | None = None
    ) -> Iterator[S | None]:
        """As `opened`; None if there are no side tables."""
        if self.is_there():
            with self.opened(doing, tables, read_only, folder) as state:
                yield state if state.exists() else None
        else:
            yield None

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with self.opened(f"preparing the tables of job {job!r}", tables) as state:
            self.tables(state).prepare(job, tables, into_existing)

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        with self.opened(f"checking the tables of job {job!r}", tables, read_only=True) as state:
            self.tables(state).missing(job, tables, into_existing)

    def owner(self, job: str) -> Owner | None:
        with self.known(f"reading the owner of job {job!r}", read_only=True) as state:
            return None if state is None else state.owner(job)

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        if owner == instead_of:
            return
        with self.opened(f"writing the owner of job {job!r}", ()) as state:
            state.create_owners()
            with state.con.transaction():
                state.own(job, owner, instead_of)

    def fence(self, job: str, token: int) -> None:
        with self.known(f"fencing job {job!r}") as state:
            if state is None:
                return
            with state.con.transaction():
                markers = state.markers(job, lock=True)
                for table, marker in markers.items():
                    refuse_old_token(job, table, token, marker)
                if any(marker.token < token for marker in markers.values()):
                    state.raise_token(job, token)

    def committed(self, job: str) -> Mapping[str, Marker]:
        with self.known(f"reading the markers of job {job!r}", read_only=True) as state:
            return {} if state is None else state.markers(job)

    def commit(self, commit: EpochCommit) -> None:
        tables = [table for table in commit.tables if commit.only is None or table.name in commit.only]
        doing = f"writing commit {commit.epoch} of job {commit.job!r}"
        if commit.derived:
            self.derives.took_ms = {}
        with self.known(doing, tables, folder=commit.folder) as state:
            if state is None:
                raise marker_gone(commit, tables[0].name, self.holder)
            with state.con.transaction():
                markers = state.markers(commit.job, lock=True)
                due = [one for one in tables if is_due(commit, one.name, markers.get(one.name), self.holder)]
                if not due:
                    return
                names = [table.name for table in due]
                keeping = self.derives.keeping(state, commit, markers, due) if commit.derived else None
                if keeping is not None:
                    keeping.before()
                self.write(state, commit, due, {} if keeping is None else keeping.taken)
                if keeping is not None:
                    names += keeping.after()
                    self.derives.took_ms = keeping.took.ms
                state.record(commit, names)
                hit("sink-before-commit")
            if keeping is not None and keeping.made:
                hit("sink-made-derived")
                self.derives.settled(state)
            hit("sink-before-close")

    @property
    def derives(self) -> SqlDerives[S]:
        """What keeps derived tables; the engine has asked whether there is."""
        derives = self.extras.derives
        assert isinstance(derives, SqlDerives)
        return derives

    def saved(self, job: str) -> SavedJob | None:
        with self.known(f"reading the saved state of job {job!r}", read_only=True) as state:
            return None if state is None else state.saved(job)

    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        with self.opened("checking the names that people query", read_only=True) as state:
            return self.names(state).live(job, swaps)

    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        with self.opened(f"cutting over to job {job!r}") as state:
            self.names(state).cut_over(job, swaps, epoch, now_ms, until_ms)

    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        with self.opened(f"reversing the cutover to job {job!r}") as state:
            self.names(state).reverse(job, swaps)

    def drop(self, tables: Sequence[SinkTable]) -> None:
        if not self.is_there():
            return
        with self.opened("dropping the job's tables", tables) as state, state.con.transaction():
            self.tables(state).drop([state.dialect.target_of(table, state.schema) for table in tables])

    def leave(self, job: str, tables: Sequence[str]) -> None:
        with self.known(f"forgetting tables of job {job!r}") as state:
            if state is not None:
                with state.con.transaction():
                    dropped = state.leave(job, tables)
                if dropped:
                    self.derives.settled(state)

    def forget(self, job: str) -> None:
        with self.known(f"forgetting job {job!r}") as state:
            if state is not None:
                with state.con.transaction():
                    dropped = state.remove(job)
                if dropped:
                    self.derives.settled(state)
                state.drop_unused()
