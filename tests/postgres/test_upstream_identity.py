"""Another database, timeline or publication behind the same names: a job stops instead of mixing them."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import StateConflict
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.source import PostgresSource


def held(db: Database) -> PostgresSource:
    db("CREATE TABLE t (id int PRIMARY KEY, v text)")
    upstream = PostgresSource(PostgresOptions(dsn=db.dsn, slot=db.name), [TableSpec("t", ("id",))])
    upstream.pin()
    upstream.create(db.name)
    upstream.adopt(db.name, upstream.pin())
    return upstream


def leaves_the_publication(db: Database) -> None:
    db(f"ALTER PUBLICATION {db.name} DROP TABLE t", "INSERT INTO t VALUES (1, 'lost')")
    db(f"ALTER PUBLICATION {db.name} ADD TABLE t")


def publication_is_made_again(db: Database) -> None:
    db(f"DROP PUBLICATION {db.name}", f"CREATE PUBLICATION {db.name} FOR ALL TABLES")


def publication_is_gone(db: Database) -> None:
    db(f"DROP PUBLICATION {db.name}")


def tables_swap_names(db: Database) -> None:
    db(
        "CREATE TABLE t_new (LIKE t INCLUDING ALL)",
        "ALTER TABLE t RENAME TO t_old",
        "ALTER TABLE t_new RENAME TO t",
    )


def table_is_restored(db: Database) -> None:
    db("CREATE TABLE copy AS TABLE t", "DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v text)")
    db("INSERT INTO t TABLE copy", f"ALTER PUBLICATION {db.name} ADD TABLE t")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (leaves_the_publication, "table 't' left the publication"),
        (publication_is_made_again, "publication was dropped and created again, as by restoring a dump"),
        (publication_is_gone, "publication is gone, dropped, or missing in a copy"),
        (tables_swap_names, r"'t' is another table now: the job's table .* was renamed to t_old"),
        (table_is_restored, "table 't' was recreated .*, or by restoring a dump"),
    ],
)
def test_what_happened_to_a_table_or_its_publication_is_named(
    change: Callable[[Database], None], said: str, postgres: Server
) -> None:
    with database(postgres) as db:
        upstream = held(db)
        pin = upstream.pin()
        upstream.observe(pin.position, snapshot_open=True)
        change(db)
        with pytest.raises(StateConflict, match=said):
            upstream.observe(pin.position, snapshot_open=True)
        with pytest.raises(StateConflict, match=said) as refused:  # `status --check` names it, too
            upstream.lag(pin, pin.position)
        if change is tables_swap_names:
            with typed(refused.value) as hint:
                hint.says("rename them back")
                db("ALTER TABLE t RENAME TO t_new", "ALTER TABLE t_old RENAME TO t")
                upstream.observe(pin.position, snapshot_open=True)
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


def test_a_publication_goes_with_the_last_job_that_uses_it(postgres: Server) -> None:
    with database(postgres) as db:
        first = held(db)
        options = PostgresOptions(dsn=db.dsn, slot=f"{db.name}_b", publication=db.name)
        second = PostgresSource(options, [TableSpec("t", ("id",))])
        second.pin()
        second.create(f"{db.name}_b")
        first.release(first.pin())
        second.observe(second.pin().position, snapshot_open=True)
        assert db("SELECT count(*) FROM pg_publication") == [(1,)]
        second.release(second.pin())
        assert db("SELECT count(*) FROM pg_publication") == [(0,)]
        first.close()
        second.close()


def test_a_publication_of_others_stays(postgres: Server) -> None:
    with database(postgres) as db:
        db("CREATE TABLE t (id int PRIMARY KEY, v text)", f"CREATE PUBLICATION {db.name} FOR TABLE t")
        upstream = PostgresSource(PostgresOptions(dsn=db.dsn, slot=db.name), [TableSpec("t", ("id",))])
        pin = upstream.pin()
        upstream.create(db.name)
        upstream.release(pin)
        assert db("SELECT count(*) FROM pg_publication") == [(1,)]
        upstream.close()


def test_a_slot_in_another_database_of_that_name_is_not_removed(postgres: Server) -> None:
    """The same config, but its DSN now leads to production: what exists there belongs to another job."""
    with database(postgres) as db, database(postgres) as other:
        upstream, theirs = held(db), held(other)
        pin = replace(upstream.pin(), identity=theirs.pin().identity)
        with pytest.raises(StateConflict, match="leads to another database"):
            upstream.release(pin)
        assert db(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{db.name}'") == [(1,)]
        upstream.close()
        theirs.close()


def test_a_slot_whose_making_was_not_heard_of_is_made_again(postgres: Server) -> None:
    with database(postgres) as db:
        upstream = held(db)
        upstream.release(upstream.pin())
        upstream.create(db.name)
        before = db("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()")
        db("INSERT INTO t VALUES (1, 'a')")
        upstream.create(db.name)  # its try before failed in passing, as far as the engine knows
        after = db("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()")
        assert (len(before), len(after)) == (2, 2)
        assert not set(before) & set(after)
        upstream.close()
