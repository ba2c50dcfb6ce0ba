"""Databases of their own in the server that tests share."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from postgres import Server
from psycopg import sql

_numbers = itertools.count(1)
MEMORY = Path("/dev/shm")
ENOUGH = 4 << 30
"""Bytes free there, of a machine with several servers."""


class Database:
    """A new database. dsn: of its owner, a superuser."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name
        self.dsn = server.dsn(name)

    def __call__(self, *statements: str) -> list[tuple[Any, ...]]:
        """Each statement in a transaction of its own; the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows


@contextmanager
def open_folder() -> Iterator[Path]:
    """A new folder for a server that runs as another user. pytest's own are closed to others, again and again:
    each process of a run sees to that when it begins.

    In memory, if there is enough: a database is 300 files, and takes 25 ms of CPU to make and drop, not 90.
    """
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
    with tempfile.TemporaryDirectory(prefix="backfill-postgres-", dir=MEMORY if roomy else None) as folder:
        yield Path(folder)


@contextmanager
def database(server: Server) -> Iterator[Database]:
    """A database that is dropped at the end, its slots with it."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        # PostgreSQL 15 and newer otherwise write the template's 7 MB to the log, for twice the CPU
        copied = "STRATEGY FILE_COPY" if admin.info.server_version >= 150_000 else ""
        admin.execute(sql.SQL(f"CREATE DATABASE {{}} {copied}").format(sql.Identifier(name)))
    try:
        yield Database(server, name)
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            slots = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
            for (slot,) in admin.execute(slots, (name,)).fetchall():
                admin.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def no_standby(db: Database) -> Iterator[None]:
    """Commits that do not say otherwise wait for a standby that is not there, until the end of `with`."""
    admin = psycopg.connect(db.dsn, autocommit=True)
    admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    try:
        admin.execute("SELECT pg_reload_conf()")
        _until_commits_wait(db)
        yield
    finally:
        admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        admin.execute("SELECT pg_reload_conf()")
        admin.close()


def _until_commits_wait(db: Database) -> None:
    """The server's processes have heard of the standby: a commit of ours that waits for it is seen, and ended."""
    until_s = time.monotonic() + 60
    with psycopg.connect(db.dsn, autocommit=True) as probe:
        while True:
            probe.pgconn.send_query(b"SELECT pg_logical_emit_message(true, 'probe', '')")
            waits = False
            while not waits and probe.pgconn.is_busy():
                assert time.monotonic() < until_s
                waits = probe.info.backend_pid in waiting_for_standby(db)
                probe.pgconn.consume_input()
            if waits:
                db(f"SELECT pg_cancel_backend({probe.info.backend_pid})")
            while probe.pgconn.get_result() is not None:
                pass
            if waits:
                return


def waiting_for_standby(db: Database) -> list[int]:
    """The server processes whose COMMIT waits for a standby."""
    found = db("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()")
    return [pid for (pid,) in found]
