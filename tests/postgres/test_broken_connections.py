"""A server's error, or a connection that is lost, in the middle of rows: ours, with what the server said."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from changing_job import with_retries
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database
from postgres_sink import begun, read_table, sink_of
from psycopg import sql
from sink_contract import a_table, rows

from backfill_cli.cdc.ranges import Ranges
from backfill_cli.errors import BadData, Transient, UsageError
from backfill_cli.sinks.postgres import staged, verify
from backfill_cli.sinks.postgres.session import Place
from backfill_cli.upstreams.postgres import chunks, client
from backfill_cli.upstreams.postgres.pgoutput import Slot

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")

MANY = "SELECT n, repeat('x', 4000) FROM generate_series(1, 6000) n"
"""24 MB."""
WIDE = "SELECT n, repeat('x', 64000) FROM generate_series(1, 1250) n"
"""80 MB: more than the driver's first batch, 16 MB, and what sockets can hold between server and client, 36 MB."""
UNENDED = f"SELECT n, v || CASE n WHEN 6000 THEN pg_sleep(600)::text ELSE '' END FROM ({MANY}) m (n, v)"
"""The 24 MB, whose last row the server never sends: after the first batch, sockets can hold all others."""

Break = Callable[[Database], None]


def killed(db: Database) -> None:
    db("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE " + OURS)


def cancelled(db: Database) -> None:
    db("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE " + OURS)


OURS = "datname = current_database() AND application_name = 'backfill' AND pid <> pg_backend_pid()"


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


def once(act: Callable[[], None], function: Any) -> Any:
    """The generator function, with `act` after its first item."""
    left = [act]

    def made(*given: Any) -> Any:
        for item in function(*given):
            yield item
            if left:
                left.pop()()

    return made


def called(act: Callable[[], None], function: Any) -> Any:
    """The function, with `act` before its first call."""
    left = [act]

    def made(*given: Any) -> Any:
        if left:
            left.pop()()
        return function(*given)

    return made


@pytest.mark.parametrize("package", ["psycopg", "adbc_driver_postgresql"])
def test_a_package_that_is_missing_is_named_with_what_has_it(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    db("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    act = partial(client.connected, db.dsn) if package == "psycopg" else partial(job.step, judged=False)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, package, None)
        with pytest.raises(UsageError, match="upstream lacks a package") as refused:
            act()
    with typed(refused.value) as hint:
        hint.says("pip install 'backfill-cli[postgres]'")
        job.follow()


@pytest.mark.parametrize("how", [killed, cancelled])
def test_rows_that_break_off_in_the_middle_of_a_chunk_are_read_again(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Break
) -> None:
    db("CREATE TABLE t (id int PRIMARY KEY, v text)", f"INSERT INTO t {WIDE}")
    monkeypatch.setattr("backfill_cli.cdc.ranges.CHUNK_ROWS", 100_000)
    job = PlainJob(db, tmp_path, {"t": ("id",)}, rows=100_000)
    monkeypatch.setattr(chunks, "as_arrow", called(lambda: how(db), chunks.as_arrow))
    with pytest.raises(Transient, match=r"table 't', reading a chunk: ") as lost:
        job.step()
    assert "\n" not in lost.value.message
    with_retries(job)


@pytest.mark.parametrize("place", ["blocks", "ranges", "observe"])
def test_a_connection_that_is_lost_elsewhere_is_opened_again(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    db("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (-1, 'a'), (-2, 'b')")
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    if place == "ranges":
        monkeypatch.setattr(Ranges, "closed", called(lambda: killed(db), Ranges.closed))
    else:
        job.follow()
        db(f"INSERT INTO t {MANY}")
    if place == "blocks":
        monkeypatch.setattr(Slot, "blocks", once(lambda: killed(db), Slot.blocks))
    if place == "observe":
        job.between.observe = called(lambda: killed(db), lambda: None)
    with pytest.raises(Transient, match="SQLSTATE 57P01"):
        job.step()
    with_retries(job)


def test_bytes_that_are_no_text_are_named_in_chunk_and_log(postgres: Server, tmp_path: Path) -> None:
    with database(postgres) as db:
        ascii_ = f"{db.name}_ascii"
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            create = sql.SQL("CREATE DATABASE {} ENCODING 'SQL_ASCII' TEMPLATE template0")
            admin.execute(create.format(sql.Identifier(ascii_)))
        try:
            _named(Database(postgres, ascii_), tmp_path)
        finally:
            db(f"SELECT pg_drop_replication_slot('job_{ascii_}')")
            db(f'DROP DATABASE "{ascii_}" WITH (FORCE)')


def _named(db: Database, folder: Path) -> None:
    bad = "UPDATE t SET v = E'\\xff' WHERE id = 2"
    db("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')", bad)
    job = PlainJob(db, folder, {"t": ("id",)})
    with pytest.raises(BadData, match=r"table 't', reading a chunk: invalid byte sequence .*22021") as refused:
        job.step(judged=False)
    with typed(refused.value) as hint:
        hint.says("correct the value upstream")
        db("UPDATE t SET v = 'c' WHERE id = 2")
        job.step(judged=False)
    db(bad)
    with pytest.raises(BadData, match=r"the log \(slot .*associated LSN .*: invalid byte sequence .*22021"):
        job.step(judged=False)
    job.upstream.close()


@pytest.mark.parametrize("how", [killed, cancelled])
def test_a_commit_of_the_sink_that_breaks_off_in_the_middle_of_its_rows_is_made_again(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Break
) -> None:
    sink = sink_of(db.dsn)
    epochs = begun(sink, tmp_path, a_table())
    monkeypatch.setattr(staged, "BATCH_ROWS", 1000)
    monkeypatch.setattr(staged, "batches", once(lambda: how(db), staged.batches))
    many = rows(*((n, "x" * 4000) for n in range(6000)))
    commit = epochs.next(inserts=many)
    with pytest.raises(Transient, match=r"SQLSTATE 57|closed the connection|connection"):
        sink.commit(commit)
    sink.commit(commit)
    assert read_table(db, "orders") == many


def test_a_verify_whose_rows_break_off_names_the_server_and_not_the_disk(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_of(db.dsn)
    table = a_table()
    epochs = begun(sink, tmp_path, table)
    sink.commit(epochs.next(inserts=rows((1, "a"))))
    monkeypatch.setattr(verify, "received", called(lambda: killed(db), verify.received))
    with (
        pytest.raises(Transient, match="reading orders for verify: ") as lost,
        verify.copied(Place.of(db.dsn), "public", epochs.job, tmp_path) as copy,
        copy.asking("reading orders") as state,
    ):
        copy.export(state, f"SELECT n::bigint, v FROM ({UNENDED}) m (n, v)", table, ["id", "name"], tmp_path)
    assert "df" not in str(lost.value.hint)
