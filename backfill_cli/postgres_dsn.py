"""A connection string as all our connections use it: parsed by libpq's own parser, and never shown."""

from typing import Any

from backfill_cli.errors import UsageError

PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Defaults for what the connection string omits: a dead network path is noticed in a minute, not in two hours."""

ESCAPED = (
    "put postgresql://user:password@host:5432/database where the reference points; in the password write %40 for "
    "@, %2F for /, %3A for :, %23 for #, %3F for ? and %25 for %"
)


def is_url(text: str) -> bool:
    """Whether a text is a connection string in the form of a URL."""
    return text.startswith(("postgresql://", "postgres://"))


def parsed(dsn: str, option: str) -> dict[str, Any]:
    """The parts of a connection string, by libpq's names. option: the config option that holds it.

    Raises UsageError, without repeating the string, if it cannot be parsed, or if an unescaped password makes
    libpq take part of it for a host or a port, which libpq's errors would show.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        raise UsageError(f"{option} is not a valid libpq connection string", ESCAPED) from None
    place = parts.get("host", "") + parts.get("dbname", "")
    ports = [port for port in parts.get("port", "").split(",") if port]
    if "@" in place or not all(port.isdigit() for port in ports):
        raise UsageError(f"{option} cannot be parsed as intended: its password is not escaped", ESCAPED)
    return parts


def completed(dsn: str, option: str, **instead: str) -> str:
    """The connection string with PATIENCE's defaults added. Raises UsageError as `parsed` does.

    instead: parameters that override those of the string.
    """
    from psycopg.conninfo import make_conninfo

    return str(make_conninfo("", **{**PATIENCE, **parsed(dsn, option), **instead}))
