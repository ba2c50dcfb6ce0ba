"""Columns, tables and slots that are not what they were: followed where that is exact, else refused by name."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from plain_job import PlainJob, nothing, small
from postgres import Server
from postgres_database import Database, database
from test_upstream_moving import once

from backfill_cli.errors import BackfillError, BadData, HistoryGone, StateConflict, Transient, UsageError
from backfill_cli.upstreams.postgres import chunks
from backfill_cli.upstreams.postgres.log import take

__all__ = ["small"]
pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    """With a table `t` of 40 rows."""
    with database(postgres) as made:
        made(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT n, n FROM generate_series(1, 40) n",
        )
        yield made


@pytest.fixture
def job(db: Database, tmp_path: Path) -> PlainJob:
    """In the middle of its snapshot."""
    made = PlainJob(db, tmp_path, {"t": ("id",)})
    made.step()
    return made


def patiently(job: PlainJob, most: int = 30) -> None:
    """To the end; what fails in passing is tried again, as the engine does."""
    for _ in range(most):
        try:
            if not job.step(judged=False) and job.following:
                break
        except Transient:
            continue
    job.follow()


ADDED = "ALTER TABLE t ADD COLUMN more numeric(6, 2)"


@pytest.mark.parametrize("moment", ["observe", "closed", "rows", "take"])
def test_case_26_a_column_added_while_the_snapshot_runs_is_followed(job: PlainJob, moment: str) -> None:
    written = "UPDATE t SET more = id WHERE id % 5 = 0", "INSERT INTO t VALUES (0, 'a', 1.5), (99, 'b', NULL)"
    once(job, moment, "UPDATE t SET v = v || '!'", ADDED, *written)
    patiently(job)
    assert job.sink["t"][(0,)] == {"id": 0, "v": "a", "more": pytest.approx(1.5)}
    assert (job.sink["t"][(1,)]["more"], job.sink["t"][(5,)]["more"]) == (None, 5)


@pytest.mark.parametrize("when", ["snapshot", "live", "dead"])
def test_case_26_a_column_added_with_no_change_after_it_is_there(job: PlainJob, when: str) -> None:
    if when != "snapshot":
        job.follow()
    if when == "dead":
        job.die()
    job.db(ADDED)
    patiently(job)
    assert all(row["more"] is None for row in job.sink["t"].values())


@pytest.mark.parametrize("written", [True, False])
def test_case_26_a_followed_column_may_get_a_default_before_the_job_goes_on(job: PlainJob, written: bool) -> None:
    job.follow()
    job.db("ALTER TABLE t ADD COLUMN later int")
    if written:
        job.db("UPDATE t SET later = id WHERE id % 2 = 0")
    patiently(job)
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
    patiently(job)
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
    with pytest.raises(BadData, match=r"'t'.*'more'.*default"):
        patiently(job)


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
        patiently(job)
    assert not isinstance(caught.value, Transient)
    assert "'t'" in caught.value.message
    assert "'v'" in caught.value.message
    assert {key: row for key, row in job.sink["t"].items() if key in before} == before


@pytest.mark.parametrize("when", ["snapshot", "live", "dead"])
def test_a_table_made_again_stops_the_job(job: PlainJob, when: str) -> None:
    if when != "snapshot":
        job.follow()
    job.db(
        "ALTER TABLE t RENAME TO old", "CREATE TABLE t (LIKE old INCLUDING ALL)", "INSERT INTO t VALUES (7, 'x')"
    )
    if when == "dead":
        job.die()
    with pytest.raises(StateConflict, match="'t' was recreated"):
        patiently(job)


@pytest.mark.parametrize("when", ["snapshot", "live"])
def test_a_table_that_is_dropped_stops_the_job(job: PlainJob, when: str) -> None:
    if when != "snapshot":
        job.follow()
    job.db("DROP TABLE t")
    with pytest.raises(BackfillError, match="'t'") as caught:
        patiently(job)
    assert not isinstance(caught.value, Transient)


def test_case_17_a_slot_that_is_gone_is_never_made_anew(job: PlainJob) -> None:
    job.follow()
    job.db(f"SELECT pg_drop_replication_slot('{job.slot}')", "INSERT INTO t VALUES (100, 'x')")
    with pytest.raises(HistoryGone, match="is gone"):
        job.step()
    job.die()
    with pytest.raises(HistoryGone, match="is gone"):
        job.step()
    assert job.db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


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
        with pytest.raises(StateConflict, match="another database"):
            job.step()
        job.upstream.close()
        job.db = mine


@pytest.mark.parametrize("identity", ["NOTHING", "USING INDEX other"])
def test_an_identity_that_lacks_the_key_is_refused_before_and_during(job: PlainJob, identity: str) -> None:
    job.follow()
    job.db("ALTER TABLE t ADD COLUMN u int", "UPDATE t SET u = id")
    patiently(job)
    job.db("ALTER TABLE t ALTER u SET NOT NULL", "CREATE UNIQUE INDEX other ON t (u)")
    job.db(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    if identity == "NOTHING":
        job.db("INSERT INTO t VALUES (1000, 'x', 1000)")
    else:
        job.db("UPDATE t SET id = 1000, u = 1000 WHERE id = 7", "DELETE FROM t WHERE id = 8")
    with pytest.raises(UsageError, match="its replica identity is") as caught:
        patiently(job)
    assert "REPLICA IDENTITY FULL" in (caught.value.hint or "")


def test_case_11_a_key_that_is_not_the_primary_key_is_followed_with_full_identity(
    db: Database, tmp_path: Path
) -> None:
    db(
        "CREATE TABLE u (id int PRIMARY KEY, code text NOT NULL UNIQUE, v text)",
        "ALTER TABLE u ALTER v SET STORAGE external",
        "INSERT INTO u SELECT n, 'c' || n, repeat('x', 9000) FROM generate_series(1, 40) n",
    )
    with pytest.raises(UsageError, match="its replica identity is its primary key"):
        PlainJob(db, tmp_path, {"u": ("code",)})
    db("ALTER TABLE u REPLICA IDENTITY FULL")
    job = PlainJob(db, tmp_path, {"u": ("code",)})
    job.step()
    for moment in ("observe", "closed", "rows", "take"):
        once(
            job,
            moment,
            "UPDATE u SET code = 'c' || 1000 - substr(code, 2)::int WHERE id % 4 = 1",
            "UPDATE u SET id = -id",
        )
        job.step()
    job.follow()


def test_a_table_without_a_primary_key_and_identity_full_by_two_columns(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE h (a int NOT NULL, b text NOT NULL, v int)", "ALTER TABLE h REPLICA IDENTITY FULL")
    db("INSERT INTO h SELECT n % 7, 'b' || n, n FROM generate_series(1, 50) n")
    with pytest.raises(UsageError, match="table 'h' has no unique index on its key") as refused:
        PlainJob(db, tmp_path, {"h": ("a", "b")})
    db(refused.value.hint)
    job = PlainJob(db, tmp_path, {"h": ("a", "b")})
    for moment in ("observe", "closed", "rows", "take"):
        once(
            job,
            moment,
            "UPDATE h SET a = 7 - a WHERE v % 5 = 0",
            "UPDATE h SET v = v + 1",
            "DELETE FROM h WHERE v = 50",
        )
        job.step()
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


def test_case_26_more_digits_stop_the_job(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE d (id int PRIMARY KEY, v numeric(6, 2))", "INSERT INTO d VALUES (1, 1.25)")
    job = PlainJob(db, tmp_path, {"d": ("id",)})
    job.follow()
    db("ALTER TABLE d ALTER v TYPE numeric(9, 3)", "UPDATE d SET v = 1.255")
    with pytest.raises(BadData, match=r"'v' was decimal\(6,2\), and is now decimal\(9,3\)"):
        patiently(job)


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
    patiently(wide)


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
        patiently(job)


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
    patiently(job)


@pytest.mark.parametrize("when", ["live", "stopped"])
def test_case_26_a_column_added_followed_and_then_made_again_stops_the_job(job: PlainJob, when: str) -> None:
    job.db(ADDED, "UPDATE t SET more = 1 WHERE id < 4")
    patiently(job)
    job.db("ALTER TABLE t DROP more", ADDED)
    if when == "stopped":
        job.die()
    with pytest.raises(BadData, match="'more' was dropped"):
        patiently(job)


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
        patiently(job)


def test_labels_that_are_added_are_followed(db: Database, tmp_path: Path) -> None:
    db(*TYPES)
    job = PlainJob(db, tmp_path, {"m": ("id",)})
    job.step()
    db("ALTER TYPE mood ADD VALUE 'first' BEFORE 'sad'", "UPDATE m SET one = 'first' WHERE id % 5 = 0")
    job.follow()
    assert job.sink["m"][(5,)]["one"] == "first"


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
    patiently(job)
    assert len(job.sink["t"]) == 40


def test_a_deferrable_primary_key_is_refused_before_it_is_published(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, v text)", "INSERT INTO late VALUES (1, 'a')")
    with pytest.raises(UsageError, match="DEFERRABLE") as refused:
        PlainJob(db, tmp_path, {"late": ("id",)})
    db("UPDATE late SET v = 'b'", refused.value.hint)
    job = PlainJob(db, tmp_path, {"late": ("id",)})
    job.step()
    db("UPDATE late SET v = 'c'")
    job.follow()


def test_an_unlogged_table_is_refused(db: Database, tmp_path: Path) -> None:
    db("CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    with pytest.raises(UsageError, match="unlogged"):
        PlainJob(db, tmp_path, {"u": ("id",)})


PARTED = (
    "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20) TO (100)",
    "INSERT INTO p SELECT n, n FROM generate_series(1, 40) n",
)


def test_partitions_need_the_identity_that_their_table_has(db: Database, tmp_path: Path) -> None:
    db(*PARTED, "ALTER TABLE p REPLICA IDENTITY FULL")
    options = {"accept_partition_changes": True}
    with pytest.raises(UsageError, match="another REPLICA IDENTITY") as refused:
        PlainJob(db, tmp_path, {"p": ("id",)}, options=dict(options))
    db(*(refused.value.hint or "").split("; ")[:2])
    job = PlainJob(db, tmp_path, {"p": ("id",)}, options=dict(options))
    job.step()
    db("UPDATE p SET id = id + 50 WHERE id < 5", "UPDATE p SET v = v || '!' WHERE id > 30")
    job.follow()
    db("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (100) TO (200)")
    with pytest.raises(UsageError, match="another REPLICA IDENTITY"):
        job.step()


def test_a_server_that_goes_away_at_the_end_of_the_log_is_waited_for(
    job: PlainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.follow()
    job.db("UPDATE t SET v = 'new' WHERE id < 9")
    read = take._Window._read

    def ended(window: take._Window) -> int:
        end = read(window)
        job.db(f"SELECT pg_terminate_backend({window._connection.info.backend_pid})")
        time.sleep(0.2)
        return end

    with monkeypatch.context() as broken:
        broken.setattr(take._Window, "_read", ended)
        with pytest.raises(Transient):
            job.step()
    job.follow()


def test_a_name_that_sql_does_not_take_is_named(db: Database, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a valid name in SQL") as refused:
        PlainJob(db, tmp_path, {"My Schema.t": ("id",)})
    assert "double quotes" in refused.value.hint


AT = r"^table 'far', column 'at'"


def test_a_value_that_cannot_be_kept_names_its_table(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE far (id int PRIMARY KEY, at timestamp)", "INSERT INTO far VALUES (1, 'infinity')")
    with pytest.raises(BadData, match=AT):
        PlainJob(db, tmp_path, {"far": ("id",)}).step(judged=False)
    db("DELETE FROM far")
    job = PlainJob(db, tmp_path, {"far": ("id",)}, options={"slot": f"far_{db.name}"})
    job.follow()
    db("INSERT INTO far VALUES (1, '-infinity')")
    with pytest.raises(BadData, match=AT):
        job.step(judged=False)
