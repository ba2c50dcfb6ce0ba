"""What tests of the PostgreSQL sink share: commits of any rows, or in a child; lost answers; a pooler."""

import itertools
import os
import pickle
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from postgres_database import Database
from psycopg.rows import dict_row
from sink_contract import Epochs, Row

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.sinks.postgres import PostgresOptions, connector
from backfill_cli.sinks.postgres.sink import PostgresSink

EXECUTE = b"E\0\0\0\t\0\0\0\0\0"
"""The message that runs what was prepared."""


def sink_of(dsn: str, schema: str = "public") -> PostgresSink:
    made = connector.open(PostgresOptions(dsn=dsn, in_schema=schema))
    assert isinstance(made, PostgresSink)
    return made


def read_table(db: Database, target: str) -> list[Row]:
    with psycopg.connect(db.dsn, row_factory=dict_row) as con:
        return con.execute(f"SELECT * FROM {target} ORDER BY id".encode()).fetchall()


def begun(sink: PostgresSink, folder: Path, *tables: SinkTable, into_existing: bool = False) -> Epochs:
    """A job's epochs, its tables prepared and fenced."""
    built = Epochs(folder / "staging", tables=tables)
    sink.prepare(built.job, built.tables, into_existing)
    sink.fence(built.job, built.token)
    return built


def staging(epochs: Epochs, inserts: pa.Table | None = None, changes: pa.Table | None = None) -> EpochCommit:
    """The next epoch with these rows of its first table; changes carry `_backfill_op`."""
    made, table = epochs.next(), epochs.tables[0].name
    files: dict[str, tuple[StagedFile, ...]] = {}
    for kind, rows in (("inserts", inserts), ("changes", changes)):
        if rows is not None:
            path = Path(made.folder) / table / kind / "0.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(rows, path)
            files[kind] = (StagedFile(str(path.relative_to(made.folder)), path.stat().st_size),)
    ops = [] if changes is None else changes["_backfill_op"].to_pylist()
    staged = StagedTable(
        inserts=files.get("inserts", ()),
        changes=files.get("changes", ()),
        rows=0 if inserts is None else inserts.num_rows,
        changed=ops.count("U"),
        deleted=ops.count("D"),
    )
    return replace(made, staged=Staged(made.attempt, {table: staged}))


def commit_in_a_child(dsn: str, folder: Path, commit: EpochCommit, **env: str) -> int:
    """Commit in a process of its own; returns how it ended."""
    plan = folder / "commit.pickle"
    plan.write_bytes(pickle.dumps(commit))
    script = f"""
        import pickle
        from pathlib import Path
        from backfill_cli.sinks.postgres import connector
        from backfill_cli.sinks.postgres import PostgresOptions
        connector.open(PostgresOptions(dsn={dsn!r})).commit(pickle.loads(Path({str(plan)!r}).read_bytes()))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env={**os.environ, **env}, check=False)
    return done.returncode


@contextmanager
def losing_the_answer(port: int, to: bytes) -> Iterator[int]:
    """A port that passes everything on, and hangs up once the server has answered that it executed `to`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=pass_on, args=(client,), daemon=True).start()

    def pass_on(client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", port))
        lost = threading.Event()

        def back() -> None:
            while data := _received(server):
                if lost.is_set():
                    break
                client.sendall(data)
            for one in (client, server):  # close() alone waits for who reads it in another thread
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=back, daemon=True).start()
        prepared = False
        while data := _received(client):
            prepared = prepared or to in data
            if prepared and EXECUTE in data:
                lost.set()
            server.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 16)
    except OSError:
        return b""


@contextmanager
def pooled(port: int) -> Iterator[int]:
    """A port behind which each transaction gets another session than the last one, as a pooler may do."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=take_turns, args=(client,), daemon=True).start()

    def take_turns(client: socket.socket) -> None:
        opening = _opening(client)
        sessions = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        for end in (client, *sessions):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each message waits 40 ms
        for session in sessions:
            session.sendall(opening)
            greeting = b"".join(_until(session, b"Z"))
        client.sendall(greeting)
        with suppress(ConnectionError):
            for session in itertools.cycle(sessions):
                ended = False
                while not ended:
                    for message in _until(client, b"QSc"):
                        session.sendall(message)
                    for message in _until(session, b"ZG"):
                        client.sendall(message)
                        ended = message == b"Z\0\0\0\5I"
        for one in (client, *sessions):
            one.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def _opening(client: socket.socket) -> bytes:
    """A client's first message, its wishes for encryption declined."""
    while True:
        size = _exactly(client, 4)
        rest = _exactly(client, struct.unpack("!i", size)[0] - 4)
        if struct.unpack("!i", rest[:4])[0] == 3 << 16:
            return size + rest
        client.sendall(b"N")


def _until(sock: socket.socket, last: bytes) -> Iterator[bytes]:
    """Messages up to one of these kinds."""
    kind = b""
    while not kind or kind not in last:
        kind, size = _exactly(sock, 1), _exactly(sock, 4)
        yield kind + size + _exactly(sock, struct.unpack("!i", size)[0] - 4)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def all_tables(db: Database) -> set[Any]:
    """Every table of the database but the system's own, temporary ones too."""
    return {
        name
        for (name,) in db(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace NOT IN "
            "('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
        )
        if not name.startswith("pg_toast")
    }
