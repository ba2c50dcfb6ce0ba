"""Whole jobs over PostgreSQL into DuckDB, through engine and Spark: at their end the sink is the database."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from postgres import Server
from postgres_database import Database, database

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.engine.doctor import place
from backfill_cli.engine.job import starting
from backfill_cli.engine.job.drop import drop
from backfill_cli.engine.job.held import told_by_upstreams
from backfill_cli.engine.job.preflight import plan
from backfill_cli.engine.loop.run import start
from backfill_cli.engine.verify.fix import fix
from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BackfillError, HistoryGone, NoSuchJob, Transient, UsageError
from backfill_cli.model.plan_report import PlanReport
from backfill_cli.model.upstream import HeldLog
from backfill_cli.model.verify import EVERYTHING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[job]
name = "orders"
staging = "{folder}/staging"
[upstream]
type = "postgres"
dsn = "${{env:ORDERS_DSN}}"
slot = "{slot}"
max_retained = "40MB"
{tables}
[sink]
type = "duckdb"
path = "{folder}/sink.duckdb"
[barrier]
interval = "100ms"
[retry]
limit = "5s"
{more}
"""


class Run:
    """One job in this process; staging must not be on the way of another."""

    def __init__(self, db: Database, folder: Path, *tables: str, more: str = "") -> None:
        self.db, self.folder = db, folder
        listed = "\n".join(f'[[tables]]\nname = "{name}"' for name in tables)
        self.catalog = Catalog(folder / "catalog.duckdb")
        self.config = folder / "job.toml"
        self.config.write_text(CONFIG.format(folder=folder, slot=db.name, tables=listed, more=more))

    def catch_up(self) -> None:
        start(load(self.config), self.catalog, "caught-up", False, None)

    def planned(self) -> PlanReport:
        return plan(load(self.config), self.catalog)

    def plan_says_that_it_is_gone(self, how: str) -> None:
        """As a run would, and changing nothing."""
        before = self.catalog.jobs()
        with pytest.raises(HistoryGone, match=how) as told:
            self.planned()
        assert "backfill drop orders --with-rows --confirm orders" in told.value.hint
        assert self.catalog.jobs() == before
        assert isinstance(told_by_upstreams(["orders"], self.catalog)["orders"], HistoryGone)

    def rows(self, query: str) -> list[Any]:
        with duckdb.connect(str(self.folder / "sink.duckdb"), read_only=True) as held:
            return held.execute(query).fetchall()

    def equal(self, *queries: str) -> None:
        for query in queries:
            assert self.rows(query) == self.db(query), query


@pytest.fixture
def db(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(postgres) as made:
        monkeypatch.setenv("ORDERS_DSN", made.dsn)
        made(
            "CREATE TABLE t (id int PRIMARY KEY, n int, large text)",
            "ALTER TABLE t ALTER large SET STORAGE external",
        )
        made("INSERT INTO t SELECT n, 0, repeat(n::text, 3000) FROM generate_series(1, 50) n")
        yield made


def test_many_rows_never_analyzed_unchanged_large_values_an_added_column_a_truncate(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    db(
        "CREATE TABLE big (id bigint PRIMARY KEY, v text) WITH (autovacuum_enabled = off)",
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


def test_case_08_a_value_that_is_not_sent_and_that_a_where_asks_for_is_refused_before(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t", more='[transform]\nwhere = "length(large) > 3000 OR n > 5"')
    with pytest.raises(UsageError, match="value of large") as caught:
        run.catch_up()
    assert "REPLICA IDENTITY FULL" in (caught.value.hint or "")
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    db("ALTER TABLE t REPLICA IDENTITY FULL")
    run.catch_up()
    db("UPDATE t SET n = id")
    run.catch_up()
    run.equal("SELECT * FROM t WHERE length(large) > 3000 OR n > 5 ORDER BY 1")


def test_a_slot_that_holds_more_than_it_may_is_given_up(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    db("CREATE TABLE noise AS SELECT n, repeat('x', 100) v FROM generate_series(1, 400000) n")
    with pytest.raises(HistoryGone, match="40 MB") as caught:
        run.catch_up()
    assert caught.value.exit_code == 7
    assert "drop" in (caught.value.hint or "")
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    run.plan_says_that_it_is_gone("is gone, and with it the changes after")


def test_plan_and_verify_never_give_the_slot_up(spark: "SparkSession", db: Database, tmp_path: Path) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    assert any("keeps" in note and "of its log for this job" in note for note in run.planned().notes)
    db("CREATE TABLE noise AS SELECT n, repeat('x', 100) v FROM generate_series(1, 400000) n")
    assert any("more than upstream.max_retained (40 MB)" in said for said in run.planned().warnings)
    held = told_by_upstreams(["orders"], run.catalog)["orders"]
    assert isinstance(held, HeldLog)
    assert (held.is_over, held.bounded, held.limit_bytes) == (True, False, 40 << 20)
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


def test_a_start_that_fails_once_the_slot_is_there_takes_it_away(
    spark: "SparkSession", db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(db, tmp_path, "t")

    def fail(*_given: object) -> None:
        raise Transient("the catalog's disk is full", "make room")

    with monkeypatch.context() as broken:
        broken.setattr(Catalog, "create_job", fail)
        with pytest.raises(Transient, match="disk is full"):
            run.catch_up()
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    assert db("SELECT count(*) FROM pg_publication") == [(0,)]
    run.catch_up()
    run.equal("SELECT * FROM t ORDER BY 1")


def test_what_a_start_that_was_cut_off_holds_is_told_and_dropped(
    spark: "SparkSession", db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(db, tmp_path, "t")
    with monkeypatch.context() as broken:
        broken.setattr(starting, "_settle", lambda *_: None)
        broken.setattr(Catalog, "create_job", lambda *_: sys.exit(137))  # as kill -9 would
        with pytest.raises(SystemExit):
            run.catch_up()
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert db(slots) == [(2,)]
    (note,) = [said for said in run.planned().notes if "did not complete" in said]
    assert "start will remove what it left: replication slot 'backfill_start_" in note
    (check,) = [one for one in place.checks(run.catalog, "orders") if "did not complete" in one.said]
    assert "backfill drop orders --confirm orders" in check.fix
    assert db(slots) == [(2,)]
    done = drop("orders", run.catalog)
    assert (done.left, db(slots), db("SELECT count(*) FROM pg_publication")) == (None, [(0,)], [(0,)])
    assert run.catalog.starts.of("orders") is None
    with pytest.raises(NoSuchJob):
        drop("orders", run.catalog)


def test_a_sink_that_is_the_upstream_is_refused(spark: "SparkSession", db: Database, tmp_path: Path) -> None:
    run = Run(db, tmp_path, "t")
    text = run.config.read_text().replace('type = "duckdb"', 'type = "postgres"')
    text = text.replace(f'path = "{tmp_path}/sink.duckdb"', 'dsn = "${env:ORDERS_DSN}"\nschema = "public"')
    run.config.write_text(text)
    db("TRUNCATE t")
    for act in (lambda: plan(load(run.config), run.catalog), run.catch_up):
        with pytest.raises(UsageError, match="the target of table 't' is the upstream's own table 't'"):
            act()
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    assert db("SELECT to_regclass('_backfill_markers')") == [(None,)]


def test_a_job_whose_sink_is_gone_is_forgotten_when_told_so(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    (tmp_path / "sink.duckdb").unlink()
    (tmp_path / "sink.duckdb").mkdir()
    with pytest.raises(BackfillError) as refused:
        drop("orders", run.catalog)
    assert "backfill drop orders --without-sink --confirm orders" in refused.value.hint
    assert not drop("orders", run.catalog, without_sink=True).known
    assert list(run.catalog.jobs()) == []
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


def test_a_plan_says_all_that_a_start_would_refuse_and_estimates_are_called_so(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    db("ANALYZE t")
    run = Run(db, tmp_path, "t")
    ready = plan(load(run.config), run.catalog)
    assert (ready.refused, [table.estimated for table in ready.tables]) == ((), [True])
    for said in ("start will create replication slot", "ALTER SYSTEM SET max_slot_wal_keep_size = '40MB'"):
        assert any(said in note for note in ready.notes)
    db(f"SELECT pg_create_logical_replication_slot('{db.name}', 'pgoutput')", "CREATE TABLE child () INHERITS (t)")
    db("INSERT INTO t (id) VALUES (77001)")  # whose log is somebody else's: it is not read
    refused = plan(load(run.config), run.catalog)
    assert any(said.startswith("other tables inherit from table 't'") for said in refused.refused)
    assert any("slot" in said and "Try: " in said for said in refused.refused)
    assert (refused.notes, refused.pending_epochs) == ((), None)


def test_a_start_that_the_database_is_not_ready_for_has_changed_nothing(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    db(f"SELECT pg_create_logical_replication_slot('{db.name}', 'pgoutput')")
    run = Run(db, tmp_path, "t")
    with pytest.raises(UsageError, match="exists, but this job did not create it"):
        run.catch_up()
    assert not (tmp_path / "sink.duckdb").exists()
    assert list(run.catalog.jobs()) == []
    assert db("SELECT count(*) FROM pg_publication") == [(0,)]
    db(f"SELECT pg_drop_replication_slot('{db.name}')")
    run.catch_up()
    run.equal("SELECT * FROM t ORDER BY 1")


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


def test_a_fix_writes_what_others_changed_and_leaves_keys_that_have_changed_upstream_to_the_log(
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
