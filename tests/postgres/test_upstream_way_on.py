"""Refusals of a first look at the source, each with what its hint asks for done: the job then starts."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database

from backfill_cli.errors import BadData, Transient, UsageError
from backfill_cli.upstreams.postgres.client import connected
from backfill_cli.upstreams.postgres.tables import primary_keys

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made("CREATE TABLE t (id int PRIMARY KEY, code text)", "INSERT INTO t VALUES (1, 'a')")
        yield made


def follows(db: Database, folder: Path, *key: str) -> None:
    job = PlainJob(db, folder, {"t": key})
    job.follow()
    job.upstream.release(job.pin)
    job.upstream.close()


def test_a_server_that_lets_nobody_in_or_does_not_answer(db: Database, tmp_path: Path) -> None:
    port = f":{db.server.port}/"
    for dsn, kind, way_on in (
        (db.dsn + "_not", UsageError, "correct user, password or database in upstream.dsn"),
        (db.dsn.replace("postgres@", "nobody_here@"), UsageError, "correct user, password or database"),
        (db.dsn.replace(port, ":1/"), Transient, "start the database, or correct upstream.dsn"),
    ):
        with pytest.raises(kind) as refused:
            PlainJob(db, tmp_path, {"t": ("id",)}, options={"dsn": dsn})
        with typed(refused.value) as hint:  # type: ignore[arg-type]
            hint.says(way_on)
            follows(db, tmp_path, "id")


def test_a_key_that_is_nullable_or_is_no_column(db: Database, tmp_path: Path) -> None:
    db("CREATE UNIQUE INDEX by_code ON t (code)", "ALTER TABLE t REPLICA IDENTITY FULL")
    with pytest.raises(UsageError, match="'code' is nullable") as refused:
        PlainJob(db, tmp_path, {"t": ("code",)})
    with typed(refused.value) as hint:
        db(*hint.statements())
        follows(db, tmp_path, "code")
    with pytest.raises(UsageError, match="no column 'cod'") as refused:
        PlainJob(db, tmp_path, {"t": ("cod",)})
    with typed(refused.value) as hint:
        hint.says("its columns: id, code")
        follows(db, tmp_path, "code")


def test_a_slot_that_is_there_is_another_readers_until_it_is_dropped(db: Database, tmp_path: Path) -> None:
    slot = f"job_{db.name}"
    with psycopg.connect(db.dsn, autocommit=True) as other:
        other.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    with pytest.raises(UsageError, match="this job did not create it") as refused:
        PlainJob(db, tmp_path, {"t": ("id",)})
    with typed(refused.value) as hint:
        db(*hint.statements())
        follows(db, tmp_path, "id")


def test_a_table_without_a_primary_key_is_followed_by_columns_that_are_named(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE h (a int NOT NULL UNIQUE, v text)", "ALTER TABLE h REPLICA IDENTITY FULL")
    with connected(db.dsn) as connection, pytest.raises(UsageError, match="'h' has no primary key") as refused:
        primary_keys(connection, ["h"])
    with typed(refused.value) as hint:
        assert list(hint.settings()) == ["key"]
        PlainJob(db, tmp_path, {"h": ("a",)}).follow()


def test_a_list_that_does_not_begin_at_1_is_corrected_upstream(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE l (id int PRIMARY KEY, v int[])", "INSERT INTO l VALUES (1, '[0:1]={1,2}')")
    job = PlainJob(db, tmp_path, {"l": ("id",)})
    with pytest.raises(BadData, match="is not a list of one dimension") as refused:
        job.step(judged=False)
    with typed(refused.value) as hint:
        hint.says("correct the row upstream")
        db("UPDATE l SET v = '{1,2}'")
        while job.step(judged=False):
            pass
    assert job.sink["l"][1,]["v"] == [1, 2]
