"""Columns that are added while a job reads: followed where that is exact, else refused by name."""

import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from changing_job import db, job, with_retries
from plain_job import PlainJob, nothing, small
from postgres_database import Database
from test_upstream_moving import once

from backfill_cli.errors import BadData, Transient

__all__ = ["db", "job", "small"]

pytestmark = pytest.mark.usefixtures("small")

ADDED = "ALTER TABLE t ADD COLUMN more numeric(6, 2)"


@pytest.mark.parametrize("moment", ["observe", "closed", "rows", "take"])
def test_case_26_a_column_added_while_the_snapshot_runs_is_followed(job: PlainJob, moment: str) -> None:
    written = "UPDATE t SET more = id WHERE id % 5 = 0", "INSERT INTO t VALUES (0, 'a', 1.5), (99, 'b', NULL)"
    once(job, moment, "UPDATE t SET v = v || '!'", ADDED, *written)
    with_retries(job)
    assert job.sink["t"][(0,)] == {"id": 0, "v": "a", "more": pytest.approx(1.5)}
    assert (job.sink["t"][(1,)]["more"], job.sink["t"][(5,)]["more"]) == (None, 5)


@pytest.mark.parametrize("when", ["snapshot", "live", "dead"])
def test_case_26_a_column_added_with_no_change_after_it_is_there(job: PlainJob, when: str) -> None:
    if when != "snapshot":
        job.follow()
    if when == "dead":
        job.die()
    job.db(ADDED)
    with_retries(job)
    assert all(row["more"] is None for row in job.sink["t"].values())


@pytest.mark.parametrize("written", [True, False])
def test_case_26_a_followed_column_may_get_a_default_before_the_job_goes_on(job: PlainJob, written: bool) -> None:
    job.follow()
    job.db("ALTER TABLE t ADD COLUMN later int")
    if written:
        job.db("UPDATE t SET later = id WHERE id % 2 = 0")
    with_retries(job)
    job.db("ALTER TABLE t ALTER COLUMN later SET DEFAULT 7")
    job.die()
    job.db("INSERT INTO t (id, v) VALUES (100001, 'after')")
    job.follow()


def test_case_26_columns_added_twice_with_changes_between_are_followed(job: PlainJob) -> None:
    job.follow()
    once(
        job, "observe", "UPDATE t SET v = 1", ADDED, "UPDATE t SET more = 2", "ALTER TABLE t ADD COLUMN x json",
        "UPDATE t SET x = '{}' WHERE id = 3", "DELETE FROM t WHERE id = 4",
    )  # fmt: skip
    with_retries(job)
    assert job.sink["t"][(3,)]["v"] == "1"


@pytest.mark.parametrize(
    ("when", "more"),
    [
        ("snapshot", "DEFAULT 7"),
        ("live", "DEFAULT random()"),
        ("snapshot", "int GENERATED ALWAYS AS IDENTITY"),
        ("live", "NOT NULL DEFAULT 1"),
    ],
)
def test_case_26_a_column_added_with_a_default_is_refused_by_name(job: PlainJob, when: str, more: str) -> None:
    if when == "live":
        job.follow()
    job.db(f"ALTER TABLE t ADD COLUMN more {'' if more.startswith('int') else 'float8 '}{more}")
    with pytest.raises(BadData, match=r"'t'.*('more' was added with a default|rewrote it and changed .* more)"):
        with_retries(job)


def test_a_column_added_with_a_default_to_a_partitioned_table_is_refused(db: Database, tmp_path: Path) -> None:
    """Only the partitions say that old rows have a value."""
    db("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    db("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)")
    db("CREATE TABLE p2 PARTITION OF p1 FOR VALUES FROM (0) TO (100)", "INSERT INTO p VALUES (1, 'a')")
    job = PlainJob(db, tmp_path, {"p": ("id",)}, options={"accept_partition_changes": True})
    job.follow()
    db("ALTER TABLE p ADD COLUMN later int", "UPDATE p SET later = 1")
    with_retries(job)
    db("ALTER TABLE p ADD COLUMN more int DEFAULT 7", "UPDATE p SET v = 'b'")
    with pytest.raises(BadData, match="'more' was added with a default"):
        with_retries(job)


@pytest.mark.parametrize("when", ["snapshot", "live", "stopped"])
def test_case_26_a_column_that_got_its_default_after_it_was_added_is_followed(job: PlainJob, when: str) -> None:
    if when != "snapshot":
        job.follow()
    if when == "stopped":
        job.die()
    job.db(ADDED, "UPDATE t SET more = 1 WHERE id < 4", "ALTER TABLE t ALTER more SET DEFAULT 7")
    job.db("INSERT INTO t (id, v) VALUES (100001, 'after')")
    with_retries(job)
    assert (job.sink["t"][(100001,)]["more"], job.sink["t"][(9,)]["more"]) == (7, None)


@pytest.mark.parametrize("default", ["5", "random()"])
def test_case_26_a_default_of_old_rows_that_came_while_the_log_was_taken_is_refused_before_it_is_committed(
    job: PlainJob, default: str
) -> None:
    job.follow()
    job.db("UPDATE t SET v = 'before'")
    job.between.observe = nothing
    once(
        job,
        "observe",
        "UPDATE t SET v = 'b'",
        f"ALTER TABLE t ADD more float DEFAULT {default}",
        "UPDATE t SET v = 'c'",
    )
    with pytest.raises(BadData, match="'t'"):
        with_retries(job)
    assert all("more" not in row for row in job.sink["t"].values())


@pytest.mark.parametrize("when", ["live", "stopped"])
def test_case_26_a_column_added_followed_and_then_made_again_stops_the_job(job: PlainJob, when: str) -> None:
    job.db(ADDED, "UPDATE t SET more = 1 WHERE id < 4")
    with_retries(job)
    job.db("ALTER TABLE t DROP more", ADDED)
    if when == "stopped":
        job.die()
    with pytest.raises(BadData, match="'more' was dropped"):
        with_retries(job)


def test_a_column_that_came_and_went_with_its_type_stops_the_job(job: PlainJob) -> None:
    """The log has its values as those of a type that nobody can describe any more."""
    with_retries(job)
    job.db("CREATE TYPE mood AS ENUM ('sad')", "ALTER TABLE t ADD m mood", "UPDATE t SET m = 'sad' WHERE id < 4")
    job.db("ALTER TABLE t DROP m", "DROP TYPE mood")
    with pytest.raises(BadData, match="'t': the type of a column no longer exists"):
        with_retries(job)


def test_a_column_added_to_a_quiet_table_holds_up_nobody(db: Database, tmp_path: Path) -> None:
    """The log's next change of it would tell of the column, and never comes; others fill the log all the while."""
    db("CREATE TABLE quiet (id int PRIMARY KEY)", "INSERT INTO quiet SELECT n FROM generate_series(1, 60) n")
    job = PlainJob(db, tmp_path, {"t": ("id",), "quiet": ("id",)})
    job.step()
    db("ALTER TABLE quiet ADD COLUMN more int")
    turns = iter(range(1000))
    job.between.observe = lambda: db(f"UPDATE t SET v = '{next(turns)}' WHERE id < 9") and None
    for _ in range(30):
        with suppress(Transient):
            job.step()
        if job.following:
            break
    assert job.following
    job.between.observe = nothing
    db("UPDATE quiet SET more = 1 WHERE id < 5")
    job.follow()


def test_a_chunk_that_waits_for_alter_table_reads_its_rows(db: Database, tmp_path: Path) -> None:
    """A snapshot older than the table's new files would see none of its rows."""
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.step()

    def alter() -> None:
        job.between.rows = nothing
        holder = psycopg.connect(db.dsn)
        holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")

        def finish() -> None:
            time.sleep(0.5)  # the chunk waits for the lock by then
            holder.execute("ALTER TABLE t ADD COLUMN s int GENERATED ALWAYS AS (id * 2) STORED")
            holder.commit()
            holder.close()

        Thread(target=finish).start()

    job.between.rows = alter
    with_retries(job)
    assert len(job.sink["t"]) == 40
