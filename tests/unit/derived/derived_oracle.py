"""What the oracle of derived tables is: a database with the sink's tables, and one with the user's."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import duckdb
import psycopg
from derived_world import Row, Table, View, World, quoted

from backfill_cli.derived.rows import maintained
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.derived import Base, Derived
from backfill_cli.sinks.duckdb.dialect import DUCKDB
from backfill_cli.sinks.postgres.dialect import POSTGRES
from backfill_cli.sinks.sql.upkeep import Kept, Upkeep

EPOCHS = 3


class Database(ABC):
    """As `sinks.sql.state.Connection`. sink: whether tables have the targets' names, or those of the SELECTs."""

    system: ClassVar[str]
    invalid: ClassVar[type[Exception]]
    """What the user's own text can be refused with by this database."""

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

    def counted(self, sql: str) -> Counter[Row]:
        return Counter(self.rows(sql))


class InMemory(Database):
    system, invalid = "duckdb", duckdb.BinderException

    def __init__(self, sink: bool) -> None:
        super().__init__(sink)
        self.raw = duckdb.connect(config={"threads": "1"})

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self.raw.execute(sql).fetchall()

    def run(self, sql: str, *parameters: Any) -> None:
        self.raw.execute(sql)

    def begin(self) -> None:
        self.run("DROP SCHEMA IF EXISTS public CASCADE")
        self.run("CREATE SCHEMA public")
        self.run("USE public")


class InPostgres(Database):
    system, invalid = "postgres", psycopg.errors.ProgrammingError

    def __init__(self, dsn: str, sink: bool) -> None:
        super().__init__(sink)
        self.raw = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
        self.run("SET client_min_messages = warning")

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self.raw.execute(sql.encode()).fetchall()

    def run(self, sql: str, *parameters: Any) -> None:
        self.raw.execute(sql.encode())

    def begin(self) -> None:
        self.run("DROP SCHEMA public CASCADE")
        self.run("CREATE SCHEMA public")

    def close(self) -> None:
        self.raw.close()


def literal(value: object) -> str:
    return (
        "NULL" if value is None else "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
    )


def key_of(table: Table) -> str:
    return f"({', '.join(map(quoted, table.key))})"


def listed(keys: Sequence[Row]) -> str:
    return ", ".join(f"({', '.join(map(literal, key))})" for key in keys)


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


def kept_of(views: Sequence[View], tables: Sequence[Table], system: str) -> list[Kept]:
    bases, kept = [base_of(table) for table in tables], []
    for view in views:
        made = maintained(Derived(view.name, view.name, view.key, view.sql), bases, system)
        target = f"public.{quoted('of ' + view.name)}"
        bases.append(made.base([view.name], target))
        kept.append(Kept(made, target))
    return kept


def duplicate(oracle: Database, view: View) -> bool:
    if not view.key:
        return False
    names = ", ".join(map(quoted, view.key))
    return bool(oracle.rows(f"SELECT 1 FROM ({view.sql}\n) AS q GROUP BY {names} HAVING count(*) > 1 LIMIT 1"))


def run(seed: int, sink: Database, oracle: Database) -> str:
    """What came of it: "kept", "refused" or "duplicate"."""
    world = World(seed, sink.system)
    try:
        kept = kept_of(world.views, world.tables, sink.system)
    except UsageError:
        return "refused"
    for one in (sink, oracle):
        one.begin()
        for table in world.tables:
            one.create(table)
    for one, view in zip(kept, world.views, strict=True):
        try:
            oracle.run(f"CREATE VIEW public.{quoted(view.name)} AS {view.sql}")
        except oracle.invalid:  # a column called like another table's alias can be ambiguous
            return "refused"
        sink.run(f"CREATE TABLE {one.target} AS {one.maintained.text}")
        if duplicate(oracle, view):
            return "duplicate"
    for number in range(EPOCHS):
        changes = world.epoch()
        upkeep, told = Upkeep(sink, DIALECTS[sink.system], kept), {}
        changed = [table for table in world.tables if table.name in changes]
        for table in changed:
            keys = changes[table.name]
            told[f"public.{table.name}"] = (
                None if keys is None else f"(VALUES {listed(sorted(keys))})" if keys else None
            )
            if keys:
                names = ", ".join(map(quoted, table.key))
                told[f"public.{table.name}"] = f"(SELECT * FROM (VALUES {listed(sorted(keys))}) AS v({names}))"
        sink.run("BEGIN")
        upkeep.before(told)
        for table in changed:
            keys = changes[table.name]
            for one in (sink, oracle):
                one.delete(table, None if keys is None else sorted(keys))
                rows = (
                    table.rows.values() if keys is None else [table.rows[key] for key in keys if key in table.rows]
                )
                one.insert(table, list(rows))
        twice = [view.name for view in world.views if duplicate(oracle, view)]
        try:
            upkeep.after()
        except BadData as error:
            sink.run("ROLLBACK")
            return "duplicate" if error.table in twice else f"a wrong error: seed {seed}, epoch {number}: {error}"
        sink.run("COMMIT")
        assert not twice, f"{seed}, epoch {number}: {twice} have duplicates"
        for one, view in zip(kept, world.views, strict=True):
            expected, found = oracle.counted(view.sql), sink.counted(f"SELECT * FROM {one.target}")
            assert found == expected, f"seed {seed}, epoch {number}, {view.sql}: {found} instead of {expected}"
    return "kept"
