"""Where the sink's tables are, so that an upstream can tell whether they are its own tables."""

from collections.abc import Mapping, Sequence

from backfill_cli.contracts import SinkTable
from backfill_cli.postgres_says import PLACE
from backfill_cli.sinks.postgres.session import Connection, rows_of
from backfill_cli.sinks.postgres.sql import Target


def places(con: Connection, tables: Sequence[SinkTable], schema: str) -> Mapping[str, frozenset[str]]:
    """By the table's name in the job, the places of the table and its partitions; empty if it does not exist."""
    query = f"""
        SELECT {PLACE} FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
        LATERAL (SELECT c.oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)) t
        WHERE n.nspname = $1 AND c.relname = $2"""
    found = {}
    for table in tables:
        target = Target.of(table, schema)
        found[table.name] = frozenset(place for (place,) in rows_of(con, query, target.schema, target.table))
    return found
