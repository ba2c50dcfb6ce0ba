"""Another database, timeline or publication behind the same names: a job stops instead of mixing them."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from postgres import Server
from postgres_database import Database, database

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import StateConflict
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.upstream import PostgresUpstream


def held(db: Database) -> PostgresUpstream:
    db("CREATE TABLE t (id int PRIMARY KEY, v text)")
    upstream = PostgresUpstream(PostgresOptions(dsn=db.dsn, slot=db.name), [TableSpec("t", ("id",))])
    upstream.pin()
    upstream.hold()
    upstream.pin()
    return upstream


def leaves_the_publication(db: Database) -> None:
    db(f"ALTER PUBLICATION {db.name} DROP TABLE t", "INSERT INTO t VALUES (1, 'lost')")
    db(f"ALTER PUBLICATION {db.name} ADD TABLE t")


def publication_is_made_again(db: Database) -> None:
    db(f"DROP PUBLICATION {db.name}", f"CREATE PUBLICATION {db.name} FOR ALL TABLES")


@pytest.mark.parametrize("change", [leaves_the_publication, publication_is_made_again])
def test_a_table_that_left_the_publication_for_a_while_stops_the_job(
    change: Callable[[Database], None], postgres: Server
) -> None:
    with database(postgres) as db:
        upstream = held(db)
        position = upstream.pin().position
        upstream.observe(position, snapshot_open=True)
        change(db)
        with pytest.raises(StateConflict, match="table 't' left the publication"):
            upstream.observe(position, snapshot_open=True)
        upstream.close()


def test_a_publication_that_left_operations_out_for_a_while_stops_the_job(postgres: Server) -> None:
    with database(postgres) as db:
        upstream = held(db)
        position = upstream.pin().position
        upstream.observe(position, snapshot_open=True)
        db(f"ALTER PUBLICATION {db.name} SET (publish = 'insert')", "UPDATE t SET v = 'lost'")
        db(f"ALTER PUBLICATION {db.name} SET (publish = 'insert, update, delete, truncate')")
        with pytest.raises(StateConflict, match="ALTER PUBLICATION was run"):
            upstream.observe(position, snapshot_open=True)
        upstream.close()


def test_other_tables_may_join_the_publication(postgres: Server) -> None:
    with database(postgres) as db:
        upstream = held(db)
        position = upstream.pin().position
        db("CREATE TABLE other (id int PRIMARY KEY)", f"ALTER PUBLICATION {db.name} ADD TABLE other")
        db(
            f"COMMENT ON PUBLICATION {db.name} IS 'of the warehouse'",
            f"ALTER PUBLICATION {db.name} DROP TABLE other",
        )
        upstream.observe(position, snapshot_open=True)
        upstream.close()


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [("timeline", "000000FF", "restored or failed over"), ("system", "1", "another database: its system was 1")],
)
def test_another_history_behind_the_same_address_stops_the_job(
    what: str, value: str, said: str, postgres: Server
) -> None:
    with database(postgres) as db:
        upstream = held(db)
        pin = upstream.pin()
        other = replace(pin, identity=json.dumps({**json.loads(pin.identity), what: value}))
        upstream.restore(other)
        with pytest.raises(StateConflict, match=said):
            upstream.observe(pin.position, snapshot_open=True)
        upstream.close()


def test_a_log_that_ends_before_the_sinks_position_is_an_older_copys(postgres: Server) -> None:
    with database(postgres) as db:
        upstream = held(db)
        ahead = replace(upstream.pin().position, cursors=(("wal", 1 << 62),))
        with pytest.raises(StateConflict, match="restored from an older copy"):
            upstream.observe(ahead, snapshot_open=True)
        upstream.close()
