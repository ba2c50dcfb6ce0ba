"""What a plan asks of a sink is what a start does to it: neither refuses what the other accepts, for every sink.

What is refused has left nothing: no file, no folder, no table, no side table.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hostile_tables import column, refusal, tables
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st
from postgres import Server
from postgres_database import Database, database
from postgres_sink import sink_of

from backfill_cli.contracts import SinkTable
from backfill_cli.sinks.delta import DeltaOptions
from backfill_cli.sinks.delta import connector as delta
from backfill_cli.sinks.duckdb import DuckDBOptions
from backfill_cli.sinks.duckdb.sink import DuckDBSink
from backfill_cli.sinks.iceberg import IcebergSinkOptions
from backfill_cli.sinks.iceberg import connector as iceberg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RIGHT = {"type": "struct", "fields": [column("id", "long"), column("a", "string")]}


def with_column(name: str, kind: object, target: str = "t") -> tuple[SinkTable, ...]:
    """A right table, and one with this column."""
    schema = {"type": "struct", "fields": [column("id", "long"), column(name, kind)]}
    right = SinkTable("right", "right", ("id",), json.dumps(RIGHT))
    return right, SinkTable("t", target, ("id",), json.dumps(schema))


ANOTHER_PLACE = with_column("v", "long", "a.b.c")
TWINS = with_column("ID", "long")
TWINS_INSIDE = with_column("v", {"type": "struct", "fields": [column("a", "long"), column("A", "long")]})
LOCAL_TIMES = with_column("v", {"type": "array", "elementType": "timestamp_ntz", "containsNull": True})

MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def in_folder(folder: str) -> list[str]:
    return sorted(str(one) for one in Path(folder).rglob("*"))


@MANY
@given(tables())
@example(ANOTHER_PLACE)
@example(TWINS)
@example(TWINS_INSIDE)
def test_duckdb_checks_what_it_refuses(given: tuple[SinkTable, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink = DuckDBSink(DuckDBOptions(path=f"{folder}/sink.duckdb"))
        checked = refusal(sink, "check", given)
        assert in_folder(folder) == []
        assert refusal(sink, "prepare", given) == checked
        assert bool(in_folder(folder)) == (checked is None)


@MANY
@given(tables())
@example(TWINS)
@example(TWINS_INSIDE)
@example(LOCAL_TIMES)
def test_delta_checks_what_it_refuses(given: tuple[SinkTable, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink = delta.open(DeltaOptions(table=f"{folder}/lake/{{table}}"))
        checked = refusal(sink, "check", given)
        assert in_folder(folder) == []
        assert refusal(sink, "prepare", given) == checked
        assert bool(in_folder(folder)) == (checked is None)


@pytest.fixture(scope="module")
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


def in_database(db: Database) -> list[tuple[str, str]]:
    return sorted(
        db(
            "SELECT n.nspname, coalesce(c.relname, '') FROM pg_namespace n LEFT JOIN pg_class c "
            "ON c.relnamespace = n.oid WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
        )
    )


@MANY
@given(tables())
@example(ANOTHER_PLACE)
@example(TWINS)
def test_postgresql_checks_what_it_refuses(db: Database, given: tuple[SinkTable, ...]) -> None:
    sink, before = sink_of(db.dsn), in_database(db)
    checked = refusal(sink, "check", given)
    assert in_database(db) == before
    assert refusal(sink, "prepare", given) == checked
    assert (in_database(db) != before) == (checked is None)
    for schema in {name for name, _ in in_database(db)}:
        db(f'DROP SCHEMA "{schema}" CASCADE')
    db("CREATE SCHEMA public")


@seed(25)
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(tables(), min_size=30, max_size=30))
def test_iceberg_checks_what_it_refuses(spark: "SparkSession", given: list[tuple[SinkTable, ...]]) -> None:
    """What it accepts is created by Spark: all of it at once."""
    with tempfile.TemporaryDirectory() as folder:
        sink = iceberg.open(IcebergSinkOptions(table=f"{folder}/lake/{{table}}"))
        sink.use(lambda: spark)
        assert refusal(sink, "check", TWINS_INSIDE)
        accepted: dict[str, SinkTable] = {}
        for _, table in given:
            if refusal(sink, "check", (table,)) is None:
                accepted.setdefault(table.target, table)
        assert in_folder(folder) == []
        assert accepted
        assert refusal(sink, "prepare", tuple(accepted.values())) is None
