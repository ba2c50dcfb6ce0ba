"""What `init` says of a database that a job is to fill: whether the schema exists, what the role lacks there."""

from collections.abc import Sequence

from backfill_cli.contracts import without_config
from backfill_cli.model.units import spell_count
from backfill_cli.sinks.postgres import PostgresOptions
from backfill_cli.sinks.postgres.dialect import quoted
from backfill_cli.sinks.postgres.session import READING, Place, opened

CONNECT_S = "2"
"""libpq's minimum."""

_CORRECT = (
    "start the server, or correct user, host, port or database: --to postgresql://user@host:5432/database; the "
    "password comes from PGPASSWORD or ~/.pgpass"
)

_FOUND = """
SELECT current_user::text, pg_catalog.current_database()::text, pg_catalog.pg_is_in_recovery(),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY'),
       (SELECT pg_catalog.has_schema_privilege(n.oid, 'CREATE') FROM pg_catalog.pg_namespace n
        WHERE n.nspname = $1),
       (SELECT pg_catalog.count(*)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relkind IN ('r', 'p'))
"""


def look(options: PostgresOptions) -> Sequence[str]:
    """Lines for a person. Raises UsageError for a server that refuses, or does not answer."""
    with without_config(_CORRECT):
        place = Place.of(options.dsn, connect_timeout=CONNECT_S)
        with opened(place, "looking at its schema", mode=READING) as connection:
            ((role, database, standby, creates, has_temporary, creates_tables, tables),) = connection.rows(
                _FOUND, options.in_schema
            )
    schema = options.in_schema
    if creates_tables is None:
        said = f"PostgreSQL {place}: schema {schema} does not exist; start creates it"
    else:
        said = f"PostgreSQL {place}: schema {schema} exists, with {spell_count(tables, 'table')}"
    lacks = []
    if standby:
        lacks.append("the server is a standby, which is read-only")
    if creates_tables is False:
        lacks.append(f"GRANT CREATE ON SCHEMA {quoted(schema)} TO {quoted(role)}")
    if creates_tables is None and not creates:
        lacks.append(f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(role)}")
    if not has_temporary:
        lacks.append(f"GRANT TEMPORARY ON DATABASE {quoted(database)} TO {quoted(role)}")
    return [said, *([f"role {role} still needs: {'; '.join(lacks)}"] if lacks else [])]
