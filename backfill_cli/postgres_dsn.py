"""A connection string as every connection of ours uses it: read by libpq's own parser, never shown."""

from typing import Any

from backfill_cli.errors import UsageError

PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Where the connection string does not say them: a path that is dead is noticed in a minute, not in two hours."""

ESCAPED = (
    "write postgresql://user:password@host:5432/database where the reference points; in the password %40 for @, "
    "%2F for /, %3A for :, %23 for #, %3F for ? and %25 for %"
)


def parsed(dsn: str, option: str) -> dict[str, Any]:
    """Its parts by libpq's names. option: of the config, which holds it.

    Raises UsageError, without repeating it, where it cannot be read, or where a password that is not escaped makes
    libpq take a part of it for a host or a port, which its errors would show.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        raise UsageError(f"{option} is no connection string of libpq", ESCAPED) from None
    place = parts.get("host", "") + parts.get("dbname", "")
    ports = [port for port in parts.get("port", "").split(",") if port]
    if "@" in place or not all(port.isdigit() for port in ports):
        raise UsageError(f"{option} is read otherwise than it was meant: its password is not escaped", ESCAPED)
    return parts


def completed(dsn: str, option: str) -> str:
    """With PATIENCE where it says nothing of it. Raises UsageError as `parsed` does."""
    from psycopg.conninfo import make_conninfo

    return str(make_conninfo("", **{**PATIENCE, **parsed(dsn, option)}))
