"""The privileges that the role needs. Each one it lacks is an error with the statement that grants it."""

from backfill_cli.errors import UsageError
from backfill_cli.sinks.postgres.session import Connection, Place, rows_of
from backfill_cli.sinks.postgres.sql import Target, quoted

_MAY = {"TEMPORARY": "create temporary tables", "CREATE": "create schemas"}
_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")


def require_on_database(con: Connection, place: Place, right: str) -> None:
    database = "pg_catalog.current_database()"
    found = rows_of(con, f"SELECT pg_catalog.has_database_privilege({database}, '{right}'), {database}, user")
    allowed, name, user = found[0]
    if not allowed:
        raise UsageError(
            f"PostgreSQL {place}: the role {user} may not {_MAY[right]}",
            f"GRANT {right} ON DATABASE {quoted(name)} TO {quoted(user)}",
        )


def require_on_schema(con: Connection, place: Place, schema: str) -> None:
    """The role may create tables in the schema, or the schema itself if it does not exist."""
    found = rows_of(
        con,
        "SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') AND pg_catalog.has_schema_privilege(oid, 'USAGE'), "
        "user FROM pg_catalog.pg_namespace WHERE nspname = $1",
        schema,
    )
    if not found:
        require_on_database(con, place, "CREATE")
    elif not found[0][0]:
        raise UsageError(
            f"PostgreSQL {place}: the role {found[0][1]} may not create tables in schema {schema!r}",
            f"GRANT USAGE, CREATE ON SCHEMA {quoted(schema)} TO {quoted(found[0][1])}",
        )


def require_on_table(con: Connection, place: Place, target: Target) -> None:
    rights = ", ".join(f"pg_catalog.has_table_privilege(c.oid, '{right}')" for right in _NEEDED)
    found = rows_of(
        con,
        f"SELECT user, pg_catalog.has_schema_privilege(n.oid, 'USAGE'), {rights} FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        target.schema,
        target.table,
    )
    user, usage, *allowed = found[0]
    lacks = [right for right, has in zip(_NEEDED, allowed, strict=True) if not has]
    if not usage:
        raise UsageError(
            f"PostgreSQL {place}: the role {user} may not use schema {target.schema!r}",
            f"GRANT USAGE ON SCHEMA {quoted(target.schema)} TO {quoted(user)}",
        )
    if lacks:
        raise UsageError(
            f"PostgreSQL {place}: the role {user} may not {', '.join(lacks)} on {target}",
            f"GRANT {', '.join(lacks)} ON {target.sql} TO {quoted(user)}",
        )
