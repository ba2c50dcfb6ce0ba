"""Whole jobs over PostgreSQL into DuckDB, through engine and Spark: at their end the sink is the database."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import psycopg
import pytest
from hint_typed import typed
from postgres_database import Database
from postgres_job import Run, db

from backfill_cli.engine.job.held import held_logs
from backfill_cli.engine.verify.fix import fix
from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BackfillError, BadData, HistoryGone, Transient
from backfill_cli.model.job import Control, Verb
from backfill_cli.model.upstream import HeldLog
from backfill_cli.model.verify import EVERYTHING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["db"]


def test_many_rows_never_analyzed_unchanged_large_values_an_added_column_a_truncate(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    db(
        "CREATE TABLE big (id bigint PRIMARY KEY, v text)",
        "INSERT INTO big SELECT n * 3, n FROM generate_series(1, 300000) n",
        "CREATE TABLE gone (id int PRIMARY KEY)",
        "INSERT INTO gone SELECT n FROM generate_series(1, 9) n",
    )
    run = Run(db, tmp_path, "t", "big", "gone")
    run.catch_up()
    run.equal(
        "SELECT * FROM t ORDER BY 1",
        "SELECT count(*), sum(id), max(v), min(v) FROM big",
        "SELECT * FROM gone ORDER BY 1",
    )
    db(
        "UPDATE t SET n = id",
        "UPDATE t SET large = NULL WHERE id = 7",
        "BEGIN; INSERT INTO t VALUES (99, 1, 'x'); SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; COMMIT",
        "TRUNCATE gone",
        "INSERT INTO gone VALUES (100)",
        "UPDATE big SET v = 'all of them' WHERE id < 60000",
        "ALTER TABLE big ADD COLUMN more numeric(20, 4)",
        "UPDATE big SET more = 1.25 WHERE id = 900000",
        "DELETE FROM big WHERE id BETWEEN 90000 AND 120000",
    )
    run.catch_up()
    run.equal(
        "SELECT * FROM t ORDER BY 1",
        "SELECT count(*), sum(id), max(v), min(v), sum(more), count(more) FROM big",
        "SELECT * FROM gone ORDER BY 1",
    )


def test_a_slot_that_holds_more_than_it_may_is_given_up(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    db("CREATE TABLE noise AS SELECT n, repeat('x', 100) v FROM generate_series(1, 400000) n")
    with pytest.raises(HistoryGone, match="40 MB") as caught:
        run.catch_up()
    assert caught.value.exit_code == 7
    assert "drop" in str(caught.value.hint)
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    run.plan_says_that_it_is_gone("is gone, and with it the changes after")


def test_plan_and_verify_never_give_the_slot_up(spark: "SparkSession", db: Database, tmp_path: Path) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    assert any("keeps" in note and "of its log for this job" in note for note in run.planned().notes)
    db("CREATE TABLE noise AS SELECT n, repeat('x', 100) v FROM generate_series(1, 400000) n")
    assert any("more than upstream.max_retained (40 MB)" in said for said in run.planned().warnings)
    held = held_logs(["orders"], run.catalog)["orders"]
    assert isinstance(held, HeldLog)
    assert (held.is_over, held.limit_bytes) == (True, 40 << 20)
    assert verify("orders", run.catalog).equal
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(1,)]


def test_plan_names_a_slot_that_the_server_gave_up(spark: "SparkSession", db: Database, tmp_path: Path) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    db("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(3):
            db("SELECT pg_logical_emit_message(false, 'x', 'y')", "SELECT pg_switch_wal()")
        db("CHECKPOINT")
        run.plan_says_that_it_is_gone(
            "has lost changes after .* held back more than the server's max_slot_wal_keep_size"
        )
    finally:
        db("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def test_verify_compares_what_has_not_changed_since_and_counts_what_has(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t", more='[transform]\nselect = ["id", "n", "large AS big"]')
    run.catch_up()
    report = verify("orders", run.catalog)
    assert (report.equal, report.not_compared) == (True, {})
    db("UPDATE t SET n = 5 WHERE id <= 3", "INSERT INTO t VALUES (100, 1, 'new')", "DELETE FROM t WHERE id = 9")
    report = verify("orders", run.catalog)
    assert (report.equal, dict(report.not_compared)) == (True, {"t": 5})
    with duckdb.connect(str(tmp_path / "sink.duckdb")) as sink:
        sink.execute("UPDATE t SET n = 77 WHERE id IN (2, 20)")
        sink.execute("DELETE FROM t WHERE id = 30")
    report = verify("orders", run.catalog)
    (table,) = report.tables
    assert {(row.key[0][1], row.column) for row in table.rows} == {("20", "n"), ("30", None)}
    run.catch_up()
    assert {row.key[0][1] for table in verify("orders", run.catalog).tables for row in table.rows} == {"20", "30"}


def test_case_75_a_fix_writes_what_others_changed_and_keys_changed_upstream_come_with_the_log(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t", more='[transform]\nselect = ["id", "n", "large AS big"]')
    run.catch_up()
    db("UPDATE t SET n = 5 WHERE id <= 3", "DELETE FROM t WHERE id = 9")
    with duckdb.connect(str(tmp_path / "sink.duckdb")) as sink:
        sink.execute("UPDATE t SET big = 'x' WHERE id IN (2, 20); DELETE FROM t WHERE id = 30")
        sink.execute("INSERT INTO t VALUES (77, 1, 'of others')")
    report = fix("orders", run.catalog, EVERYTHING, lambda _: None, lambda _: None)
    assert (report.equal, dict(report.not_compared)) == (True, {"t": 4})
    assert report.fix is not None
    assert [(t.inserted, t.replaced, t.removed) for t in report.fix.tables] == [(1, 1, 1)]
    kept = "WHERE id NOT IN (1, 2, 3, 9) ORDER BY 1"
    assert run.rows(f"SELECT id, n, big FROM t {kept}") == db(f"SELECT id, n, large FROM t {kept}")
    run.catch_up()
    assert run.rows("SELECT id, n FROM t ORDER BY 1") == db("SELECT id, n FROM t ORDER BY 1")


BY_LARGE = """
[[derived]]
name = "by_n_again"
key = ["n"]
sql = 'SELECT X.N, count(*) AS held, sum(X."id") AS ids FROM t X GROUP BY X.N'
"""
BY_N = """
[[derived]]
name = "by_n"
key = ["n"]
sql = "SELECT n, count(*) AS held, sum(id) AS ids FROM t GROUP BY n"
"""
AS_UPSTREAM = "SELECT n, count(*) AS held, sum(id) AS ids FROM t GROUP BY n ORDER BY n"


@pytest.mark.parametrize("into", ["duckdb", "postgres"])
def test_of_a_table_of_which_columns_are_kept_the_sink_has_these_alone(
    spark: "SparkSession", db: Database, tmp_path: Path, into: str
) -> None:
    # in the sink's SQL, N is n; the SELECT that is read first says how a column is written
    run = Run(db, tmp_path, "t", more=BY_LARGE + BY_N)
    text = run.config.read_text().replace('name = "t"', 'name = "t"\nkeep = "columns"')
    if into == "postgres":
        file = f'type = "duckdb"\npath = "{tmp_path}/sink.duckdb"'
        assert file in text
        text = text.replace(file, 'type = "postgres"\ndsn = "${env:ORDERS_DSN}"\nschema = "mart"')
    run.config.write_text(text)
    read = db if into == "postgres" else run.rows
    schema = "mart" if into == "postgres" else "main"

    def equal() -> None:
        there = f"table_name = '_backfill_columns_t' AND table_schema = '{schema}' ORDER BY ordinal_position"
        columns = read(f"SELECT column_name FROM information_schema.columns WHERE {there}")
        assert columns == [("id",), ("n" if into == "postgres" else "N",)]
        assert read(f"SELECT * FROM {schema}._backfill_columns_t ORDER BY id") == db(
            "SELECT id, n FROM t ORDER BY id"
        )
        for name in ("by_n", "by_n_again"):
            assert read(f"SELECT n, held, ids FROM {schema}.{name} ORDER BY n") == db(AS_UPSTREAM)

    run.catch_up()
    equal()
    db("UPDATE t SET n = n + 1 WHERE id < 9", "DELETE FROM t WHERE id = 4")
    db("ALTER TABLE t ADD more TEXT", "INSERT INTO t (id, n, more) VALUES (2000, NULL, 'x')")
    db("UPDATE t SET id = 3000 WHERE id = 9")  # whose value of large is not in the log
    run.catch_up()
    equal()
    assert verify("orders", run.catalog).equal


def test_case_75_a_repaired_row_is_in_its_derived_rows(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t", more=BY_N)
    run.catch_up()
    with duckdb.connect(str(tmp_path / "sink.duckdb")) as sink:
        sink.execute("DELETE FROM t WHERE id = 30; UPDATE t SET n = 7 WHERE id = 31")
    report = fix("orders", run.catalog, EVERYTHING, lambda _: None, lambda _: None)
    assert report.equal
    assert run.rows("SELECT n, held, ids FROM by_n ORDER BY n") == db(AS_UPSTREAM)


def test_case_87_a_transaction_that_began_before_the_fill_is_in_it_or_follows(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t", more=BY_N)
    slot = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"

    def write(early: "psycopg.Connection[object]", late: "psycopg.Connection[object]") -> None:
        while not db(slot):
            time.sleep(0.01)
        early.commit()
        while not run.catalog.jobs():  # the slot has its pin
            time.sleep(0.01)
        late.execute("UPDATE t SET n = 2 WHERE id > 40")

    with psycopg.connect(db.dsn) as early, psycopg.connect(db.dsn) as late, ThreadPoolExecutor(1) as pool:
        early.execute("UPDATE t SET n = 1 WHERE id <= 10")
        written = pool.submit(write, early, late)
        run.catch_up()
        written.result(60)
        assert run.rows("SELECT n, held FROM by_n ORDER BY n") == [(0, 40), (1, 10)]
        late.commit()
    run.catch_up()
    assert run.rows("SELECT n, held, ids FROM by_n ORDER BY n") == db(AS_UPSTREAM)
    assert db("SELECT count(*) FROM t WHERE n = 2") == [(10,)]


def test_verify_of_a_job_that_a_column_ended_says_what_the_run_said(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    db("ALTER TABLE t ADD COLUMN more int DEFAULT 7")
    for act in (run.catch_up, lambda: verify("orders", run.catalog)):
        with pytest.raises(BadData, match="column 'more' was added with a default") as caught:
            act()
        assert "backfill drop orders --with-rows --confirm orders" in str(caught.value.hint)


def test_verify_of_a_stopped_job_whose_table_has_a_new_column_says_who_applies_it(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    db("ALTER TABLE t ADD COLUMN more int")
    with pytest.raises(Transient, match="its columns changed, and the log is not applied up to that") as caught:
        verify("orders", run.catalog)
    applied_first(run, caught.value)
    db("TRUNCATE t", "INSERT INTO t VALUES (1, 2, 'new')")
    with pytest.raises(Transient, match="table 't' was truncated since the checkpoint") as truncated:
        verify("orders", run.catalog)
    applied_first(run, truncated.value)


def applied_first(run: Run, refused: BackfillError) -> None:
    """The hint, typed: its first two commands are a run that catches up."""
    with typed(refused) as hint:
        resume, wait, again = hint.commands()
        assert (resume, wait) == (["resume", "orders", "--detach"], ["wait", "orders", "--for", "caught-up"])
        run.catch_up()
        assert again == ["verify", "orders"]
        assert verify("orders", run.catalog).equal


def test_plan_names_the_types_that_the_sink_has_for_uuid_and_json(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE typed (id uuid PRIMARY KEY, j json, b jsonb, s text, n bigint)")
    (table,) = Run(db, tmp_path, "typed").planned().tables
    assert dict(table.columns) == {"id": "uuid", "j": "json", "b": "json", "s": "string", "n": "bigint"}


def test_a_guard_in_sql_holds_the_job_while_its_upstream_is_busy_and_plan_shows_it(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE busy (n int)", "INSERT INTO busy VALUES (3)")
    guards = """[throttle]
rate = 0
[[guards]]
name = "busy"
kind = "sql"
query = "SELECT max(n) FROM busy"
limit = 2
every = "100ms"
[[guards]]
name = "standbys"
kind = "replication-lag"
limit = "1h"
[[guards]]
name = "sessions"
kind = "sessions"
limit = 500
"""
    run = Run(db, tmp_path, "t", more=guards)
    told = {guard.name: guard for guard in run.planned().guards}
    assert told["busy"].said == "the query returned 3, over 2: it would pause the job now"
    assert told["standbys"].fine
    assert told["sessions"].fine
    db("DELETE FROM busy")
    assert (
        "cannot be asked: the query returned NULL" in {one.name: one for one in run.planned().guards}["busy"].said
    )
    db("INSERT INTO busy VALUES (3)")

    def until(holds: Callable[[Control], bool]) -> Control:
        for _ in range(600):
            with suppress(BackfillError):  # not yet
                row = run.catalog.job("orders")
                if row.created and holds(row.control):
                    return row.control
            time.sleep(0.05)
        raise AssertionError(run.catalog.jobs())

    def person() -> None:
        held = until(lambda control: control.paused)
        assert held.pauser == "guard 'busy': the query returned 3, over 2"
        assert held.paused_by is None
        db("UPDATE busy SET n = 1")
        assert until(lambda control: not control.paused) == Control(rate=0)

    def person_and_rate() -> None:
        try:
            person()
        finally:
            run.catalog.post("orders", Verb.THROTTLE, None, "ann", 0)

    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(person_and_rate)
        run.catch_up()
        seen.result(timeout=60)
    run.equal("SELECT id, n FROM t ORDER BY id")
    _, _, taken = run.catalog.news("orders", 0)
    verbs = [verb for verb, _ in groupby(one.command.verb for one in taken)]  # a guard may say a thing twice
    assert verbs == [Verb.HOLD, Verb.LIFT, Verb.THROTTLE]
