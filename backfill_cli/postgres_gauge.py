"""One number from a PostgreSQL server, asked again and again: for guards, of upstream and sink."""

import math
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_dsn
from backfill_cli.contracts import Unanswered

if TYPE_CHECKING:
    import psycopg

LEAST_CONNECT_S = 2
"""libpq's minimum."""

STANDBY_LAG = """
WITH here AS (SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn()
                          ELSE pg_catalog.pg_current_wal_flush_lsn() END AS lsn)
SELECT coalesce(max(extract(epoch FROM CASE
         WHEN replay_lsn >= here.lsn THEN NULL
         WHEN flush_lsn < here.lsn AND now() - reply_time > interval '15 s'
           THEN greatest(write_lag, flush_lag, replay_lag, now() - reply_time)
         ELSE greatest(write_lag, flush_lag, replay_lag) END)), 0)
FROM pg_catalog.pg_stat_replication, here WHERE application_name <> 'backfill'
"""
"""A standby that hangs sends no lag any more, and the last one stays; so it does for one that has caught up. One
that is at work replies every 10 s (`wal_receiver_status_interval`), and to each write."""

SESSIONS = (
    "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE state = 'active' "
    "AND backend_type = 'client backend' AND application_name <> 'backfill'"
)

NAMED = {"replication-lag": STANDBY_LAG, "sessions": SESSIONS}
"""By the guard's kind. To a role that does not see others' sessions, each is 0."""


class PostgresGauge:
    """Asks one query on a connection of its own, each time in a read-only transaction. See contracts.Gauge."""

    def __init__(self, dsn: str, option: str, query: str, timeout_s: float) -> None:
        self._dsn, self._option, self._query, self._timeout_s = dsn, option, query, timeout_s
        self._connection: psycopg.Connection[Any] | None = None

    def ask(self) -> float:
        """Raises Unanswered naming what the server said: no part of a DSN is in it."""
        import psycopg

        try:
            return self._asked()
        except psycopg.Error as exc:
            self.close()
            words = (exc.diag.message_primary or "the server cannot be reached").strip()
            raise Unanswered(" ".join(words.split())) from exc

    def _asked(self) -> float:
        connection = self._opened()
        with connection.transaction():
            connection.execute(b"SET TRANSACTION READ ONLY")
            if self._query in NAMED.values():
                _require_sight(connection)
            limit = f"SET LOCAL statement_timeout = {max(1, int(self._timeout_s * 1000))}"
            connection.execute(limit.encode())
            # Not the simple protocol: it takes several statements, one of which could end the transaction.
            row = connection.execute(self._query.encode(), binary=True).fetchone()
        if row is None:
            raise Unanswered("the query returned no row")
        try:
            value = float(row[0])
        except (TypeError, ValueError):
            raise Unanswered(f"the query returned {'NULL' if row[0] is None else 'no number'}") from None
        if math.isnan(value):
            raise Unanswered("the query returned NaN")
        return value

    def _opened(self) -> "psycopg.Connection[Any]":
        import psycopg
        from psycopg.conninfo import make_conninfo

        if self._connection is None or self._connection.closed:
            connect_s = str(max(LEAST_CONNECT_S, math.ceil(self._timeout_s)))
            whole = make_conninfo(postgres_dsn.completed(self._dsn, self._option), connect_timeout=connect_s)
            self._connection = psycopg.connect(whole, autocommit=True, application_name="backfill")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _require_sight(connection: "psycopg.Connection[Any]") -> None:
    """Raises Unanswered if the role does not see what other sessions do."""
    seen = b"SELECT pg_has_role('pg_read_all_stats', 'USAGE'), quote_ident(current_user)"
    row = connection.execute(seen).fetchone()
    if row is not None and not row[0]:
        raise Unanswered(f"the role does not see other sessions (GRANT pg_monitor TO {row[1]})")
