"""Windows of a real slot's log: what they give, applied to nothing, is what the database then holds."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_world import PUBLICATION, World, changes
from postgres import Server
from postgres_database import database
from psycopg.pq import ExecStatus

from backfill_cli.errors import BadData, Fatal, Transient
from backfill_cli.model.codec import decode, encode
from backfill_cli.upstreams.postgres.log import peek
from backfill_cli.upstreams.postgres.log import take as taking
from backfill_cli.upstreams.postgres.log.window import Taken

BIG = "repeat('{0}', 3000)"
"""Stored out of line, and not compressed: an update of other columns does not send it."""

TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TABLE whole (id int PRIMARY KEY, v int, big text)",
    "CREATE TABLE part (v int, id int PRIMARY KEY, big text, mood mood, more text)",
    "CREATE TABLE two (a int, v int, b text, PRIMARY KEY (b, a))",
    "CREATE TABLE other (id int PRIMARY KEY, v int)",
    "ALTER TABLE whole ALTER big SET STORAGE EXTERNAL",
    "ALTER TABLE part ALTER big SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
)
KEYS = {"whole": ["id"], "part": ["id"], "two": ["a", "b"]}


@pytest.fixture(scope="module")
def shared(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Tables whose columns stay as they are."""
    with database(postgres) as db:
        db(*TABLES)
        world = World(db, tmp_path_factory.mktemp("taken"), KEYS)
        db(f'ALTER PUBLICATION "{PUBLICATION}" ADD TABLE other')
        yield world


@pytest.fixture
def world(shared: World) -> World:
    shared.db("TRUNCATE other")
    shared.clear()
    return shared


@pytest.fixture
def fresh(postgres: Server, tmp_path: Path) -> Iterator[World]:
    """A table `t (id, v)` of its own."""
    with database(postgres) as db:
        db("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int PRIMARY KEY)")
        yield World(db, tmp_path, {"t": ["id"], "u": ["id"]})


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
    held=st.sampled_from([taking.HELD_BYTES, taking.HELD_BYTES, 1, 30_000]),
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
        patch.setattr(taking, "HELD_BYTES", held)
        patch.setattr(peek, "BLOCK_ROWS", 3)
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
    assert (taken.up_to, taken.xids, taken.transactions) == (request.up_to, (xid[0] & 0xFFFFFFFF,), 1)
    assert taken.from_ms is not None
    assert taken.up_to_ms is not None
    assert float(ms) - 10_000 < taken.from_ms <= taken.up_to_ms <= float(ms)
    assert set(taken.tables) == {"two"}
    two = taken.tables["two"]
    assert (two.changes, two.netted, two.truncated, two.partial) == (4, True, False, ())
    assert (len(two.files), two.changed, two.deleted) == (1, 2, 2)
    assert [(row["_op"], row["_ms"]) for row in changes(world.folder, taken, "two")] == [
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
    assert taken == Taken(world.position + 5, None, None, 0, (), {}, {})


def test_a_window_beyond_what_is_flushed_is_not_taken(world: World) -> None:
    with pytest.raises(Transient, match="not yet flushed up to F/42"):
        world.take(0xF_0000_0042)


def test_rows_of_any_size_are_fetched_in_blocks_that_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek, "BLOCK_BYTES", 10_000)
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


def test_an_unsent_value_is_named_where_the_window_does_not_have_it(world: World) -> None:
    world.db(f"INSERT INTO part VALUES (1, 1, {BIG.format('b')}, 'sad', {BIG.format('m')})")
    world.db(f"INSERT INTO part VALUES (1, 2, {BIG.format('b')}, 'sad', 'short')")
    world.follow()
    world.db("UPDATE part SET v = 2", f"UPDATE part SET more = {BIG.format('n')} WHERE id = 1")
    taken = world.follow()
    assert taken.tables["part"].partial == ("big",)
    found = {row["id"]: (row["_unsent"], row["big"], row["more"]) for row in changes(world.folder, taken, "part")}
    assert found == {1: (["big"], None, "n" * 3000), 2: (["big"], None, "short")}
    assert world.sink == world.state()


def test_an_unsent_value_is_that_of_the_same_window(world: World) -> None:
    world.db(f"INSERT INTO part VALUES (1, 1, {BIG.format('b')}, 'sad', NULL)", "UPDATE part SET v = 2, id = 7")
    taken = world.follow()
    assert taken.tables["part"].partial == ()
    assert world.sink == world.state()


def _lost(world: World) -> None:
    """A row whose big value the window does not have gets another key."""
    world.db(f"INSERT INTO part VALUES (1, 1, {BIG.format('b')}, 'sad', NULL)")
    world.follow()
    world.db("UPDATE part SET v = 2, id = 7")


def test_a_value_that_the_log_does_not_carry_is_refused(world: World) -> None:
    _lost(world)
    before = set(world.folder.iterdir())
    world.db("INSERT INTO two VALUES (1, 1, 'x')", "UPDATE part SET v = 3")
    with pytest.raises(BadData, match=r"table 'part': .* the new key id = 7,.* 'big'") as refused:
        world.take()
    assert set(world.folder.iterdir()) == before
    anew = refused.value.hint.partition("has it: ")[2].partition("; ")[0]
    assert anew == """UPDATE part SET "big" = "big" || '' WHERE "id" = '7'"""
    world.db(anew)
    world.follow(limit=1)
    assert world.sink == world.state()


@pytest.mark.parametrize("then", ["DELETE FROM part", f"UPDATE part SET big = {BIG.format('c')}", "TRUNCATE part"])
@pytest.mark.parametrize("held", [1, taking.HELD_BYTES])
def test_a_value_that_is_not_needed_any_more_is_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch, held: int, then: str
) -> None:
    monkeypatch.setattr(taking, "HELD_BYTES", held)
    monkeypatch.setattr(peek, "BLOCK_ROWS", 1)
    _lost(world)
    world.db(then)
    world.follow()
    assert world.sink == world.state()


def test_a_value_of_a_row_beyond_the_position_is_not_missed(world: World) -> None:
    _lost(world)
    taken = world.take(covered={"part": "k0 <= 6"})
    assert [(row["_op"], row["id"]) for row in changes(world.folder, taken, "part")] == [("D", 1)]


@pytest.mark.parametrize("held", [1, taking.HELD_BYTES])
def test_a_row_that_moves_takes_its_value_from_what_was_written_before(
    world: World, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(taking, "HELD_BYTES", held)
    monkeypatch.setattr(peek, "BLOCK_ROWS", 1)
    world.db(f"INSERT INTO part SELECT 1, g, {BIG.format('b')}, 'sad', NULL FROM generate_series(1, 3) g")
    world.db("UPDATE part SET v = 2, id = 7 WHERE id = 1")
    world.follow()
    assert world.sink == world.state()


def test_more_than_is_held_is_written_in_several_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "HELD_BYTES", 50_000)
    monkeypatch.setattr(peek, "BLOCK_ROWS", 50)
    with psycopg.connect(world.db.dsn) as connection:
        for _ in range(2):
            connection.execute(
                "INSERT INTO two SELECT g, 1, 'x' FROM generate_series(1, 500) g "
                "ON CONFLICT (a, b) DO UPDATE SET v = two.v + 1"
            )
        connection.execute("INSERT INTO whole VALUES (1)")
    taken = world.follow()
    assert len(taken.tables["two"].files) > 3
    assert (taken.tables["two"].netted, taken.tables["whole"].netted) == (False, True)
    assert taken.tables["two"].changes == 1000
    assert world.sink == world.state()


LOW = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("kind", "keys", "predicate"),
    [
        ('text COLLATE "C"', ["a", "B", "b", "A", "ä", "it's", "a,b", '{"', "\\", "100%"], "k0 <= 'a'"),
        ('text COLLATE "en-x-icu"', ["a", "B", "b", "A", "ä"], "k0 <= 'a'"),
        ("text", ["a%", "b%", "c"], "k0 LIKE '%%' AND k0 <= 'b'"),
        ("char(5)", ["a", "b", "c"], "k0 <= 'b'"),
        ("numeric", ["9", "10", "NaN", "1.50"], "k0 <= 10"),
        ("uuid", [LOW, f"f{LOW[1:]}"], f"k0 < 'a{LOW[1:]}'"),
        ("bytea", ["\\x00", "\\x0001", "\\xff"], "k0 <= '\\x0001'"),
        ("timestamptz", ["2024-01-01 00:00+00", "2024-01-01 00:00:00.000001+00"], "k0 <= '2024-01-01 00:00+00'"),
        ("inet", ["10.0.0.1", "9.0.0.1"], "k0 < '10.0.0.0'"),
        ("boolean", ["t", "f"], "NOT k0"),
    ],
)  # fmt: skip
def test_the_database_says_which_keys_are_covered(
    postgres: Server, tmp_path: Path, kind: str, keys: list[str], predicate: str
) -> None:
    with database(postgres) as db, psycopg.connect(db.dsn, autocommit=True) as connection:
        db(f"CREATE TABLE t (v int, k {kind} PRIMARY KEY)")
        world = World(db, tmp_path, {"t": ["k"]})
        for key in keys:
            connection.execute("INSERT INTO t VALUES (1, %s)", (key,))
        covered = connection.execute(
            f"SELECT k::text FROM (SELECT k AS k0, k FROM t) t WHERE {predicate}".encode()
        ).fetchall()
        assert 0 < len(covered) < len(keys)
        for deleted in (False, True):
            if deleted:
                world.position = world.now()
                db("DELETE FROM t")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("backfill_cli.upstreams.postgres.log.covered.BATCH_KEYS", 2)
                taken = world.take(covered={"t": predicate})
            found = changes(tmp_path, taken, "t")
            assert {row["_op"] for row in found} == {"D" if deleted else "U"}
            assert len(found) == len(covered)
            if not deleted and kind != "boolean":
                known = {key if kind != "bytea" else bytes.fromhex(key[2:]) for (key,) in covered}
                shown = {str(row["k"]).rstrip() if not isinstance(row["k"], bytes) else row["k"] for row in found}
                assert shown == known or kind in ("timestamptz", "inet")


def test_composite_keys_are_covered_as_rows_each_side_of_a_key_change_by_itself(world: World) -> None:
    world.db("INSERT INTO two SELECT g / 3, 1, (g % 3)::text FROM generate_series(0, 8) g")
    world.follow()
    world.db("UPDATE two SET a = 5, b = 'from ' || b WHERE a = 0 AND b = '1'")
    world.db("UPDATE two SET a = 0, b = 'to 1' WHERE a = 2 AND b = '0'")
    world.db("UPDATE two SET v = 9 WHERE a = 1")
    taken = world.take(covered={"two": "(k0, k1) <= (1, '1')"})
    found = {(row["_op"], row["a"], row["b"]) for row in changes(world.folder, taken, "two")}
    assert found == {("D", 0, "1"), ("U", 0, "to 1"), ("U", 1, "0"), ("U", 1, "1")}


def test_a_truncate_is_covered_always(world: World) -> None:
    world.db("INSERT INTO two VALUES (1, 1, 'x')", "TRUNCATE two")
    taken = world.take(covered={"two": "false"})
    assert (taken.tables["two"].truncated, taken.tables["two"].files) == (True, ())


def test_a_column_added_before_the_windows_first_transaction_is_told_and_taken(fresh: World) -> None:
    fresh.db("INSERT INTO t VALUES (1, 'a')")
    fresh.follow()
    fresh.db(
        "ALTER TABLE t ADD COLUMN w numeric(5,2)", "INSERT INTO t VALUES (2, 'b', 1.5)", "INSERT INTO u VALUES (1)"
    )
    taken = fresh.follow()
    assert taken.changed == {"t": fresh.table("t").columns}
    assert {key: row.get("w") for key, row in fresh.sink["t"].items()} == {("1",): None, ("2",): "1.50"}


def test_a_column_added_within_the_windows_first_transaction_is_told_and_taken(fresh: World) -> None:
    with psycopg.connect(fresh.db.dsn) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        connection.execute("ALTER TABLE t ADD COLUMN w uuid[]")
        connection.execute("UPDATE t SET w = '{}' WHERE id = 2")
    taken = fresh.follow()
    assert taken.changed == {"t": fresh.table("t").columns}
    assert fresh.sink["t"][("1",)] == {"id": "1", "v": "a", "w": None}
    assert fresh.sink["t"][("2",)] == {"id": "2", "v": "b", "w": "[]"}


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD COLUMN w int",
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN v varchar(9)",
        "ALTER TABLE t ALTER COLUMN v TYPE varchar(9)",
        "ALTER TABLE t RENAME COLUMN v TO w",
    ],
)
@pytest.mark.parametrize("within", [True, False])
def test_a_later_transaction_that_changes_columns_is_not_of_the_window(
    fresh: World, change: str, within: bool
) -> None:
    fresh.db("INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1)")
    before = fresh.now()
    with psycopg.connect(fresh.db.dsn) as connection:
        if within:
            connection.execute("INSERT INTO u VALUES (2)")
            connection.execute("INSERT INTO t VALUES (2, 'a')")
        connection.execute(change.encode())
        connection.execute("INSERT INTO t VALUES (3)")
    taken = fresh.follow()
    assert (taken.changed, taken.transactions, taken.up_to <= before) == ({}, 2, True)
    assert fresh.sink == {"t": {("1",): {"id": "1", "v": "a"}}, "u": {("1",): {"id": "1"}}}
    after = fresh.take()
    assert [c.name for c in after.changed["t"]] == [c.name for c in fresh.table("t").columns]
    assert after.transactions == (1 if "ADD COLUMN w" in change else 0)


def _moved_without_its_value(fresh: World) -> None:
    fresh.db("ALTER TABLE t ALTER v SET STORAGE EXTERNAL", "INSERT INTO t VALUES (1, repeat('x', 3000))")
    fresh.follow()
    fresh.db("UPDATE t SET id = 2 WHERE id = 1", "INSERT INTO t VALUES (3, 'c')")


@pytest.mark.parametrize("limit", [None, 1, 1000])
@pytest.mark.parametrize("held", [1, taking.HELD_BYTES])
def test_a_value_written_again_is_found_past_a_column_that_was_added(
    fresh: World, monkeypatch: pytest.MonkeyPatch, limit: int | None, held: int
) -> None:
    monkeypatch.setattr(taking, "HELD_BYTES", held)
    _moved_without_its_value(fresh)
    fresh.db("ALTER TABLE t ADD COLUMN added int", "UPDATE t SET v = v || '', added = 5 WHERE id = 2")
    fresh.db("UPDATE t SET added = 6 WHERE id = 3", "ALTER TABLE t ADD COLUMN last int")
    taken = fresh.follow(limit=limit)
    assert [column.name for column in taken.changed["t"]][2:4] == ["added"]
    while fresh.position < fresh.now() and taken.transactions:
        taken = fresh.follow(limit=limit)
    sink, state = fresh.sink["t"], fresh.state()["t"]
    assert {key: {name: row[name] for name in row if name != "last"} for key, row in state.items()} == sink


def test_a_value_that_a_dropped_column_keeps_from_being_found_is_said_so(fresh: World) -> None:
    _moved_without_its_value(fresh)
    fresh.db("ALTER TABLE t ADD COLUMN added int", "INSERT INTO t VALUES (4, 'd', 4)")
    fresh.db("ALTER TABLE t DROP COLUMN added", "UPDATE t SET v = v || '' WHERE id = 2")
    with pytest.raises(BadData, match="the later log cannot supply the value") as refused:
        fresh.take()
    assert refused.value.hint.startswith("drop the job and start over")


def test_where_rows_are_read_beside_it_no_window_goes_past_a_column_that_was_added(fresh: World) -> None:
    _moved_without_its_value(fresh)
    fresh.db("ALTER TABLE t ADD COLUMN added int", "UPDATE t SET v = v || '' WHERE id = 2")
    with pytest.raises(BadData, match="stored out of line"):
        fresh.take(widens=False)


def test_a_window_that_lacks_a_value_grows_by_parts(world: World) -> None:
    """A long log after the value is not one epoch."""
    _lost(world)
    world.db("UPDATE part SET big = big || '' WHERE id = 7")
    for number in range(40):
        world.db(f"INSERT INTO two VALUES ({number}, 1, 'x')")
    now = world.now()
    taken = world.follow(now, limit=1)
    assert taken.up_to < now
    while taken.up_to < now:
        taken = world.follow(now, limit=1)
    assert world.sink == world.state()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t ALTER COLUMN v TYPE varchar(9)",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "ALTER TABLE t DROP COLUMN v, ADD COLUMN w text, ADD COLUMN v text",
    ],
)
def test_a_first_transaction_with_other_columns_is_told_and_not_taken(fresh: World, change: str) -> None:
    with psycopg.connect(fresh.db.dsn) as connection:
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute(change.encode())
        connection.execute("INSERT INTO t VALUES (2)")
    taken = fresh.take()
    assert [column.name for column in taken.changed["t"]] == [column.name for column in fresh.table("t").columns]
    assert (taken.up_to, taken.transactions, taken.tables) == (fresh.position, 0, {})
    assert list(fresh.folder.iterdir()) == []


def test_a_key_that_the_replica_identity_lacks_is_refused(postgres: Server, tmp_path: Path) -> None:
    with database(postgres) as db:
        db(
            "CREATE TABLE t (id int PRIMARY KEY, k int NOT NULL UNIQUE)",
            "ALTER TABLE t REPLICA IDENTITY USING INDEX t_k_key",
        )
        world = World(db, tmp_path, {"t": ["id"]})
        db("INSERT INTO t VALUES (1, 1)")
        world.follow()
        db("UPDATE t SET id = 2")
        with pytest.raises(BadData, match=r"table 't': its replica identity lacks a column of the key \(id\)"):
            world.take()


def test_a_null_in_a_key_is_refused(postgres: Server, tmp_path: Path) -> None:
    with database(postgres) as db:
        db("CREATE TABLE t (id int, k int)", "ALTER TABLE t REPLICA IDENTITY FULL")
        world = World(db, tmp_path, {"t": ["id", "k"]})
        db("INSERT INTO t VALUES (1, NULL)")
        with pytest.raises(BadData, match=r"table 't': .* id = 1, k = NULL"):
            world.take()


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
    world.db("SELECT pg_replication_origin_drop('elsewhere')")
    world.follow()
    assert world.sink == world.state()


def test_what_the_database_refuses_is_told_with_its_code(world: World) -> None:
    with pytest.raises(Fatal, match=r"reading the slot 'absent'.*SQLSTATE 42704"):
        world.take(slot="absent")


def test_a_slot_that_another_reads_is_waited_for(world: World) -> None:
    with closing(psycopg.connect(world.db.dsn, replication="database", autocommit=True)) as other:
        start = f"START_REPLICATION SLOT {world.slot} LOGICAL 0/0 (proto_version '1', publication_names '\"x\"')"
        assert other.pgconn.exec_(start.encode()).status == ExecStatus.COPY_BOTH
        with pytest.raises(Transient, match="is active for PID"):
            world.take()
