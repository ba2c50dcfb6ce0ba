"""A standby as the upstream: since version 16 it can have logical slots, and shows what it has replayed."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import NoPostgres, Server
from postgres_database import Database, open_folder
from postgres_sink import sink_of
from sink_contract import a_table

from backfill_cli.contracts import Unanswered
from backfill_cli.errors import UsageError
from backfill_cli.postgres_gauge import NAMED, STANDBY_LAG, PostgresGauge
from backfill_cli.upstreams.postgres.client import connected

__all__ = ["small"]

VERSION = 18


@pytest.fixture
def primary() -> Iterator[Server]:
    with open_folder() as folder:
        try:
            server = Server(folder, version=VERSION)
        except NoPostgres as reason:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(reason))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def standby(primary: Server) -> Iterator[Server]:
    with open_folder() as folder:
        server = Server(folder, settings={"hot_standby_feedback": "on"}, version=VERSION)
        server.start_as_standby_of(primary)
        yield server
        server.stop()


@pytest.fixture
def snapshots_logged(primary: Server) -> Iterator[None]:
    """A slot of a standby waits for what an idle primary writes every 15 s."""
    over = threading.Event()

    def log() -> None:
        with psycopg.connect(primary.dsn(), autocommit=True) as connection:
            while not over.wait(0.2):
                connection.execute("SELECT pg_log_standby_snapshot()")

    thread = threading.Thread(target=log)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.usefixtures("small", "snapshots_logged")
def test_a_standby_is_read_and_followed_while_its_primary_is_written_to(
    primary: Server, standby: Server, tmp_path: Path
) -> None:
    main, copy = Database(primary, "postgres"), Database(standby, "postgres")
    main(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'first' FROM generate_series(1, 60) n",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    _replayed(main, copy)
    job = PlainJob(copy, tmp_path, {"t": ("id",)}, options={"publication": "p"})
    for n in range(1, 20):
        main(f"UPDATE t SET v = 'at {n}' WHERE id % 3 = {n % 3}", f"DELETE FROM t WHERE id = {n * 3}")
        job.step(judged=False)
    main("UPDATE t SET id = id + 1000 WHERE id < 30")
    _replayed(main, copy)
    job.follow(judged=False)
    job.upstream.close()
    assert copy("SELECT count(*) FROM t WHERE v LIKE 'at %'")[0][0] > 20


def test_where_a_standby_lacks_the_publication_plan_says_where_to_make_it(
    primary: Server, standby: Server, tmp_path: Path
) -> None:
    main, copy = Database(primary, "postgres"), Database(standby, "postgres")
    main("CREATE TABLE t (id int PRIMARY KEY, v text)", "ALTER ROLE postgres SET transaction_timeout = '30s'")
    _replayed(main, copy)
    with pytest.raises(UsageError, match="standby") as refused:
        PlainJob(copy, tmp_path, {"t": ("id",)})
    assert "CREATE PUBLICATION" in str(refused.value.hint)
    with pytest.raises(UsageError, match="is a standby") as no_sink:
        sink_of(copy.dsn).check("orders", (a_table(),), into_existing=False)
    with typed(no_sink.value) as hint:
        hint.says("name the primary server in sink.dsn")
        sink_of(main.dsn).check("orders", (a_table(),), into_existing=False)
    with connected(copy.dsn) as ours:  # a chunk may take longer than what the role's other work may
        assert ours.execute("SHOW transaction_timeout").fetchall() == [("0",)]


def _replayed(main: Database, copy: Database) -> None:
    ((end,),) = main("SELECT pg_current_wal_insert_lsn()::text")
    while not copy(f"SELECT pg_last_wal_replay_lsn() >= '{end}'")[0][0]:
        pass


def test_the_lag_of_a_standby_is_seen_when_it_stops_replaying_hangs_and_has_caught_up(
    primary: Server, standby: Server
) -> None:
    """A standby that hangs reports nothing: pg_stat_replication goes on showing the last lag it reported."""
    main, copy = Database(primary, "postgres"), Database(standby, "postgres")
    gauge = PostgresGauge(main.dsn, "upstream.dsn", STANDBY_LAG.replace("15 s", "1 s"), 5.0)
    main("CREATE TABLE t (id int)")
    _replayed(main, copy)
    copy("SELECT pg_wal_replay_pause()")
    for _ in range(4):
        main("INSERT INTO t VALUES (1)")
        time.sleep(0.3)
    assert gauge.ask() > 0.5
    copy("SELECT pg_wal_replay_resume()")
    _replayed(main, copy)
    _until(lambda: gauge.ask() == 0)
    (receiver,) = copy("SELECT pid FROM pg_stat_wal_receiver")[0]
    os.kill(receiver, signal.SIGSTOP)
    try:
        main("INSERT INTO t VALUES (1)")
        _until(lambda: gauge.ask() > 1.2)
    finally:
        os.kill(receiver, signal.SIGCONT)
    _replayed(main, copy)
    _until(lambda: gauge.ask() == 0)
    gauge.close()


def test_what_a_guard_asks_reads_only_and_is_refused_where_the_role_would_see_nothing(primary: Server) -> None:
    main = Database(primary, "postgres")
    main("CREATE TABLE t (id int)", "INSERT INTO t VALUES (7)", "CREATE ROLE clerk LOGIN")

    def asked(query: str, user: str = "postgres") -> float:
        with closing(
            PostgresGauge(main.dsn.replace("postgres@", f"{user}@"), "upstream.dsn", query, 5.0)
        ) as gauge:
            return gauge.ask()

    assert asked("SELECT max(id) FROM t") == 7
    assert asked("SELECT 7.5::numeric") == 7.5
    for query in ("SELECT 1; COMMIT; DELETE FROM t", "DELETE FROM t RETURNING id"):
        with pytest.raises(Unanswered):
            asked(query)
    assert main("SELECT id FROM t") == [(7,)]
    for query in NAMED.values():
        assert asked(query) == 0
        with pytest.raises(Unanswered, match=r"GRANT pg_monitor TO clerk"):
            asked(query, "clerk")
    main("GRANT pg_monitor TO clerk")
    assert [asked(query, "clerk") for query in NAMED.values()] == [0, 0]


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError
