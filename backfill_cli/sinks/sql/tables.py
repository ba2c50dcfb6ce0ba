"""The sink's tables: which exist, and what must be created or added before an epoch's transaction.

All DDL happens here, never in an epoch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import belongs_to, gone, require_key, same_target
from backfill_cli.errors import UsageError, of_table
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.sql.dialect import Column, Target
from backfill_cli.sinks.sql.state import SqlState

S = TypeVar("S", bound=SqlState)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table as the job needs it."""

    table: SinkTable
    target: Target
    columns: tuple[Column, ...]


class SqlTables(ABC, Generic[S]):
    """On one connection, in its transaction."""

    def __init__(self, state: S) -> None:
        self.state, self.con = state, state.con

    @abstractmethod
    def columns(self, table: SinkTable) -> tuple[Column, ...]:
        """Raises BadData or UsageError for a column that the database cannot have."""

    @abstractmethod
    def exists(self, target: Target) -> bool:
        """Whether the table exists. Raises UsageError if something else has the name."""

    @abstractmethod
    def creation(self, want: Wanted) -> list[str]:
        """DDL of a table that does not exist."""

    @abstractmethod
    def addition(self, job: str, want: Wanted, ours: bool) -> list[str]:
        """DDL of the columns that a table lacks; raises for one that the job cannot write to.

        ours: its rows are, or may be, the job's.
        """

    @abstractmethod
    def drop(self, targets: Sequence[Target]) -> None:
        """The tables are dropped. Raises UsageError: see contracts.Sink."""

    def lock(self) -> None:
        """No other job can create tables until this transaction ends."""

    def require_usable(self, known: bool, claimed: Mapping[str, Marker]) -> None:
        """Raises for a database that the job cannot use. known: whether there are side tables."""

    def others(self) -> Sequence[SqlState]:
        """The side tables of the database in other schemas."""
        return ()

    def require_together(self, present: Sequence[Wanted], claimed: Mapping[str, Marker]) -> None:
        """Raises for tables that exist and cannot be written beside each other."""

    def wanted(self, table: SinkTable) -> Wanted:
        columns = self.columns(table)
        require_key(table, {column.name for column in columns})
        return Wanted(table, self.state.dialect.target_of(table, self.state.schema), columns)

    def _wanted_of(self, table: SinkTable) -> Wanted:
        with of_table(table.name, UsageError):
            return self.wanted(table)

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        """The job's tables exist with all their columns and a marker each; writes nothing if they did before."""
        self.lock()
        ddl, new = self.missing(job, tables, into_existing)
        if ddl or new:
            with self.con.ddl():
                for statement in ddl:
                    self.con.run(statement)
                self.state.claim(job, new)

    def missing(
        self, job: str, tables: Sequence[SinkTable], into_existing: bool
    ) -> tuple[list[str], list[tuple[str, Target]]]:
        """What `prepare` would create: DDL, and tables without a marker. Writes nothing.

        Raises for tables that the job cannot write to.
        """
        state, wants = self.state, [self._wanted_of(table) for table in tables]
        _refuse_shared_targets(wants)
        known = state.exists()
        claimed = state.markers(job) if known else {}
        self.require_usable(known, claimed)
        ddl = state.upgrades() if known else state.required_ddl()
        states: list[SqlState] = [*([state] if known else []), *self.others()]
        present = []
        for want in wants:
            self._refuse_other_owner(states, job, want)
            marker = claimed.get(want.table.name)
            if self.exists(want.target):
                # A marker at epoch 0 does not make the rows ours: it may be left by a start that failed early.
                with of_table(want.table.name, UsageError):
                    ddl += self.addition(job, want, into_existing or (marker is not None and marker.epoch > 0))
                present.append(want)
            elif marker is not None and marker.epoch:
                raise gone(str(want.target), job, marker.epoch)
            else:
                ddl += self.creation(want)
        self.require_together(present, claimed)
        new = [(want.table.name, want.target) for want in wants if want.table.name not in claimed]
        return list(dict.fromkeys(ddl)), new

    def refuse_other_owner(self, job: str, want: Wanted, known: bool) -> None:
        """No other job writes the table, nor this one to another of its tables. known: there are side tables."""
        self._refuse_other_owner([*([self.state] if known else []), *self.others()], job, want)

    def _refuse_other_owner(self, states: Sequence[SqlState], job: str, want: Wanted) -> None:
        """No other job writes the table, in whichever schema of the database that job's markers are."""
        for state in states:
            owner = state.owner_of_target(want.target)
            here = state.schema == self.state.schema
            if owner is not None and not (here and owner == (job, want.table.name)):
                beside = "" if here else f", with sink.schema = {state.schema!r}"
                raise belongs_to(str(want.target), *owner, state.owner(owner[0]), beside)


def _refuse_shared_targets(wanted: Sequence[Wanted]) -> None:
    seen: dict[str, str] = {}
    for want in wanted:
        twin = seen.setdefault(want.target.identity, want.table.name)
        if twin != want.table.name:
            raise same_target(twin, want.table.name, str(want.target))
