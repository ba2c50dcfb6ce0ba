"""A database with types of its own: tables of one column, filled, and read from ADBC and from text."""

from collections.abc import Iterator, Sequence

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
import pytest
from postgres import Server
from postgres_database import Database, database

from backfill_cli.upstreams.postgres.types import COLUMNS, SETTINGS, Column, by_table, selected
from backfill_cli.upstreams.postgres.values import from_adbc

TYPES = """
CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN posint AS int CHECK (value > 0);
CREATE DOMAIN money2 AS numeric(12,2);
CREATE DOMAIN price AS money2 NOT NULL;
CREATE DOMAIN tags AS text[];
"""


@pytest.fixture(scope="module")
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as db:
        db(*TYPES.strip().split("\n"))
        yield db


def options() -> str:
    return " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())


def columns(db: Database, table: str) -> tuple[Column, ...]:
    with psycopg.connect(db.dsn) as connection:
        oid = connection.execute("SELECT %s::regclass::oid", (table,)).fetchone()
        assert oid is not None
        return by_table(connection.execute(COLUMNS.encode(), ([oid[0]],)).fetchall())[oid[0]]


def column(db: Database, kind: str) -> Column:
    """Of a new table t (id, v)."""
    db("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id int PRIMARY KEY, v {kind})")
    return columns(db, "t")[1]


def filled(db: Database, literals: Sequence[str | None]) -> None:
    with psycopg.connect(db.dsn, autocommit=True) as connection:
        for number, literal in enumerate(literals):
            connection.execute("SET DateStyle = 'ISO, DMY'")
            connection.execute("INSERT INTO t VALUES (%s, %s)", (number, literal))


def texts(db: Database) -> list[str | None]:
    """As the server's output functions write them: plain psycopg, text format, no loaders."""
    with psycopg.connect(db.dsn, options=options()) as connection:
        done = connection.pgconn.exec_(b"SELECT v FROM t ORDER BY id")
        values = (done.get_value(row, 0) for row in range(done.ntuples))
        return [None if value is None else value.decode() for value in values]


def by_adbc(db: Database, column: Column) -> pa.Array:
    from urllib.parse import quote

    with adbc.connect(f"{db.dsn}?options={quote(options())}") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {selected(column)} AS v FROM t ORDER BY id")
        return from_adbc(column, cursor.fetch_arrow_table()["v"])
