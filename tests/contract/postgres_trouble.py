"""What can happen to a PostgreSQL server and a sink's sessions: a full disk, an end, a wait at a known point."""

import contextlib
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from postgres import Server, running
from postgres_database import Database, open_folder

from backfill_cli import failpoint


@contextlib.contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Processes started in the block can never write a larger file."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, was[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """Not below pytest's own folder: another pytest that starts makes that inaccessible to the server's user."""
    with open_folder() as folder, running(folder) as server:
        yield server


@contextlib.contextmanager
def at(point: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[None]:
    """The commit protocol runs `act` at this point."""
    with monkeypatch.context() as patch:
        patch.setattr(failpoint, "handler", lambda name: act() if name == point else None)
        yield


@contextlib.contextmanager
def held_up(
    where: object, name: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """`act` runs in a thread, and stops at its first call of `name` until it is released."""
    real: Callable[..., Any] = getattr(where, name)
    there, go = threading.Event(), threading.Event()

    def waits(*given: Any, **named: Any) -> Any:
        if not there.is_set():
            there.set()
            assert go.wait(60)
        return real(*given, **named)

    monkeypatch.setattr(where, name, waits)
    acting = threading.Thread(target=act)
    acting.start()
    assert there.wait(30)
    try:
        yield go.set
    finally:
        go.set()
        acting.join(60)


def end_sessions(db: Database) -> None:
    db(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
        f"WHERE application_name = 'backfill' AND datname = '{db.name}'"
    )


def until(holds: Callable[[], bool], limit_s: float = 10) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
