"""A log that is read beside the job that consumes it: a verify of a running job has all after its checkpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import database

from backfill_cli.contracts import LogRequest
from backfill_cli.errors import HistoryGone, Transient, UsageError
from backfill_cli.model.plan import ChangeWindow

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")

SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"


@pytest.fixture
def job(postgres: Server, tmp_path: Path) -> Iterator[PlainJob]:
    """Live, with 40 rows."""
    with database(postgres) as db:
        db("CREATE TABLE t (id int PRIMARY KEY, v text)")
        db("INSERT INTO t SELECT n, n FROM generate_series(1, 40) n")
        made = PlainJob(db, tmp_path, {"t": ("id",)})
        made.follow()
        yield made
        made.upstream.close()


def beside(job: PlainJob) -> Any:
    """Another process of the job, which reads."""
    upstream = job._opened()
    upstream.restore(job.pin)
    upstream.recall(job.memory)
    return upstream


def goes_on(job: PlainJob) -> None:
    """The job applies and acknowledges more."""
    for n in range(3):
        job.db(f"UPDATE t SET v = 'later {n}' WHERE id < 9")
        job.follow()


def test_what_follows_a_checkpoint_stays_readable_while_the_job_goes_on(job: PlainJob) -> None:
    other = beside(job)
    with other.retained() as held_up:
        assert "keeps its log" in held_up
        at, schemas = job.state.position, dict(job.schemas)
        goes_on(job)
        with pytest.raises(HistoryGone):
            beside(job).observe(at, snapshot_open=False)
        other.observe(at, snapshot_open=False)
        window = ChangeWindow(at, at, 0, 0, 0, open=True)
        taken = other.take(None, LogRequest(window, None, schemas, str(job.folder))).tables["t"]
        assert (taken.changes, taken.changed) == (24, 8)
        other.observe(at, snapshot_open=False)
        goes_on(job)
        assert job.db(SLOTS) == [(2,)]
    assert job.db(SLOTS) == [(1,)]
    other.close()


def test_what_is_held_goes_with_the_process_that_held_it(job: PlainJob) -> None:
    other = beside(job)
    held = other.retained()
    held.__enter__()
    assert job.db(SLOTS) == [(2,)]
    job.db(f"SELECT pg_terminate_backend({other._connection.info.backend_pid}, 5000)")
    assert job.db(SLOTS) == [(1,)]
    held.__exit__(None, None, None)
    other.close()


def test_a_server_without_a_free_slot_is_named_with_the_way_on(job: PlainJob) -> None:
    ((free,),) = job.db(
        "SELECT current_setting('max_replication_slots')::int - count(*)::int FROM pg_replication_slots"
    )
    job.db(*(f"SELECT pg_create_physical_replication_slot('full_{n}')" for n in range(free)))
    try:
        other = beside(job)
        with pytest.raises(UsageError, match="all replication slots are in use") as refused, other.retained():
            pass
        with typed(refused.value) as hint:
            hint.says("drop one that is not needed (SELECT slot_name, active FROM pg_replication_slots)")
            listed = job.db("SELECT slot_name, active FROM pg_replication_slots")
            unneeded = [name for name, _ in listed if name.startswith("full_")][:2]
            job.db(*(f"SELECT pg_drop_replication_slot('{name}')" for name in unneeded))
            with other.retained():
                pass
        other.close()
    finally:
        job.db("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE 'full%'")


def test_a_copy_that_went_with_its_connection_may_pass_and_the_job_is_as_it_was(job: PlainJob) -> None:
    other = beside(job)
    at, schemas = job.state.position, dict(job.schemas)
    with other.retained():
        job.db(f"SELECT pg_terminate_backend({other._connection.info.backend_pid}, 5000)")
        for _ in range(3):
            with pytest.raises(Transient):
                other.observe(at, snapshot_open=False)
        job.db("UPDATE t SET v = 'more'")
        window = ChangeWindow(at, at, 0, 0, 0, open=True)
        with pytest.raises(Transient, match="a copy of the job's slot was lost"):
            other.take(None, LogRequest(window, None, schemas, str(job.folder)))
    with other.retained():
        other.observe(at, snapshot_open=False)
    other.close()


@pytest.mark.parametrize("mark", [None, "0123456789abcdef"])
def test_what_is_printed_to_remove_by_hand_what_a_job_holds_can_be_typed_twice(
    job: PlainJob, mark: str | None
) -> None:
    statements = job.upstream.removal(job.pin, mark)
    job.upstream.close()
    job.db(*statements, *statements)
    assert job.db(SLOTS) == [(0,)]
    assert job.db("SELECT count(*) FROM pg_publication") == [(0,)]
