"""Where a read of a range of keys ends, on the real server."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from postgres import Server
from postgres_database import Database, database

from backfill_cli.cdc import ranges
from backfill_cli.cdc.ranges import Ranges
from backfill_cli.contracts import TableSpec
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.upstreams.postgres import keys, tables
from backfill_cli.upstreams.postgres.client import connected


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(
            "CREATE TABLE t (id bigint PRIMARY KEY, note text)",
            "INSERT INTO t SELECT g FROM generate_series(1, 200) g",
        )
        yield made


def parts(db: Database, limit: int) -> list[tuple[object, object]]:
    """The chunks of the table's first read, each from where to where."""
    with connected(db.dsn) as connection:
        (table,) = tables.described(connection, [TableSpec("t", ("id",))])
        rows, size_bytes = table.rows, table.size_bytes
        (split,) = ranges.splits("t", rows, size_bytes, partial(keys.cuts, connection, table))
        cut = Ranges([split])
        read = SnapshotRead("t", split.id, None, limit_rows=limit)
        most = ranges.chunk_rows(rows, size_bytes)
        return [*cut.parts(cut.closed(read, most, partial(keys.key_after, connection, table)))]


def test_a_read_ends_at_the_row_that_its_limit_reaches_in_the_order_of_the_key_not_of_its_text(
    db: Database,
) -> None:
    assert parts(db, 50) == [(None, '["50"]')]


def test_a_read_is_cut_into_chunks_of_as_many_rows(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "CHUNK_ROWS", 20)
    assert parts(db, 60) == [(None, '["20"]'), ('["20"]', '["40"]'), ('["40"]', '["60"]')]


def test_case_62_text_keys_outside_ascii_make_chunks_of_as_many_rows(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds are rows that the server found in its own order: no arithmetic on characters."""
    monkeypatch.setattr(ranges, "CHUNK_ROWS", 20)
    for collation in ('"C"', '"und-x-icu"'):
        db(
            f"DROP TABLE t; CREATE TABLE t (id text COLLATE {collation} PRIMARY KEY, note text)",
            "INSERT INTO t SELECT (ARRAY['価格', '🚀', 'é', 'z', 'Ω', '\U0010fffd', ''])[g % 7 + 1] || g / 7 "
            "FROM generate_series(0, 209) g",
            "ANALYZE t",
        )
        found = parts(db, 210)
        texts = [json.loads(str(up_to))[0] for _, up_to in found if up_to is not None]
        counted = [n for (n,) in db(f"SELECT count(*) FROM t GROUP BY {bucket('id', texts)} ORDER BY 1")]
        assert max(counted) <= 20
        assert 10 <= len(found) <= 12


def bucket(column: str, ends: list[str]) -> str:
    """SQL: in which of the ranges a row is, as the server compares."""
    return " + ".join(f"({column} > {literal(end)})::int" for end in ends)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_wide_rows_make_chunks_of_fewer(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db("UPDATE t SET note = repeat('x', 1000)", "VACUUM FULL t", "ANALYZE t")
    monkeypatch.setattr(ranges, "LEAST_ROWS", 1)
    monkeypatch.setattr(ranges, "CHUNK_BYTES", 50_000)
    first, *_ = parts(db, 200)
    assert first[0] is None
    assert first[1] in {f'["{n}"]' for n in range(30, 51)}
