"""A job over one table, in the middle of its snapshot, that goes to its end while the table changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_job import PlainJob
from postgres import Server
from postgres_database import Database, database

from backfill_cli.errors import Transient


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


def with_retries(job: PlainJob, most: int = 30) -> None:
    """To the end; what fails in passing is tried again, as the engine does."""
    for _ in range(most):
        try:
            if not job.step(judged=False) and job.following:
                break
        except Transient:
            continue
    job.follow()
