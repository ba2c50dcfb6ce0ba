"""Strategy chain over PostgreSQL, whole jobs: what befalls tables while the snapshot waits, and between runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hint_typed import typed
from postgres import Server
from postgres_database import Database, database
from postgres_job import Run

from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BackfillError, BadData, Transient
from backfill_cli.model.job import Verb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "SELECT id, n, md5(large) FROM t ORDER BY 1"


class Chain(Run):
    """A job over table `t` whose snapshot waits for `go`. entries: in its spool."""

    def __init__(self, db: Database, folder: Path) -> None:
        super().__init__(db, folder, "t", more=f'[spool]\npath = "{folder}/spool"\n[throttle]\nrate = 0')
        text = self.config.read_text()
        self.config.write_text(text.replace('name = "orders"', 'name = "orders"\nstrategy = "chain"', 1))

    @property
    def entries(self) -> int:
        return len(list((self.folder / "spool" / "orders").glob("*/entry.json")))

    def post(self, verb: Verb) -> None:
        self.catalog.post("orders", verb, None, "test", time.time_ns() // 1_000_000)

    def go(self) -> None:
        self.post(Verb.THROTTLE)

    def take_and_stop(self) -> None:
        """A change is in the spool, and no runner is alive."""

        def script() -> None:
            self.db("UPDATE t SET n = 1 WHERE id = 7")
            until(lambda: self.entries >= 1)
            self.post(Verb.STOP)

        with self.beside(script), pytest.raises(BackfillError):
            self.catch_up()

    def state(self) -> str:
        try:
            return str(self.catalog.job("orders").state)
        except BackfillError:
            return ""

    @contextmanager
    def beside(self, script: Callable[[], None]) -> Iterator[None]:
        """While the job runs in this thread, the script runs in another, from its first barrier on."""
        failed: list[BaseException] = []

        def played() -> None:
            try:
                until(lambda: self.state() in ("running", "paused"))
                script()
            except BaseException as exc:
                failed.append(exc)
                self.post(Verb.STOP)

        thread = threading.Thread(target=played, daemon=True)
        thread.start()
        yield
        thread.join(60)
        assert not failed, failed


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.fixture
def db(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(postgres) as made:
        monkeypatch.setenv("ORDERS_DSN", made.dsn)
        made(
            "CREATE TABLE t (id int PRIMARY KEY, n int, large text)",
            "ALTER TABLE t ALTER large SET STORAGE external",
            "INSERT INTO t SELECT n, 0, repeat(n::text, 3000) FROM generate_series(1, 50) n",
        )
        yield made


def test_a_column_added_and_rows_deleted_while_the_snapshot_waits(
    spark: "SparkSession", db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update of 7 omits its large value, and is drained before the delete: no row exists to keep it."""
    monkeypatch.setattr("backfill_cli.strategies.snapshot.fitting", lambda _pending, _rows: 1)
    run = Chain(db, tmp_path)

    def script() -> None:
        db("UPDATE t SET n = 1 WHERE id IN (7, 8)")
        until(lambda: run.entries >= 1)
        db("DELETE FROM t WHERE id = 7", "ALTER TABLE t ADD COLUMN more int", "UPDATE t SET more = 5 WHERE id = 9")
        until(lambda: run.entries >= 2)
        run.go()

    with run.beside(script):
        run.catch_up()
    run.equal(ROWS, "SELECT id, more FROM t ORDER BY 1")
    assert run.entries == 0


def test_a_restart_waits_for_no_transaction_once_rows_were_read(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Chain(db, tmp_path)
    run.config.write_text(run.config.read_text().replace("rate = 0", "rate = 20"))

    def script() -> None:
        until(lambda: run.catalog.job("orders").epoch > 0)
        run.post(Verb.STOP)

    with run.beside(script), pytest.raises(BackfillError):
        run.catch_up()
    db("CREATE TABLE other (id int)")
    with psycopg.connect(db.dsn) as long:
        long.execute("INSERT INTO other VALUES (1)")
        with run.beside(run.go):
            run.catch_up()
    run.equal(ROWS)


def test_what_is_taken_and_not_applied_is_not_verified_and_a_pause_of_all_holds_both_still(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Chain(db, tmp_path)
    run.take_and_stop()
    with pytest.raises(Transient, match="its spool holds changes that are not applied yet") as caught:
        verify("orders", run.catalog)
    with typed(caught.value) as hint:
        told = (
            "resume orders --detach",
            "wait orders --for caught-up",
            "pause orders --all --wait",
            "verify orders",
        )
        assert [" ".join(words) for words in hint.commands()] == [*told, "resume orders"]
        with run.beside(run.go):
            run.catch_up()
        db("UPDATE t SET n = 2 WHERE id = 9")
        assert verify("orders", run.catalog).equal


def test_a_change_of_columns_that_cannot_be_followed_ends_the_taking_at_once(
    spark: "SparkSession", db: Database, tmp_path: Path
) -> None:
    run = Chain(db, tmp_path)
    run.take_and_stop()
    db("ALTER TABLE t RENAME n TO m", "UPDATE t SET m = 5 WHERE id = 3", "ALTER TABLE t RENAME m TO n")
    with pytest.raises(BadData, match="schema changed"):
        run.catch_up()
