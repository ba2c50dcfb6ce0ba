"""Columns, values and types that are changed otherwise: followed where that is exact, else refused by name."""

from pathlib import Path

import pytest
from changing_job import db, job, with_retries
from plain_job import PlainJob, small
from postgres_database import Database

from backfill_cli.errors import BackfillError, BadData, Transient

__all__ = ["db", "job", "small"]

pytestmark = pytest.mark.usefixtures("small")


@pytest.mark.parametrize("when", ["snapshot", "live"])
@pytest.mark.parametrize(
    ("change", "written"),
    [
        ("DROP COLUMN v", False),
        ("RENAME v TO w", True),
        ("ALTER v TYPE int USING v::int", True),
        ("ALTER v TYPE varchar USING upper(v)", False),
        ("DROP COLUMN v, ADD COLUMN v text", False),
    ],
)
def test_case_26_any_other_change_of_columns_stops_the_job_and_nothing_is_wrong(
    job: PlainJob, when: str, change: str, written: bool
) -> None:
    if when == "live":
        job.follow()
    before = {key: dict(row) for key, row in job.sink["t"].items()}
    job.db(*(f"ALTER TABLE t {part}" for part in change.split(", ")))
    if written:
        job.db("UPDATE t SET id = id WHERE id < 9", "DELETE FROM t WHERE id = 2")
    with pytest.raises(BackfillError) as caught:
        with_retries(job)
    assert not isinstance(caught.value, Transient)
    assert "'t'" in caught.value.message
    assert "'v'" in caught.value.message
    assert {key: row for key, row in job.sink["t"].items() if key in before} == before


def test_case_26_more_digits_stop_the_job(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE d (id int PRIMARY KEY, v numeric(6, 2))", "INSERT INTO d VALUES (1, 1.25)")
    job = PlainJob(db, tmp_path, {"d": ("id",)})
    job.follow()
    db("ALTER TABLE d ALTER v TYPE numeric(9, 3)", "UPDATE d SET v = 1.255")
    with pytest.raises(BadData, match=r"'v' was decimal\(6,2\), and is now decimal\(9,3\)"):
        with_retries(job)


@pytest.mark.parametrize("when", ["snapshot", "live"])
def test_a_type_that_is_only_made_wider_is_followed(job: PlainJob, when: str) -> None:
    job.db(
        "CREATE TABLE w (id int PRIMARY KEY, v varchar(10))",
        "INSERT INTO w SELECT n, n FROM generate_series(1, 40) n",
    )
    wide = PlainJob(job.db, job.folder, {"w": ("id",)}, options={"slot": f"w_{job.slot}"})
    wide.step()
    if when == "live":
        wide.follow()
    job.db(
        "UPDATE w SET v = 'before'",
        "ALTER TABLE w ALTER v TYPE varchar(30)",
        "UPDATE w SET v = repeat('x', 30) WHERE id < 5",
    )
    with_retries(wide)


REWRITES = (
    ["ALTER TABLE t ALTER v TYPE text USING upper(v) || '!'"],
    ["ALTER TABLE t ADD COLUMN more float DEFAULT random()", "ALTER TABLE t ALTER more DROP DEFAULT"],
    ["ALTER TABLE t ADD more int DEFAULT 5", "ALTER TABLE t ALTER more DROP DEFAULT", "VACUUM FULL t"],
    ["ALTER TABLE t ALTER made DROP EXPRESSION"],
    ["VACUUM FULL t", "ALTER TABLE t ADD more int"],  # after which nothing tells it from a volatile default
)


@pytest.mark.parametrize(
    "statements", REWRITES, ids=["using", "volatile default", "default gone", "expression", "full and added"]
)
@pytest.mark.parametrize("when", ["snapshot", "live", "stopped"])
def test_values_that_changed_without_the_log_stop_the_job(
    db: Database, tmp_path: Path, statements: list[str], when: str
) -> None:
    db("ALTER TABLE t ADD made int GENERATED ALWAYS AS (id * 2) STORED")
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.step()
    if when != "snapshot":
        job.follow()
        job.db("UPDATE t SET v = 'a' WHERE id = 1")
        job.step()
    db(*statements)
    if when == "stopped":
        job.die()
    with pytest.raises(BadData, match=r"'t'.*(rewrote|generated|default)"):
        with_retries(job)


HARMLESS = (
    ["VACUUM FULL t"],
    ["CREATE INDEX other ON t (v)", "CLUSTER t USING other", "ANALYZE t"],
    ["ALTER TABLE t ALTER v SET STATISTICS 500", "ALTER TABLE t ALTER v SET STORAGE external", "VACUUM FREEZE t"],
    ["TRUNCATE t", "INSERT INTO t VALUES (1, 'one')"],
    ["ALTER TABLE t ADD calculated int GENERATED ALWAYS AS (id * 3) STORED"],
)


@pytest.mark.parametrize("statements", HARMLESS, ids=["full", "cluster", "attributes", "truncate", "generated"])
@pytest.mark.parametrize("when", ["snapshot", "live", "stopped"])
def test_what_only_moves_rows_is_followed(job: PlainJob, statements: list[str], when: str) -> None:
    if when != "snapshot":
        job.follow()
        job.db("UPDATE t SET v = 'a' WHERE id = 1")
        job.step()
    job.db(*statements, "UPDATE t SET v = v || '?' WHERE id < 5")
    if when == "stopped":
        job.die()
    with_retries(job)


TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TABLE m (id int PRIMARY KEY, one mood, both_ pair)",
    "INSERT INTO m SELECT n, 'sad', ROW(n, 'b')::pair FROM generate_series(1, 40) n",
)


@pytest.mark.parametrize("when", ["snapshot", "live", "stopped"])
@pytest.mark.parametrize(
    "statement",
    ["ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'", "ALTER TYPE pair RENAME ATTRIBUTE a TO c",
     "ALTER TYPE pair ADD ATTRIBUTE c int", "ALTER TYPE pair DROP ATTRIBUTE a"],
)  # fmt: skip
def test_a_type_whose_values_read_otherwise_stops_the_job(
    db: Database, tmp_path: Path, statement: str, when: str
) -> None:
    db(*TYPES)
    job = PlainJob(db, tmp_path, {"m": ("id",)})
    job.step()
    if when != "snapshot":
        job.follow()
        db("UPDATE m SET one = 'ok' WHERE id = 1")
        job.step()
    db(statement)
    if when == "stopped":
        job.die()
    with pytest.raises(BadData, match="ALTER TYPE"):
        with_retries(job)


def test_labels_that_are_added_are_followed(db: Database, tmp_path: Path) -> None:
    db(*TYPES)
    job = PlainJob(db, tmp_path, {"m": ("id",)})
    job.step()
    db("ALTER TYPE mood ADD VALUE 'first' BEFORE 'sad'", "UPDATE m SET one = 'first' WHERE id % 5 = 0")
    job.follow()
    assert job.sink["m"][(5,)]["one"] == "first"
