"""Every sink with views can make the names that people query views of a job's tables, and reverse that."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import database
from postgres_sink import sink_of
from sink_contract import Epochs, a_table, rows, schema_json

from backfill_cli.contracts import Cutover, Swap
from backfill_cli.errors import UsageError
from backfill_cli.model.cutover import Found
from backfill_cli.sinks.duckdb import DuckDBOptions, connector

NOW, UNTIL = 1_000, 9_000


@dataclass
class Place:
    """A sink, SQL in its system, and a job whose two tables were filled."""

    sink: Any
    sql: Callable[..., list[tuple[Any, ...]]]
    epochs: Epochs
    swaps: tuple[Swap, ...]

    def cut_over(self) -> None:
        assert isinstance(self.sink, Cutover)
        self.sink.cut_over("orders", self.swaps, 20, NOW, UNTIL)

    def found(self) -> list[Found]:
        return [one.found for one in self.sink.live("orders", self.swaps).values()]


def of_duckdb(tmp_path: Path) -> tuple[Any, Callable[..., list[tuple[Any, ...]]]]:
    path = tmp_path / "w.duckdb"

    def sql(*statements: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(path)) as con:
            for statement in statements[:-1]:
                con.execute(statement)
            return con.execute(statements[-1]).fetchall()

    return connector.open(DuckDBOptions(path=str(path))), sql


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    tables = (a_table("orders", "orders_v2"), a_table("lines", "lines_v2"))
    swaps = (Swap(tables[0], "orders"), Swap(tables[1], "lines"))

    def filled(sink: Any, sql: Callable[..., list[tuple[Any, ...]]]) -> Place:
        epochs = Epochs(tmp_path / "staging", tables=tables)
        sink.prepare("orders", tables, False)
        sink.fence("orders", 1)
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
        return Place(sink, sql, epochs, swaps)

    if request.param == "duckdb":
        yield filled(*of_duckdb(tmp_path))
        return
    server: Server = request.getfixturevalue("postgres")
    with database(server) as db:
        yield filled(sink_of(db.dsn), db)


def test_names_that_nothing_had_are_views_and_the_job_goes_on(place: Place) -> None:
    assert place.found() == [Found.NOTHING, Found.NOTHING]
    place.cut_over()
    assert place.found() == [Found.OURS, Found.OURS]
    place.sink.commit(place.epochs.next(upserts=rows((2, "B"), (3, "c"))))
    assert place.sql("SELECT * FROM orders ORDER BY id") == [(1, "a"), (2, "B"), (3, "c")]
    place.sink.reverse("orders", place.swaps)
    assert place.found() == [Found.NOTHING, Found.NOTHING]
    assert len(place.sql("SELECT * FROM orders_v2")) == 3


def test_a_table_and_a_view_that_were_there_are_kept_and_put_back(place: Place) -> None:
    place.sql(
        "CREATE TABLE orders (id bigint, name text)",
        "INSERT INTO orders VALUES (7, 'before')",
        "CREATE VIEW lines AS SELECT 8 AS id",
        "SELECT 1",
    )
    assert place.found() == [Found.TABLE, Found.VIEW]
    place.cut_over()
    assert place.sql("SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
    assert place.sql("SELECT * FROM orders_before_20") == [(7, "before")]
    now = place.sink.live("orders", place.swaps)["orders"]
    assert (now.kept, now.since_ms, now.until_ms) == ("orders_before_20", NOW, UNTIL)

    place.cut_over()  # a second time nothing changes
    assert place.sink.live("orders", place.swaps)["orders"].kept == "orders_before_20"

    place.sink.reverse("orders", place.swaps)
    assert place.sql("SELECT * FROM orders") == [(7, "before")]
    assert place.sql("SELECT * FROM lines") == [(8,)]
    assert place.found() == [Found.TABLE, Found.VIEW]


def test_names_that_cannot_all_be_made_stay_as_they_were(place: Place) -> None:
    place.sql("CREATE TABLE orders (id bigint)", "CREATE TABLE orders_before_20 (id bigint)", "SELECT 1")
    place.swaps = place.swaps[::-1]  # the second one fails
    with pytest.raises(UsageError, match="orders_before_20") as caught:
        place.cut_over()
    assert place.found() == [Found.NOTHING, Found.TABLE]
    place.sql("DROP TABLE orders_before_20", "SELECT 1")
    with typed(caught.value) as hint:
        hint.says("correct what the message names, then repeat the command")
        place.cut_over()
        assert place.found() == [Found.OURS, Found.OURS]


def test_what_was_before_and_is_gone_leaves_the_view(place: Place) -> None:
    place.sql("CREATE TABLE orders (id bigint)", "SELECT 1")
    place.cut_over()
    place.sql("DROP TABLE orders_before_20", "SELECT 1")
    with pytest.raises(UsageError, match="is gone") as caught:
        place.sink.reverse("orders", place.swaps)
    assert place.found() == [Found.OURS, Found.OURS]
    with typed(caught.value) as hint:
        place.sql(*hint.statements(), "SELECT 1")
        assert place.found() == [Found.NOTHING, Found.OURS]
        place.sink.reverse("orders", place.swaps)
        assert place.found() == [Found.NOTHING, Found.NOTHING]


def test_a_column_that_is_added_later_is_in_the_view(place: Place) -> None:
    place.cut_over()
    wider = replace(place.swaps[0].table, schema=schema_json(id="long", name="string", note="string"))
    place.sink.prepare("orders", (wider, place.swaps[1].table), False)
    place.sql("UPDATE orders_v2 SET note = 'n' WHERE id = 1", "SELECT 1")
    assert place.sql("SELECT note FROM orders WHERE id = 1") == [("n",)]


def test_tables_that_people_query_through_a_view_are_not_dropped(place: Place) -> None:
    place.cut_over()
    with pytest.raises(UsageError, match=r"depend|cutover") as caught:
        place.sink.drop([swap.table for swap in place.swaps])
    assert len(place.sql("SELECT * FROM orders")) == 2
    with typed(caught.value) as hint:
        if "cutover" in str(caught.value.hint):  # several jobs may be active: the command names its own
            hint.says("backfill cutover orders --reverse")
            place.sink.reverse("orders", place.swaps)
        else:
            hint.says("drop what depends on it first")
            place.sql("DROP VIEW orders, lines", "SELECT 1")
        place.sink.drop([swap.table for swap in place.swaps])


def test_a_job_that_is_forgotten_leaves_its_views(place: Place) -> None:
    place.cut_over()
    place.sink.forget("orders")
    assert place.found() == [Found.VIEW, Found.VIEW]
    assert len(place.sql("SELECT * FROM orders")) == 2


def test_who_might_read_may_read_on_in_postgresql_and_who_might_write_may_not(
    postgres: Server, tmp_path: Path
) -> None:
    with database(postgres) as db:
        sink, table = sink_of(db.dsn), a_table("orders", "orders_v2")
        sink.prepare("orders", (table,), False)
        db("CREATE TABLE orders (id bigint, name text)", "SELECT 1")
        reader = f"reader_{db('SELECT pg_backend_pid()')[0][0]}"
        db(f"CREATE ROLE {reader}", f"GRANT SELECT, INSERT ON orders TO {reader}", "SELECT 1")
        try:
            sink.cut_over("orders", (Swap(table, "orders"),), 20, NOW, UNTIL)
            with psycopg.connect(db.dsn) as con:
                con.execute(f"SET ROLE {reader}".encode())
                assert con.execute("SELECT * FROM orders").fetchall() == []
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    con.execute("INSERT INTO orders VALUES (1, 'x')")
        finally:
            db(f"DROP OWNED BY {reader}", f"DROP ROLE {reader}", "SELECT 1")


def test_what_would_be_left_behind_in_postgresql_is_named(postgres: Server) -> None:
    with database(postgres) as db:
        sink, table = sink_of(db.dsn), a_table("orders", "orders_v2")
        sink.prepare("orders", (table,), False)
        db(
            "CREATE TABLE orders (id bigint PRIMARY KEY)",
            "CREATE VIEW top_orders AS SELECT * FROM orders",
            "CREATE TABLE notes (id bigint REFERENCES orders)",
            "SELECT 1",
        )
        depends = sink.live("orders", (Swap(table, "orders"),))["orders"].depends
        assert depends == ("foreign key notes_id_fkey of notes", "view orders is read by top_orders")


def test_what_keeps_duckdb_from_renaming_a_table_is_named_before_the_cutover(tmp_path: Path) -> None:
    sink, sql = of_duckdb(tmp_path)
    table = a_table("orders", "orders_v2")
    sink.prepare("orders", (table,), False)
    sql(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name text, parent bigint REFERENCES orders (id))",
        "CREATE TABLE notes (id bigint REFERENCES orders (id))",
        "CREATE INDEX by_name ON orders (name)",
        "SELECT 1",
    )
    swaps = (Swap(table, "orders"),)
    assert sink.live("orders", swaps)["orders"].depends == ("index by_name", "a foreign key of table notes")
    with pytest.raises(UsageError, match="nothing has changed"):
        sink.cut_over("orders", swaps, 20, NOW, UNTIL)
    sql("DROP TABLE notes", "DROP INDEX by_name", "SELECT 1")
    assert sink.live("orders", swaps)["orders"].depends == (), "a primary key and a reference to itself may stay"
    sink.cut_over("orders", swaps, 20, NOW, UNTIL)
    assert sink.live("orders", swaps)["orders"].found is Found.OURS
