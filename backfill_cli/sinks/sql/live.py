"""The names that people query, made views of a job's tables; a cutover is one transaction of the database."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from backfill_cli.contracts import Swap
from backfill_cli.errors import UsageError, sql
from backfill_cli.model.cutover import Found, Live, Lives, kept_name
from backfill_cli.sinks.sql.dialect import Target
from backfill_cli.sinks.sql.state import SideTable, SqlState


class SqlNames(ABC):
    """On one connection. record: the side table that remembers cutovers; its key are a name's columns."""

    record: SideTable

    def __init__(self, state: SqlState) -> None:
        self.state, self.con, self.dialect = state, state.con, state.dialect

    @abstractmethod
    def key(self, name: Target) -> tuple[str, ...]:
        """The name as `record` has it."""

    @abstractmethod
    def word(self, name: Target) -> str | None:
        """What has the name, as DDL calls it: TABLE, VIEW or a kind of these; None if nothing has it.

        Raises UsageError for anything else.
        """

    @abstractmethod
    def depends(self, name: Target, word: str) -> tuple[str, ...]:
        """See Live.depends."""

    @abstractmethod
    def refusals(self) -> AbstractContextManager[None]:
        """What the database refuses to rename, create or drop is raised as UsageError."""

    def grants(self, before: Target, name: Target) -> Iterable[str]:
        """SQL that lets those read the view who could read what had its name before."""
        return ()

    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        """See contracts.Cutover."""
        return {swap.table.name: self._live(job, swap) for swap in swaps}

    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        with self.con.ddl():
            for statement in self.state.ddl(self.record):
                self.con.run(statement)
            with self.refusals():
                for swap in swaps:
                    if self._live(job, swap).found is not Found.OURS:
                        self._make(job, swap, (epoch, now_ms, until_ms))

    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        with self.con.ddl(), self.refusals():
            for swap in swaps:
                now = self._live(job, swap)
                if now.found is Found.OURS:
                    self._put_back(self._name(swap), now.kept)

    def _make(self, job: str, swap: Swap, moments: tuple[int, int, int]) -> None:
        """moments: epoch, now_ms, until_ms."""
        name = self._name(swap)
        word = self.word(name)
        kept = None if word is None else kept_name(name.table, moments[0])
        if kept is not None:
            self.con.run(f"ALTER {word} {name.sql} RENAME TO {self.dialect.quoted(kept)}")
        target = self.dialect.target_of(swap.table, self.state.schema)
        for statement in self.state.schema_ddl(name.schema):
            self.con.run(statement)
        self.con.run(f"CREATE VIEW {name.sql} AS SELECT * FROM {target.sql}")
        if kept is not None:
            for grant in self.grants(self.dialect.target(name.schema, kept), name):
                self.con.run(grant)
        self._forget(name)
        values = (job, swap.table.name, *self.key(name), kept, *moments)
        numbers = ", ".join(f"${at}" for at, _ in enumerate(values, 1))
        self.con.run(f"INSERT INTO {self.state.sql(self.record.name)} VALUES ({numbers})", *values)

    def _put_back(self, name: Target, kept: str | None) -> None:
        self.con.run(f"DROP VIEW {name.sql}")
        if kept is not None:
            before = self.dialect.target(name.schema, kept)
            word = self.word(before)
            if word is None:
                raise UsageError(
                    f"{before}, which was {name} before the cutover, is gone: the cutover cannot be reversed",
                    sql(f"DROP VIEW {name.sql}") + ", or leave it as it is",
                )
            self.con.run(f"ALTER {word} {before.sql} RENAME TO {self.dialect.quoted(name.table)}")
        self._forget(name)

    def _live(self, job: str, swap: Swap) -> Live:
        name = self._name(swap)
        word = self.word(name)
        if word is None:
            return Live(Found.NOTHING)
        if word == "VIEW" and self.record.name in self.state.there():
            values = (*self.key(name), job, swap.table.name)
            held = self.con.rows(
                f"SELECT kept, since_ms, until_ms FROM {self.state.sql(self.record.name)} "
                f'WHERE {self._named} AND job = ${len(values) - 1} AND "table" = ${len(values)}',
                *values,
            )
            if held:
                return Live(Found.OURS, *held[0])
        return Live(Found.VIEW if word.endswith("VIEW") else Found.TABLE, depends=self.depends(name, word))

    def _forget(self, name: Target) -> None:
        self.con.run(f"DELETE FROM {self.state.sql(self.record.name)} WHERE {self._named}", *self.key(name))

    @property
    def _named(self) -> str:
        """SQL: a row of `record` is of the name whose key is the first parameters."""
        return " AND ".join(f"{self.dialect.quoted(name)} = ${at}" for at, name in enumerate(self.record.key, 1))

    def _name(self, swap: Swap) -> Target:
        return self.dialect.parse(swap.live, self.state.schema)
