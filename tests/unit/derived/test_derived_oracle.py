"""Each derived table equals its SELECT after each epoch: random tables, SELECTs and changes, another database as
oracle.

The expected rows are those of the user's own text in a database of its own, into which Python wrote the rows.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import duckdb
import pytest
from derived_world import Row, Table, View, World, quoted

from backfill_cli.derived.rows import maintained
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.derived import Base, Derived
from backfill_cli.sinks.duckdb.file import Connection
from backfill_cli.sinks.sql.upkeep import Kept, Upkeep

CASES, EPOCHS, PARTS = 1500, 3, 4


class Database:
    """A DuckDB in memory. sink: whether tables have the targets' names, or those of the SELECTs."""

    def __init__(self, sink: bool) -> None:
        self.raw, self.sink = duckdb.connect(config={"threads": "1"}), sink

    def begin(self) -> None:
        self.raw.execute("DROP SCHEMA IF EXISTS public CASCADE")
        self.raw.execute("CREATE SCHEMA public")
        self.raw.execute("USE public")

    def name(self, table: Table) -> str:
        return f"public.{quoted(table.target if self.sink else table.name)}"

    def create(self, table: Table) -> None:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in table.columns)
        self.raw.execute(f"CREATE TABLE {self.name(table)} ({columns})")
        self.insert(table, list(table.rows.values()))

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        if rows:
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
            self.raw.execute(f"INSERT INTO {self.name(table)} VALUES {values}")

    def delete(self, table: Table, keys: Sequence[Row] | None) -> None:
        if keys is None:
            self.raw.execute(f"DELETE FROM {self.name(table)}")
        elif keys:
            self.raw.execute(f"DELETE FROM {self.name(table)} WHERE {key_of(table)} IN ({listed(keys)})")

    def rows(self, sql: str) -> Counter[Row]:
        return Counter(self.raw.execute(sql).fetchall())


def literal(value: object) -> str:
    return (
        "NULL" if value is None else "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
    )


def key_of(table: Table) -> str:
    return f"({', '.join(map(quoted, table.key))})"


def listed(keys: Sequence[Row]) -> str:
    return ", ".join(f"({', '.join(map(literal, key))})" for key in keys)


@pytest.fixture(scope="module")
def databases() -> Iterator[tuple[Database, Database]]:
    return Database(sink=True), Database(sink=False)


def base_of(table: Table) -> Base:
    return Base(
        name=f"public.{table.name}",
        names=(f"public.{table.name}", table.name),
        sql=f"public.{quoted(table.target)}",
        key=table.key,
        columns=tuple(name for name, _ in table.columns),
        by=table.key,
    )


def kept_of(views: Sequence[View], tables: Sequence[Table]) -> list[Kept]:
    bases, kept = [base_of(table) for table in tables], []
    for view in views:
        made = maintained(Derived(view.name, view.name, view.key, view.sql), bases, "duckdb")
        target = f"public.{quoted('of ' + view.name)}"
        bases.append(made.base([view.name], target))
        kept.append(Kept(made, target))
    return kept


def duplicate(oracle: Database, view: View) -> bool:
    if not view.key:
        return False
    names = ", ".join(map(quoted, view.key))
    return bool(oracle.rows(f"SELECT 1 FROM ({view.sql}\n) GROUP BY {names} HAVING count(*) > 1 LIMIT 1"))


def run(seed: int, sink: Database, oracle: Database) -> str:
    """What came of it: "kept", "refused" or "duplicate"."""
    world = World(seed)
    try:
        kept = kept_of(world.views, world.tables)
    except UsageError:
        return "refused"
    for one in (sink, oracle):
        one.begin()
        for table in world.tables:
            one.create(table)
    for one, view in zip(kept, world.views, strict=True):
        try:
            oracle.raw.execute(f"CREATE VIEW public.{quoted(view.name)} AS {view.sql}")
        except duckdb.BinderException:  # a column called like another table's alias can be ambiguous to DuckDB
            return "refused"
        sink.raw.execute(f"CREATE TABLE {one.target} AS {one.maintained.text}")
        if duplicate(oracle, view):
            return "duplicate"
    for number in range(EPOCHS):
        changes = world.epoch()
        upkeep, told = Upkeep(Connection(sink.raw), kept), {}
        changed = [table for table in world.tables if table.name in changes]
        for table in changed:
            keys = changes[table.name]
            told[f"public.{table.name}"] = (
                None if keys is None else f"(VALUES {listed(sorted(keys))})" if keys else None
            )
            if keys:
                names = ", ".join(map(quoted, table.key))
                told[f"public.{table.name}"] = f"(SELECT * FROM (VALUES {listed(sorted(keys))}) AS v({names}))"
        sink.raw.execute("BEGIN")
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
            sink.raw.execute("ROLLBACK")
            return "duplicate" if error.table in twice else f"a wrong error: seed {seed}, epoch {number}: {error}"
        sink.raw.execute("COMMIT")
        assert not twice, f"{seed}, epoch {number}: {twice} have duplicates"
        for one, view in zip(kept, world.views, strict=True):
            expected, found = oracle.rows(view.sql), sink.rows(f"SELECT * FROM {one.target}")
            assert found == expected, f"seed {seed}, epoch {number}, {view.sql}: {found} instead of {expected}"
    return "kept"


@pytest.mark.parametrize("part", range(PARTS))
def test_a_derived_table_equals_its_select_after_each_epoch(
    part: int, databases: tuple[Database, Database]
) -> None:
    came = Counter(run(seed, *databases) for seed in range(part, CASES, PARTS))
    assert set(came) <= {"kept", "refused", "duplicate"}, came
    assert came["kept"] > 0.6 * CASES / PARTS, came
