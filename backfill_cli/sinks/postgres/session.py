"""Connections to the database, each open for one call alone, all of it one transaction unless it commits before.

Everything goes by ADBC, rows as Arrow in binary COPY, so that rows and marker share a transaction.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from backfill_cli import postgres_driver, postgres_dsn
from backfill_cli.errors import UsageError
from backfill_cli.sinks.postgres.edge import client, ours
from backfill_cli.sinks.postgres.sql import Target

LOCK_TIMEOUT_S = 60
"""How long a fence waits for a commit in flight. The longest commit seen, a million changes, took 11 s."""
DDL_LOCK_TIMEOUT_S = 3
"""A change of a table waits so long: who reads it meanwhile waits behind it. It is tried again."""
VERSION = "pg_catalog.current_setting('server_version_num')::int"
OLDEST = 140_000
"""14 is the first with bit_xor, which `verify` needs, and exact seconds in extract()."""
SETTINGS = {
    "application_name": "backfill",
    "client_encoding": "UTF8",
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "standard_conforming_strings": "on",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A policy that hid rows from us would leave them in place: an error instead.
    "row_security": "off",
    # A client's machine that died lets go of its locks in a minute, not in two hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    # Compiling what runs once costs more than it saves.
    "jit": "off",
}
NEWER = {"transaction_timeout": (170_000, "0")}
"""Settings that came later: since which version, and what we set."""
WRITING = "ISOLATION LEVEL READ COMMITTED"
READING = "ISOLATION LEVEL REPEATABLE READ, READ ONLY"
"""How a transaction begins: one that writes sees what it waited for; one that reads, a single snapshot."""


@dataclass(frozen=True, slots=True)
class Place:
    """A database as people name it. dsn: with its password, for connecting alone."""

    host: str
    port: str
    database: str
    user: str
    dsn: str = field(repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, dsn: str) -> "Place":
        """Raises UsageError for what is no connection string, without repeating it."""
        client()
        parts, whole = postgres_dsn.parsed(dsn, "sink.dsn"), postgres_dsn.completed(dsn, "sink.dsn")
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        user = parts.get("user") or _default_user()
        database = parts.get("dbname") or parts.get("user", "the role")
        return cls(host, parts.get("port", "5432"), database, user, whole, parts.get("password", ""))

    def scrubbed(self, text: str) -> str:
        """The text without the DSN and its password."""
        for secret in filter(None, (self.dsn, self.password)):
            text = text.replace(secret, "***")
        return text

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


def _default_user() -> str:
    """Who libpq connects as where the DSN names nobody."""
    from psycopg.pq import Conninfo

    named = {option.keyword: option.val for option in Conninfo.get_defaults()}
    return (named.get(b"user") or b"").decode() or "the role"


def settings() -> str:
    """SQL that gives a transaction our settings, and takes them back at its end.

    A pooler may hand our connection to others between two transactions, and another server's to us.
    """
    calls = [f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in SETTINGS.items()]
    calls += [
        f"CASE WHEN {VERSION} >= {since} THEN pg_catalog.set_config('{name}', '{value}', true) END"
        for name, (since, value) in NEWER.items()
    ]
    # An acknowledged commit must outlive a crash of the server; stricter settings stay.
    asked = "pg_catalog.current_setting('synchronous_commit')"
    calls.append(
        f"pg_catalog.set_config('synchronous_commit', CASE {asked} WHEN 'off' THEN 'on' ELSE {asked} END, true)"
    )
    return f"SELECT {', '.join(calls)}"


class Connection:
    """A connection whose statements are one transaction, until `commit` or `rollback` ends it and begins another.

    By statements, not by the driver's own way: that one begins it anew after each COPY, and the server warns.
    mode: how each of its transactions begins.
    """

    def __init__(self, place: Place, mode: str = WRITING) -> None:
        self._raw = postgres_driver.connection(place.dsn, autocommit=True)
        self._mode, self._begun = mode, False

    def require_version(self) -> None:
        """Raises UsageError for a server that is too old."""
        version = rows_of(self, f"SELECT {VERSION}")[0][0]
        if version < OLDEST:
            raise UsageError(
                f"the PostgreSQL sink needs a server of version 14 or newer, this one is {version // 10_000}",
                "upgrade the server, or name another one in sink.dsn",
            )

    def cursor(self) -> Any:
        """ADBC's cursor, in the transaction."""
        if not self._begun:
            self._begun = True
            with self._raw.cursor() as cursor:
                # One message: a pooler would give the parts of a prepared BEGIN to two servers.
                cursor.executescript(f"BEGIN {self._mode}; {settings()}")
        return self._raw.cursor()

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, how: str) -> None:
        if self._begun:
            self._begun = False
            with self._raw.cursor() as cursor:
                cursor.execute(how)

    def close(self) -> None:
        """A connection that is lost already cannot be closed in order, and need not be: nothing of it was kept."""
        with contextlib.suppress(client().Error):
            self.rollback()
        with contextlib.suppress(client().Error):
            self._raw.close()


@contextlib.contextmanager
def opened(place: Place, doing: str, names: Sequence[Target] = (), mode: str = WRITING) -> Iterator[Connection]:
    """A connection in a transaction that ends without effect unless the block commits.

    Raises Transient while the database cannot be reached; UsageError for who or what cannot use it; and for errors
    of the block what `edge.failure` makes of them. doing: for people. names: the tables that the block may name.
    """
    with ours(place, doing, names):
        con = Connection(place, mode)
        try:
            con.require_version()
            yield con
        finally:
            con.close()


def rows_of(con: Connection, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """The rows of a small query: metadata, markers, never data. Parameters are `$1`…: texts and whole numbers."""
    with con.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def run(con: Connection, sql: str, *parameters: Any) -> int:
    """Execute one statement that returns no rows; how many it touched, -1 where the server does not say."""
    with con.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        count: int = cursor.rowcount
    return count
