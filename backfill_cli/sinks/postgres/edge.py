"""Where the database's errors end: they become ours here, naming host and database, never a part of the DSN."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_says
from backfill_cli.errors import BackfillError, BadData, Fatal, Transient, UsageError
from backfill_cli.postgres_says import INSTALL, Said
from backfill_cli.sinks.postgres.sql import Target, quoted

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
    "schema": "PG_DIAG_SCHEMA_NAME",
    "table": "PG_DIAG_TABLE_NAME",
}
BLOCKING = (
    "SELECT pid, usename, state, query FROM pg_stat_activity WHERE pid IN (SELECT unnest(pg_blocking_pids(pid)) "
    "FROM pg_stat_activity WHERE application_name = 'backfill')"
)
"""Who holds what a session of ours waits for; it is asked again and again, so mostly there is one that waits."""


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
def ours(place: "Place", doing: str, names: Sequence[Target] = ()) -> Iterator[None]:
    """Any failure of the database inside becomes ours; ours pass.

    doing: what was asked for, for people. names: the tables that it may be about.
    """
    try:
        yield
    except client().Error as exc:
        raise failure(place, doing, exc, names) from exc


def failure(place: "Place", doing: str, exc: Exception, names: Sequence[Target] = ()) -> BackfillError:
    """What an error of the database means."""
    state, words = state_of(exc), said(exc)
    text = place.scrubbed(f"PostgreSQL {place}, {doing}: {words}" + (f" (SQLSTATE {state})" if state else ""))
    about = postgres_says.said(state, str(exc), _without_state(exc))
    if about is Said.FORBIDDEN:
        let = _let(place, words, names)
        return UsageError(text, f"let the role have it, as the owner or an administrator: {let}")
    if state == "25006":
        return Transient(text, "name the primary server in sink.dsn, or promote this one: it may only be read now")
    if about is Said.NO_WAY_IN:
        return UsageError(text, "correct user, password or database in sink.dsn")
    # A quota is no full disk to the server: an internal error, with this sentence.
    if state.startswith("53") or words.startswith("could not extend file"):
        return Transient(text, "make room: on the server's disk, in its memory, among its connections")
    if state == "55P03":
        return Transient(text, f"see who holds the lock: {BLOCKING}")
    if about is Said.UNREACHED:
        return Transient(text, "start the database, or correct sink.dsn")
    if about is Said.PASSES:
        return Transient(text, "see the server's log")
    if state[:2] in ("22", "23") or (not state and isinstance(exc, client().DataError)):
        return BadData(text, "correct the rows upstream, or leave them out with a `where`")
    if not state:
        return Fatal(text, "bring the client up to date: pip install --upgrade adbc-driver-postgresql")
    return Fatal(text, "see the server's log")


def _without_state(exc: Exception) -> Said:
    """What an error is about that tells no state: the driver's own, unless it lost its way to the server."""
    return Said.UNREACHED if isinstance(exc, client().OperationalError) else Said.OTHER


def _let(place: "Place", words: str, names: Sequence[Target]) -> str:
    """The statement that gives what the server's English sentence says is missing."""
    role = quoted(place.user)
    if "row-level security" in words:
        return f"ALTER ROLE {role} BYPASSRLS"
    if owner := re.search(r"must be owner of (?:table|relation) (.+)", words):
        return f"ALTER TABLE {_qualified(owner[1], names)} OWNER TO {role}"
    if "temporary" in words:
        return f"GRANT TEMPORARY ON DATABASE {quoted(place.database)} TO {role}"
    found = re.search(r"permission denied for (\w+) (.+)", words)
    kind, name = (found[1], found[2]) if found else ("", "")
    match kind:
        case "schema":
            return f"GRANT USAGE, CREATE ON SCHEMA {quoted(name)} TO {role}"
        case "database":
            return f"GRANT CREATE, TEMPORARY ON DATABASE {quoted(name)} TO {role}"
        case "sequence":
            schemas = {target.schema for target in names}
            beside = f"{quoted(schemas.pop())}." if len(schemas) == 1 else ""
            return f"GRANT USAGE ON SEQUENCE {beside}{quoted(name)} TO {role}"
        case "function" | "procedure" | "type":
            return f"GRANT {'USAGE' if kind == 'type' else 'EXECUTE'} ON {kind.upper()} {quoted(name)} TO {role}"
    tables = [_qualified(name, names)] if name else [target.sql for target in names]
    return f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(tables)} TO {role}"


def _qualified(table: str, names: Sequence[Target]) -> str:
    """The table as one of those that were asked for; as the server named it, without its schema, if it is none."""
    return next((target.sql for target in names if target.table == table), quoted(table))
