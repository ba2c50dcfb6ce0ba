"""A check from outside of what a job holds: it waits for no lock and changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import START_OVER, UsageError
from backfill_cli.upstreams.postgres.client import asking, glancing

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

STATEMENT_TIMEOUT_MS, LOCK_TIMEOUT_MS = 3000, 1000
"""Each query takes a few ms, and none needs a table's lock, except of one published with its whole schema."""

_KNOWN = """
SELECT n, c.oid::bigint, (
    SELECT jsonb_object_agg(a.attname, jsonb_build_array(a.attnum, a.atttypid::bigint)) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
FROM unnest(%s::text[]) n LEFT JOIN pg_class c ON c.oid = to_regclass(n)
"""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What `identity` records of a table. name: as in the config."""

    name: str
    oid: int
    kinds: Mapping[str, Sequence[int]]


@contextmanager
def glance(dsn: str) -> Iterator["Connection"]:
    """One read-only transaction with timeouts of its own; a query that exceeds them raises Transient."""
    limits = "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)"
    with glancing(dsn) as connection, asking("checking what the job holds"):
        connection.read_only = True
        with connection.transaction():
            connection.execute(limits, (str(STATEMENT_TIMEOUT_MS), str(LOCK_TIMEOUT_MS)))
            yield connection


def known(connection: "Connection", specs: Sequence[TableSpec]) -> tuple[KnownTable, ...]:
    """The tables, without sizes: reading those waits for ALTER TABLE. Raises UsageError for one that is gone."""
    with asking("reading its catalog"):
        rows = connection.execute(_KNOWN, ([spec.name for spec in specs],)).fetchall()
    for name, oid, _ in rows:
        if oid is None:
            raise UsageError(f"table {name!r} does not exist", START_OVER + ", or rename it back")
    return tuple(KnownTable(name, oid, kinds or {}) for name, oid, kinds in rows)
