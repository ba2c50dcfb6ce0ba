"""Derived tables in an SQL sink: what they are made of, and what a commit does for them.

What a SELECT reads and which rows a change reaches is read in the room `derived`; here it meets the database.
"""

from abc import abstractmethod
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from backfill_cli.contracts import ComparedDerived, Derives, EpochCommit, SinkTable, derived_table, own
from backfill_cli.contracts.refusals import is_due, marker_gone, other_target, same_target
from backfill_cli.derived.refused import (
    altered,
    different,
    is_live,
    near,
    not_ours,
    or_leaves,
    other_columns,
    peculiar,
    reserved,
    twice_in,
    uncomputed,
)
from backfill_cli.errors import BackfillError, BadData, Hint, UsageError, in_config, shell
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.derived import Base, Derived, Filling
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import StagedTable
from backfill_cli.model.reports import PlannedCost, PlannedDerived
from backfill_cli.model.verify import DifferentRow
from backfill_cli.sinks.sql import costs
from backfill_cli.sinks.sql.dialect import Column, SqlDialect, Target, paths_of
from backfill_cli.sinks.sql.state import FILLS, PARTIALS, SqlState
from backfill_cli.sinks.sql.tables import SqlTables, Wanted
from backfill_cli.sinks.sql.transition import TransitionTable

if TYPE_CHECKING:
    from backfill_cli.derived.contributions import Contributions
    from backfill_cli.derived.ranges import RangePartitioning
    from backfill_cli.derived.rows import Maintained
    from backfill_cli.sinks.sql.upkeep import Kept

S = TypeVar("S", bound=SqlState)
Columns = tuple[tuple[str, str], ...]


class Calls(Enum):
    """What a call of a function depends on: its arguments alone, more, or many rows (aggregates and windows).

    TEXT: its argument is a text that is read as a date or time, 'today' perhaps.
    FOREIGN_ROWS: many rows, by a function that is not the database's own, whatever it is called.
    """

    ARGUMENTS = 0
    MORE = 1
    ROWS = 2
    FOREIGN_ROWS = 3
    TEXT = 4


READ_BY_FORMAT = "say its format: to_date(status, 'YYYY-MM-DD'), to_timestamp(…, 'YYYY-MM-DD HH24:MI:SS')"


def bases_of(tables: Sequence[SinkTable], dialect: SqlDialect, schema: str) -> tuple[Base, ...]:
    """What a SELECT can read."""
    from backfill_cli.derived.bases import bases_of as of

    def at(table: SinkTable) -> tuple[str, str]:
        target = dialect.target_of(table, schema)
        return str(target), target.sql

    return of(tables, at)


class _Tried(Exception):
    """Ends a transaction that nothing is to stay of."""


@dataclass(slots=True)
class _Missing:
    """What of a job's derived tables is not as a run needs it, each after those that it reads.

    absent, present: that do not exist; that do, though the job has filled nothing of them. new: without a marker.
    again: that were filled, and do not exist any more.
    """

    absent: "list[tuple[Maintained, Target]]" = field(default_factory=list)
    present: "list[tuple[Maintained, Target]]" = field(default_factory=list)
    new: list[tuple[str, Target]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)


class SqlDerives(Derives, Generic[S]):
    """`contracts.Derives`. system: the sink's type. schema: of targets that name none."""

    system: ClassVar[str]
    dialect: ClassVar[SqlDialect]
    tables: ClassVar[type[SqlTables[Any]]]
    holder: ClassVar[str]
    temporary: ClassVar[str]  # the schema of temporary tables

    def __init__(self, schema: str) -> None:
        self.schema = schema

    # What differs between databases

    @abstractmethod
    def scratch(self) -> AbstractContextManager[S]:
        """A connection on which temporary tables can be created; nothing of it stays."""

    @abstractmethod
    def opened(self, doing: str, derived: Sequence[Derived]) -> AbstractContextManager[S]:
        """A connection that may write to these."""

    @abstractmethod
    def known(self, doing: str) -> AbstractContextManager[S | None]:
        """A connection for reading; None where there is no database yet."""

    @abstractmethod
    def columns(self, state: S, relation: str) -> Columns:
        """Names and types of a relation (SQL), which is not read."""

    @abstractmethod
    def called(self, state: S, select: str) -> Iterator[tuple[str, Calls]]:
        """The functions that a SELECT calls, as the database resolves them; every one, operators too."""

    @abstractmethod
    def scanned(self, state: S, select: str) -> set[str]:
        """The names of the tables that the database reads for a SELECT, and of whatever else it reads."""

    @abstractmethod
    def summing_floats(self, state: S, select: str) -> set[str]:
        """The aggregates that a SELECT calls of floating-point numbers."""

    @abstractmethod
    def peculiar(self, state: S, target: Target) -> str:
        """What a table has that no list of names and types tells, and that can refuse a row or take two values for
        equal: a constraint, a collation, …; "" for nothing.
        """

    def reserved(self, state: S, target: Target) -> str:
        """Why no table can have this name that does not exist yet; "": one can."""
        return ""

    @abstractmethod
    def lacks(self, exc: Exception) -> bool:
        """Whether the database misses a table or column, of a statement that it has accepted before."""

    def hidden(self, state: S) -> frozenset[str]:
        """Functions of the database that users' ones of the same name hide, and others of users."""
        return frozenset()

    @abstractmethod
    def takes(self, state: S, tables: Sequence[SinkTable]) -> bool:
        """Whether nothing but the commit's own statements changes rows of these tables as they are written, in
        which each deletes the rows of the changed keys and inserts the new ones. So it is until the commit's end.
        """

    @abstractmethod
    def changed(self, state: S, name: str, key: tuple[Column, ...], files: list[str]) -> None:
        """A temporary table called `name` holds the keys of the rows in these staged files."""

    @abstractmethod
    def said(self, exc: Exception) -> str | None:
        """What the database says of a SELECT that it refuses; None for an error of anything else."""

    def comparable(self, value: str, kind: str) -> str:
        """SQL: a value of this type as one that has an equality."""
        return value

    def indexes(self, state: S, target: Target, columns: Sequence[str]) -> list[str]:
        """DDL by which rows of a key are found, of a table that exists; none if it has them."""
        return []

    def granted(self, state: S, old: Target, new: Target) -> list[str]:
        """DDL by which whoever may use the one table may use the other."""
        return []

    def settled(self, state: S) -> None:
        """Called after a transaction that made or replaced tables beside writing rows."""

    # For the engine

    def reads(self, derived: Sequence[Derived], tables: Sequence[SinkTable]) -> Mapping[str, tuple[str, ...]]:
        return {one.derived.name: one.reads for one in self.ordered(derived, tables)}

    def check(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        lives: Mapping[str, str],
        into: Collection[str] = (),
    ) -> tuple[PlannedDerived, ...]:
        self._refuse_shared_targets(derived, tables)
        lived = {self.dialect.parse(live, self.schema).identity: name for name, live in lives.items()}
        for each in derived:
            with self.named(each.name, other_target(each.name)):
                (target := self.target(each)).sql  # noqa: B018
            if target.identity in lived:
                raise is_live(each.name, str(target), lived[target.identity])
        with self.scratch() as state:
            bases = []
            for at, base in enumerate(bases_of(tables, self.dialect, self.schema)):
                table = next(one for one in tables if one.name == base.name)
                name = own.numbered(own.SOURCE, at)
                listed = ", ".join(
                    f"{self.dialect.quoted(one.name)} {one.type}" for one in self.tables(state).columns(table)
                )
                state.con.run(f"CREATE TEMPORARY TABLE {name} ({listed})")
                bases.append(replace(base, sql=name))
            found = self._ordered(
                derived, bases, {one.name: own.numbered(own.DERIVED, at) for at, one in enumerate(derived)}
            )
            planned, kept = {}, {}
            for one in found:  # each after those that it reads
                name = own.numbered(own.DERIVED, list(derived).index(one.derived))
                with self.named(one.derived.name, in_config("give the column another name in derived.sql")):
                    self.dialect.listed(one.columns)
                with self.explained(one.derived.name):
                    state.con.run(f"CREATE TEMPORARY TABLE {name} AS {_empty(one.text)}")
                self._require_steady(state, one)
                self._require_plain(state, one, name)
                self._require_settled(state, one)
                self._require_seen(state, one)
                kept[one.derived.name] = added = self._rehearse(state, one, name, bases)
                planned[one.derived.name] = self._planned(one, self.columns(state, name), added)
                bases.append(one.base((one.derived.name,), name))
        with self.known(f"checking the derived tables of job {job!r}") as there:
            if there is not None:
                self._refuse_hidden(there, found)
                missing = self._missing(there, job, found)
                for one, target in missing.absent:
                    if why := self.reserved(there, target):
                        raise reserved(one.derived.name, str(target), why)
                for one, target in missing.present:
                    name = one.derived.name
                    self.require_ours(there, target, name, planned[name].columns, into=name in into)
                for one in found:
                    told = planned[one.derived.name]
                    notes = list(self._costs(there, one, derived, tables, not isinstance(kept[told.name], str)))
                    texts = dict.fromkeys(note if isinstance(note, str) else note.text for note in notes)
                    numbers = tuple(note for note in notes if not isinstance(note, str))
                    planned[told.name] = replace(told, notes=(*told.notes, *texts), costs=numbers)
        return tuple(planned[one.name] for one in derived)

    def _refuse_shared_targets(self, derived: Sequence[Derived], tables: Sequence[SinkTable]) -> None:
        seen: dict[str, str] = {}
        for one in (*tables, *map(derived_table, derived)):
            target = self.dialect.target_of(one, self.schema)
            if (twin := seen.setdefault(target.identity, one.name)) != one.name:
                raise same_target(twin, one.name, str(target))

    def _planned(self, one: "Maintained", columns: Columns, added: "Contributions | str") -> PlannedDerived:
        from backfill_cli.derived.shown import found_by, notes_of, reads_of

        derived = one.derived
        return PlannedDerived(
            *(derived.name, derived.target, derived.key, columns, reads_of(one), found_by(one)),
            notes=notes_of(one, dict(columns), added),
            refresh=derived.refresh or None,
        )

    def _costs(
        self,
        state: S,
        one: "Maintained",
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        by_contributions: bool,
    ) -> Iterator[str | PlannedCost]:
        """What its upkeep costs in the tables that exist: joins without an index, and rows that changes reach."""
        from backfill_cli.derived.shown import fans_out, grouped_by, joined_by

        targets = {table.name: self.dialect.target_of(table, self.schema) for table in tables if not table.side}
        there = {name: target for name, target in targets.items() if self.tables(state).exists(target)}
        if one.refreshed:
            targets |= {each.name: self.target(each) for each in derived}
            held = [name for name in one.reads if self.tables(state).exists(targets[name])]
            yield from costs.read_whole({name: self.size(state, targets[name].sql) for name in held})
        for name, column in dict.fromkeys(joined_by(one)):
            if name in there and (statement := self.unindexed(state, there[name], column)):
                what = f"{name}: no index begins with {column}, by which changes of what is joined find its rows"
                yield f"{what}: {statement}"
        for name, of, columns in dict.fromkeys(grouped_by(one)):
            if of in there and (sizes := self.groups(state, there[of], columns)) is not None:
                yield (costs.added if by_contributions else costs.again)(name, of, columns, sizes)
        for name, reached, column in dict.fromkeys(fans_out(one)):
            if (
                reached in there
                and (sizes := self.groups(state, there[reached], (column,), nulls=False)) is not None
            ):
                yield costs.joined(name, reached, (column,), sizes)

    def unindexed(self, state: S, target: Target, column: str) -> str | None:
        """The statement that makes an index which begins with the column; None if it has one or needs none."""
        return None

    @abstractmethod
    def groups(self, state: S, target: Target, columns: Sequence[str], nulls: bool = True) -> costs.Sizes | None:
        """How many rows have the same values in these, as far as a bounded look tells; None: not known.

        nulls: whether rows with NULL in the columns count.
        """

    @abstractmethod
    def size(self, state: S, relation: str) -> int:
        """About how many rows a table has, without reading them. relation: SQL."""

    @abstractmethod
    def quantiles(self, state: S, relation: str, column: str, shares: Sequence[float]) -> list[str]:
        """About the values below which these shares of a table's rows are, as text, each greater than the one
        before. column: SQL.
        """

    @abstractmethod
    def is_cheap(
        self,
        state: S,
        by: "RangePartitioning",
        bounds: Sequence[str],
        rows: int,
        others: int,
        whole: str,
        middle: str,
    ) -> bool:
        """Whether all ranges together cost little more than a SELECT. rows: of the table whose ranges are taken.

        others: rows of all else that it reads. whole, middle: SQL of all ranges, and of one of them. bounds: SQL,
        between the ranges.
        """

    def _require_steady(self, state: S, one: "Maintained") -> None:
        """Each function that it calls depends on its arguments alone, or is an aggregate that is taken."""
        from backfill_cli.derived.reading import OF_ROWS, ORDER_FREE, WINDOWS, refusal

        for name, calls in sorted(self.called(state, one.text), key=lambda each: each[0]):
            if calls is Calls.MORE:
                raise refusal(one.derived.name, f"{name}: its value is not of its arguments alone", OF_ROWS)
            if calls is Calls.TEXT:
                what = "a text is read as a date or time, which can be that of the moment ('today')"
                raise refusal(one.derived.name, f"{name}: {what}", READ_BY_FORMAT)
            if calls is Calls.FOREIGN_ROWS or (calls is Calls.ROWS and name not in ORDER_FREE | WINDOWS):
                taken = ", ".join(sorted(ORDER_FREE - {"count_star", "every"}))
                raise refusal(one.derived.name, f"{name}: an aggregate that is not taken", f"use one of {taken}")

    def _require_plain(self, state: S, one: "Maintained", name: str) -> None:
        """Its columns have the equality of their types. name: of a temporary table with its columns."""
        from backfill_cli.derived.reading import refusal

        if found := self.peculiar(state, self.dialect.target(self.temporary, name)):
            what = f"{found}: values that differ would be one, or one value several"
            raise refusal(one.derived.name, what, "use a function of the text instead: lower(name)")

    def _require_settled(self, state: S, one: "Maintained") -> None:
        """What its FROM computes has one value each time."""
        from backfill_cli.derived.reading import READ_THAT, refusal
        from backfill_cli.derived.settled import judged

        for each in [found for select in one.computed for found in judged(select, one.engine)]:
            with self.explained(one.derived.name):
                state.con.run(f"CREATE TEMPORARY TABLE {own.MERGED} AS {each.sql}")
            types = [kind for (kind,) in state.con.rows(one.engine.declared.format(own.MERGED))]
            if what := each.unsettled(types):
                raise refusal(one.derived.name, f"{what}, inside FROM", READ_THAT)
            self._require_plain(state, one, own.MERGED)
            state.con.run(f"DROP TABLE {own.MERGED}")

    def _require_seen(self, state: S, one: "Maintained") -> None:
        """Of one that is computed whole: the database reads the tables that are known to be read, and what decides
        about its rows has one value each time.
        """
        from backfill_cli.derived.query import Whole, bases_of
        from backfill_cli.derived.reading import ORDERED, READ_THAT, refusal

        if not isinstance(one.query, Whole):
            return
        known = {base.sql for base in bases_of(one.query)}
        if others := self.scanned(state, one.text) ^ known:
            what = f"{', '.join(sorted(others))}: it is not certain that the SELECT reads it"
            raise refusal(one.derived.name, what, "read the tables of the job in FROM alone")
        if one.query.sums and not ORDERED.isdisjoint(self.summing_floats(state, one.text)):
            what = f"{', '.join(one.query.sums)}: of floating-point numbers, whose last digits depend on the order"
            raise refusal(one.derived.name, f"{what} of rows", f"make decimals of them; or {READ_THAT}")

    def _refuse_hidden(self, state: S, found: "Sequence[Maintained]") -> None:
        from backfill_cli.derived.contributions import CALLED, contributions

        if found and (hidden := self.hidden(state)):
            for one in found:
                ours = frozenset[str]() if isinstance(contributions(one), str) else CALLED
                for name in sorted({*(name for name, _ in self.called(state, one.text)), *ours} & hidden):
                    what = f"{name}: a macro of the {self.holder}'s, which is called instead of the function"
                    drop = shell(f"DROP MACRO {self.dialect.quoted(name)}")
                    hint = "give that macro another name, by " + drop + ", and create it anew"
                    raise UsageError(f"derived table {one.derived.name!r}: {what}", hint)

    def _rehearse(self, state: S, one: "Maintained", name: str, bases: Sequence[Base]) -> "Contributions | str":
        """Every statement that keeps it has run: what would fail in each commit is refused now.

        Returns what it is kept by, or why its groups are computed again.
        """
        from backfill_cli.sinks.sql.upkeep import Kept, Upkeep, added_to, create_partials

        changed = {
            base.name: f"(SELECT {self.dialect.listed(base.by)} FROM {base.sql} WHERE FALSE)" if base.by else None
            for base in bases
        }
        with self.explained(one.derived.name, "as a change would be applied: "):
            added = added_to(state.con, one)
            kept = [Kept(one, name)]
            if not isinstance(added, str):
                create_partials(state.con, self.dialect, added, own.PARTIALS, temporary=True)
                kept.append(Kept(one, name, added, own.PARTIALS))
            for each in kept:
                Upkeep(state.con, self.dialect, [each]).rehearse(changed)
            if not isinstance(added, str):
                state.con.run(f"DROP TABLE {own.PARTIALS}")
        return added

    def prepare(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        into: Collection[str] = (),
    ) -> None:
        with self.opened(f"preparing the derived tables of job {job!r}", derived) as state:
            self.tables(state).lock()
            self._refuse_shared_targets(derived, tables)
            found = self.ordered(derived, tables)
            self._refuse_hidden(state, found)
            if derived:
                self._prepare_partials(state, job)
                if FILLS.name not in state.there():
                    with state.con.ddl():
                        for statement in state.ddl(FILLS):
                            state.con.run(statement)
            lacks = self._missing(state, job, found)
            if lacks.new or lacks.again:
                with state.con.ddl():
                    self._try(state, lacks, into)
                    state.claim(job, lacks.new)
                    for one, _ in lacks.present:
                        if one.derived.name in into:
                            state.take_over(job, one.derived.name)
                    for name in lacks.again:  # it was dropped: the next commit fills it
                        state.unfill(job, name)

    def _prepare_partials(self, state: S, job: str) -> None:
        """Partial aggregates can be recorded; none are whose table somebody has dropped."""
        known, made = PARTIALS.name in state.there(), self.tables(state)
        recorded = state.partials(job) if known else {}
        gone = [table for table, (name, _) in recorded.items() if name and not made.exists(state.target(name))]
        if known and not gone:
            return
        with state.con.ddl():
            for statement in state.ddl(PARTIALS):
                state.con.run(statement)
            for table in gone:
                state.record_partials(job, table, "", 0)

    def _try(self, state: S, lacks: "_Missing", into: Collection[str]) -> None:
        """Each new one could be created, and is not there: nobody sees it before the commit that fills it."""
        if not lacks.new:
            return
        for one, target in lacks.absent:
            with self.explained(one.derived.name):
                for statement in state.schema_ddl(target.schema):
                    state.con.run(statement)
                state.con.run(f"CREATE TABLE {target.sql} AS {_empty(one.text)}")
        for one, target in lacks.present:
            with self.explained(one.derived.name):
                columns = self.columns(state, f"({one.text})")
            self.require_ours(state, target, one.derived.name, columns, into=one.derived.name in into)
        for _, target in reversed(lacks.absent):
            state.con.run(f"DROP TABLE {target.sql}")

    def _missing(self, state: S, job: str, found: "Sequence[Maintained]") -> "_Missing":
        """Writes nothing. Raises for tables that the job cannot have, but for what they hold."""
        made, known = self.tables(state), state.exists()
        claimed = state.markers(job) if known else {}
        lacks = _Missing()
        for one in found:
            name, target = one.derived.name, self.target(one.derived)
            made.refuse_other_owner(job, Wanted(derived_table(one.derived), target, ()), known)
            there, begun = made.exists(target), name in claimed and claimed[name].begun
            if not there:
                lacks.absent.append((one, target))
                lacks.again += [name] * begun
            elif not begun:
                lacks.present.append((one, target))
            elif self._altered(state, one, target):
                lacks.again.append(name)
            if name not in claimed:
                lacks.new.append((name, target))
        return lacks

    def _altered(self, state: S, one: "Maintained", target: Target) -> bool:
        """Whether somebody has dropped, renamed or added a column."""
        names = {one.engine.name(name, True) for name in one.columns}
        return {one.engine.name(name, True) for name, _ in self.columns(state, target.sql)} != names

    def require_ours(self, state: S, target: Target, name: str, wanted: Columns, into: bool = False) -> None:
        """A table that exists, and of which the job has filled nothing, is empty and has the columns.

        into: it need not, as it is to be replaced. Raises SinkInUse for one that others use.
        """
        found = self.peculiar(state, target)
        if not into and state.con.rows(f"SELECT 1 FROM {target.sql} LIMIT 1"):
            raise not_ours(str(target), name, replaceable=not found)
        if not into and self.columns(state, target.sql) != wanted:
            raise other_columns(str(target), name, wanted, replaceable=not found)
        if found:
            raise peculiar(str(target), name, found, f"DROP TABLE {target.sql}")

    def _waiting(
        self, state: S, job: str, derived: Sequence[Derived], tables: Sequence[SinkTable]
    ) -> frozenset[str]:
        """Those that are being filled by ranges, and all that read one of these, or one that is not there."""
        waiting = set(state.fills(job)) if FILLS.name in state.there() else set[str]()
        gone = set[str]()
        for one in self.ordered(derived, tables):  # each after those that it reads
            if not (waiting | gone).isdisjoint(one.reads):
                waiting.add(one.derived.name)
            elif not self.tables(state).exists(self.target(one.derived)):
                gone.add(one.derived.name)
        return frozenset(waiting)

    def renew(self, job: str, derived: Sequence[Derived]) -> None:
        with self.opened(f"marking derived tables of job {job!r}", derived) as state, state.con.transaction():
            for one in derived:
                state.unfill(job, one.name)

    def filling(self, job: str) -> Mapping[str, Filling]:
        with self.known(f"reading how far derived tables of job {job!r} are filled") as state:
            if state is None or FILLS.name not in state.there():
                return {}
            return {
                table: Filling(fill.table, fill.done, len(fill.bounds) + 1, fill.rows)
                for table, fill in state.fills(job).items()
            }

    def rehearse(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        names: Collection[str],
        into: Collection[str] = (),
    ) -> None:
        doing = f"filling derived tables of job {job!r} for trial: {', '.join(names)}"
        with suppress(_Tried), self.opened(doing, derived) as state, state.con.transaction():
            self._fill_for_trial(state, job, derived, tables, names, into)
            raise _Tried

    def _fill_for_trial(
        self,
        state: S,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        names: Collection[str],
        into: Collection[str],
    ) -> None:
        markers = state.markers(job)
        tried = {*names, *(one.name for one in derived if one.name not in markers or not markers[one.name].epoch)}
        for one in self.ordered(derived, tables):
            if not tried.isdisjoint(one.reads):
                tried.add(one.derived.name)
        made = {one.name: own.numbered(own.DERIVED, at) for at, one in enumerate(derived) if one.name in tried}
        targets = {one.name: made.get(one.name, self.target(one).sql) for one in derived}
        replaced: list[tuple[str, Target]] = []
        for one in self._ordered(derived, bases_of(tables, self.dialect, self.schema), targets):
            if (temporary := made.get(one.derived.name)) is None:
                continue
            with self.refused(one.derived.name):
                state.con.run(f"CREATE TEMP TABLE {temporary} AS {one.text}")
                twice = [] if one.unique else state.con.rows(self.dialect.twice(one.derived.key, temporary))
            if twice:
                raise twice_in(one.derived.name, one.derived.key, twice)
            target = self.target(one.derived)
            held = one.derived.name in markers and markers[one.derived.name].begun
            there = (held or one.derived.name in into) and self.tables(state).exists(target)
            if there and self.columns(state, target.sql) != self.columns(state, temporary):
                replaced.append((one.derived.name, target))
        for name, target in replaced:
            self.make_way(state, name, target)

    def make_way(self, state: S, name: str, target: Target) -> None:
        """A table whose columns become others is dropped. Raises UsageError for what depends on it."""
        try:
            self.tables(state).drop([target])
        except UsageError as refused:
            said = f"derived table {name!r} becomes one of other columns, but {refused.message}"
            raise UsageError(said, "drop what depends on it first, and create it again afterwards") from refused

    @contextmanager
    def refused(self, name: str) -> Iterator[None]:
        """What the database refuses of rows is raised as the fault of the derived table."""
        try:
            yield
        except Exception as exc:
            if isinstance(exc, BackfillError) or (said := self.said(exc)) is None:
                raise
            raise uncomputed(name, said) from exc

    def target(self, derived: Derived) -> Target:
        return self.dialect.parse(derived.target, self.schema)

    def ordered(self, derived: Sequence[Derived], tables: Sequence[SinkTable]) -> "tuple[Maintained, ...]":
        targets = {one.name: self.target(one).sql for one in derived}
        return self._ordered(derived, bases_of(tables, self.dialect, self.schema), targets)

    def _ordered(
        self, derived: Sequence[Derived], bases: Sequence[Base], targets: Mapping[str, str]
    ) -> "tuple[Maintained, ...]":
        from backfill_cli.derived.order import ordered

        return ordered(derived, bases, targets, self.system)

    @contextmanager
    def named(self, name: str, hint: Hint | str) -> Iterator[None]:
        """A name that the database cannot hold is raised as the fault of the derived table."""
        try:
            yield
        except UsageError as refused:
            raise UsageError(f"derived table {name!r}: {refused.message}", hint) from refused

    @contextmanager
    def explained(self, name: str, when: str = "") -> Iterator[None]:
        """What the database says of a SELECT names the derived table. when: this is run."""
        try:
            yield
        except Exception as exc:
            if isinstance(exc, BackfillError) or (said := self.said(exc)) is None:
                raise
            raise UsageError(f"derived table {name!r}: {when}{said}", in_config("correct derived.sql")) from exc

    # In a commit

    def keeping(
        self, state: S, commit: EpochCommit, markers: Mapping[str, Marker], due: Sequence[SinkTable]
    ) -> "Keeping[S]":
        return Keeping(self, state, commit, markers, due)

    # For verify

    def compare(
        self,
        state: S,
        job: str,
        derived: Derived,
        others: Sequence[Derived],
        tables: Sequence[SinkTable],
        named: int,
    ) -> ComparedDerived:
        """See `contracts.SinkCopy.compare`."""
        one = next(one for one in self.ordered(others, tables) if one.derived == derived)
        quoted, target, row = self.dialect.quoted, self.target(derived).sql, own.ROW
        filled, count = state.markers(job)[derived.name].epoch > 0, f"{self.dialect.functions}count"
        if derived.name in self._waiting(state, job, others, tables):
            return ComparedDerived(filled=filled, compared=False)
        if not self.tables(state).exists(self.target(derived)):  # it is not filled, or somebody has dropped it
            if not filled:
                return ComparedDerived(filled=False, compared=False)
            ((rows,),) = state.con.rows(f"SELECT {count}(*) FROM ({one.text}) AS {own.SOURCE}")
            return ComparedDerived(rows, missing=rows, gone=True)
        columns, held_as = self.columns(state, f"({one.text})"), dict(self.columns(state, target))
        if self._altered(state, one, self.target(derived)):
            rows, held = (
                state.con.rows(f"SELECT {count}(*) FROM {of} AS {own.SOURCE}")[0][0]
                for of in (f"({one.text})", target)
            )
            return ComparedDerived(rows, held, missing=rows, extra=held, filled=filled)
        kinds = {one.engine.name(name, True): kind for name, kind in held_as.items()}

        def pair(name: str, kind: str) -> tuple[str, str]:
            if kinds[one.engine.name(name, True)] != kind:  # somebody has changed its type
                return f"CAST(s.{quoted(name)} AS text)", f"CAST(t.{quoted(name)} AS text)"
            return self.comparable(f"s.{quoted(name)}", kind), self.comparable(f"t.{quoted(name)}", kind)

        key = {one.engine.name(name, True) for name in derived.key}
        keyed = [pair(name, kind) for name, kind in columns if one.engine.name(name, True) in key]
        # an engine can take NULL and an array without elements for the same
        same = " AND ".join(f"{one.engine.same(s, t, True)} AND ({s} IS NULL) = ({t} IS NULL)" for s, t in keyed)
        differs = {
            name: f"NOT {_alike(*pair(name, kind), kind, self.dialect.functions)}"
            for name, kind in columns
            if one.engine.name(name, True) not in key
        }
        both = (
            f"FROM (SELECT *, 1 AS {row} FROM ({one.text}) AS {own.SOURCE}) AS s "
            f"FULL JOIN (SELECT *, 1 AS {row} FROM {target}) AS t ON {same or f's.{row} = t.{row}'}"
        )
        changed = " OR ".join(differs.values()) or "FALSE"
        missing, extra, changes, rows, held = state.con.rows(
            f"SELECT {count}(*) FILTER (WHERE t.{row} IS NULL), {count}(*) FILTER (WHERE s.{row} IS NULL), "
            f"{count}(*) FILTER (WHERE s.{row} = t.{row} AND ({changed})), "
            f"(SELECT {count}(*) FROM ({one.text}) AS {own.SOURCE}), (SELECT {count}(*) FROM {target}) {both}"
        )[0]
        twice = (held - extra) - (rows - missing)  # further copies of a row beside it
        found: list[DifferentRow] = []
        if missing or extra or changes:
            shown = [*derived.key, *differs]
            texts = ", ".join(f"CAST({side}.{quoted(name)} AS text)" for name in shown for side in "st")
            tests = "".join(f", coalesce({test}, TRUE)" for test in differs.values())
            first = " ORDER BY " * bool(keyed) + ", ".join(f"coalesce({s}, {t}) NULLS LAST" for s, t in keyed)
            for sides in state.con.rows(
                f"SELECT s.{row}, t.{row}, {texts}{tests} {both} "
                f"WHERE t.{row} IS NULL OR s.{row} IS NULL OR ({changed}){first} LIMIT {named}"
            ):
                found += different(shown, len(derived.key), *sides)
        return ComparedDerived(rows, held, missing, extra + twice, changes, tuple(found[:named]), filled)


def _alike(s: str, t: str, kind: str, functions: str) -> str:
    """SQL: two values are equal, or floating-point numbers nearly so."""
    equal = f"{s} IS NOT DISTINCT FROM {t}"
    if kind.upper() not in ("FLOAT", "DOUBLE", "REAL", "DOUBLE PRECISION"):
        return f"({equal})"
    return f"coalesce({equal} OR ({near(s, t, 'DOUBLE PRECISION', functions)}), FALSE)"


def _empty(select: str) -> str:
    """SQL of the SELECT's columns, without a row."""
    return f"SELECT * FROM ({select}) AS {own.SOURCE} WHERE FALSE"


def _only_changes(staged: StagedTable) -> bool:
    """Whether each of its rows is a change that says the whole row."""
    return not (staged.truncated or staged.rows or staged.partial)


class Keeping(Generic[S]):
    """What a commit does for derived tables `before` its tables are written, and `after`, in their transaction."""

    def __init__(
        self,
        derives: SqlDerives[S],
        state: S,
        commit: EpochCommit,
        markers: Mapping[str, Marker],
        due: Sequence[SinkTable],
    ) -> None:
        from backfill_cli.derived.took import Took
        from backfill_cli.sinks.sql.filling import Filling
        from backfill_cli.sinks.sql.partials import Partials
        from backfill_cli.sinks.sql.upkeep import Kept, Upkeep

        self.took = Took()
        self.partials = Partials(derives, state, commit)
        self.filling = Filling(derives, state, commit)
        self.derives, self.state, self.commit, self.due = derives, state, commit, due
        self.filled: list[Maintained] = []
        self.made = False  # whether tables were created or replaced
        self.begun = {name for name, marker in markers.items() if marker.begun}
        kept: list[Kept] = []
        names: set[str] = set()
        found = derives.ordered(commit.derived, (*commit.tables, *commit.aside))
        whole = {name for name, marker in markers.items() if marker.epoch}
        self.ranged = {one.derived.name for one in found} - whole - _read_by(found, whole)
        for one in found:
            name, marker = one.derived.name, markers.get(one.derived.name)
            if marker is None:
                raise marker_gone(commit, name, derives.holder)
            if marker.epoch == 0 or names & set(one.reads):  # one that reads what is filled anew, too
                if name in self.ranged and not names & set(one.reads):
                    self.filling.take_up(one)
                self.filled.append(one)
                names.add(name)
            elif is_due(commit, name, marker, derives.holder):
                added, partials = self.partials.of(one, marker.epoch)
                if added is not None and any(map(commit.restores, one.reads)):  # others may have changed rows
                    self.filled.append(one)
                    names.add(name)
                else:
                    kept.append(Kept(one, derives.target(one.derived).sql, added, partials))
        first = self.begun.isdisjoint(one.name for one in commit.derived) and not self.filling.parts
        if first and commit.saved.checkpoint.phase is Phase.SNAPSHOT:
            self.filled = []
        self.kept = kept
        parts = {name: part.kept for name, part in self.filling.parts.items() if part.added is None}
        by_name = parts | {one.name: one for one in kept}
        upkept = [by_name[one.derived.name] for one in found if one.derived.name in by_name]
        self.upkeep: Upkeep | None = Upkeep(state.con, derives.dialect, upkept, self.took) if upkept else None
        self.staged: list[str] = []
        self.changes: Mapping[str, str | None] = {}
        self.taken: Mapping[str, TransitionTable] = {}
        """By a table's name, what its changed rows are to be taken to as it is written."""

    def before(self) -> None:
        due = [table for table in self.due if self._is_changed(table)]
        taking = self._taking(due)
        upkept = () if self.upkeep is None else self.upkeep.kept
        looking = {name for one in upkept if one not in taking for name in one.maintained.reads}
        looking.update(name for part in self.filling.parts.values() for name in part.one.reads)
        self.changes = self._changes(due, looking)
        with self._refusals():
            if self.changes:
                self.filling.before(self.changes)
            if self.upkeep is not None and (self.changes or self.taken):
                self.upkeep.before(self.changes, self.taken, [one.name for one in taking])

    def _taking(self, due: Sequence[SinkTable]) -> "list[Kept]":
        """Those that can be kept by rows that are taken as the tables are written, which `taken` has then."""
        from backfill_cli.sinks.sql.upkeep import can_take

        changed = {table.name for table in due}
        whole = {table.name for table in due if not _only_changes(self.commit.staged.tables[table.name])}
        found = [
            one
            for one in self.kept
            if (read := changed.intersection(one.maintained.reads)) and not read & whole and can_take(one, read)
        ]
        if found:
            with self._refusals(found[0].name):
                found = found if self.derives.takes(self.state, self.due) else []
                self.taken = self._to_take(due, found)
        return found

    def _is_changed(self, table: SinkTable) -> bool:
        staged = self.commit.staged.tables.get(table.name)
        return staged is not None and bool(staged.truncated or staged.rows + staged.changed + staged.deleted)

    def _to_take(self, due: Sequence[SinkTable], taking: "Sequence[Kept]") -> dict[str, TransitionTable]:
        """Temporary tables for the changed rows of what these read."""
        from backfill_cli.derived.named import named

        derives, taken = self.derives, {}
        bases = {base.name: base for base in bases_of(due, derives.dialect, derives.schema)}
        for at, table in enumerate(due):
            if readers := [one.maintained.derived for one in taking if table.name in one.maintained.reads]:
                name = own.numbered(own.GONE, at)
                taken[table.name] = TransitionTable(
                    name, named(bases[table.name], readers, derives.system), derives.dialect
                )
                self.state.con.run(taken[table.name].creation(derives.dialect.target_of(table, derives.schema)))
        return taken

    def _changes(self, due: Sequence[SinkTable], looking: Container[str]) -> dict[str, str | None]:
        """By the names of those that are looked up, temporary tables of the keys of what changed in them."""
        changes: dict[str, str | None] = {}
        for at, table in enumerate(due):
            staged = self.commit.staged.tables[table.name]
            if table.name not in looking:
                continue
            if staged.truncated:
                changes[table.name] = None
            else:
                files = [
                    path
                    for held in (staged.inserts, staged.changes)
                    for path in paths_of(self.commit.folder, held or ())
                ]
                columns = self.derives.dialect.columns(table.name, table.schema)
                key = tuple(column for column in columns if column.name in table.key)
                changes[table.name] = name = own.numbered(own.CHANGED, at)
                self.derives.changed(self.state, name, key, files)
                self.staged.append(name)
        return changes

    def after(self) -> list[str]:
        """The names of those that equal their SELECT."""
        if self.changes:
            with self._refusals():
                self.filling.after(self.changes)
        if self.upkeep is not None and (self.changes or self.taken):
            with self._refusals():
                drifted = self.upkeep.after()
            names = {one.name for one in drifted}
            self.kept = [one for one in self.kept if one.name not in names]
            self.filled = [
                *(one.maintained for one in drifted if one.name not in self.filling.parts),
                *self.filled,
            ]
            for part in [part for name, part in self.filling.parts.items() if name in names]:
                self.filling.forget(part.one)
        for name in (*self.staged, *(one.name for one in self.taken.values())):
            self.state.con.run(f"DROP TABLE {name}")
        filled, waiting = list[str](), set[str]()
        for one in self.filled:
            name = one.derived.name
            with self._refusals(name), self.took.of(name):
                if waiting.isdisjoint(one.reads) and self._fill(one):
                    filled.append(name)
                else:
                    waiting.add(name)
        with self._refusals():
            self.made = self.partials.keep(self.kept) or self.made
        self.made = self.filling.made or self.made
        return [*(one.name for one in self.kept), *filled]

    def _fill(self, one: "Maintained") -> bool:
        """Whether all of it is filled."""
        target = self.derives.target(one.derived)
        if one.derived.name in self.ranged:
            if not self.filling.step(one):
                return False
        else:
            self.filling.forget(one)
        if (side := self.filling.rows(one)) is not None:
            self.partials.drop(one)
            self._put(one, f"SELECT {one.engine.listed(one.columns)} FROM {side.sql}", side)
        else:
            self._put(one, self.partials.fill(one, self.filling.bag(one)) or one.text)
        self.filling.forget(one)
        if not one.unique and (
            twice := self.state.con.rows(self.derives.dialect.twice(one.derived.key, target.sql))
        ):
            raise twice_in(one.derived.name, one.derived.key, twice)
        return True

    def _put(self, one: "Maintained", text: str, side: Target | None = None) -> None:
        """The target has the rows of a SELECT. side: a table that has them, and can become the target."""
        derives, state, con = self.derives, self.state, self.state.con
        name, target = one.derived.name, derives.target(one.derived)
        there, columns = derives.tables(state).exists(target), derives.columns(state, f"({one.text})")
        if there and name not in self.begun:
            derives.require_ours(state, target, name, columns)
        if not there:
            self._create(one, target, text, side)
        elif derives.columns(state, target.sql) == columns:
            con.run(f"DELETE FROM {target.sql}")
            con.run(f"INSERT INTO {target.sql} ({one.engine.listed(one.columns)}) {text}")
            for statement in derives.indexes(state, target, one.pushed):
                con.run(statement)
        else:  # readers go on with the old one until the transaction ends, but for the last moment
            beside = derives.dialect.target(target.schema, own.ANEW)
            self._create(one, beside, text, side)
            for statement in derives.granted(state, target, beside):
                con.run(statement)
            derives.make_way(state, name, target)
            con.run(f"ALTER TABLE {beside.sql} RENAME TO {derives.dialect.quoted(target.table)}")

    def _create(self, one: "Maintained", target: Target, text: str, side: Target | None) -> None:
        self.made = True
        if side is None:
            self.state.con.run(f"CREATE TABLE {target.sql} AS {text}")
        else:
            self.state.con.run(f"ALTER TABLE {side.sql} RENAME TO {self.derives.dialect.quoted(target.table)}")
        for statement in self.derives.indexes(self.state, target, one.pushed):
            self.state.con.run(statement)

    @contextmanager
    def _refusals(self, name: str = "") -> Iterator[None]:
        """What refuses rows is raised as the fault of the derived table, with a way on. name: none: of that being
        kept.
        """
        try:
            yield
        except BadData as error:
            or_leaves(self.commit.job, error)
            raise
        except Exception as exc:
            if isinstance(exc, BackfillError) or (said := self.derives.said(exc)) is None:
                raise
            failed = name or (self.upkeep.doing if self.upkeep is not None else "")
            if self.derives.lacks(exc):
                raise altered(self.commit.job, failed, said) from exc
            raise or_leaves(self.commit.job, uncomputed(failed, said)) from exc


def _read_by(found: "Sequence[Maintained]", names: set[str]) -> set[str]:
    """Those that some of these derived tables read, directly or through others."""
    read = set[str]()
    for one in reversed(found):
        if one.derived.name in names | read:
            read |= set(one.reads)
    return read
