"""Messages of a real server, taken apart, against its catalog and its text."""

from collections.abc import Iterator

import psycopg
import pytest
from log_world import PUBLICATION, World
from postgres import Server
from postgres_database import database

from backfill_cli.upstreams.postgres import pgoutput as log
from backfill_cli.upstreams.postgres.client import connected, lsn_of

PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes"
    "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)"
)
VALUES = [None, "", "ü€😀", "a\tb\nc", "x" * 70_000]


@pytest.fixture(scope="module")
def world(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with database(postgres) as db:
        db(
            "CREATE TYPE mood AS ENUM ('sad')",
            'CREATE TABLE "t ü" (gone int, v text, id bigint PRIMARY KEY, n numeric(10,2)[], m mood)',
            'ALTER TABLE "t ü" DROP COLUMN gone, ADD COLUMN "größe" varchar(7), ALTER v SET STORAGE EXTERNAL',
        )
        yield World(db, tmp_path_factory.mktemp("world"), {'"t ü"': ["id"]})


def read(world: World) -> list[bytes]:
    with connected(world.db.dsn) as connection:
        given = (world.slot, f'"{PUBLICATION}"')
        return [row[0] for row in connection.execute(PEEK.encode(), given, binary=True)]


def of(kind: int, messages: list[bytes]) -> list[bytes]:
    return [message for message in messages if message[0] == kind]


def test_a_relation_has_the_columns_of_the_catalog(world: World) -> None:
    world.clear()
    world.db('INSERT INTO "t ü" VALUES (NULL, 1)')
    (message,) = of(log.RELATION, read(world))
    (table,) = world.tables
    told = log.relation(message)
    assert (told.oid, told.identity) == (table.id, {"id"})
    assert told.columns == tuple((column.name, column.type_oid, column.typmod) for column in table.columns)


def test_a_transaction_begins_and_ends_where_the_server_says(world: World) -> None:
    world.clear()
    with psycopg.connect(world.db.dsn) as connection:
        told = connection.execute("SELECT txid_current(), extract(epoch FROM clock_timestamp()) * 1000").fetchone()
        connection.execute('INSERT INTO "t ü" VALUES (NULL, 1)')
    after = world.now()
    assert told is not None
    found = read(world)
    (begin,), (commit,) = of(log.BEGIN, found), of(log.COMMIT, found)
    begun = log.begin(begin)
    assert begun.xid == told[0] & 0xFFFFFFFF
    assert 0 <= begun.ms + 1 - told[1] < 10_000
    assert world.position < begun.commit_lsn == log.commit_lsn(commit) < log.end_lsn(commit) <= after
    with psycopg.connect(world.db.dsn) as connection:
        query = PEEK.replace("data", "lsn::text")
        places = [lsn_of(lsn) for (lsn,) in connection.execute(query.encode(), (world.slot, f'"{PUBLICATION}"'))]
    assert places[-1] == log.end_lsn(commit)


def test_rows_are_the_servers_text(world: World) -> None:
    world.clear()
    with psycopg.connect(world.db.dsn, autocommit=True) as connection:
        for number, value in enumerate(VALUES):
            connection.execute('INSERT INTO "t ü" VALUES (%s, %s, %s)', (value, number, [1, None]))
        connection.execute('UPDATE "t ü" SET m = %s WHERE id = 4', ("sad",))
        connection.execute('UPDATE "t ü" SET id = 5, v = %s WHERE id = 4', ("short",))
        connection.execute('DELETE FROM "t ü" WHERE id = 5')
        connection.execute('TRUNCATE "t ü"')
    found = read(world)
    rows = [log.row_at(message, 6) for message in of(log.INSERT, found)]
    expected = [
        [v if v is None else v.encode(), b"%d" % at, b"{1.00,NULL}", None, None] for at, v in enumerate(VALUES)
    ]
    assert [row for row, _, _ in rows] == expected
    assert [(end, gaps) for _, end, gaps in rows] == [(len(m), False) for m in of(log.INSERT, found)]
    unsent, moved = of(log.UPDATE, found)
    assert (unsent[5], log.row_at(unsent, 6)[::2]) == (
        log.NEW,
        ([log.UNSENT, b"4", b"{1.00,NULL}", b"sad", None], True),
    )
    old, at, _ = log.row_at(moved, 6)
    assert (moved[5], old, moved[at]) == (ord("K"), [None, b"4", None, None, None], log.NEW)
    assert log.row_at(moved, at + 1)[0][:2] == [b"short", b"5"]
    (deleted,) = of(log.DELETE, found)
    assert (deleted[5], log.row_at(deleted, 6)[0]) == (ord("K"), [None, b"5", None, None, None])
    (truncated,) = of(log.TRUNCATE, found)
    assert log.truncated(truncated) == [world.tables[0].id.to_bytes(4)]


def test_an_old_row_is_whole_with_full_identity(world: World) -> None:
    world.clear()
    world.db(
        'ALTER TABLE "t ü" REPLICA IDENTITY FULL',
        "INSERT INTO \"t ü\" VALUES (repeat('b', 3000), 1)",
        'UPDATE "t ü" SET id = 2',
        'ALTER TABLE "t ü" REPLICA IDENTITY DEFAULT',
    )
    found = read(world)
    assert log.relation(of(log.RELATION, found)[0]).identity == {"v", "id", "n", "m", "größe"}
    (message,) = of(log.UPDATE, found)
    old, at, _ = log.row_at(message, 6)
    assert (message[5], old) == (log.FULL_OLD, [b"b" * 3000, b"1", None, None, None])
    assert log.row_at(message, at + 1)[0][:2] == [log.UNSENT, b"2"]
