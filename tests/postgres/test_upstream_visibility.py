"""A commit that is in the log, but that no snapshot shows yet, as it waits for a synchronous standby."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database, no_standby, waiting_for_standby

from backfill_cli.errors import Transient
from backfill_cli.upstreams.postgres import chunks

__all__ = ["small"]
pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def db(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(chunks, "VISIBLE_LIMIT_S", 0.3)
    with database(postgres) as made:
        made(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT n, n FROM generate_series(1, 40) n",
        )
        yield made


@contextmanager
def waiting(db: Database, *statements: str) -> Iterator[None]:
    """One transaction that is written and not yet visible; at the end of `with`, and of `no_standby`, it is."""
    before = waiting_for_standby(db)
    writer = threading.Thread(target=db, args=("; ".join(("BEGIN", *statements, "COMMIT")),))
    until = time.monotonic() + 20
    with no_standby(db):
        writer.start()
        while waiting_for_standby(db) == before:
            assert writer.is_alive()
            assert time.monotonic() < until
            time.sleep(0.01)
        yield
    writer.join(20)


def test_case_21_a_row_committed_in_the_log_and_not_visible_is_waited_for_and_not_lost(
    db: Database, tmp_path: Path
) -> None:
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.step(judged=False)
    unseen = "INSERT INTO t VALUES (1000, 'unseen')", "UPDATE t SET v = 'unseen' WHERE id IN (3, 39)"
    with waiting(db, *unseen, "DELETE FROM t WHERE id = 38", "UPDATE t SET id = 0 WHERE id = 37"):
        job.step(judged=False)  # its window holds the transaction: what is not read yet is dropped
        assert job.sink["t"][(3,)]["v"] == "unseen"
        assert (1000,) not in job.sink["t"]
        for dies in (False, True):
            if dies:
                job.die()
            with pytest.raises(Transient, match="no snapshot shows it yet") as caught:
                job.step(judged=False)
    with typed(caught.value) as hint:
        assert db(*hint.statements())
        job.follow(judged=False)
    assert job.sink["t"][(1000,)]["v"] == job.sink["t"][(39,)]["v"] == "unseen"
    assert (38,) not in job.sink["t"]


def test_following_waits_for_nobody(db: Database, tmp_path: Path) -> None:
    """If no rows are to be read, a commit is applied as soon as it is in the log."""
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.follow()
    with waiting(db, "INSERT INTO t VALUES (1000, 'unseen')"):
        job.step(judged=False)
        assert (1000,) in job.sink["t"]
    job.follow()


def test_a_truncate_after_rows_that_are_not_visible_yet_leaves_none_of_them(db: Database, tmp_path: Path) -> None:
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    job.step(judged=False)
    with waiting(db, "INSERT INTO t SELECT n, 'new' FROM generate_series(50, 70) n"):
        job.step(judged=False)
    db("TRUNCATE t", "INSERT INTO t VALUES (60, 'again')")
    job.follow(judged=False)
    assert set(job.sink["t"]) == {(60,)}
