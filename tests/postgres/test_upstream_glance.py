"""What `status --check` asks of a database: it waits for no lock, changes nothing, and ends in time."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BadData, Fatal, HistoryGone, StateConflict, Transient, UsageError
from backfill_cli.model.upstream import Pin
from backfill_cli.upstreams.postgres import client
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.source import PostgresSource


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made("CREATE TABLE t (id int PRIMARY KEY, v text, twice int GENERATED ALWAYS AS (id * 2) STORED)")
        yield made


def opened(db: Database, dsn: str = "") -> Any:
    return PostgresSource(PostgresOptions(dsn=dsn or db.dsn, slot=db.name), [TableSpec("t", ("id",))])


def pinned(db: Database) -> Pin:
    """Of a job that was made, and has no runner."""
    upstream = opened(db)
    upstream.pin()
    upstream.create(db.name)
    pin: Pin = upstream.pin()
    upstream.adopt(db.name, pin)
    upstream.close()
    return pin


def looked(db: Database, pin: Pin) -> Any:
    upstream = opened(db)
    try:
        return upstream.lag(pin, pin.position)
    finally:
        upstream.close()


def test_a_look_changes_nothing_in_the_database(db: Database) -> None:
    pin = pinned(db)
    stand = """SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, confirmed_flush_lsn::text,
        restart_lsn::text FROM pg_replication_slots WHERE database = current_database()"""
    looked(db, pin)
    for _ in range(20):  # the server's own processes may write, once in a while
        db("CHECKPOINT")
        before = db(stand)
        assert looked(db, pin).size_bytes >= 0
        if db(stand) == before:
            return
    pytest.fail("each look moved the log or the transactions")


def test_a_look_does_not_wait_for_a_table_that_is_altered(db: Database) -> None:
    pin = pinned(db)
    with psycopg.connect(db.dsn) as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        assert looked(db, pin).size_bytes >= 0
        other.rollback()


@pytest.mark.parametrize("question", ["SELECT FROM t", "SELECT pg_sleep(5)"])
def test_a_look_that_has_to_wait_gives_up(db: Database, monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    monkeypatch.setattr(client, "LOCK_TIMEOUT_MS", 100)
    monkeypatch.setattr(client, "STATEMENT_TIMEOUT_MS", 1000)
    with psycopg.connect(db.dsn) as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Transient, match="timeout"), client.glance(db.dsn) as connection:
            connection.execute(question.encode())


def test_a_look_can_write_nothing(db: Database) -> None:
    with pytest.raises(Fatal, match="read-only"), client.glance(db.dsn) as connection:
        connection.execute("INSERT INTO t VALUES (1)")


def test_a_server_that_is_mute_is_given_up_soon(db: Database) -> None:
    pin = pinned(db)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(5)
        upstream = opened(db, f"postgresql://u@127.0.0.1:{mute.getsockname()[1]}/x?connect_timeout=60")
        began = time.monotonic()
        with pytest.raises(Transient, match="connecting"):
            upstream.lag(pin, pin.position)
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ("SELECT pg_drop_replication_slot('{0}')", HistoryGone, "is gone"),
        ("ALTER PUBLICATION {0} SET (publish = 'insert')", StateConflict, "ALTER PUBLICATION"),
        ("ALTER PUBLICATION {0} DROP TABLE t", StateConflict, "left the publication"),
        ("DROP TABLE t", UsageError, "'t' does not exist"),
        ("ALTER TABLE t DROP COLUMN v", BadData, "'v' was dropped"),
        ("ALTER TABLE t ALTER v TYPE int USING 1", BadData, "'v' has another type now"),
    ],
)
def test_a_look_finds_what_a_run_would(db: Database, change: str, error: type[Exception], said: str) -> None:
    pin = pinned(db)
    db(change.format(db.name))
    with pytest.raises(error, match=said):
        looked(db, pin)


def test_a_table_that_is_named_otherwise_is_found_again_once_it_is_renamed_back(db: Database) -> None:
    pin = pinned(db)
    db("ALTER TABLE t RENAME TO other")
    with pytest.raises(UsageError, match="'t' does not exist") as refused:
        looked(db, pin)
    with typed(refused.value) as hint:
        hint.says("rename it back")
        db("ALTER TABLE other RENAME TO t")
        assert looked(db, pin).size_bytes >= 0


def test_a_first_connection_is_closed_where_the_second_fails(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has room for one alone."""
    made: list[Any] = []
    connect = client.connected

    def once(dsn: str) -> Any:
        if made:
            raise Transient("too many clients already")
        made.append(connect(dsn))
        return made[0]

    monkeypatch.setattr(client, "connected", once)
    with pytest.raises(Transient, match="too many clients"):
        client.connected_alone(db.dsn)
    assert made[0].closed
