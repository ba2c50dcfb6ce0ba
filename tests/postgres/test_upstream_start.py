"""A start that was killed while it made its slot: the next one knows what is its own, and touches nothing else."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database

from backfill_cli import failpoint
from backfill_cli.contracts import LogRequest, TableSpec
from backfill_cli.errors import StateConflict, Transient, UsageError
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import ChangeWindow
from backfill_cli.model.upstream import Pin
from backfill_cli.upstreams.postgres import source
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.source import PostgresSource

MARK = "backfill_start_"
HELD = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() ORDER BY 1"


class Killed(BaseException):
    pass


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made("CREATE TABLE t (id int PRIMARY KEY, v text)")
        yield made


def opened(db: Database) -> Any:
    return PostgresSource(PostgresOptions(dsn=db.dsn, slot=db.name), [TableSpec("t", ("id",))])


def killed(db: Database, monkeypatch: pytest.MonkeyPatch, point: str) -> Pin:
    """A start dies there. `hold` is the last point: the slot exists, and its catalog knows no job."""

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    upstream = opened(db)
    pin: Pin = upstream.pin()
    with monkeypatch.context() as broken:
        broken.setattr(failpoint, "handler", kill)
        with suppress(Killed):
            upstream.create(db.name)
    upstream.close()
    return pin


def held(db: Database) -> list[str]:
    return [name for (name,) in db(HELD)]


def publications(db: Database) -> list[Any]:
    return db("SELECT pubname::text FROM pg_publication")


@pytest.mark.parametrize("point", ["slot-marked", "hold"])
def test_what_a_start_left_is_named_and_gone_before_the_next(
    db: Database, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    pin = killed(db, monkeypatch, point)
    marked = f"{MARK}{db.name}"
    there = [marked] if point == "slot-marked" else [marked, db.name]
    assert held(db) == there
    upstream = opened(db)
    upstream.pin()
    assert upstream.leftovers(db.name) == [f"replication slot {name!r}" for name in there]
    assert upstream.obstacles(db.name) == []
    upstream.clean_up(db.name, pin)
    upstream.clean_up(db.name, pin)
    assert (held(db), publications(db), upstream.leftovers(db.name)) == ([], [], [])
    upstream.create(db.name)
    upstream.adopt(db.name, pin)
    assert (held(db), publications(db)) == ([db.name], [(db.name,)])
    upstream.close()


@pytest.mark.parametrize("point", ["", "slot-marked", "hold"])
def test_a_slot_of_others_that_came_meanwhile_stays(
    db: Database, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Made by another catalog or tool: where the start had made none yet, or once somebody removed its own."""
    pin = killed(db, monkeypatch, point) if point else opened(db).pin()
    if point == "hold":
        db(f"SELECT pg_drop_replication_slot('{db.name}')")
    db(f"SELECT pg_create_logical_replication_slot('{db.name}', 'pgoutput')")
    upstream = opened(db)
    upstream.pin()
    assert f"replication slot {db.name!r}" not in upstream.leftovers(db.name)
    upstream.clean_up(db.name, pin)
    assert held(db) == [db.name]
    assert len(upstream.obstacles(db.name)) == 1
    with pytest.raises(UsageError, match="this job did not create it"):
        upstream.create(db.name)
    assert held(db) == [db.name]
    upstream.close()


def test_what_a_start_left_is_known_once_the_server_gave_it_up(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither mark nor slot has a position in the log then."""
    pin = killed(db, monkeypatch, "hold")
    db("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(3):
            db("SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT pg_switch_wal()")
        db("CHECKPOINT")
    finally:
        db("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    lost = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND restart_lsn IS NULL"
    assert db(lost) == [(2,)]
    upstream = opened(db)
    assert upstream.leftovers(db.name) == [f"replication slot {name!r}" for name in (f"{MARK}{db.name}", db.name)]
    upstream.clean_up(db.name, pin)
    assert (held(db), publications(db)) == ([], [])
    upstream.close()


def test_what_a_start_left_in_another_database_is_not_called_gone(
    db: Database, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = killed(db, monkeypatch, "hold")
    with database(postgres) as other:
        upstream = opened(other)
        for act in (upstream.clean_up, upstream.adopt):
            with pytest.raises(StateConflict, match="leads to another database"):
                act(db.name, pin)
        upstream.close()
    assert len(held(db)) == 2


def test_a_mark_that_the_server_still_makes_is_waited_for(db: Database) -> None:
    """The process is gone; its backend waits for a transaction that was open before."""
    pin = opened(db).pin()
    with psycopg.connect(db.dsn) as old:
        old.execute("INSERT INTO t VALUES (1, 'a')")
        making = psycopg.connect(db.dsn, autocommit=True)
        making.pgconn.send_query(
            f"SELECT pg_create_logical_replication_slot('{MARK}{db.name}', 'pgoutput')".encode()
        )
        while not held(db):
            pass
        upstream = opened(db)
        with pytest.raises(Transient, match="is still being created, by process") as told:
            upstream.clean_up(db.name, pin)
        with typed(told.value) as hint:
            db(*hint.statements())
            while held(db):
                pass
            upstream.clean_up(db.name, pin)
        upstream.close()
        making.close()


def test_where_there_is_room_for_one_slot_alone_it_goes_without_a_mark(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backfill_cli.upstreams.postgres import lease

    monkeypatch.setattr(lease, "_FREE", "SELECT 1")
    upstream = opened(db)
    pin = upstream.pin()
    upstream.create(db.name)
    assert held(db) == [db.name]
    later = opened(db)
    later.clean_up(db.name, pin)  # which cannot know it
    assert held(db) == [db.name]
    upstream.clean_up(db.name, pin)  # the process that made it does
    assert (held(db), publications(db)) == ([], [])
    upstream.close()
    later.close()


PARTED = (
    "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20) TO (100)",
)


@pytest.mark.parametrize("has", ["FOR TABLE t", "FOR TABLE p, t", "FOR TABLE p1, p2, t", "FOR ALL TABLES"])
def test_all_that_a_publication_lacks_of_a_partitioned_table_is_said_at_once(db: Database, has: str) -> None:
    db(*PARTED, f"CREATE PUBLICATION {db.name} {has}")
    options = PostgresOptions(dsn=db.dsn, slot=db.name, accept_partition_changes=True)
    upstream: Any = PostgresSource(options, [TableSpec("p", ("id",)), TableSpec("t", ("id",))])
    upstream.pin()
    statements = [str(said).split("Try: ")[1] for said in upstream.obstacles(db.name)]
    assert len(statements) == (2 if "p, t" not in has and "ALL" not in has else 1)
    db(*statements)
    assert upstream.obstacles(db.name) == []
    upstream.close()


@pytest.mark.parametrize(
    "has",
    [
        "FOR TABLE p WITH (publish_via_partition_root = true)",
        "FOR ALL TABLES WITH (publish_via_partition_root = true)",
        "FOR TABLE p, p1 WITH (publish_via_partition_root = true)",
    ],
)
def test_a_partition_that_is_published_as_its_root_gets_a_publication_of_its_own(db: Database, has: str) -> None:
    """ADD TABLE is refused by the server, or changes nothing. The server cuts a name of more than 63 bytes."""
    name = db.name + ("_" * 63)[len(db.name) : -4] + "_own" if "p1" in has else db.name
    db(*PARTED, f"CREATE PUBLICATION {name} {has}")
    options = PostgresOptions(dsn=db.dsn, slot=db.name, publication=name)
    upstream: Any = PostgresSource(options, [TableSpec("p1", ("id",))])
    upstream.pin()
    with pytest.raises(UsageError, match="lacks changes that this job needs") as refused:
        upstream.require_able()
    upstream.close()
    with typed(refused.value) as hint:
        own = {path.removeprefix("upstream."): value for path, value in hint.settings().items()}
        upstream = PostgresSource(options.model_copy(update=own), [TableSpec("p1", ("id",))])
        upstream.pin()
        assert upstream.obstacles(db.name) == []
        upstream.close()


@pytest.mark.parametrize("identity", ["NOTHING", "USING INDEX other"])
def test_partitions_of_a_table_whose_identity_lacks_the_key_get_sql_that_suffices(
    db: Database, identity: str
) -> None:
    db(
        *PARTED,
        "ALTER TABLE p ADD COLUMN u int NOT NULL",
        "CREATE UNIQUE INDEX other ON p (id, u)",
        f"ALTER TABLE p REPLICA IDENTITY {identity}",
        "ALTER TABLE p1 REPLICA IDENTITY NOTHING",
    )
    options = PostgresOptions(dsn=db.dsn, slot=db.name, accept_partition_changes=True)
    upstream: Any = PostgresSource(options, [TableSpec("p", ("id",))])
    with pytest.raises(UsageError, match=r"its replica identity is|another REPLICA IDENTITY") as caught:
        upstream.pin()
    db(*(part for part in str(caught.value.hint).split("; ") if part.startswith("ALTER TABLE")))
    assert db("SELECT DISTINCT relreplident::text FROM pg_class WHERE relname IN ('p', 'p1', 'p2')") == [("f",)]
    upstream.pin()
    upstream.close()


def test_columns_that_changed_while_rows_were_read_are_named_with_their_table(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "in_worker", lambda _spark, take, request, _kind: take(request))
    db("INSERT INTO t VALUES (1, 'a')")
    upstream = opened(db)
    upstream.pin()
    upstream.create(db.name)
    pin = upstream.pin()
    upstream.adopt(db.name, pin)
    db("ALTER TABLE t ALTER COLUMN v TYPE int USING 7", "UPDATE t SET v = 8")
    window = ChangeWindow(pin.position, pin.position, 0, 0, 1, open=True)
    with pytest.raises(Transient, match="table 't': its columns changed while rows were read"):
        upstream.take(None, LogRequest(window, {}, dict(pin.schema), "unused"))
    upstream.close()


def wait_of(upstream: Any) -> Limit:
    """For whom it waits, once it does."""
    until = time.monotonic() + 20
    told: Limit | None = None
    while (told := upstream._waits_for()) is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    return told


def waits_told(db: Database) -> tuple[str, str]:
    """What a start says that waits for its slot, and what to type: it is typed, and the start goes on."""
    upstream = opened(db)
    upstream.pin()
    holding = threading.Thread(target=upstream.create, args=[db.name], daemon=True)
    holding.start()
    waits = wait_of(upstream)
    way_on = str(waits.hint)
    db(next(words for words in re.split(r" or |: |, ", way_on) if words.startswith(("ROLLBACK", "SELECT"))))
    holding.join(20)
    assert held(db) == [f"{MARK}{db.name}", db.name]
    assert upstream._waits_for() is None
    upstream.close()
    return waits.said, way_on


def test_a_start_says_that_it_waits_for_a_prepared_transaction_and_what_ends_it(db: Database) -> None:
    with psycopg.connect(db.dsn, autocommit=True) as other:
        for statement in ("BEGIN", "INSERT INTO t VALUES (1, 'a')", f"PREPARE TRANSACTION 'it''s {db.name}'"):
            other.execute(statement.encode())
    said, way_on = waits_told(db)
    assert f"prepared transaction 'it''s {db.name}' of role postgres in database {db.name}, since 2" in said
    assert way_on.startswith(f"ROLLBACK PREPARED 'it''s {db.name}'")


def test_a_start_says_that_it_waits_for_an_open_transaction_and_what_ends_it(db: Database) -> None:
    other = psycopg.connect(db.dsn, application_name="a long report")
    other.execute("INSERT INTO t VALUES (1, 'a')")
    said, way_on = waits_told(db)
    assert f"process {other.info.backend_pid} (a long report, role postgres, database {db.name})" in said
    assert way_on.endswith(f"SELECT pg_terminate_backend({other.info.backend_pid})")
    other.close()


def test_a_lock_of_a_prepared_transaction_is_told_too(db: Database) -> None:
    with psycopg.connect(db.dsn, autocommit=True) as other:
        for statement in ("BEGIN", "LOCK TABLE t IN ACCESS EXCLUSIVE MODE", f"PREPARE TRANSACTION '{db.name}'"):
            other.execute(statement.encode())
    upstream = opened(db)
    with psycopg.connect(db.dsn, autocommit=True) as waiting:
        upstream._waiting = waiting.info.backend_pid
        reading = threading.Thread(target=waiting.execute, args=["SELECT count(*) FROM t"], daemon=True)
        reading.start()
        assert f"prepared transaction '{db.name}'" in wait_of(upstream).said
        db(f"ROLLBACK PREPARED '{db.name}'")
        reading.join(20)
        assert not reading.is_alive()
