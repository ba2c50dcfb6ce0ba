"""`chunk_time`: statements that read rows end within a time; one that its server ended is asked in halves."""

from collections.abc import Iterator

import psycopg
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database

from backfill_cli.cdc.bounded import TimedOut
from backfill_cli.contracts import TableSpec
from backfill_cli.errors import UsageError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.upstreams.postgres import chunks
from backfill_cli.upstreams.postgres.in_time import in_time
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.source import PostgresSource

ROWS = 200_000
NO_INDEX = "&options=-c%20enable_indexscan%3Doff%20-c%20enable_bitmapscan%3Doff%20-c%20enable_indexonlyscan%3Doff"
"""Each row is then found by reading, and sorting, all of them."""


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(
            "CREATE TABLE t (id int, part text, v text, PRIMARY KEY (part, id))",
            f"INSERT INTO t SELECT n, n % 3, repeat('x', 20) FROM generate_series(1, {ROWS}) n",
        )
        yield made


def source(db: Database, chunk_time: str, dsn: str = "") -> PostgresSource:
    told = {"dsn": dsn or db.dsn, "slot": db.name, "chunk_time": chunk_time}
    return PostgresSource(PostgresOptions.model_validate(told), [TableSpec("t", ("part", "id"))])


def read(source: PostgresSource) -> list[int]:
    (split,) = source.pin().splits
    tasks = source.batches("t", source.closed("t", [SnapshotRead("t", split.id, limit_rows=ROWS + 1)]), 1)
    made = (batch for part in tasks.parts for piece in part for batch in chunks.batches(piece.what))
    return [n for batch in made for n in batch["id"].to_pylist()]


def test_each_row_is_read_once_by_statements_that_end_in_time(db: Database) -> None:
    upstream = source(db, "20ms")
    try:
        assert sorted(read(upstream)) == list(range(1, ROWS + 1))
    finally:
        upstream.close()


def test_a_transaction_that_could_not_be_rolled_back_in_time_is_left_with_its_connection(db: Database) -> None:
    upstream = source(db, "10s")
    try:
        upstream.pin()
        held = upstream._alive()
        held.execute("BEGIN")
        with pytest.raises(psycopg.errors.DivisionByZero):
            held.execute("SELECT 1 / 0")
        assert len(read(upstream)) == ROWS
        assert held.closed
    finally:
        upstream.close()


def test_a_row_that_takes_too_long_alone_is_named_with_the_limit(db: Database) -> None:
    dsn = db.dsn + ("" if "?" in db.dsn else "?application_name=x") + NO_INDEX
    upstream = source(db, "10ms", dsn)
    try:
        with pytest.raises(
            UsageError, match=r"the first row alone takes longer than upstream.chunk_time, 10 ms"
        ) as told:
            read(upstream)
    finally:
        upstream.close()
    with typed(told.value) as hint:
        hint.says("set a longer upstream.chunk_time, or remove it")
        patient = source(db, "10s", dsn)
        try:
            assert len(read(patient)) == ROWS
        finally:
            patient.close()


class Cancelled(Exception):
    sqlstate = "57014\0"


def test_a_statement_that_somebody_ended_is_not_one_that_took_too_long() -> None:
    with pytest.raises(Cancelled), in_time(60_000):
        raise Cancelled
    with pytest.raises(TimedOut), in_time(0):
        raise Cancelled
    with pytest.raises(TimedOut), in_time(0):
        raise ValueError from Cancelled()
    with pytest.raises(ValueError), in_time(0):  # noqa: PT011
        raise ValueError
