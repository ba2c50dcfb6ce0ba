"""One table under two names of a job: refused by name, at the start and once it becomes so."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from changing_job import with_retries
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database

from backfill_cli.errors import BackfillError, Transient, UsageError

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


SAME = ["al", '"al"', "public.al", '"public"."al"', 'public."al"', "AL", "Public.al"]


def test_spellings_of_one_table_are_refused(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE al (id int PRIMARY KEY)", 'CREATE TABLE "AL" (id int PRIMARY KEY)')
    for one, two in itertools.combinations(SAME, 2):
        with pytest.raises(UsageError, match="are the same table") as refused:
            PlainJob(db, tmp_path, {one: ("id",), two: ("id",)})
    with typed(refused.value) as hint:
        hint.says("name it once")
        PlainJob(db, tmp_path, {"al": ("id",), '"AL"': ("id",)}).follow()


PARTED = (
    "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (50) PARTITION BY RANGE (id)",
    "CREATE TABLE p11 PARTITION OF p1 FOR VALUES FROM (0) TO (20)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (50) TO (100)",
    "INSERT INTO p SELECT n, n FROM generate_series(1, 10) n",
)


@pytest.mark.parametrize(("root", "leaf"), [("p", "p11"), ("p1", "p11"), ("p", "p1")])
def test_a_table_and_its_partition_are_refused(db: Database, tmp_path: Path, root: str, leaf: str) -> None:
    db(*PARTED)
    options = {"accept_partition_changes": True}
    with pytest.raises(UsageError, match=f"table '{leaf}' is a partition of table '{root}'") as refused:
        PlainJob(db, tmp_path, {leaf: ("id",), root: ("id",)}, options=options)
    with typed(refused.value) as hint:
        hint.says("name only one of them")
        PlainJob(db, tmp_path, {leaf: ("id",)}, options=options).follow()


def test_partitions_of_one_table_without_it_are_followed(db: Database, tmp_path: Path) -> None:
    db(*PARTED)
    job = PlainJob(db, tmp_path, {"p11": ("id",), "p2": ("id",)})
    job.step()
    db("UPDATE p SET v = 'a' WHERE id < 5", "INSERT INTO p VALUES (60, 'b')")
    job.follow()


def test_a_table_that_becomes_a_partition_of_another_one_stops_the_job(db: Database, tmp_path: Path) -> None:
    db(*PARTED, "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (101, 'a')")
    job = PlainJob(db, tmp_path, {"p": ("id",), "t": ("id",)}, options={"accept_partition_changes": True})
    job.follow()
    db("ALTER TABLE p ATTACH PARTITION t FOR VALUES FROM (100) TO (200)", "UPDATE t SET v = 'b'")
    with pytest.raises(UsageError, match="table 't' is a partition of table 'p'"):
        with_retries(job)


@pytest.mark.parametrize("when", ["snapshot", "live", "dead"])
def test_case_65_tables_that_swap_names_or_take_the_name_of_a_dropped_one_stop_the_job(
    db: Database, tmp_path: Path, when: str
) -> None:
    rows = "SELECT n, '{0}' FROM generate_series(1, 30) n"
    for name in "ab":
        db(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)", f"INSERT INTO {name} {rows.format(name)}")
    job = PlainJob(db, tmp_path, {"a": ("id",), "b": ("id",)})
    job.step()
    if when != "snapshot":
        job.follow()
    db(
        "BEGIN; ALTER TABLE a RENAME TO c; ALTER TABLE b RENAME TO a; ALTER TABLE c RENAME TO b; COMMIT",
        "UPDATE a SET v = 'was b' WHERE id < 9",
    )
    if when == "dead":
        job.die()
    with pytest.raises(BackfillError, match="'a'") as refused:
        with_retries(job)
    assert not isinstance(refused.value, Transient)
    assert all(row["v"] == name for name, rows in job.sink.items() for row in rows.values())
    db("BEGIN; ALTER TABLE a RENAME TO c; ALTER TABLE b RENAME TO a; ALTER TABLE c RENAME TO b; COMMIT")
    job.die()
    with_retries(job)
    db("DROP TABLE a", "ALTER TABLE b RENAME TO a")
    with pytest.raises(BackfillError, match=r"'a'|'b'") as refused:
        with_retries(job)
    assert not isinstance(refused.value, Transient)
