"""Who holds a query up, in upstream or sink: sessions and prepared transactions, and what ends each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import Hint, sql
from backfill_cli.model.limit import Limit

if TYPE_CHECKING:
    import psycopg

_OF_SESSION = """
SELECT NULL, a.datname, a.usename, a.pid, coalesce(nullif(a.application_name, ''), a.backend_type, 'unknown'),
       pg_catalog.to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
  FROM pg_stat_activity a WHERE {}
UNION ALL
SELECT p.gid, p.database, p.owner, NULL, NULL,
       pg_catalog.to_char(p.prepared AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
  FROM pg_prepared_xacts p WHERE {}
ORDER BY 6 LIMIT 1
"""

_OWN = """JOIN pg_locks own ON own.locktype = 'transactionid' AND own.granted AND own.pid IS NULL
        AND own.virtualtransaction = h.virtualtransaction AND own.transactionid = p.transaction"""
"""A prepared transaction has no process; its locks share a virtual id with the lock on its own id."""

_WAITED_FOR = f"""EXISTS (
    SELECT FROM pg_locks w JOIN pg_locks h ON h.granted AND h.pid IS NULL
        AND (h.locktype, h.database, h.relation, h.transactionid)
            IS NOT DISTINCT FROM (w.locktype, w.database, w.relation, w.transactionid)
    {_OWN}
    WHERE w.pid = {{}} AND NOT w.granted)"""


def of_transaction(xid: int) -> str:
    """SQL: who has this transaction, for `spelled`. xid: of 64 bits, of which the server shows 32."""
    shown = f"'{xid % (1 << 32)}'::xid"
    return _OF_SESSION.format(f"a.backend_xid = {shown}", f"p.transaction = {shown}")


def of_tables(names: Sequence[str]) -> str:
    """SQL: who has a lock on one of these tables, the oldest transaction, for `spelled`. names: as SQL."""
    tables = ", ".join(f"pg_catalog.to_regclass({_literal(name)})::oid" for name in names)
    here = "(SELECT oid FROM pg_database WHERE datname = pg_catalog.current_database())"
    held = f"WHERE h.granted AND h.database = {here} AND h.relation IN ({tables})"
    session = f"EXISTS (SELECT FROM pg_locks h {held} AND h.pid = a.pid) AND a.pid <> pg_catalog.pg_backend_pid()"
    return _OF_SESSION.format(session, f"EXISTS (SELECT FROM pg_locks h {_OWN} {held} AND h.pid IS NULL)")


def holding_up(connection: "psycopg.Connection[Any]", pid: int) -> Limit | None:
    """For whom the session with this process waits, and what would end the wait; None if it waits for no lock."""
    query = _OF_SESSION.format(
        f"a.pid = ANY(pg_catalog.pg_blocking_pids({pid:d}))", _WAITED_FOR.format(f"{pid:d}")
    )
    row = connection.execute(query.encode()).fetchone()
    if row is None:
        return None
    who, end = spelled(row)
    return Limit(who, hint=end)


def spelled(row: Sequence[Any]) -> tuple[str, Hint]:
    """A row of these queries: who it is, and what ends its transaction."""
    gid, database, role, pid, program, at = row
    since = "a time that this role may not see" if at is None else f"{at} UTC"
    if gid is not None:
        name = _literal(gid)
        said = f"prepared transaction {name} of role {role} in database {database}, since {since}"
        end = sql(f"ROLLBACK PREPARED {name}") + " or " + sql(f"COMMIT PREPARED {name}")
        return said, end + ", in that database"
    said = f"the transaction of process {pid} ({program}, role {role}, database {database}), open since {since}"
    return said, "end that transaction, or its session: " + sql(f"SELECT pg_terminate_backend({pid})")


def _literal(text: str) -> str:
    """The text as an SQL string literal, whatever characters it holds."""
    escaped = text.replace("'", "''")
    return "E'" + escaped.replace("\\", "\\\\") + "'" if "\\" in text else "'" + escaped + "'"
