"""A key that an index keeps unique all the time; and one that none keeps so for a while."""

from pathlib import Path

import psycopg
import pytest
from changing_job import db, with_retries
from hint_typed import typed
from plain_job import PlainJob, small
from postgres_database import Database
from test_upstream_moving import once

from backfill_cli.errors import BadData, StateConflict, UsageError

__all__ = ["db", "small"]

pytestmark = pytest.mark.usefixtures("small")


def stops(job: PlainJob) -> bool:
    with pytest.raises(BadData, match="the unique index on its key was dropped, replaced, or made DEFERRABLE"):
        with_retries(job)
    return True


LATE = {
    "primary": ("id int PRIMARY KEY DEFERRABLE, v text", False),
    "deferred": ("id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text", True),
    "unique": ("id int NOT NULL UNIQUE DEFERRABLE, v text", True),
}
SWAPPED = "UPDATE late SET id = CASE id WHEN 5 THEN 6 WHEN 6 THEN 5 ELSE id END"


@pytest.mark.parametrize("late", LATE)
def test_case_76_a_key_that_is_checked_late_is_refused_until_an_index_is_not(
    db: Database, tmp_path: Path, late: str
) -> None:
    columns, full = LATE[late]
    db(f"CREATE TABLE late ({columns})", "INSERT INTO late SELECT n, n FROM generate_series(1, 10) n")
    if full:
        db("ALTER TABLE late REPLICA IDENTITY FULL")
    with pytest.raises(UsageError, match=r"no unique index on its key .* that is checked row by row") as refused:
        PlainJob(db, tmp_path, {"late": ("id",)})
    assert ("DEFERRABLE" in refused.value.message) == (late != "unique")
    with typed(refused.value) as hint:
        db(SWAPPED, "UPDATE late SET id = id + 1", *hint.statements())
        job = PlainJob(db, tmp_path, {"late": ("id",)})
    job.step()
    db("REINDEX TABLE CONCURRENTLY late", "UPDATE late SET v = 'b'")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db(SWAPPED)
    db("UPDATE late SET v = 'c'", "UPDATE late SET id = id + 100")
    job.follow()


DEFERRED = "ALTER TABLE late DROP CONSTRAINT late_pkey, ADD PRIMARY KEY (id) DEFERRABLE"
AT_ONCE = "ALTER TABLE late DROP CONSTRAINT late_pkey, ADD PRIMARY KEY (id)"


@pytest.mark.parametrize(
    "statements", [[DEFERRED, SWAPPED], [DEFERRED, SWAPPED, AT_ONCE]], ids=["now", "meanwhile"]
)
@pytest.mark.parametrize("when", ["live", "dead"])
def test_case_76_a_key_that_was_checked_late_for_a_while_stops_the_job(
    db: Database, tmp_path: Path, statements: list[str], when: str
) -> None:
    db("CREATE TABLE late (id int PRIMARY KEY, v text)", "ALTER TABLE late REPLICA IDENTITY FULL")
    db("INSERT INTO late SELECT n, n FROM generate_series(1, 10) n")
    job = PlainJob(db, tmp_path, {"late": ("id",)})
    job.follow()
    db(*statements)
    if when == "dead":
        job.die()
    if statements[-1] != AT_ONCE:
        with pytest.raises(UsageError, match="that is checked row by row") as refused:
            with_retries(job)
        with typed(refused.value) as hint:
            db(*hint.statements())
            assert stops(job)
    else:
        assert stops(job)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_key_whose_index_is_built_again_is_followed(db: Database, tmp_path: Path, identity: str) -> None:
    db("CREATE TABLE late (id int PRIMARY KEY, v text)", f"ALTER TABLE late REPLICA IDENTITY {identity}")
    db("INSERT INTO late SELECT n, n FROM generate_series(1, 10) n")
    job = PlainJob(db, tmp_path, {"late": ("id",)})
    job.follow()
    db("REINDEX INDEX CONCURRENTLY late_pkey", "UPDATE late SET id = id + 10")
    job.follow()
    db("CREATE UNIQUE INDEX CONCURRENTLY new ON late (id)", "UPDATE late SET v = v || '!'")
    job.follow()
    db(
        "ALTER TABLE late DROP CONSTRAINT late_pkey, ADD PRIMARY KEY USING INDEX new",
        "UPDATE late SET id = id + 10",
    )
    job.die()
    job.follow()


def test_a_key_whose_index_keeps_its_file_is_followed(db: Database, tmp_path: Path) -> None:
    """A longer varchar drops index and constraint, and makes both anew."""
    db("CREATE TABLE u (id varchar(9) PRIMARY KEY, v text)", "ALTER TABLE u REPLICA IDENTITY FULL")
    db("INSERT INTO u SELECT n, n FROM generate_series(1, 10) n")
    job = PlainJob(db, tmp_path, {"u": ("id",)})
    job.follow()
    db("ALTER TABLE u ALTER id TYPE varchar(90)", "UPDATE u SET id = id || 'x'", "DELETE FROM u WHERE v = '3'")
    with_retries(job)


ROWS = "INSERT INTO u SELECT n, n, n FROM generate_series(1, 20) n"
BOTH = ["CREATE TABLE u (id int PRIMARY KEY, u int NOT NULL, v text)", ROWS]
BY_BOTH = ["CREATE UNIQUE INDEX b ON u (id, u)", "ALTER TABLE u REPLICA IDENTITY USING INDEX b"]
FULL, DEFAULT = "ALTER TABLE {} REPLICA IDENTITY FULL", "ALTER TABLE {} REPLICA IDENTITY DEFAULT"
TWICE = ["INSERT INTO u VALUES (3, 99, 'twice')", "DELETE FROM u WHERE u = 99"]
WITHOUT = ["ALTER TABLE u DROP CONSTRAINT u_pkey", *TWICE, "ALTER TABLE u ADD PRIMARY KEY (id)"]
LATER = [
    "ALTER TABLE u DROP CONSTRAINT u_pkey, ADD PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED",
    "UPDATE u SET id = id + 1",
    "ALTER TABLE u DROP CONSTRAINT u_pkey, ADD PRIMARY KEY (id)",
]

UNSEEN = {
    "FULL for a while": (BOTH, [FULL.format("u"), *WITHOUT, DEFAULT.format("u")]),
    "FULL and late": (BOTH, [FULL.format("u"), *LATER, DEFAULT.format("u")]),
    "more than the key": (BOTH + BY_BOTH, WITHOUT),
    "more than the key, late": (BOTH + BY_BOTH, LATER),
    "a larger primary key": (
        [BOTH[0].replace("int PRIMARY KEY", "int NOT NULL"), "CREATE UNIQUE INDEX a ON u (id)", ROWS,
         "ALTER TABLE u ADD PRIMARY KEY (id, u)"],
        ["DROP INDEX a", *TWICE, "CREATE UNIQUE INDEX a ON u (id)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("what", "when"),
    [*((what, "live") for what in UNSEEN), ("FULL for a while", "dead"), ("FULL for a while", "reading")],
)
def test_two_rows_with_one_key_between_two_looks_stop_the_job(
    db: Database, tmp_path: Path, what: str, when: str
) -> None:
    """At both looks all is as it was, but the index is another one."""
    made, meanwhile = UNSEEN[what]
    db(*made)
    job = PlainJob(db, tmp_path, {"u": ("id",)})
    if when == "reading":
        job.step()
        once(job, "take", *meanwhile)
    else:
        job.follow()
        db(*meanwhile)
    if when == "dead":
        job.die()
    assert stops(job)


def test_a_key_that_changes_of_other_identity_leave_unique_is_followed(db: Database, tmp_path: Path) -> None:
    """FULL for a while beside an index that stays; and an index that is gone while only rows are added."""
    db(*BOTH)
    job = PlainJob(db, tmp_path, {"u": ("id",)})
    job.follow()
    db(FULL.format("u"), "UPDATE u SET id = id + 100", "DELETE FROM u WHERE u = 7", DEFAULT.format("u"))
    with_retries(job)
    for full in (False, True):
        db("TRUNCATE u", "ALTER TABLE u DROP CONSTRAINT u_pkey", ROWS, "ALTER TABLE u ADD PRIMARY KEY (id)")
        job.die()
        with_retries(job)
        if not full:
            db(FULL.format("u"))
    db("UPDATE u SET id = id + 100", "DELETE FROM u WHERE u = 7")
    with_retries(job)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_table_of_another_name_without_a_key_is_another_table(
    db: Database, tmp_path: Path, identity: str
) -> None:
    """Its columns, key and identity are not looked at: what helps is to rename it back."""
    db(*BOTH, f"ALTER TABLE u REPLICA IDENTITY {identity}")
    job = PlainJob(db, tmp_path, {"u": ("id",)})
    job.follow()
    db(
        "CREATE TABLE new (id bigint NOT NULL, v text)",
        "ALTER TABLE u RENAME TO old",
        "ALTER TABLE new RENAME TO u",
    )
    with pytest.raises(StateConflict, match="'u' is another table now") as refused:
        with_retries(job)
    with typed(refused.value) as hint:
        hint.says("rename them back")
        db("ALTER TABLE u RENAME TO new", "ALTER TABLE old RENAME TO u", "UPDATE u SET v = 'b'")
        with_retries(job)
