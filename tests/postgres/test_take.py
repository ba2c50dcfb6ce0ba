"""Windows of a real slot's log: what they give, applied to nothing, is what the database then holds."""

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hint_typed import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_world import PUBLICATION, Taken, World, changes
from postgres import Server
from postgres_database import database
from psycopg.pq import ExecStatus
from taken_world import BIG, shared, world

from backfill_cli.cdc import window
from backfill_cli.errors import BadData, Fatal, Transient
from backfill_cli.model.codec import decode, encode
from backfill_cli.upstreams.postgres import pgoutput
from backfill_cli.upstreams.postgres import take as taking

__all__ = ["shared", "world"]

IDS = st.integers(1, 4)
LETTERS = st.sampled_from("abc")

WITH_BIG, WITH_ID = st.sampled_from(["whole", "part"]), st.sampled_from(["whole", "part", "other"])
MOVE = "UPDATE {0} SET {1} WHERE id = {2} AND NOT EXISTS (SELECT FROM {0} WHERE id = {3})"
# without these values the log would not have them under the new key
MOVED_PART = "id = {0}, big = big || '.', more = more || '.'"


def _statements() -> st.SearchStrategy[str]:
    """Each succeeds whether or not its key exists."""
    big = LETTERS.map(BIG.format)
    return st.one_of(
        st.builds("INSERT INTO whole VALUES ({0}, 1, {1}) ON CONFLICT DO NOTHING".format, IDS, big),
        st.builds("INSERT INTO part VALUES (1, {0}, {1}, 'sad', {1}) ON CONFLICT DO NOTHING".format, IDS, big),
        st.builds("INSERT INTO two VALUES ({0}, 1, '{1}') ON CONFLICT DO NOTHING".format, IDS, LETTERS),
        st.builds("INSERT INTO other VALUES ({0}) ON CONFLICT (id) DO UPDATE SET v = 1".format, IDS),
        st.builds("UPDATE {0} SET v = v + 1 WHERE id = {1}".format, WITH_ID, IDS),
        st.builds("UPDATE {0} SET big = {1}, v = 0 WHERE id >= {2}".format, WITH_BIG, big, IDS),
        st.builds("UPDATE part SET more = NULL, mood = 'ok' WHERE id = {0}".format, IDS),
        st.builds("UPDATE two SET v = v + 1 WHERE a >= {0}".format, IDS),
        st.builds("UPDATE two SET a = {0}, b = b || '{1}' WHERE a = {2}".format, IDS, LETTERS, IDS).map(_if_free),
        st.builds(lambda new, old: MOVE.format("whole", f"id = {new}", old, new), IDS, IDS),
        st.builds(lambda new, old: MOVE.format("part", MOVED_PART.format(new), old, new), IDS, IDS),
        st.builds("DELETE FROM {0} WHERE id = {1}".format, WITH_ID, IDS),
        st.builds("DELETE FROM two WHERE a >= {0}".format, IDS),
        st.sampled_from(["TRUNCATE whole", "TRUNCATE two, part, other", "TRUNCATE other"]),
    )


def _if_free(update: str) -> str:
    return f"SAVEPOINT free; DO $$ BEGIN {update}; EXCEPTION WHEN unique_violation THEN NULL; END $$; RELEASE free"


STEPS = st.one_of(
    _statements(),
    st.lists(_statements(), min_size=1, max_size=3).map(
        lambda some: f"SAVEPOINT s; {'; '.join(some)}; ROLLBACK TO s"
    ),
    st.lists(_statements(), min_size=1, max_size=3).map(lambda some: f"SAVEPOINT s; {'; '.join(some)}; RELEASE s"),
)
TRANSACTIONS = st.lists(
    st.tuples(
        st.lists(STEPS, min_size=1, max_size=5), st.sampled_from(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    transactions=TRANSACTIONS,
    cuts=st.lists(st.floats(0, 1), max_size=3),
    limit=st.sampled_from([None, None, 1, 4]),
    held=st.sampled_from([window.HELD_BYTES, window.HELD_BYTES, 1, 30_000]),
)
def test_a_windows_changes_make_the_sink_what_the_database_is(
    world: World,
    transactions: list[tuple[list[str], str]],
    cuts: list[float],
    limit: int | None,
    held: int,
) -> None:
    world.clear()
    begin = world.position
    with psycopg.connect(world.db.dsn, autocommit=True) as connection:
        for steps, end in transactions:
            connection.execute("BEGIN")
            for step in steps:
                connection.execute(step.encode())
            connection.execute(end.encode())
    now = world.now()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "HELD_BYTES", held)
        patch.setattr(pgoutput, "BLOCK_ROWS", 3)
        patch.setattr(taking, "MORE_MESSAGES", 2)
        for up_to in [*sorted(begin + int(cut * (now - begin)) for cut in cuts), now]:
            for _ in range(200):
                world.follow(up_to, limit=limit)
                if world.position == up_to:
                    break
            assert world.position == up_to
    assert world.sink == world.state()


def test_a_transaction_is_of_the_window_that_its_end_is_in(world: World) -> None:
    for number in (1, 2, 3):
        world.db(f"INSERT INTO two VALUES ({number}, {number}, 'x')")
    with psycopg.connect(world.db.dsn) as connection:
        query = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes"
            "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)"
        )
        messages = connection.execute(query, (world.slot, f'"{PUBLICATION}"')).fetchall()
    ends = [int.from_bytes(message[10:18]) for (message,) in messages if message[:1] == b"C"]
    assert len(ends) == 3
    world.db("INSERT INTO other VALUES (1, 1)")
    begin = world.position
    places = sorted({begin, world.now(), *(end + by for end in ends for by in (-40, -1, 0, 1))})
    for after in places:
        for up_to in places:
            if after <= up_to:
                world.position = after
                taken = world.take(up_to)
                found = [row["a"] for row in changes(world.folder, taken, "two")]
                assert found == [at + 1 for at, end in enumerate(ends) if after < end <= up_to], (after, up_to)
                assert taken.up_to == up_to


def test_taken_says_what_it_took(world: World) -> None:
    world.db("INSERT INTO other VALUES (1, 1)")
    with psycopg.connect(world.db.dsn) as connection:
        xid = connection.execute("SELECT txid_current()").fetchone()
        connection.execute("INSERT INTO two VALUES (1, 1, 'x'), (2, 1, 'x')")
        connection.execute("UPDATE two SET a = a + 5")
    ((ms,),) = world.db("SELECT extract(epoch FROM now()) * 1000")
    request = world.request()
    taken = taking.take(request)
    assert xid is not None
    assert (taken.up_to, taken.xids, taken.transactions) == (request.window.up_to, (xid[0] & 0xFFFFFFFF,), 1)
    assert taken.from_ms is not None
    assert taken.up_to_ms is not None
    assert float(ms) - 10_000 < taken.from_ms <= taken.up_to_ms <= float(ms)
    assert set(taken.tables) == {"two"}
    two = taken.tables["two"]
    assert (two.changes, two.netted, two.truncated, two.partial) == (4, True, False, ())
    assert (len(two.files), two.changed, two.deleted) == (1, 2, 2)
    assert [(row["_backfill_op"], row["_backfill_ms"]) for row in changes(world.folder, taken, "two")] == [
        (op, taken.up_to_ms) for op in "DUDU"
    ]
    assert decode(Taken, encode(taken)) == taken


def test_taking_a_window_again_gives_the_same(world: World) -> None:
    world.db("INSERT INTO two VALUES (1, 1, 'x'), (2, 1, 'x')", "DELETE FROM two WHERE a = 2")
    now = world.now()
    first, second = world.take(now), world.take(now)
    assert changes(world.folder, first, "two") == changes(world.folder, second, "two")
    assert first.tables["two"].files != second.tables["two"].files


def test_an_empty_window_has_no_tables_and_ends_where_it_was_asked_to(world: World) -> None:
    world.db("INSERT INTO other VALUES (1, 1)")
    taken = world.take(world.position + 5)
    assert taken == window.TakenWindow(world.position + 5)


def test_a_window_beyond_what_is_flushed_is_not_taken(world: World) -> None:
    with pytest.raises(Transient, match="not yet flushed up to F/42") as early:
        world.take(0xF_0000_0042)
    with typed(early.value) as hint:
        hint.says("wait until the server has written it")
        world.take(world.now())


def test_rows_of_any_size_are_fetched_in_blocks_that_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgoutput, "BLOCK_BYTES", 10_000)
    world.db(f"INSERT INTO whole SELECT g, g, {BIG.format('x')} FROM generate_series(1, 300) g")
    world.db("UPDATE whole SET v = v + 1", "INSERT INTO two SELECT g, g, g FROM generate_series(1, 300) g")
    world.follow()
    assert world.sink == world.state()


def test_the_limit_ends_the_window_after_a_transaction(world: World) -> None:
    for number in range(3):
        world.db(f"INSERT INTO two SELECT {number}, 1, g FROM generate_series(1, 10) g")
    now = world.now()
    taken = world.follow(now, limit=11)
    assert (taken.tables["two"].changes, taken.up_to < now) == (20, True)
    taken = world.follow(now, limit=11)
    assert (taken.tables["two"].changes, taken.up_to) == (10, now)


def test_with_a_limit_the_server_decodes_not_much_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "MORE_MESSAGES", 2)
    for number in range(3):
        world.db(f"INSERT INTO other SELECT {number * 10} + g FROM generate_series(1, 10) g")
    now = world.now()
    taken = world.take(now, limit=3)
    assert (taken.transactions, world.position < taken.up_to < now) == (0, True)


def test_what_was_in_the_window_before_a_truncate_is_not_in_the_files(world: World) -> None:
    world.db("INSERT INTO two VALUES (1, 1, 'x')", "TRUNCATE two, whole", "INSERT INTO two VALUES (2, 1, 'x')")
    taken = world.take()
    assert [row["a"] for row in changes(world.folder, taken, "two")] == [2]
    assert [taken.tables[name].truncated for name in ("two", "whole")] == [True, True]
    assert taken.tables["whole"].files == ()


def test_an_infinite_date_is_refused_and_leaves_no_file(postgres: Server, tmp_path: Path) -> None:
    with database(postgres) as db:
        db("CREATE TABLE t (id int PRIMARY KEY, d date)", "CREATE TABLE u (id int PRIMARY KEY)")
        world = World(db, tmp_path, {"u": ["id"], "t": ["id"]})
        db("INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (1, 'infinity')")
        with pytest.raises(BadData, match=r"column 'd'.* infinity"):
            world.take()
        assert list(tmp_path.iterdir()) == []


def test_changes_of_partitions_are_their_tables(postgres: Server, tmp_path: Path) -> None:
    with database(postgres) as db:
        db(
            "CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
            "CREATE TABLE t1 (v int, id int NOT NULL)",
            "ALTER TABLE t ATTACH PARTITION t1 FOR VALUES FROM (0) TO (10)",
            "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
        )
        world = World(db, tmp_path, {"t": ["id"]})
        db(
            "INSERT INTO t VALUES (1, 1), (11, 2), (2, 3)",
            "UPDATE t SET id = id + 10 WHERE id = 2",
            "DELETE FROM t2 WHERE id = 11",
        )
        world.follow()
        assert world.sink == world.state() != {"t": {}}  # fmt: skip


def test_origins_and_messages_change_nothing(world: World) -> None:
    world.db("SELECT pg_replication_origin_create('elsewhere')")
    with psycopg.connect(world.db.dsn) as connection:
        connection.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
        connection.execute("INSERT INTO part (id, mood) VALUES (1, 'ok')")
        connection.execute("SELECT pg_logical_emit_message(true, 'ours', 'text')")
        connection.commit()
        connection.execute("SELECT pg_replication_origin_session_reset()")
    world.db("SELECT pg_replication_origin_drop('elsewhere')")
    world.follow()
    assert world.sink == world.state()


def test_what_the_database_refuses_is_told_with_its_code(world: World) -> None:
    with pytest.raises(Fatal, match=r"reading the slot 'absent'.*SQLSTATE 42704"):
        taking.take(replace(world.request(), slot="absent"))


def test_a_slot_that_another_reads_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = f"proto_version '1', publication_names '\"{PUBLICATION}\"'"
    start = f"START_REPLICATION SLOT {world.slot} LOGICAL 0/0 ({names})"

    def read_by(other: "psycopg.Connection") -> None:
        assert other.pgconn.exec_(start.encode()).status == ExecStatus.COPY_BOTH

    world.db("INSERT INTO part (id, mood) VALUES (1, 'ok')")
    with closing(psycopg.connect(world.db.dsn, replication="database", autocommit=True)) as other:
        read_by(other)
        ends = threading.Timer(0.5, other.close)
        ends.start()
        world.follow()
        assert world.sink == world.state()
        ends.join()
    monkeypatch.setattr(window, "IN_USE_S", 0.2)
    world.db("INSERT INTO part (id, mood) VALUES (2, 'ok')")
    with closing(psycopg.connect(world.db.dsn, replication="database", autocommit=True)) as other:
        read_by(other)
        with pytest.raises(Transient, match="is active for PID"):
            world.take()
