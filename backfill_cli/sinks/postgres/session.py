"""Connections to the database, and the errors of the server, as ours: they name host and database, never the DSN.

Each connection serves one call, in one transaction unless the call commits earlier. Everything goes through ADBC,
rows as Arrow in binary COPY, so that rows and marker share a transaction.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backfill_cli import postgres_driver, postgres_dsn, postgres_errors, postgres_holders
from backfill_cli.contracts import own
from backfill_cli.errors import (
    CORRECT,
    RETRIED,
    BackfillError,
    BadData,
    Fatal,
    Hint,
    Transient,
    UsageError,
    in_config,
    shell,
    sql,
)
from backfill_cli.postgres_errors import IN_DATABASE, INSTALL, ErrorKind
from backfill_cli.sinks.postgres.dialect import quoted
from backfill_cli.sinks.sql.dialect import Target

LOCK_TIMEOUT_S = 60
"""How long a fence waits for a commit in flight. The longest commit seen, a million changes, took 11 s."""
DDL_LOCK_TIMEOUT_S = 3
"""How long DDL waits for its lock; new readers of the table wait behind it. It is then tried again."""
VERSION = "pg_catalog.current_setting('server_version_num')::int"
OLDEST = 140_000
"""14 is the first with bit_xor, which `verify` needs, and exact seconds in extract()."""
SETTINGS = {
    "application_name": "backfill",
    "client_encoding": "UTF8",
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "extra_float_digits": "1",  # a number as text is that number alone
    "standard_conforming_strings": "on",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A policy that hides rows from us would keep us from changing them: raise an error instead.
    "row_security": "off",
    # If the client's machine dies, its locks are released within a minute, not two hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    # Compiling a query that runs once costs more than it saves.
    "jit": "off",
}
NEWER = {"transaction_timeout": (170_000, "0")}
"""Newer settings: the first version that has it, and the value we set."""
WRITING = "ISOLATION LEVEL READ COMMITTED"
READING = "ISOLATION LEVEL REPEATABLE READ, READ ONLY"
"""How a transaction begins: a writing one sees what it waited for; a reading one sees a single snapshot."""
LOCKED = "55P03"
"""SQLSTATE of a wait for a lock that reached its timeout."""
CLASHES = {"23505", "23502", "23514", "23503", "23P01"}
"""SQLSTATEs of rows that a constraint refuses: unique, not null, check, foreign key, exclusion."""
LIMIT_EXCEEDED = "54000"
"""SQLSTATE of a row that is too long for an index."""
PRIMARY = in_config("name the primary server in sink.dsn, or promote this one: it is read-only now")


@dataclass(frozen=True, slots=True)
class Place:
    """A database as people name it. dsn: includes the password, only for connecting."""

    host: str
    port: str
    database: str
    user: str
    dsn: str = field(repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, dsn: str, **instead: str) -> "Place":
        """Raises UsageError for an invalid connection string, without repeating it. instead: see `completed`."""
        client()
        parts, whole = postgres_dsn.parsed(dsn, "sink.dsn"), postgres_dsn.completed(dsn, "sink.dsn", **instead)
        parts = {**_defaults(), **parts}
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        user = parts.get("user") or "the role"
        database = parts.get("dbname") or user
        return cls(host, parts.get("port", "5432"), database, user, whole, parts.get("password", ""))

    def scrubbed(self, text: str) -> str:
        """The text without the DSN and its password."""
        for secret in filter(None, (self.dsn, self.password)):
            text = text.replace(secret, "***")
        return text

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


def _defaults() -> dict[str, str]:
    """What libpq uses for the parts that a DSN omits: from the environment, or built in."""
    from psycopg.pq import Conninfo

    named = ("host", "hostaddr", "port", "user", "dbname")
    found = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()}
    return {name: found[name] for name in named if found.get(name)}


def settings() -> str:
    """SQL that applies our settings until the end of the transaction.

    Between transactions a pooler can give our server connection to other clients, and a different one to us.
    """
    calls = [f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in SETTINGS.items()]
    calls += [
        f"CASE WHEN {VERSION} >= {since} THEN pg_catalog.set_config('{name}', '{value}', true) END"
        for name, (since, value) in NEWER.items()
    ]
    # An acknowledged commit must survive a crash of the server; stricter settings stay.
    asked = "pg_catalog.current_setting('synchronous_commit')"
    calls.append(
        f"pg_catalog.set_config('synchronous_commit', CASE {asked} WHEN 'off' THEN 'on' ELSE {asked} END, true)"
    )
    return f"SELECT {', '.join(calls)}"


class Connection:
    """A connection whose statements form one transaction until `commit` or `rollback`; the next begins another.

    BEGIN and COMMIT are sent as statements, as the driver's own transactions begin again after each COPY, with a
    warning of the server. mode: how each of its transactions begins.
    """

    def __init__(self, place: Place, mode: str = WRITING) -> None:
        self._raw = postgres_driver.connection(place.dsn, autocommit=True)
        self.place, self._mode, self._begun = place, mode, False

    def require_version(self) -> None:
        """Raises UsageError for a server that is too old."""
        version = self.rows(f"SELECT {VERSION}")[0][0]
        if version < OLDEST:
            raise UsageError(
                f"the PostgreSQL sink needs a server of version 14 or newer, this one is {version // 10_000}",
                in_config("upgrade the server, or name another one in sink.dsn"),
            )

    def cursor(self) -> Any:
        """ADBC's cursor, in the transaction."""
        if not self._begun:
            self._begun = True
            with self._raw.cursor() as cursor:
                # One message: a pooler could send the parts of a prepared BEGIN to two servers.
                cursor.executescript(f"BEGIN {self._mode}; {settings()}")
        return self._raw.cursor()

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a small query: metadata and markers, never data. Parameters (`$1`…): texts and integers."""
        with self.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            found: list[tuple[Any, ...]] = cursor.fetchall()
        return found

    def plan(self, select: str) -> Mapping[str, Any]:
        """The planner's root node of a query, which is not run."""
        with self.cursor() as cursor:
            # the driver reads rows by COPY, where EXPLAIN cannot stand
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(f"EXPLAIN (FORMAT JSON) {select}")
            ((found,),) = cursor.fetchall()
        root: Mapping[str, Any] = json.loads(found)[0]["Plan"]
        return root

    def run(self, sql: str, *parameters: Any) -> None:
        """Runs one statement that returns no rows."""
        with self.cursor() as cursor:
            cursor.execute(sql, parameters or None)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """What was run since the last commit, and in the block, is committed at its end.

        Locks alone, too: their COMMIT waits for a synchronous standby, which so has what an earlier COMMIT wrote
        whose answer was lost.
        """
        yield
        self.commit()

    @contextlib.contextmanager
    def ddl(self) -> Iterator[None]:
        """As `transaction`. While DDL waits for its lock, new readers wait behind it: for a moment."""
        self.rows(f"SELECT pg_catalog.set_config('lock_timeout', '{DDL_LOCK_TIMEOUT_S}s', true)")
        yield
        self.commit()

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
        """The connection is closed. Errors of a lost connection are ignored: its transaction had no effect."""
        with contextlib.suppress(client().Error):
            self.rollback()
        with contextlib.suppress(client().Error):
            self._raw.close()


@contextlib.contextmanager
def opened(place: Place, doing: str, names: Sequence[Target] = (), mode: str = WRITING) -> Iterator[Connection]:
    """A connection in a transaction that has no effect unless the block commits.

    Raises Transient while the database cannot be reached, UsageError if the role or the version cannot be used,
    and for errors in the block what `failure` makes of them. doing: what the block does, for messages.
    names: the tables that the block may use.
    """
    with translate_errors(place, doing, names, lambda: _holder(place, names)):
        con = Connection(place, mode)
        try:
            con.require_version()
            yield con
        finally:
            con.close()


def _holder(place: Place, names: Sequence[Target]) -> tuple[str, Hint] | None:
    """Who has a lock on one of these tables, and what ends it; None if nobody has, or this cannot be asked."""
    if not names:
        return None
    with contextlib.suppress(client().Error):
        con = Connection(place, READING)
        try:
            found = con.rows(postgres_holders.of_tables([name.sql for name in names]))
        finally:
            con.close()
        return postgres_holders.spelled(found[0]) if found else None
    return None


# The server's errors


def client() -> Any:
    """The ADBC driver for PostgreSQL. Raises UsageError when it, or psycopg, is not installed."""
    try:
        import adbc_driver_postgresql.dbapi
        import psycopg.conninfo  # noqa: F401
    except ImportError as exc:
        raise UsageError(f"the PostgreSQL sink needs a package that is not installed: {exc}", INSTALL) from exc
    return adbc_driver_postgresql.dbapi


def sqlstate_of(exc: Exception) -> str:
    """The SQLSTATE; empty if the server sent none, as with a connection that failed or was lost."""
    return getattr(exc, "sqlstate", None) or ""


def diagnostic(exc: Exception, what: str) -> str:
    """One field of the server's error, by libpq's name without PG_DIAG_; empty if the error lacks it."""
    for name, value in getattr(exc, "details", None) or ():
        if _text(name) == f"PG_DIAG_{what}":
            return _text(value)
    return ""


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def message_of(exc: Exception) -> str:
    """The server's own message, without what the client adds."""
    if primary := diagnostic(exc, "MESSAGE_PRIMARY"):
        return primary
    text = re.sub(r"^[A-Z_]+: (\[libpq\] )?", "", str(exc)).split("\n\nQuery was")[0]
    return " ".join(text.split())


@contextlib.contextmanager
def translate_errors(
    place: Place,
    doing: str,
    names: Sequence[Target] = (),
    holder: Callable[[], tuple[str, Hint] | None] = lambda: None,
) -> Iterator[None]:
    """A database error raised in the block becomes one of ours; our own errors pass unchanged.

    doing: what the block does, for the message. names: the tables that the error may be about. holder: asks who
    has a lock on one of them, and what ends it.
    """
    try:
        yield
    except client().Error as exc:
        who = holder() if sqlstate_of(exc) == LOCKED else None
        if who is None:
            raise failure(place, doing, exc, names) from exc
        held = (
            f"PostgreSQL {place}, {doing}: the lock timeout passed while waiting for {who[0]} (SQLSTATE {LOCKED})"
        )
        raise Transient(place.scrubbed(held), who[1]) from exc


def failure(place: Place, doing: str, exc: Exception, names: Sequence[Target] = ()) -> BackfillError:
    """Our error for an error of the database."""
    state, words = sqlstate_of(exc), message_of(exc)
    text = place.scrubbed(f"PostgreSQL {place}, {doing}: {words}" + (f" (SQLSTATE {state})" if state else ""))
    about = postgres_errors.classify(state, str(exc), _without_state(exc))
    if about is ErrorKind.FORBIDDEN:
        let = _let(place, words, names)
        return UsageError(text, "grant it, as the owner or an administrator: " + let)
    if state == "25006":
        return Transient(text, PRIMARY)
    if about is ErrorKind.NO_WAY_IN:
        return UsageError(text, in_config("correct the user, password or database in sink.dsn"))
    # The server reports an exceeded disk quota as an internal error with this sentence, not as a full disk.
    if state.startswith("53") or words.startswith("could not extend file"):
        return Transient(text, "free disk space, memory or connections on the server")
    if state == "42P01" and own.PREFIX in words:
        return Transient(text, "another job, the last one with rows there, was dropped meanwhile: try again")
    if about is ErrorKind.UNREACHED:
        return Transient(text, in_config("start the database, or correct sink.dsn"))
    if about is ErrorKind.PASSES:
        return Transient(text, RETRIED)
    if state[:2] in ("22", "23") or (not state and isinstance(exc, client().DataError)):
        return BadData(text, CORRECT)
    if not state:
        return Fatal(text, "upgrade the client: " + shell("pip install --upgrade adbc-driver-postgresql"))
    return Fatal(text, IN_DATABASE)


def _without_state(exc: Exception) -> ErrorKind:
    """What an error without SQLSTATE is about: a lost connection, or else an error of the driver itself."""
    return ErrorKind.UNREACHED if isinstance(exc, client().OperationalError) else ErrorKind.OTHER


def _let(place: Place, words: str, names: Sequence[Target]) -> Hint:
    """The statement that grants what is missing according to the server's message (in English)."""
    role = quoted(place.user)
    if "row-level security" in words:
        return sql(f"ALTER ROLE {role} BYPASSRLS")
    if owner := re.search(r"must be owner of (?:table|relation) (.+)", words):
        return sql(f"ALTER TABLE {_qualified(owner[1], names)} OWNER TO {role}")
    if "temporary" in words:
        return sql(f"GRANT TEMPORARY ON DATABASE {quoted(place.database)} TO {role}")
    found = re.search(r"permission denied for (\w+) (.+)", words)
    kind, name = (found[1], found[2]) if found else ("", "")
    match kind:
        case "schema":
            return sql(f"GRANT USAGE, CREATE ON SCHEMA {quoted(name)} TO {role}")
        case "database":
            return sql(f"GRANT CREATE, TEMPORARY ON DATABASE {quoted(name)} TO {role}")
        case "sequence":
            schemas = {target.schema for target in names}
            beside = f"{quoted(schemas.pop())}." if len(schemas) == 1 else ""
            return sql(f"GRANT USAGE ON SEQUENCE {beside}{quoted(name)} TO {role}")
        case "function" | "procedure" | "type":
            return sql(
                f"GRANT {('USAGE' if kind == 'type' else 'EXECUTE')} ON {kind.upper()} {quoted(name)} TO {role}"
            )
    tables = [_qualified(name, names)] if name else [target.sql for target in names]
    return sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(tables)} TO {role}")


def _qualified(table: str, names: Sequence[Target]) -> str:
    """SQL of the table, with its schema if it is one of `names`; otherwise as the server named it."""
    return next((target.sql for target in names if target.table == table), quoted(table))
