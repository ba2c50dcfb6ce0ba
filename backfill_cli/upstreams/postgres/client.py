"""Connections to the database, and what its errors mean."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_dsn
from backfill_cli.errors import (
    RETRIED,
    START_OVER,
    BackfillError,
    BadData,
    Fatal,
    Transient,
    UsageError,
    in_config,
)
from backfill_cli.postgres_says import IN_DATABASE, INSTALL, Said, said
from backfill_cli.upstreams.postgres.types import SET

if TYPE_CHECKING:
    import psycopg

GLANCE_CONNECT_S = 3
"""libpq's minimum is 2 s; a command that checks several jobs has little more for all of them."""

SERVER = "SELECT pg_is_in_recovery()::text || ' ' || pg_postmaster_start_time()::text"


def lsn_text(lsn: int) -> str:
    """A position in the write-ahead log as PostgreSQL writes it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """The position that `lsn_text` wrote."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """A database error inside is raised as a BackfillError. what: what was being done, for people."""
    import psycopg

    try:
        yield
    except BackfillError:
        raise
    except psycopg.Error as exc:
        raise failure(exc, what) from exc


def failure(exc: "psycopg.Error", what: str) -> BackfillError:
    """The BackfillError for an error of the database. Raises nothing; no part of a DSN is in it."""
    state, words = exc.sqlstate or "", (exc.diag.message_primary or str(exc)).strip()
    if state.startswith("22") and exc.diag.context:
        what += f" ({exc.diag.context.splitlines()[0]})"
    return of_state(state, f"PostgreSQL, {what}", words)


def of_state(state: str, doing: str, words: str) -> BackfillError:
    """The same, given an error's SQLSTATE, empty if it has none. doing: for people."""
    text = f"{doing}: {''.join(words.splitlines()[:1])}" + (f" (SQLSTATE {state})" if state else "")
    match said(state, words):
        case Said.FORBIDDEN:
            return UsageError(text, "as the owner, grant the role what it lacks: to read tables, to use schemas")
        case Said.NO_WAY_IN:
            return UsageError(text, in_config("correct user, password or database in upstream.dsn"))
        case Said.UNREACHED:
            return Transient(text, in_config("start the database, or correct upstream.dsn"))
        case Said.PASSES:
            return Transient(text, RETRIED)
    if state.startswith("22"):
        return BadData(text, "correct the value upstream; if the log has it, then " + START_OVER)
    return Fatal(text, IN_DATABASE)


def connected(dsn: str) -> "psycopg.Connection[Any]":
    """A new connection with the settings that reading values relies on; each statement is its own transaction."""
    connection = _opened(dsn)
    with asking("connecting"):
        connection.execute(SET.encode())
    return connection


def glancing(dsn: str) -> "psycopg.Connection[Any]":
    """A new connection for one short check, without session settings: a server that is silent is given up soon."""
    return _opened(dsn, {"client_encoding": "UTF8", "connect_timeout": str(GLANCE_CONNECT_S)})


def _opened(dsn: str, instead: Mapping[str, str] = MappingProxyType({})) -> "psycopg.Connection[Any]":
    """A new connection. instead: libpq's parameters that override those of the DSN."""
    try:
        import psycopg
        from psycopg.conninfo import make_conninfo
    except ImportError as exc:
        raise UsageError(f"the PostgreSQL upstream lacks a package: {exc}", INSTALL) from exc

    with asking("connecting"):
        try:
            whole = make_conninfo(completed(dsn), **instead)
            return psycopg.connect(whole, autocommit=True, application_name="backfill")
        except psycopg.ProgrammingError:  # about the DSN itself, which it may repeat
            raise UsageError("upstream.dsn is not a valid libpq connection string", postgres_dsn.ESCAPED) from None


def connected_alone(dsn: str) -> "psycopg.Connection[Any]":
    """As `connected`, with a server process that no other session gets meanwhile.

    Raises UsageError for a pooler in transaction or statement mode: one session's settings would apply to others.
    """
    connection = connected(dsn)
    try:
        if _is_shared(connection, dsn):
            raise UsageError(
                "upstream.dsn leads to a pooler in transaction or statement mode, which gives a session's server "
                "process to others between transactions: a session's settings do not last there",
                in_config("name the server itself in upstream.dsn, or a pool in session mode"),
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _is_shared(connection: "psycopg.Connection[Any]", dsn: str) -> bool:
    """Whether a second connection gets the same server process."""
    with asking("checking whether it is shared"), connected(dsn) as other:
        ours, theirs = backend(connection), backend(other)  # a pool gives the one freed last
        if ours == theirs:
            return True
        with other.transaction():  # or another process, while the first is in use
            return backend(other) == ours or backend(connection) != ours


def backend(connection: "psycopg.Connection[Any]") -> int:
    """The process id of the connection's server process."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def completed(dsn: str) -> str:
    """The DSN as every connection uses it. Raises UsageError for one that cannot be parsed as intended."""
    return postgres_dsn.completed(dsn, "upstream.dsn")


def server_of(connection: "psycopg.Connection[Any]") -> str:
    """A text that identifies this connection's server; another one after a restart."""
    with asking("identifying the server"):
        row = connection.execute(SERVER.encode()).fetchone()
    assert row is not None
    return str(row[0])


def clock_ms(connection: "psycopg.Connection[Any]") -> int:
    """The server's time of day, milliseconds since 1970."""
    with asking("reading its clock"):
        row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
    assert row is not None
    return int(row[0])
