"""Connections to the database, and what its errors mean."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

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
from backfill_cli.postgres_errors import IN_DATABASE, INSTALL, ErrorKind, classify
from backfill_cli.upstreams.postgres.types import SET

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "psycopg.Connection[Any]"
Given: TypeAlias = Sequence[Any] | Mapping[str, Any] | None

GLANCE_CONNECT_S = 2
"""libpq's minimum; a command that checks several jobs has little more for all of them."""

STATEMENT_TIMEOUT_MS, LOCK_TIMEOUT_MS = 3000, 1000
"""Of a check from outside: each query takes a few ms, and none needs a table's lock, except of one published with
its whole schema."""

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
    """A database error inside is raised as a BackfillError; no part of a DSN is in it.

    what: what was being done, for people.
    """
    import psycopg

    try:
        yield
    except BackfillError:
        raise
    except psycopg.Error as exc:
        state, words = exc.sqlstate or "", (exc.diag.message_primary or str(exc)).strip()
        if state.startswith("22") and exc.diag.context:
            what += f" ({exc.diag.context.splitlines()[0]})"
        raise of_state(state, f"PostgreSQL, {what}", words) from exc


def row_of(connection: Connection, doing: str, query: str, given: Given = None) -> Any:
    """The first row of a query, None if there is none. doing: for people, see `asking`."""
    with asking(doing):
        return connection.execute(query.encode(), given).fetchone()


def rows_of(connection: Connection, doing: str, query: str, given: Given = None) -> list[Any]:
    """The rows of a query. doing: for people, see `asking`."""
    with asking(doing):
        return connection.execute(query.encode(), given).fetchall()


def of_state(state: str, doing: str, words: str) -> BackfillError:
    """The error for an SQLSTATE, empty for none. doing, words: of ours and of the server, for people."""
    text = f"{doing}: {''.join(words.splitlines()[:1])}" + (f" (SQLSTATE {state})" if state else "")
    match classify(state, words):
        case ErrorKind.FORBIDDEN:
            return UsageError(text, "as the owner, grant the role what it lacks: to read tables, to use schemas")
        case ErrorKind.NO_WAY_IN:
            return UsageError(text, in_config("correct user, password or database in upstream.dsn"))
        case ErrorKind.UNREACHED:
            return Transient(text, in_config("start the database, or correct upstream.dsn"))
        case ErrorKind.PASSES:
            return Transient(text, RETRIED)
    if state.startswith("22"):
        return BadData(text, "correct the value upstream; if the log has it, then " + START_OVER)
    return Fatal(text, IN_DATABASE)


def connected(dsn: str) -> Connection:
    """A new connection with the settings that reading values relies on; each statement is its own transaction."""
    connection = _opened(dsn)
    with asking("connecting"):
        connection.execute(SET.encode())
    return connection


def is_lost(connection: Connection) -> bool:
    """Whether no statement can be run on it: it is closed, or in a transaction that has failed."""
    from psycopg.pq import TransactionStatus

    failed = TransactionStatus.INERROR
    return connection.closed or connection.broken or connection.info.transaction_status is failed


@contextmanager
def limited(connection: Connection, limit_ms: int) -> Iterator[Connection]:
    """The connection in a transaction whose statements may take so long each; for checks of `in_time`."""
    with asking("limiting the time of a statement"), connection.transaction():
        connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(limit_ms),))
        yield connection


@contextmanager
def glance(dsn: str, what: str = "checking what the job holds") -> Iterator[Connection]:
    """A connection for one check from outside, in one read-only transaction, without the session settings.

    what: see `asking`. A silent server is given up soon; a query that exceeds the timeouts raises Transient.
    """
    limits = "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)"
    connect = {"client_encoding": "UTF8", "connect_timeout": str(GLANCE_CONNECT_S)}
    with _opened(dsn, connect) as connection, asking(what):
        connection.read_only = True
        with connection.transaction():
            connection.execute(limits, (str(STATEMENT_TIMEOUT_MS), str(LOCK_TIMEOUT_MS)))
            yield connection


def _opened(dsn: str, instead: Mapping[str, str] = MappingProxyType({})) -> Connection:
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


def connected_alone(dsn: str) -> Connection:
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


def _is_shared(connection: Connection, dsn: str) -> bool:
    """Whether a second connection gets the same server process."""
    with asking("checking whether it is shared"), connected(dsn) as other:
        ours, theirs = backend(connection), backend(other)  # a pool gives the one freed last
        if ours == theirs:
            return True
        with other.transaction():  # or another process, while the first is in use
            return backend(other) == ours or backend(connection) != ours


def backend(connection: Connection) -> int:
    """The process id of the connection's server process."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def completed(dsn: str) -> str:
    """The DSN as every connection uses it. Raises UsageError for one that cannot be parsed as intended."""
    return postgres_dsn.completed(dsn, "upstream.dsn")


def server_of(connection: Connection) -> str:
    """A text that identifies this connection's server; another one after a restart."""
    return str(row_of(connection, "identifying the server", SERVER)[0])


def clock_ms(connection: Connection) -> int:
    """The server's time of day, milliseconds since 1970."""
    now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    return int(row_of(connection, "reading its clock", now)[0])
