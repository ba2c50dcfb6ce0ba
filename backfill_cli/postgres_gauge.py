"""One number from a PostgreSQL server, asked again and again: for guards, of upstream and sink."""

import math
from typing import TYPE_CHECKING, Any

from backfill_cli import postgres_dsn
from backfill_cli.contracts import Unanswered

if TYPE_CHECKING:
    import psycopg

LEAST_CONNECT_S = 2
"""libpq's minimum."""

STANDBY_LAG = (
    "SELECT coalesce(max(extract(epoch FROM greatest(write_lag, flush_lag, replay_lag))), 0) "
    "FROM pg_catalog.pg_stat_replication WHERE application_name <> 'backfill'"
)
SESSIONS = (
    "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE state = 'active' "
    "AND backend_type = 'client backend' AND application_name <> 'backfill'"
)


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
            limit = f"SET LOCAL statement_timeout = {max(1, int(self._timeout_s * 1000))}"
            connection.execute(limit.encode())
            row = connection.execute(self._query.encode()).fetchone()
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
