"""Jobs over PostgreSQL that begin, or do not: what a plan says before, and what a start leaves behind."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed
from postgres_database import Database
from postgres_job import Run, db

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.engine import doctor
from backfill_cli.engine.job import held
from backfill_cli.engine.job.checks import plan
from backfill_cli.engine.job.drop import drop
from backfill_cli.errors import BackfillError, NoSuchJob, Transient, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["db"]


def test_case_08_a_value_that_is_not_sent_and_that_a_where_asks_for_is_refused_before(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t", more='[transform]\nwhere = "length(large) > 3000 OR n > 5"')
    with pytest.raises(UsageError, match="value of large") as caught:
        run.catch_up()
    assert "REPLICA IDENTITY FULL" in str(caught.value.hint)
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    db("ALTER TABLE t REPLICA IDENTITY FULL")
    run.catch_up()
    db("UPDATE t SET n = id")
    run.catch_up()
    run.equal("SELECT * FROM t WHERE length(large) > 3000 OR n > 5 ORDER BY 1")


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
        broken.setattr(held, "_settle", lambda *_: None)
        broken.setattr(Catalog, "create_job", lambda *_: sys.exit(137))  # as kill -9 would
        with pytest.raises(SystemExit):
            run.catch_up()
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert db(slots) == [(2,)]
    (note,) = [said for said in run.planned().notes if "did not complete" in said]
    assert "start will remove what it left: replication slot 'backfill_start_" in note
    (check,) = [one for one in doctor.of_place(run.catalog, "orders") if "did not complete" in one.said]
    assert db(slots) == [(2,)]
    with typed(check.fix) as hint:
        assert hint.commands()[1] == ["drop", "orders", "--confirm", "orders"]
        done = drop("orders", run.catalog)
    assert (done.left, db(slots), db("SELECT count(*) FROM pg_publication")) == ((), [(0,)], [(0,)])
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
    assert "backfill drop orders --without-sink --confirm orders" in str(refused.value.hint)
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
    assert any(str(said).startswith("other tables inherit from table 't'") for said in refused.refused)
    assert any("slot" in str(said) and "Try: " in str(said) for said in refused.refused)
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
