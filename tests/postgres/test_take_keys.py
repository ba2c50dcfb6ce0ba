"""Windows of a real slot's log: which keys are covered, and keys that are not whole."""

from pathlib import Path

import psycopg
import pytest
from log_world import World, changes
from postgres import Server
from postgres_database import database
from taken_world import shared, world

from backfill_cli.errors import BadData

__all__ = ["shared", "world"]

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
                patch.setattr("backfill_cli.upstreams.postgres.take.BATCH_KEYS", 2)
                taken = world.take(covered={"t": predicate})
            found = changes(tmp_path, taken, "t")
            assert {row["_backfill_op"] for row in found} == {"D" if deleted else "U"}
            assert len(found) == len(covered)
            if not deleted and kind != "boolean":
                known = {key if kind != "bytea" else bytes.fromhex(key[2:]) for (key,) in covered}
                shown = {str(row["k"]).rstrip() if not isinstance(row["k"], bytes) else row["k"] for row in found}
                assert shown == known or kind in ("timestamptz", "inet")


def test_what_is_dropped_is_counted_by_kind_and_a_window_taken_again_counts_the_same(world: World) -> None:
    """Of keys that were not read yet: what netting leaves; of a table that the request lacks: each."""
    world.db(
        "INSERT INTO part (id, v) SELECT n, 0 FROM generate_series(1, 10) n",
        "UPDATE part SET v = 1 WHERE id IN (2, 9)",
        "INSERT INTO other SELECT n, 0 FROM generate_series(1, 4) n",
        "DELETE FROM other WHERE id = 1",
        "INSERT INTO two (a, b) VALUES (1, 'x')",
    )
    for _ in range(2):
        taken = world.take(covered={"part": "k0 <= 6"})
        assert taken.skipped == {"changes_of_unread_rows": 4, "records_of_other_tables": 5}
        assert {name: one.changed for name, one in taken.tables.items()} == {"part": 6, "two": 1}


def test_composite_keys_are_covered_as_rows_each_side_of_a_key_change_by_itself(world: World) -> None:
    world.db("INSERT INTO two SELECT g / 3, 1, (g % 3)::text FROM generate_series(0, 8) g")
    world.follow()
    world.db("UPDATE two SET a = 5, b = 'from ' || b WHERE a = 0 AND b = '1'")
    world.db("UPDATE two SET a = 0, b = 'to 1' WHERE a = 2 AND b = '0'")
    world.db("UPDATE two SET v = 9 WHERE a = 1")
    taken = world.take(covered={"two": "(k0, k1) <= (1, '1')"})
    found = {(row["_backfill_op"], row["a"], row["b"]) for row in changes(world.folder, taken, "two")}
    assert found == {("D", 0, "1"), ("U", 0, "to 1"), ("U", 1, "0"), ("U", 1, "1")}


def test_a_truncate_is_covered_always(world: World) -> None:
    world.db("INSERT INTO two VALUES (1, 1, 'x')", "TRUNCATE two")
    taken = world.take(covered={"two": "false"})
    assert (taken.tables["two"].truncated, taken.tables["two"].files) == (True, ())


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
