"""A chunk by itself: of the table and the server that the job is of, else of none."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BackfillError, Transient
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.upstream import Pin
from backfill_cli.upstreams.postgres import chunks
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.source import PostgresSource


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        yield made


@pytest.fixture
def upstream(db: Database) -> Iterator[PostgresSource]:
    made = PostgresSource(PostgresOptions(dsn=db.dsn, slot=db.name), [TableSpec("t", ("id",))])
    yield made
    made.close()


@pytest.fixture
def pin(upstream: PostgresSource) -> Pin:
    return upstream.pin()


@pytest.fixture
def chunk(upstream: PostgresSource, pin: Pin) -> chunks.Chunk:
    tasks = upstream.batches("t", [SnapshotRead("t", split.id) for split in pin.splits], 2)
    assert tasks is not None
    chunk: chunks.Chunk = tasks.parts[0][0].what
    return chunk


def rows(chunk: chunks.Chunk) -> list[object]:
    return [row for batch in chunks.batches(chunk) for row in batch.to_pylist()]


def test_a_chunk_has_its_rows(chunk: chunks.Chunk) -> None:
    assert rows(chunk) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def test_case_18_another_server_behind_the_same_name_is_not_read(chunk: chunks.Chunk) -> None:
    with pytest.raises(Transient, match="led to another server") as refused:
        rows(replace(chunk, server="true 2026-01-01 00:00:00+00"))
    with typed(refused.value) as hint:
        hint.says("name one server in upstream.dsn")
        assert len(rows(chunk)) == 2


def test_a_table_that_took_the_name_is_not_read(
    db: Database, upstream: PostgresSource, pin: Pin, chunk: chunks.Chunk
) -> None:
    db("CREATE TABLE other (id int PRIMARY KEY, v text)", "INSERT INTO other VALUES (9, 'z')")
    db("BEGIN; ALTER TABLE t RENAME TO was; ALTER TABLE other RENAME TO t; COMMIT")
    with pytest.raises(Transient, match="the name now refers to another table") as refused:
        rows(chunk)
    with typed(refused.value) as hint:
        hint.says("wait: the next commit reports the cause")
        with pytest.raises(BackfillError, match="'t' is another table now") as cause:
            upstream.observe(pin.position, snapshot_open=True)
        assert not isinstance(cause.value, Transient)
