"""Types inside types, to any depth: what changes their text without a change of the row is seen at every level."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from postgres import Server
from postgres_database import Database, database
from typed_columns import columns

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BadData, UsageError
from backfill_cli.upstreams.postgres.client import connected
from backfill_cli.upstreams.postgres.ddl import TableCatalog
from backfill_cli.upstreams.postgres.types import spark_field

WRAPPERS = {
    "array": ("{0}[]", None),
    "composite": ("{1}", "CREATE TYPE {1} AS (n int, inner_ {0})"),
    "domain": ("{1}", "CREATE DOMAIN {1} AS {0}"),
    "range": ("{1}", "CREATE TYPE {1} AS RANGE (subtype = {0})"),
    "multirange": ("{1}_multirange", "CREATE TYPE {1} AS RANGE (subtype = {0})"),
}
WAYS = [way for depth in (1, 2) for way in itertools.product(WRAPPERS, repeat=depth)]
WAYS += [("composite", "array", "composite"), ("domain", "array", "composite"), ("range", "domain", "composite")]


_numbers = itertools.count(1)

Run = Callable[[str], Any]


def nested(run: Run, inner: str, way: tuple[str, ...]) -> str | None:
    """The type that wraps `inner` in this way, innermost first; None if the server has no such type."""
    kind = inner
    for wrapper in way:
        name, statement = WRAPPERS[wrapper]
        made = f"t{next(_numbers)}"
        try:
            if statement is not None:
                run(statement.format(kind, made))
        except psycopg.Error:  # an array has no arrays of its own; no order, no range
            return None
        kind = name.format(kind, made)
    return kind


@pytest.fixture(scope="module")
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.mark.parametrize(
    ("inner", "statement"),
    [
        ("AS ENUM ('sad', 'ok')", "ALTER TYPE {} RENAME VALUE 'sad' TO 'blue'"),
        ("AS (a int, b text)", "ALTER TYPE {} ADD ATTRIBUTE c int"),
        ("AS (a int, b text)", "ALTER TYPE {} DROP ATTRIBUTE b"),
        ("AS ()", "ALTER TYPE {} ADD ATTRIBUTE c int"),
    ],
    ids=["renamed label", "added attribute", "dropped attribute", "first attribute"],
)
def test_a_type_inside_a_type_that_reads_otherwise_stops_the_job(db: Database, inner: str, statement: str) -> None:
    """The column's own catalog rows stay as they were, however deep the type is in it."""
    with connected(db.dsn) as connection:
        run: Run = connection.execute
        tried = 0
        for way in WAYS:
            name, table = f"inner{next(_numbers)}", f"table{next(_numbers)}"
            run(f"CREATE TYPE {name} {inner}")
            kind = nested(run, name, way)
            if kind is None:
                continue
            run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {kind})")
            look = TableCatalog([TableSpec(table, ("id",))], "none")
            look.begin(connection)
            try:
                run(statement.format(name))
            except psycopg.Error:  # by now the server may refuse it itself
                continue
            look.again(connection)
            with pytest.raises(BadData, match="ALTER TYPE"):
                look.compare(connection, lambda: 0)
            tried += 1
        assert tried > 12


def test_a_column_added_with_a_composite_type_beside_another_is_no_changed_type(db: Database) -> None:
    db("CREATE TYPE one AS (a int)", "CREATE TYPE two AS (b int)", "CREATE TABLE c (id int PRIMARY KEY, v one)")
    look = TableCatalog([TableSpec("c", ("id",))], "none")
    with connected(db.dsn) as connection:
        look.begin(connection)
        db("ALTER TABLE c ADD COLUMN w two")
        look.again(connection)
        look.compare(connection, lambda: 0)


@pytest.mark.parametrize("inner", ["regclass", "regrole", "aclitem"])
def test_a_name_of_an_object_is_refused_at_any_depth_and_its_hint_works(db: Database, inner: str) -> None:
    with psycopg.connect(db.dsn, autocommit=True) as connection:
        run: Run = connection.execute
        kinds = [nested(run, inner, way) for way in WAYS]
        made = {f"table{next(_numbers)}": kind for kind in kinds if kind is not None}
        for table, kind in made.items():
            run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {kind})")
        for table in made:
            with pytest.raises(UsageError, match="name of another object") as refused:
                spark_field(columns(db, table)[1], table)
            run(str(refused.value.hint).split(": ")[1].split(";")[0])
            spark_field(columns(db, table)[1], table)
        assert len(made) > 8
