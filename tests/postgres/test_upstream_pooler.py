"""A real pgbouncer before the server: in session mode a job runs through it, in other modes it is refused."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from hint_typed import typed
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database, open_folder
from server_process import free_port

from backfill_cli.errors import UsageError

__all__ = ["small"]

INI = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
"""


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT n, n FROM generate_series(1, 40) n",
        )
        yield made


@contextmanager
def pooled(db: Database, mode: str) -> Iterator[str]:
    """A DSN that leads to the database by way of a pool."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no pgbouncer: apt-get install pgbouncer")
    with open_folder() as folder:
        port, ini = free_port(), folder / "pgbouncer.ini"
        ini.write_text(INI.format(server=db.server.port, port=port, mode=mode))
        folder.chmod(0o755)
        words = [program, str(ini)] + (["-u", "nobody"] if os.getuid() == 0 else [])
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            dsn = f"postgresql://postgres@127.0.0.1:{port}/{db.name}"
            until = time.monotonic() + 20
            while True:
                try:
                    psycopg.connect(dsn).close()
                    break
                except psycopg.OperationalError:
                    assert time.monotonic() < until
                    assert running.poll() is None
                    time.sleep(0.05)
            yield dsn
        finally:
            running.terminate()
            running.wait()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_sessions_is_refused_by_name(db: Database, tmp_path: Path, mode: str) -> None:
    with pooled(db, mode) as dsn, pytest.raises(UsageError, match="leads to a pooler") as refused:
        PlainJob(db, tmp_path, {"t": ("id",)}, options={"dsn": dsn})
    assert db("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]
    with typed(refused.value) as hint:
        hint.says("name the server itself in upstream.dsn")
        PlainJob(db, tmp_path, {"t": ("id",)}).upstream.close()


@pytest.mark.usefixtures("small")
def test_a_pooler_in_session_mode_is_as_good_as_the_server(db: Database, tmp_path: Path) -> None:
    with pooled(db, "session") as dsn:
        job = PlainJob(db, tmp_path, {"t": ("id",)}, options={"dsn": dsn})
        job.step()
        db("UPDATE t SET v = 'new' WHERE id % 2 = 0", "DELETE FROM t WHERE id > 35")
        job.follow()
        job.upstream.close()
