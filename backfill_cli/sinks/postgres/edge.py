"""Where the database's errors end: they become ours here, naming host and database, never a part of the DSN."""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_says
from backfill_cli.errors import BackfillError, BadData, Fatal, Transient, UsageError
from backfill_cli.postgres_says import INSTALL, Said

if TYPE_CHECKING:
    from backfill_cli.sinks.postgres.session import Place

CLASHES = {"23505", "23502", "23514", "23503", "23P01"}
"""unique, not null, check, foreign key, exclusion: rows that a constraint of the table refuses."""
_DETAILS = {
    "primary": "PG_DIAG_MESSAGE_PRIMARY",
    "detail": "PG_DIAG_MESSAGE_DETAIL",
    "context": "PG_DIAG_CONTEXT",
    "constraint": "PG_DIAG_CONSTRAINT_NAME",
    "column": "PG_DIAG_COLUMN_NAME",
}


def client() -> Any:
    """ADBC's driver of PostgreSQL. Raises UsageError when it, or psycopg, is not installed."""
    try:
        import adbc_driver_postgresql.dbapi
        import psycopg.conninfo  # noqa: F401
    except ImportError as exc:
        raise UsageError(f"the PostgreSQL sink lacks a package: {exc}", INSTALL) from exc
    return adbc_driver_postgresql.dbapi


def state_of(exc: Exception) -> str:
    """The SQLSTATE, empty where the server did not say one: no connection, or a lost one."""
    return getattr(exc, "sqlstate", None) or ""


def told(exc: Exception, what: str) -> str:
    """A part of what the server said (see _DETAILS), empty where it did not."""
    for name, value in getattr(exc, "details", None) or ():
        if _text(name) == _DETAILS[what]:
            return _text(value)
    return ""


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def said(exc: Exception) -> str:
    """The server's own sentence, without the client's words around it."""
    primary = told(exc, "primary")
    if primary:
        return primary
    text = re.sub(r"^[A-Z_]+: (\[libpq\] )?", "", str(exc)).split("\n\nQuery was")[0]
    return " ".join(text.split())


@contextlib.contextmanager
def ours(place: "Place", doing: str) -> Iterator[None]:
    """Any failure of the database inside becomes ours; ours pass. doing: what was asked for, for people."""
    try:
        yield
    except client().Error as exc:
        raise failure(place, doing, exc) from exc


def failure(place: "Place", doing: str, exc: Exception) -> BackfillError:
    """What an error of the database means."""
    state = state_of(exc)
    text = place.scrubbed(f"PostgreSQL {place}, {doing}: {said(exc)}" + (f" (SQLSTATE {state})" if state else ""))
    about = postgres_says.said(state, str(exc))
    if about is Said.FORBIDDEN:
        return UsageError(
            text, f"let the role have it, as the owner or an administrator: {_grant(place, said(exc))}"
        )
    if state == "25006":
        return UsageError(text, "name the primary server in sink.dsn: this one, or this role, may only read")
    if about is Said.NO_WAY_IN:
        return UsageError(text, "correct user, password or database in sink.dsn")
    # A quota is no full disk to the server: an internal error, with this sentence.
    if state.startswith("53") or said(exc).startswith("could not extend file"):
        return Transient(text, "make room: on the server's disk, in its memory, among its connections")
    if state == "55P03":
        return Transient(
            text,
            "see who holds the lock: SELECT pid, query FROM pg_stat_activity WHERE application_name = 'backfill'",
        )
    if about is Said.UNREACHED:
        return Transient(text, "start the database, or correct sink.dsn")
    if about is Said.PASSES:
        return Transient(text, "see the server's log")
    if state[:2] in ("22", "23"):
        return BadData(text)
    return Fatal(text, "see the server's log")


def _grant(place: "Place", text: str) -> str:
    """The statement that gives what the server's English sentence says is missing."""
    found = re.search(r"permission denied for (schema|table|database) (\S+)", text)
    if found is not None and found[1] == "schema":
        return f"GRANT USAGE, CREATE ON SCHEMA {found[2]} TO {place.user}"
    if found is not None and found[1] == "database":
        return f"GRANT CREATE, TEMPORARY ON DATABASE {found[2]} TO {place.user}"
    if found is not None:
        return f"GRANT SELECT, INSERT, UPDATE, DELETE ON {found[2]} TO {place.user}"
    if owner := re.search(r"must be owner of table (\S+)", text):
        return f"ALTER TABLE {owner[1]} OWNER TO {place.user}"
    if "temporary" in text:
        return f"GRANT TEMPORARY ON DATABASE {place.database} TO {place.user}"
    return f"GRANT … TO {place.user}"
