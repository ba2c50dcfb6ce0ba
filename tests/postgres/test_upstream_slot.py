"""The slot of a job: what it keeps, what it is waited for, and one that is gone or no longer the job's."""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import hint_words
import psycopg
import pytest
from changing_job import db, job
from hint_typed import typed
from plain_job import PlainJob, small
from postgres_database import Database

from backfill_cli.errors import HistoryGone, StateConflict, Transient
from backfill_cli.model.headroom import Kept, Unread
from backfill_cli.upstreams.postgres import chunks, slot, take

__all__ = ["db", "job", "small"]

pytestmark = pytest.mark.usefixtures("small")

SEGMENT = 16 << 20


def test_case_17_a_slot_that_is_gone_is_never_made_anew(job: PlainJob) -> None:
    job.follow()
    job.db(f"SELECT pg_drop_replication_slot('{job.slot}')", "INSERT INTO t VALUES (100, 'x')")
    with pytest.raises(HistoryGone, match="is gone"):
        job.step()
    job.die()
    with pytest.raises(HistoryGone, match="is gone") as refused:
        job.step()
    assert job.db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    with typed(refused.value) as hint:
        hint.says("drop the job and start over")
        job.upstream.release(job.pin)
        job.upstream.close()
        PlainJob(job.db, job.folder, {"t": ("id",)}).follow()


@pytest.mark.parametrize("how", ["advanced", "made again"])
def test_case_17_a_slot_that_lost_changes_to_others_stops_the_job(job: PlainJob, how: str) -> None:
    job.follow()
    job.db("INSERT INTO t VALUES (100, 'x')")
    if how == "advanced":
        job.db(f"SELECT pg_replication_slot_advance('{job.slot}', pg_current_wal_insert_lsn())")
    else:
        drop, make = f"pg_drop_replication_slot('{job.slot}')", "pg_create_logical_replication_slot"
        job.db(f"SELECT {drop}", f"SELECT {make}('{job.slot}', 'pgoutput')")
    with pytest.raises(HistoryGone, match="advanced"):
        job.step()


def test_a_slot_that_others_read_or_wrote_is_waited_for_or_refused(job: PlainJob) -> None:
    job.follow()
    job.db(
        f"SELECT pg_drop_replication_slot('{job.slot}')",
        f"SELECT pg_create_logical_replication_slot('{job.slot}', 'test_decoding')",
    )
    with pytest.raises(StateConflict, match="test_decoding"):
        job.step()


def test_a_slot_that_another_reads_is_released_once_that_is_ended(job: PlainJob) -> None:
    names = f"proto_version '1', publication_names '\"{job.slot}\"'"
    read = f"START_REPLICATION SLOT {job.slot} LOGICAL 0/0 ({names})"
    with closing(psycopg.connect(job.db.dsn, replication="database", autocommit=True)) as other:
        assert other.pgconn.exec_(read.encode()).status == psycopg.pq.ExecStatus.COPY_BOTH
        with pytest.raises(Transient, match="is being read by process") as refused:
            job.upstream.release(job.pin)
        with typed(refused.value) as hint:
            job.db(*hint.statements())
            for _ in range(600):
                with suppress(Transient):
                    job.upstream.require_releasable(job.pin)
                    break
                time.sleep(0.1)
            job.upstream.release(job.pin)
    assert job.db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


def test_another_database_of_the_same_name_stops_the_job(job: PlainJob) -> None:
    """A dump that was restored elsewhere: the same tables, another system."""
    from postgres import running
    from postgres_database import open_folder

    job.follow()
    with open_folder() as folder, running(folder) as other:
        with psycopg.connect(other.dsn(), autocommit=True) as admin:
            admin.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(job.db.name)))
        moved = Database(other, job.db.name)
        moved("CREATE TABLE t (id int PRIMARY KEY, v text)", f"CREATE PUBLICATION {job.slot} FOR TABLE t")
        moved(f"SELECT pg_create_logical_replication_slot('{job.slot}', 'pgoutput')")
        mine, job.db = job.db, moved
        job.die()
        with pytest.raises(StateConflict, match="another database") as refused:
            job.step()
        job.upstream.close()
        job.db = mine
    with typed(refused.value) as hint:
        hint.says("correct upstream.dsn")
        job.die()
        job.follow()


def test_case_16_the_slot_keeps_what_was_not_committed(job: PlainJob) -> None:
    job.follow()
    for turn in range(3):
        job.db(f"INSERT INTO t VALUES ({100 + turn}, 'x')")
        job.step(commit=False)
        job.die()
    job.follow()
    assert {(100,), (101,), (102,)} <= set(job.sink["t"])


def test_case_14_a_transaction_that_began_before_the_slot_is_waited_for(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not in the slot, so the snapshot has to show it: no chunk is read while it is open."""
    monkeypatch.setattr(chunks, "VISIBLE_LIMIT_S", 0.2)
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    with psycopg.connect(db.dsn) as early:  # after the slot, before the first chunk: the wait is for it as well
        early.execute("UPDATE t SET v = 'early' WHERE id = 3")
        job.die()
        with pytest.raises(Transient, match="began before the slot"):
            job.step()
    job.step()
    job.follow()
    assert job.sink["t"][(3,)]["v"] == "early"


def test_case_15_changes_of_one_transaction_are_one_with_its_end(job: PlainJob) -> None:
    """One that began long ago and ends now is read whole, though its first change is before the position."""
    with psycopg.connect(job.db.dsn) as long:
        long.execute("UPDATE t SET v = 'long' WHERE id IN (1, 2, 39)")
        for turn in range(3):
            job.db(f"INSERT INTO t VALUES ({200 + turn}, 'x')")
            job.step()
        long.execute("DELETE FROM t WHERE id = 4")
    job.follow()
    assert (job.sink["t"][(1,)]["v"], (4,) in job.sink["t"]) == ("long", False)


def test_a_server_that_goes_away_at_the_end_of_the_log_is_waited_for(
    job: PlainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.follow()
    job.db("UPDATE t SET v = 'new' WHERE id < 9")
    read = take._Window.read

    def ended(window: take._Window) -> int:
        end = read(window)
        job.db(f"SELECT pg_terminate_backend({window._connection.info.backend_pid}, 60000)")
        return end

    with monkeypatch.context() as broken:
        broken.setattr(take._Window, "read", ended)
        with pytest.raises(Transient) as refused:
            job.step()
    with typed(refused.value) as hint:
        hint.says("it is retried automatically" if "57P01" in refused.value.message else "start the database")
        job.follow()


def test_the_headroom_is_what_the_servers_limit_leaves_of_the_log_and_a_larger_limit_leaves_more(
    job: PlainJob,
) -> None:
    """The hint is typed; the server's own figures are those of its views."""
    job.follow()
    asked = job.upstream.extras.headroom
    unread = Unread(job.pin.position, False, 0)
    assert asked is not None
    assert asked(unread).kept is Kept.UNBOUNDED
    setting = "max_slot_wal_keep_size"
    job.db(f"ALTER SYSTEM SET {setting} = '64MB'", "SELECT pg_reload_conf()")
    try:
        _until(lambda: asked(unread).kept is Kept.UNTIL)
        told = asked(unread)
        seen = job.db(
            "SELECT safe_wal_size, w.wal_bytes / extract(epoch FROM clock_timestamp() - w.stats_reset) "
            f"FROM pg_replication_slots, pg_stat_wal w WHERE slot_name = '{job.slot}'"
        )
        safe, per_s = map(float, seen[0])
        assert told.left_s(0) == pytest.approx(safe / per_s, rel=0.5)
        job.db(*hint_words.statements(str(told.hint)))
        _until(lambda: asked(unread).left_s(0) > told.left_s(0))
    finally:
        job.db(f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()")


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(100):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to be")


def test_a_commit_that_follows_what_is_known_of_the_log_is_not_taken_for_applied(
    job: PlainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others write, the place where the log ends can be unknown for a moment."""
    job.follow()
    job.db("INSERT INTO t VALUES (100, 'x')")
    with monkeypatch.context() as unknown:
        unknown.setattr(slot, "settled", lambda *_: 0)
        view = job.upstream.observe(job.state.position, False)
        assert (view.pending, view.behind) == ((), True)
    view = job.upstream.observe(job.state.position, False)
    assert (len(view.pending), view.behind) == (1, False)


def test_a_commit_that_ends_with_its_page_is_seen_before_anybody_writes_more(job: PlainJob) -> None:
    """The server then shows the log's end behind the next page's header, which is not on disk yet."""
    job.follow()
    ends = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn"
    with psycopg.connect(job.db.dsn, autocommit=True) as connection:
        for n in range(2_000):
            ((insert, _),) = connection.execute(ends.encode()).fetchall()
            size = max(1, (8192 - int(insert) % 8192 - 100 - n % 120) % 8000)
            connection.execute(f"SELECT pg_logical_emit_message(false, 'b', repeat('x', {size}))".encode())
            connection.execute("SELECT pg_current_xact_id()")
            ((insert, flushed),) = connection.execute(ends.encode()).fetchall()
            if int(insert) % 8192 == 24:  # no record ends there
                break
        else:
            raise AssertionError("no commit ended with its page")
        _until(lambda: _behind(connection) < 41)  # the log's writer has done what it can
        ((insert, flushed),) = connection.execute(ends.encode()).fetchall()
        assert insert > flushed
        view = job.upstream.observe(job.state.position, False)
    assert (view.latest.get("wal"), view.behind) == (int(flushed), False)
    job.follow()


def _behind(connection: psycopg.Connection[Any]) -> int:
    query = b"SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()"
    return int(connection.execute(query).fetchall()[0][0])


@pytest.mark.parametrize(
    ("insert", "end"),
    [
        (3 * 8192 + 24, 3 * 8192),
        (3 * 8192 + 40, 3 * 8192 + 40),  # a record that the page before begins
        (2 * SEGMENT + 40, 2 * SEGMENT),
        (2 * SEGMENT + 32, 2 * SEGMENT + 32),
        (3 * 8192 + 4096, 3 * 8192 + 4096),
    ],
)
def test_a_record_ends_before_the_header_of_the_page_that_follows_it(insert: int, end: int) -> None:
    assert slot.record_end(insert, 8192, SEGMENT) == end
