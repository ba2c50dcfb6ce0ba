"""Connections to the database, and what its errors mean."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_dsn
from backfill_cli.errors import BackfillError, Fatal, Transient, UsageError
from backfill_cli.postgres_says import INSTALL, Said, said
from backfill_cli.upstreams.postgres.types import SET

if TYPE_CHECKING:
    import psycopg

GLANCE_CONNECT_S = 3
"""libpq's least is 2 s; who looks at several jobs has not much more for all of them."""

SERVER = "SELECT pg_is_in_recovery()::text || ' ' || pg_postmaster_start_time()::text"


def lsn_text(lsn: int) -> str:
    """A place in the write-ahead log as PostgreSQL writes it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """The place that `lsn_text` wrote."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Any failure of the database inside becomes ours. what: what was asked, for people."""
    import psycopg

    try:
        yield
    except BackfillError:
        raise
    except psycopg.Error as exc:
        raise failure(exc, what) from exc


def failure(exc: "psycopg.Error", what: str) -> BackfillError:
    """What an error of the database means. Raises nothing; no part of a DSN is in it."""
    return of_state(exc.sqlstate or "", f"PostgreSQL, {what}", (exc.diag.message_primary or str(exc)).strip())


def of_state(state: str, doing: str, words: str) -> BackfillError:
    """The same by an error's SQLSTATE, empty where none was told. doing: for people."""
    text = f"{doing}: {words.splitlines()[0]}" + (f" (SQLSTATE {state})" if state else "")
    match said(state, words):
        case Said.FORBIDDEN:
            return UsageError(text, "grant the role what it lacks: `plan` prints the statements")
        case Said.NO_WAY_IN:
            return UsageError(text, "correct user, password or database in upstream.dsn")
        case Said.UNREACHED:
            return Transient(text, "start the database, or correct upstream.dsn")
        case Said.PASSES:
            return Transient(text, "see the server's log")
    return Fatal(text, "see the server's log")


def connected(dsn: str) -> "psycopg.Connection[Any]":
    """A new connection with the settings that values are read by, every statement a transaction of its own."""
    connection = _opened(dsn)
    with asking("connecting"):
        connection.execute(SET.encode())
    return connection


def glancing(dsn: str) -> "psycopg.Connection[Any]":
    """A new connection for one look, without settings of its own: a server that is mute is given up soon."""
    return _opened(dsn, {"client_encoding": "UTF8", "connect_timeout": str(GLANCE_CONNECT_S)})


def _opened(dsn: str, instead: Mapping[str, str] = MappingProxyType({})) -> "psycopg.Connection[Any]":
    """instead: parameters of libpq, whatever the DSN says of them."""
    try:
        import psycopg
        from psycopg.conninfo import make_conninfo
    except ImportError as exc:
        raise UsageError(f"the PostgreSQL upstream lacks a package: {exc}", INSTALL) from exc

    with asking("connecting"):
        try:
            whole = make_conninfo(completed(dsn), **instead)
            return psycopg.connect(whole, autocommit=True, application_name="backfill")
        except psycopg.ProgrammingError:  # of the DSN itself, which it may repeat
            raise UsageError("upstream.dsn is no connection string of libpq", postgres_dsn.ESCAPED) from None


def connected_alone(dsn: str) -> "psycopg.Connection[Any]":
    """As `connected`, to a server process that nobody else is given meanwhile.

    Raises UsageError for a pooler in transaction or statement mode: what a session sets would be another's.
    """
    connection = connected(dsn)
    try:
        if _is_shared(connection, dsn):
            raise UsageError(
                "upstream.dsn leads to a pooler that gives a session's server process to others between "
                "transactions (transaction or statement mode): a session's settings do not hold there",
                "name the server itself in upstream.dsn, or a pool in session mode",
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _is_shared(connection: "psycopg.Connection[Any]", dsn: str) -> bool:
    """Whether a second connection is given its server process."""
    with asking("looking whether it is shared"), connected(dsn) as other:
        ours, theirs = _process(connection), _process(other)  # a pool gives the one that was free last
        if ours == theirs:
            return True
        with other.transaction():  # or another one, while the first is in use
            return _process(other) == ours or _process(connection) != ours


def _process(connection: "psycopg.Connection[Any]") -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def completed(dsn: str) -> str:
    """The DSN as every connection uses it. Raises UsageError for one that cannot be read as it was meant."""
    return postgres_dsn.completed(dsn, "upstream.dsn")


def server_of(connection: "psycopg.Connection[Any]") -> str:
    """The server of this connection, apart from others and from itself before a restart."""
    with asking("looking which server it is"):
        row = connection.execute(SERVER.encode()).fetchone()
    assert row is not None
    return str(row[0])


def clock_ms(connection: "psycopg.Connection[Any]") -> int:
    """The server's time of day, milliseconds since 1970."""
    with asking("looking at its clock"):
        row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
    assert row is not None
    return int(row[0])
