"""A table of PostgreSQL joins a job that follows others, and leaves it: publication, open transactions, TOAST."""

from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import psycopg
import pytest
from hint_typed import typed
from postgres_database import Database
from postgres_job import Run, db

from backfill_cli.api import refilling
from backfill_cli.config import load
from backfill_cli.engine.job.change import adding, removing
from backfill_cli.engine.loop.run import resume
from backfill_cli.errors import Transient, UsageError
from backfill_cli.model.job import Phase, Verb
from backfill_cli.upstreams.postgres import publications
from backfill_cli.upstreams.postgres.lease import SlotLease
from backfill_cli.upstreams.postgres.options import PostgresOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["db"]

MORE = (
    "CREATE TABLE more (id int PRIMARY KEY, n int, large text)",
    "ALTER TABLE more ALTER large SET STORAGE EXTERNAL",
    "INSERT INTO more SELECT i, i, repeat('x', 3000) FROM generate_series(1, 40) i",
)


def test_a_table_joins_while_a_transaction_that_changed_it_is_open_and_leaves_again(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t")
    run.catch_up()
    db(*MORE)
    writer = psycopg.connect(db.dsn)
    writer.execute("UPDATE more SET n = -id WHERE id <= 20")
    found = adding("orders", "more", None, run.catalog, into_existing=False)
    assert found.lines == '[[tables]]\nname = "more"\nkey = ["id"]'
    run.catalog.post("orders", Verb.ADD, None, "ann", 5, payload=found.change.stored)
    Timer(1.0, lambda: (writer.execute("UPDATE t SET n = n + 1"), writer.commit(), writer.close())).start()
    resume("orders", run.catalog, None, "caught-up", None)
    run.equal("SELECT * FROM t ORDER BY 1", "SELECT * FROM more ORDER BY 1")
    db(
        "UPDATE more SET n = 7 WHERE id % 2 = 0",
        "DELETE FROM more WHERE id < 5",
    )
    resume("orders", run.catalog, None, None, None)
    run.equal("SELECT * FROM more ORDER BY 1")
    assert run.catalog.job("orders").phase == Phase.UPSTREAM

    change = removing("orders", "t", run.catalog, with_rows=False)
    run.catalog.post("orders", Verb.REMOVE, None, "ann", 5, payload=change.stored)
    before = run.rows("SELECT * FROM t ORDER BY 1")
    db("UPDATE t SET n = -5", "UPDATE more SET n = 8 WHERE id = 20")
    resume("orders", run.catalog, None, None, None)
    run.equal("SELECT * FROM more ORDER BY 1")
    assert run.rows("SELECT * FROM t ORDER BY 1") == before, "nothing fills it any more"
    assert db("SELECT tablename::text FROM pg_publication_tables") == [("more",)]
    assert run.rows('SELECT "table" FROM _backfill_markers') == [("more",)]

    for name in ("t", "more"):  # it comes back, and its rows were written anew meanwhile, which no log shows
        db(f"ALTER TABLE {name} ALTER n TYPE int USING n + 1")
        found = adding("orders", name, None, run.catalog, into_existing=True)
        run.catalog.post("orders", Verb.ADD, None, "ann", 5, payload=found.change.stored)
        resume("orders", run.catalog, None, None, None)
        run.equal(f"SELECT * FROM {name} ORDER BY 1")
        if name == "t":
            change = removing("orders", "more", run.catalog, with_rows=False)
            run.catalog.post("orders", Verb.REMOVE, None, "ann", 5, payload=change.stored)
            resume("orders", run.catalog, None, None, None)


def test_the_transaction_that_a_table_waits_for_is_named_with_what_ends_it(db: Database, tmp_path: Path) -> None:
    source = load(Run(db, tmp_path, "t").config).open_upstream()
    with closing(source), psycopg.connect(db.dsn) as other:
        assert source.lease is not None
        source.pin()
        source.lease.create("m")
        other.execute("SELECT pg_current_xact_id()")
        pin = source.pin()
        source.read_on({"t"})
        view = source.observe(pin.position, True)
        assert view.log_first
        assert view.waits is not None
        assert f"process {other.info.backend_pid} " in view.waits.text
        assert f"pg_terminate_backend({other.info.backend_pid})" in str(view.waits.hint)
        other.rollback()
        assert source.observe(pin.position, True).waits is None


def test_a_table_that_fails_is_set_aside_and_a_refill_puts_it_back(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    rows = "INSERT INTO more SELECT i FROM generate_series({}, {}) i"
    made = "CREATE TABLE more (id int PRIMARY KEY, at date)"
    db(made, rows.format(1, 40))
    run = Run(db, tmp_path, "t", "more")
    run.config.write_text(run.config.read_text().replace("[job]", '[job]\non_error = "set-aside"'))
    run.catch_up()
    before = run.rows("SELECT * FROM more ORDER BY 1")
    db("UPDATE t SET n = n + 1", "UPDATE more SET at = 'infinity' WHERE id = 7", "DELETE FROM more WHERE id > 30")
    resume("orders", run.catalog, None, "caught-up", None)
    (aside,) = run.catalog.definition("orders").aside
    assert "infinity" in aside.cause.text
    assert "keeps no log for it" in aside.keeps
    run.equal("SELECT * FROM t ORDER BY 1")
    assert run.rows("SELECT * FROM more ORDER BY 1") == before

    db("DROP TABLE more", made, rows.format(20, 60), "UPDATE t SET n = 5")
    refilling.refill(run.catalog, run.catalog.job("orders"), "more", None, None)
    resume("orders", run.catalog, None, "caught-up", None)
    assert run.catalog.definition("orders").aside == ()
    run.equal("SELECT * FROM t ORDER BY 1", "SELECT * FROM more ORDER BY 1")

    db("UPDATE more SET id = 7 WHERE id = 20", "DROP TABLE more", "DELETE FROM t WHERE id = 3")
    resume("orders", run.catalog, None, "caught-up", None)
    assert [one.table for one in run.catalog.definition("orders").aside] == ["more"]
    run.equal("SELECT * FROM t ORDER BY 1")


def test_a_publication_of_somebody_else_is_theirs_to_change(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Run(db, tmp_path, "t")
    db(f"CREATE PUBLICATION {load(run.config).upstream.publication} FOR TABLE t", *MORE)  # type: ignore[attr-defined]
    run.catch_up()
    with pytest.raises(UsageError, match="does not have all changes of 'more'") as refused:
        adding("orders", "more", None, run.catalog, into_existing=False)
    assert run.catalog.job("orders").waiting == ()
    with typed(refused.value) as hint:
        db(*hint.statements())
        assert adding("orders", "more", None, run.catalog, into_existing=False).planned.name == "more"


def test_a_table_that_others_have_locked_is_waited_for_only_for_a_moment(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publications, "LOCKED_MS", 200)
    db(*MORE, "CREATE PUBLICATION p FOR TABLE t, more", "COMMENT ON PUBLICATION p IS 'made by backfill for s'")
    options = PostgresOptions(dsn=db.dsn, slot="s", publication="p")
    with closing(SlotLease(options, ())) as lease, psycopg.connect(db.dsn) as other:
        other.execute("LOCK TABLE more IN SHARE UPDATE EXCLUSIVE MODE")  # as VACUUM
        with pytest.raises(Transient, match="55P03"):
            lease.give_up("more", "")
        other.rollback()
        lease.give_up("more", "")
    assert db("SELECT tablename::text FROM pg_publication_tables") == [("t",)]
