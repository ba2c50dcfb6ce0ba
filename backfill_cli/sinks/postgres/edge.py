"""Turns the database's errors into ours, which name host and database and never show a part of the DSN."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_says
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
from backfill_cli.postgres_says import IN_DATABASE, INSTALL, Said
from backfill_cli.sinks.postgres.dialect import quoted
from backfill_cli.sinks.sql.dialect import Target

if TYPE_CHECKING:
    from backfill_cli.sinks.postgres.session import Place

LOCKED = "55P03"
"""SQLSTATE of a wait for a lock that reached its timeout."""
CLASHES = {"23505", "23502", "23514", "23503", "23P01"}
"""SQLSTATEs of rows that a constraint refuses: unique, not null, check, foreign key, exclusion."""
LIMIT_EXCEEDED = "54000"
"""SQLSTATE of a row that is too long for an index."""
PRIMARY = in_config("name the primary server in sink.dsn, or promote this one: it is read-only now")


def client() -> Any:
    """The ADBC driver for PostgreSQL. Raises UsageError when it, or psycopg, is not installed."""
    try:
        import adbc_driver_postgresql.dbapi
        import psycopg.conninfo  # noqa: F401
    except ImportError as exc:
        raise UsageError(f"the PostgreSQL sink needs a package that is not installed: {exc}", INSTALL) from exc
    return adbc_driver_postgresql.dbapi


def state_of(exc: Exception) -> str:
    """The SQLSTATE; empty if the server sent none, as with a connection that failed or was lost."""
    return getattr(exc, "sqlstate", None) or ""


def told(exc: Exception, what: str) -> str:
    """One field of the server's error, by libpq's name without PG_DIAG_; empty if the error lacks it."""
    for name, value in getattr(exc, "details", None) or ():
        if _text(name) == f"PG_DIAG_{what}":
            return _text(value)
    return ""


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def said(exc: Exception) -> str:
    """The server's own message, without what the client adds."""
    if primary := told(exc, "MESSAGE_PRIMARY"):
        return primary
    text = re.sub(r"^[A-Z_]+: (\[libpq\] )?", "", str(exc)).split("\n\nQuery was")[0]
    return " ".join(text.split())


@contextlib.contextmanager
def ours(
    place: "Place",
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
        who = holder() if state_of(exc) == LOCKED else None
        if who is None:
            raise failure(place, doing, exc, names) from exc
        held = (
            f"PostgreSQL {place}, {doing}: the lock timeout passed while waiting for {who[0]} (SQLSTATE {LOCKED})"
        )
        raise Transient(place.scrubbed(held), who[1]) from exc


def failure(place: "Place", doing: str, exc: Exception, names: Sequence[Target] = ()) -> BackfillError:
    """Our error for an error of the database."""
    state, words = state_of(exc), said(exc)
    text = place.scrubbed(f"PostgreSQL {place}, {doing}: {words}" + (f" (SQLSTATE {state})" if state else ""))
    about = postgres_says.said(state, str(exc), _without_state(exc))
    if about is Said.FORBIDDEN:
        let = _let(place, words, names)
        return UsageError(text, "grant it, as the owner or an administrator: " + let)
    if state == "25006":
        return Transient(text, PRIMARY)
    if about is Said.NO_WAY_IN:
        return UsageError(text, in_config("correct the user, password or database in sink.dsn"))
    # The server reports an exceeded disk quota as an internal error with this sentence, not as a full disk.
    if state.startswith("53") or words.startswith("could not extend file"):
        return Transient(text, "free disk space, memory or connections on the server")
    if state == "42P01" and own.PREFIX in words:
        return Transient(text, "another job, the last one with rows there, was dropped meanwhile: try again")
    if about is Said.UNREACHED:
        return Transient(text, in_config("start the database, or correct sink.dsn"))
    if about is Said.PASSES:
        return Transient(text, RETRIED)
    if state[:2] in ("22", "23") or (not state and isinstance(exc, client().DataError)):
        return BadData(text, CORRECT)
    if not state:
        return Fatal(text, "upgrade the client: " + shell("pip install --upgrade adbc-driver-postgresql"))
    return Fatal(text, IN_DATABASE)


def _without_state(exc: Exception) -> Said:
    """What an error without SQLSTATE is about: a lost connection, or else an error of the driver itself."""
    return Said.UNREACHED if isinstance(exc, client().OperationalError) else Said.OTHER


def _let(place: "Place", words: str, names: Sequence[Target]) -> Hint:
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
