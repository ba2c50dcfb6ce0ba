"""Tables while they change: the real server under the upstream, a dictionary as the sink, every commit judged."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hint_typed import typed
from plain_job import Between, PlainJob, small
from postgres import Server
from postgres_database import Database, database
from test_upstream_keys import WORDS, Writer, run

from backfill_cli.errors import BadData, UsageError

__all__ = ["small"]
pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.fixture
def numbers(db: Database) -> Database:
    """The table `t`: 60 rows, keys 10, 20, … 600."""
    db(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n * 10, n FROM generate_series(1, 60) n",
    )
    return db


def once(job: PlainJob, moment: str, *statements: str) -> None:
    """The next time that the job passes the moment these are run."""

    def write() -> None:
        setattr(job.between, moment, lambda: None)
        job.db(*statements)

    setattr(job.between, moment, write)


MOMENTS = ["observe", "closed", "rows", "take"]


def moved(numbers: Database, folder: Path, *statements: str) -> None:
    """For each moment of an epoch a job over 60 rows, whose second epoch meets these statements at it."""
    for moment in MOMENTS:
        numbers("TRUNCATE t", "INSERT INTO t SELECT n * 10, n FROM generate_series(1, 60) n")
        job = PlainJob(numbers, folder, {"t": ("id",)}, rows=14)
        job.step()
        once(job, moment, *statements)
        job.step()
        assert not job.following
        job.follow()
        job.upstream.release(job.pin)


def test_case_04_a_key_that_crosses_the_position_is_there_once(numbers: Database, tmp_path: Path) -> None:
    forth = "UPDATE t SET id = 605 WHERE id = 10"
    back = "UPDATE t SET id = 5 WHERE id = 600"
    within = "UPDATE t SET id = id + 105 WHERE id IN (20, 100, 170, 300)"
    moved(numbers, tmp_path, forth, back, within, "UPDATE t SET id = 2001 - 4 * id WHERE id % 3 = 0")


def test_case_05_deleted_and_inserted_again_between_all_steps(numbers: Database, tmp_path: Path) -> None:
    delete = "DELETE FROM t WHERE id IN (20, 100, 150, 160, 200, 600)"
    insert = "INSERT INTO t SELECT n, 'new' FROM unnest('{20,100,150,160,200,600}'::int[]) n"
    moved(numbers, tmp_path, f"BEGIN; {delete}; {insert}; COMMIT", delete, insert.replace("new", "again"))


def test_case_23_a_truncate_while_the_snapshot_runs(numbers: Database, tmp_path: Path) -> None:
    moved(numbers, tmp_path, "TRUNCATE t", "INSERT INTO t SELECT n, 'new' FROM generate_series(15, 900, 15) n")


def test_case_22_a_rollback_to_a_savepoint_leaves_nothing(numbers: Database, tmp_path: Path) -> None:
    job = PlainJob(numbers, tmp_path, {"t": ("id",)})
    part = (
        "BEGIN; INSERT INTO t VALUES (1, 'stays'); SAVEPOINT a; UPDATE t SET v = 'goes' WHERE id <= 100; "
        "SAVEPOINT b; DELETE FROM t; ROLLBACK TO b; INSERT INTO t VALUES (2, 'goes'); ROLLBACK TO a; "
        "SAVEPOINT c; UPDATE t SET v = 'stays' WHERE id = 30; RELEASE c; COMMIT"
    )
    once(job, "take", part)
    job.step()
    assert {row["v"] for row in job.sink["t"].values()} & {"goes", "stays"} == {"stays"}
    job.follow()
    once(job, "observe", part.replace("(1,", "(3,"))
    job.follow()


@pytest.mark.parametrize("seed", [1, 2])
def test_case_10_composite_keys_of_mixed_types_in_another_order_than_the_columns(
    db: Database, tmp_path: Path, seed: int
) -> None:
    name = """ "O'd d"."T""ä\\ble %s" """.strip()
    draw = random.Random(seed)
    db('''CREATE SCHEMA "O'd d"''')
    db(
        f"""CREATE TABLE {name} ("c'3\\ %s" text COLLATE "en-US-x-icu", "b 2" numeric, "A""1" bytea, v bigint,
            PRIMARY KEY ("b 2", "c'3\\ %s", "A""1"))"""
    )
    keys = {"c'3\\ %s": WORDS[:6], "b 2": [str(n) for n in range(-20, 20)], 'A"1': [r"\x", r"\xff"]}
    writer = Writer(db, {name: keys}, draw)
    for _ in range(100):
        writer.insert(name)
    db("ANALYZE")
    job = PlainJob(db, tmp_path, {name: ("b 2", "c'3\\ %s", 'A"1')})
    assert len(job.pin.splits) > 1
    job.between = Between(*[lambda: [writer.some() for _ in range(5)]] * 4)
    run(job, writer, draw)


def test_two_tables_are_one_state_at_each_commit_once_both_are_read(db: Database, tmp_path: Path) -> None:
    db(
        "CREATE TABLE a (id int PRIMARY KEY, n int)",
        "CREATE TABLE b (id text PRIMARY KEY, n int)",
        "INSERT INTO a SELECT n, 100 FROM generate_series(1, 30) n",
        "INSERT INTO b SELECT 'k' || n, 100 FROM generate_series(1, 30) n",
    )
    job = PlainJob(db, tmp_path, {"a": ("id",), "b": ("id",)})
    draw = random.Random(4)

    def transfer() -> None:
        for _ in range(3):
            a, b, n = draw.randint(1, 30), draw.randint(1, 30), draw.randint(1, 9)
            db(
                f"BEGIN; UPDATE a SET n = n - {n} WHERE id = {a};"
                f" UPDATE b SET n = n + {n} WHERE id = 'k{b}'; COMMIT"
            )

    job.between = Between(transfer, transfer, transfer, transfer)
    for _ in range(20):
        job.step()
        if job.following:
            assert sum(row["n"] for name in "ab" for row in job.sink[name].values()) == 6000
    assert job.following


def test_a_partitioned_table_is_one_table_also_when_a_row_changes_partitions(db: Database, tmp_path: Path) -> None:
    db(
        "CREATE TABLE p (id int, v int, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE p2 (v int, id int NOT NULL)",
        "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (1000)",
        "INSERT INTO p SELECT n * 10, n FROM generate_series(1, 60) n",
    )
    with pytest.raises(UsageError, match="of a single partition, or changed while it is UNLOGGED, are not in"):
        PlainJob(db, tmp_path, {"p": ("id",)})
    job = PlainJob(db, tmp_path, {"p": ("id",)}, options={"accept_partition_changes": True})
    job.step()
    once(job, "take", "UPDATE p SET id = 555 WHERE id = 50", "UPDATE p SET id = 55 WHERE id = 550")
    job.step()
    once(job, "rows", "INSERT INTO p SELECT n, 1 FROM generate_series(1, 9) n", "UPDATE p2 SET v = -v")
    job.follow()
    once(
        job, "observe",
        "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (1000) TO (2000)",
        "INSERT INTO p VALUES (1500, 1)",
        "UPDATE p SET id = id + 1000 WHERE id BETWEEN 200 AND 300",
        "DELETE FROM p WHERE id = 3",
    )  # fmt: skip
    job.follow()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_case_08_an_unchanged_large_value_stays(db: Database, tmp_path: Path, identity: str) -> None:
    db(
        "CREATE TABLE t (id int PRIMARY KEY, n int, large text, other text)",
        "ALTER TABLE t ALTER large SET STORAGE external",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        "INSERT INTO t SELECT n, 0, repeat(n::text, 5000), 'o' FROM generate_series(1, 40) n",
    )
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.step()
    for moment in MOMENTS:
        once(job, moment, "UPDATE t SET n = n + 1", "UPDATE t SET other = n WHERE id % 3 = 0")
        job.step()
    job.follow()
    once(
        job,
        "observe",
        "UPDATE t SET n = n + 1",
        "UPDATE t SET large = NULL WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    job.follow()
    once(job, "observe", "BEGIN; UPDATE t SET n = -1 WHERE id = 5; DELETE FROM t WHERE id = 5; COMMIT")
    job.follow()


def test_case_07_a_large_row_inserted_and_updated_in_one_transaction_is_whole(
    db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE t (id int PRIMARY KEY, n int, large text)", "ALTER TABLE t ALTER large SET STORAGE external")
    db("INSERT INTO t SELECT n, 0, repeat('o', 9000) FROM generate_series(1, 40) n")
    both = (
        "BEGIN; INSERT INTO t VALUES (0, 1, repeat('a', 9000)); UPDATE t SET n = 2 WHERE id = 0; "
        "UPDATE t SET large = repeat('b', 9000) WHERE id = 3; UPDATE t SET n = 3 WHERE id IN (0, 3, 4); COMMIT"
    )
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.step()
    for moment in MOMENTS:
        once(job, moment, both, "DELETE FROM t WHERE id = 0")
        job.step()
    job.follow()
    once(job, "observe", both)
    job.follow()
    assert job.sink["t"][(0,)] == {"id": 0, "n": 3, "large": "a" * 9000}


def test_generated_columns_are_left_out_an_identity_is_not(db: Database, tmp_path: Path) -> None:
    db(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, "
        "b int GENERATED ALWAYS AS (a * 2) STORED, c text DEFAULT 'x')",
        "INSERT INTO t (a) SELECT n FROM generate_series(1, 20) n",
    )
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    for moment in MOMENTS:
        once(job, moment, "UPDATE t SET a = a + 1", "INSERT INTO t (a) VALUES (0)")
    job.step()
    job.follow()
    assert set(job.sink["t"][(1,)]) == {"id", "a", "c"}


@pytest.mark.parametrize("analyzed", [False, True])
def test_an_empty_table_is_done_at_once_and_followed(db: Database, tmp_path: Path, analyzed: bool) -> None:
    db("CREATE TABLE t (id int PRIMARY KEY, v text)", *["ANALYZE t"] * analyzed)
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    once(job, "take", "INSERT INTO t VALUES (1, 'while')")
    job.step()
    assert job.following
    once(job, "observe", "INSERT INTO t VALUES (2, 'after')")
    job.follow()
    assert set(job.sink["t"]) == {(1,), (2,)}


def test_values_that_the_log_left_out_of_rows_that_moved_are_had_by_the_sql_that_the_error_names(
    numbers: Database, tmp_path: Path
) -> None:
    long = "string_agg(md5(n::text), '') FROM generate_series(1, 200) n"
    numbers(
        "CREATE TABLE large (id int, at date, v int, s varchar, c char(7000), b bytea, j jsonb, "
        "PRIMARY KEY (id, at))",
        *(f"ALTER TABLE large ALTER {name} SET STORAGE external" for name in "scbj"),
        f"""INSERT INTO large SELECT g, '2026-02-03', 0, s, s, s::bytea, to_jsonb(s)
            FROM (SELECT {long}) l (s), generate_series(1, 9) g""",
    )
    job = PlainJob(numbers, tmp_path, {"large": ("id", "at")})
    job.follow()
    for moving, said in (("id = 3", "the new key id = 103, at = 2026-02-03"), ("id IN (4, 5)", "such rows: 2")):
        numbers(f"UPDATE large SET id = id + 100 WHERE {moving}", "UPDATE large SET v = 7 WHERE id = 7")
        with pytest.raises(BadData, match=said) as refused:
            job.step(judged=False)
        job.die()
        with typed(refused.value) as hint:
            anew, ever = hint.statements()
            assert (" WHERE " in anew) == (moving == "id = 3")
            numbers(anew)
            job.follow()
    numbers(ever, "UPDATE large SET v = 8", "UPDATE large SET id = id + 1000")
    job.follow()
