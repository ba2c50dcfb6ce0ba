"""How many changes of a slot's log one core handles: decoded, netted by key and written as Parquet.

    python benchmarks/pgoutput.py                      500,000 changes of 5 columns, five times
    python benchmarks/pgoutput.py --changes 50000

60 % inserts, 30 % updates, 10 % deletes, 1,000 per transaction, as in the first comparison of ways to read a log.
The server decodes the window again each time, in a process of its own; its own share is measured separately.
"""

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path

import measure
import psycopg
from measure import Figure, scratch

ROUNDS = 5
GOAL = 150_000
SLOT = PUBLICATION = "bench"
TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text, city text, price numeric(12,2), at timestamptz)"
INSERT = """
INSERT INTO orders SELECT g, 'note number ' || g, 'city ' || g % 1000, g * 1.37,
'2024-01-01+00'::timestamptz + g * interval '1.001 s'
FROM generate_series({0} + 1, {0} + 600) g"""
UPDATE = "UPDATE orders SET note = note || '.', price = price + 1 WHERE id > {0} AND id <= {0} + 300"
DELETE = "DELETE FROM orders WHERE id > {0} + 500 AND id <= {0} + 600"


def changes(dsn: str, count: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE orders")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        for at in range(count // 1000):
            with connection.transaction():
                for statement in (INSERT, UPDATE, DELETE):
                    connection.execute(statement.format(at * 600).encode())


def measured(dsn: str, folder: Path, count: int) -> list[Figure]:
    from backfill_cli.cdc.files import LogTable
    from backfill_cli.cdc.window import WindowRequest
    from backfill_cli.upstreams.postgres.client import connected, lsn_of
    from backfill_cli.upstreams.postgres.take import TakeRequest, take
    from backfill_cli.upstreams.postgres.types import COLUMNS, by_table

    changes(dsn, count)
    with connected(dsn) as connection:
        found = connection.execute("SELECT 'orders'::regclass::oid, pg_current_wal_insert_lsn()::text").fetchone()
        assert found is not None
        oid, end = found
        columns = by_table(connection.execute(COLUMNS.encode(), ([oid],)).fetchall())[oid]
    tables = (LogTable("orders", oid, columns, ("id",)),)
    walls, server, cpus = [], [], []
    for attempt in range(ROUNDS):
        window = WindowRequest(0, lsn_of(end), tables, str(folder), str(attempt))
        request = TakeRequest(window, dsn, SLOT, PUBLICATION)
        with connected(dsn) as connection:
            before = time.perf_counter()
            connection.execute(
                "SELECT count(*) FROM pg_logical_slot_peek_binary_changes"
                "(%s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s)",
                (SLOT, end, PUBLICATION),
            )
            server.append(count / (time.perf_counter() - before))
        before, cpu = time.perf_counter(), time.process_time()
        taken = take(request)
        walls.append(count / (time.perf_counter() - before))
        cpus.append(1e6 * (time.process_time() - cpu) / count)
        assert taken.tables["orders"].changes == count, taken.tables["orders"].changes
        rows = taken.tables["orders"].changed + taken.tables["orders"].deleted
        assert rows == count * 6 // 10, rows
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    middle = statistics.median(walls)
    return [
        Figure("changes taken", middle, "1/s", f">= {GOAL}", middle >= GOAL, tuple(walls), higher=True),
        Figure("of it our CPU", statistics.median(cpus), "µs a change", "-", True, tuple(cpus)),
        Figure("the server alone", statistics.median(server), "1/s", "-", True, tuple(server), higher=True),
        Figure("memory at most", peak_mb, "MB", "-", True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=500_000)
    told = parser.parse_args()
    import postgres  # in scripts/

    with scratch(None) as folder, postgres.running(folder / "postgres") as server:
        figures = measured(server.dsn(), folder, told.changes)
    return 0 if measure.report("pgoutput", figures, {"changes": told.changes}) else 1


if __name__ == "__main__":
    sys.exit(main())
