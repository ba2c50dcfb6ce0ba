"""What the oracle of derived tables is: a database with the sink's tables, and one with the user's."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import duckdb
import psycopg
from derived_world import Row, Table, View, World, quoted

from backfill_cli.contracts import own
from backfill_cli.derived.named import named
from backfill_cli.derived.rows import maintained
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.derived import Base, Derived
from backfill_cli.sinks.duckdb.dialect import DUCKDB
from backfill_cli.sinks.postgres.dialect import POSTGRES
from backfill_cli.sinks.sql.transition import TransitionTable
from backfill_cli.sinks.sql.upkeep import Kept, Upkeep, added_to, can_take, create_partials

VIEWS, EPOCHS = 10, (1, 1, 2)
"""SELECTs in a world, and how many epochs it can have."""


class Database(ABC):
    """As `sinks.sql.state.Connection`. sink: whether tables have the targets' names, or those of the SELECTs."""

    system: ClassVar[str]
    invalid: ClassVar[type[Exception]]
    """What the user's own text can be refused with by this database."""
    failed: ClassVar[type[Exception]]
    """What rows can be refused with."""

    def __init__(self, sink: bool) -> None:
        self.sink = sink

    @abstractmethod
    def rows(self, sql: str, *parameters: Any) -> list[Row]: ...

    @abstractmethod
    def run(self, sql: str, *parameters: Any) -> None: ...

    @abstractmethod
    def begin(self) -> None:
        """The schema `public` is empty, and names without a schema are of it."""

    def name(self, table: Table) -> str:
        return f"public.{quoted(table.target if self.sink else table.name)}"

    def create(self, table: Table) -> None:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in table.columns)
        self.run(f"CREATE TABLE {self.name(table)} ({columns})")
        self.insert(table, list(table.rows.values()))

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        if rows:
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
            self.run(f"INSERT INTO {self.name(table)} VALUES {values}")

    def delete(self, table: Table, keys: Sequence[Row] | None) -> None:
        if keys is None:
            self.run(f"DELETE FROM {self.name(table)}")
        elif keys:
            self.run(f"DELETE FROM {self.name(table)} WHERE {key_of(table)} IN ({listed(keys)})")

    @abstractmethod
    def named(self, sql: str) -> tuple[list[str], list[Row]]:
        """The columns' names, and the rows, in which NaN equals NaN."""


class InMemory(Database):
    system, invalid, failed = "duckdb", duckdb.BinderException, duckdb.Error

    def __init__(self, sink: bool) -> None:
        super().__init__(sink)
        self.raw = duckdb.connect(config={"threads": "1"})
        if not sink:  # so that it does not share the rewriting of what it checks
            self.raw.execute("PRAGMA disable_optimizer")

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self.raw.execute(sql).fetchall()

    def named(self, sql: str) -> tuple[list[str], list[Row]]:
        done = self.raw.execute(sql)
        return [one[0] for one in done.description], list(map(plain, done.fetchall()))

    def run(self, sql: str, *parameters: Any) -> None:
        self.raw.execute(sql)

    def begin(self) -> None:
        self.run("DROP SCHEMA IF EXISTS public CASCADE")
        self.run("CREATE SCHEMA public")
        self.run("USE public")


class InPostgres(Database):
    system, invalid, failed = "postgres", psycopg.errors.ProgrammingError, psycopg.errors.DataError

    def __init__(self, dsn: str, sink: bool) -> None:
        super().__init__(sink)
        self.raw = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
        self.run("SET client_min_messages = warning")
        self.run("SET jit = off")  # a view of views is compiled, and started on all cores, for a few rows
        self.run("SET max_parallel_workers_per_gather = 0")

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self.raw.execute(sql.encode()).fetchall()

    def named(self, sql: str) -> tuple[list[str], list[Row]]:
        done = self.raw.execute(sql.encode())
        return [one[0] for one in done.description or ()], list(map(plain, done.fetchall()))

    def run(self, sql: str, *parameters: Any) -> None:
        self.raw.execute(sql.encode())

    def begin(self) -> None:
        self.run("DROP SCHEMA public CASCADE")
        self.run("CREATE SCHEMA public")

    def close(self) -> None:
        self.raw.close()


def plain(row: Row) -> Row:
    return tuple("NaN" if value != value else value for value in row)


def literal(value: object) -> str:
    return (
        "NULL" if value is None else "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
    )


def key_of(table: Table) -> str:
    return f"({', '.join(map(quoted, table.key))})"


def listed(keys: Sequence[Row]) -> str:
    return ", ".join(f"({', '.join(map(literal, key))})" for key in keys)


def keys_of(table: Table, keys: Iterable[Row]) -> str:
    """A SELECT of these keys, of the columns' types."""
    names = ", ".join(map(quoted, table.key))
    typed = ", ".join(
        f"CAST({quoted(name)} AS {kind}) AS {quoted(name)}" for name, kind in table.columns[: table.keys]
    )
    return f"SELECT {typed} FROM (VALUES {listed(sorted(keys))}) AS v({names})"


def base_of(table: Table) -> Base:
    return Base(
        name=f"public.{table.name}",
        names=(f"public.{table.name}", table.name),
        sql=f"public.{quoted(table.target)}",
        key=table.key,
        columns=tuple(name for name, _ in table.columns),
        by=table.key,
    )


DIALECTS = {"duckdb": DUCKDB, "postgres": POSTGRES}


class Unequal(AssertionError):
    """A derived table is not its SELECT."""


def run(seed: int, sink: Database, oracle: Database, refreshed: float = 0) -> Counter[str]:
    """What came of each SELECT of a world: "kept", "refused", "duplicate" (at last), or "failed" (at last).

    "added": those of them that are kept by contributions, in every second world. "taken": how often one was kept
    by changed rows that were taken as they were written. refreshed: the share of those that are refreshed whole.
    """
    return _World(seed, sink, oracle, refreshed).run()


class _World:
    """The SELECTs of one world over the same tables, each taken or refused, then kept through its epochs.

    Those whose rows come to share a key, or cannot be computed, refuse the epoch; it is tried again without them.
    """

    def __init__(self, seed: int, sink: Database, oracle: Database, refreshed: float) -> None:
        self.seed, self.sink, self.oracle, self.refreshed = seed, sink, oracle, refreshed
        self.world = World(seed, sink.system)
        self.came: Counter[str] = Counter()
        self.bases = list(map(base_of, self.world.tables))
        self.kept: list[Kept] = []
        self.views: list[View] = []

    def run(self) -> Counter[str]:
        for one in (self.sink, self.oracle):
            one.begin()
            for table in self.world.tables:
                one.create(table)
        for at in range(VIEWS):
            whole = self.refreshed and self.world.random.random() < self.refreshed
            self.take(self.world.refreshed(f"view_{at}") if whole else self.world.view(f"view_{at}"))
        for number in range(self.world.random.choice(EPOCHS)):
            if self.world.random.random() < 0.2:
                self.gain()
            self.epoch(number)
        self.came["kept"] += len(self.kept)
        return self.came

    def gain(self) -> None:
        """Tables gain columns that are called like something in the SELECTs, which mean what they did."""
        said = {one.lower(): one for view in self.views for one in re.findall(r"[^\W\d]\w*", view.sql)}
        names = sorted(one for one in said.values() if one.isascii())
        gained = self.world.gain(names)
        for table in self.world.tables:
            for one, column in (
                (one, column) for one in (self.sink, self.oracle) for column in gained[table.name]
            ):
                one.run(f"ALTER TABLE {one.name(table)} ADD COLUMN {quoted(column)} TEXT")
        self.bases = list(map(base_of, self.world.tables))
        for at, (kept, view) in enumerate(zip(self.kept, self.views, strict=True)):
            made = maintained(kept.maintained.derived, self.bases, self.sink.system)
            self.kept[at] = Kept(made, kept.target)
            self.bases.append(made.base([view.name], kept.target))

    def take(self, view: View) -> None:
        try:
            made = maintained(
                Derived(view.name, view.name, view.key, view.sql, view.refresh), self.bases, self.sink.system
            )
        except UsageError:
            self.came["refused"] += 1
            return
        try:
            self.oracle.run(f"CREATE VIEW public.{quoted(view.name)} AS {view.sql}")
        except self.oracle.invalid:  # a column called like another table's alias can be ambiguous
            self.came["refused"] += 1
            return
        if (expected := self.expected(view)) is None:
            return
        kept = Kept(made, f"public.{quoted('of ' + view.name)}")
        self.sink.run(f"CREATE TABLE {kept.target} AS {made.text}")
        self.compare(view, kept, expected, "filled")
        self.kept.append(self.added(kept) if self.seed % 2 else kept)
        self.views.append(view)
        if view.columns:
            self.bases.append(made.base([view.name], kept.target))
            self.world.views.append(view)

    def added(self, kept: Kept) -> Kept:
        """The same, kept by contributions if it can be, and filled again by what these are made of."""
        found = added_to(self.sink, kept.maintained)
        if isinstance(found, str):
            return kept
        partials = f"public.partials_{len(self.kept)}"
        create_partials(self.sink, DIALECTS[self.sink.system], found, partials)
        filled = self.counted(f"SELECT * FROM {kept.target}")
        assert self.counted(found.visible(partials)) == filled, f"seed {self.seed}: {kept.maintained.text}"
        self.came["added"] += 1
        return replace(kept, added=found, partials=partials)

    def counted(self, sql: str) -> Counter[Row]:
        return Counter(self.sink.named(sql)[1])

    def expected(self, view: View) -> Counter[Row] | None:
        """The rows; None if it has none that a derived table can hold, which is counted."""
        try:
            names, rows = self.oracle.named(f"SELECT * FROM public.{quoted(view.name)}")
        except self.oracle.failed:
            self.came["failed"] += 1
            return None
        at = [names.index(name) for name in view.key]
        if view.key and len({tuple(row[one] for one in at) for row in rows}) < len(rows):
            self.came["duplicate"] += 1
            return None
        return Counter(rows)

    def epoch(self, number: int) -> None:
        changes = self.world.epoch()
        changed = [table for table in self.world.tables if table.name in changes]
        self.write(self.oracle, changed, changes)
        found = {view.name: self.expected(view) for view in self.views}
        bad = {name for name, rows in found.items() if rows is None}
        died = self.world.random.random() < 0.2
        while not self.applied(changed, changes, bad):
            bad = self.without(bad)
        if died:
            self.sink.run("ROLLBACK")
            assert self.applied(changed, changes, set())
        self.sink.run("COMMIT")
        for kept, view in zip(self.kept, self.views, strict=True):
            rows = found[view.name]
            assert rows is not None
            self.compare(view, kept, rows, f"epoch {number}")
            if kept.added is not None:
                held, whole = f"SELECT * FROM {kept.partials}", kept.added.whole("")
                assert self.counted(held) == self.counted(whole), f"seed {self.seed}: {view.sql}"

    def applied(self, changed: Sequence[Table], changes: Mapping[str, set[Row] | None], bad: set[str]) -> bool:
        """Whether the epoch is applied, in a transaction that is open."""
        upkeep = Upkeep(self.sink, DIALECTS[self.sink.system], self.kept)
        told: dict[str, str | None] = {}
        for table in changed:
            keys = changes[table.name]
            if keys is None:
                told[f"public.{table.name}"] = None
            elif keys:
                told[f"public.{table.name}"] = f"changed_{len(told)}"
        taking = self.taking(told) if self.world.random.random() < 0.7 else []
        self.came["taken"] += len(taking)
        self.sink.run("BEGIN")
        try:
            for table in changed:
                if keys := changes[table.name]:
                    name = told[f"public.{table.name}"]
                    self.sink.run(f"CREATE TEMP TABLE {name} AS {keys_of(table, keys)}")
            taken = self.take_old(changed, changes, taking)
            upkeep.before(told, taken, [kept.name for kept in taking])
            self.write(self.sink, changed, changes)
            self.take_new(changed, changes, taken)
            assert not upkeep.after()
            for name in filter(None, (*told.values(), *(one.name for one in taken.values()))):
                self.sink.run(f"DROP TABLE {name}")
        except (BadData, self.sink.failed) as error:
            self.sink.run("ROLLBACK")
            if not bad:
                raise Unequal(f"seed {self.seed}: {upkeep.doing}: {error}") from error
            return False
        assert not bad, f"seed {self.seed}: {bad} are no derived tables, and were kept"
        return True

    def taking(self, told: Mapping[str, str | None]) -> list[Kept]:
        """Those that can be kept by changed rows that are taken."""
        whole = {name for name, keys in told.items() if keys is None}
        return [
            kept
            for kept in self.kept
            if (reads := told.keys() & set(kept.maintained.reads)) and not whole & reads and can_take(kept, reads)
        ]

    def take_old(
        self, changed: Sequence[Table], changes: Mapping[str, set[Row] | None], taking: Sequence[Kept]
    ) -> dict[str, TransitionTable]:
        """Temporary tables with the rows that go, of the columns that these can mean."""
        taken = {}
        for at, table in enumerate(changed):
            base, keys = base_of(table), changes[table.name]
            readers = [kept.maintained.derived for kept in taking if base.name in kept.maintained.reads]
            if readers and keys:
                one = TransitionTable(
                    f"taken_{at}", named(base, readers, self.sink.system), DIALECTS[self.sink.system]
                )
                columns = ", ".join(map(quoted, one.columns))
                there = f"{key_of(table)} IN ({listed(sorted(keys))})"
                self.sink.run(
                    f"CREATE TEMP TABLE {one.name} AS SELECT {columns}, -1 AS {own.SIGN} "
                    f"FROM {base.sql} WHERE {there}"
                )
                taken[base.name] = one
        return taken

    def take_new(
        self,
        changed: Sequence[Table],
        changes: Mapping[str, set[Row] | None],
        taken: Mapping[str, TransitionTable],
    ) -> None:
        """They have the rows that came, too."""
        for table in changed:
            if one := taken.get(base_of(table).name):
                at = [[name for name, _ in table.columns].index(name) for name in one.columns]
                for key in table.rows.keys() & (changes[table.name] or set()):
                    values = ", ".join(literal(table.rows[key][place]) for place in at)
                    self.sink.run(f"INSERT INTO {one.name} VALUES ({values}, 1)")

    def without(self, bad: set[str]) -> set[str]:
        """These, and those that read them, are no more; the oracle's views stay."""
        gone = set(bad)
        for kept in self.kept:
            if gone & set(kept.maintained.reads):
                self.came["duplicate"] += kept.name not in gone
                gone.add(kept.name)
        pairs = [pair for pair in zip(self.kept, self.views, strict=True) if pair[0].name not in gone]
        self.kept, self.views = [kept for kept, _ in pairs], [view for _, view in pairs]
        return set()

    def write(self, one: Database, changed: Sequence[Table], changes: Mapping[str, set[Row] | None]) -> None:
        for table in changed:
            keys = changes[table.name]
            one.delete(table, None if keys is None else sorted(keys))
            held = table.rows
            one.insert(table, list(held.values() if keys is None else [held[key] for key in keys if key in held]))

    def compare(self, view: View, kept: Kept, expected: Counter[Row], when: str) -> None:
        found = Counter(self.sink.named(f"SELECT * FROM {kept.target}")[1])
        if found != expected:
            raise Unequal(f"seed {self.seed}, {when}, {view.sql}: {found} instead of {expected}")
