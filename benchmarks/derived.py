"""What keeping a derived table costs: an epoch's upkeep in DuckDB ÷ the full SELECT, on the bare upkeep.

5 million facts joined with 100,000 dimensions. No job runs: tables are changed by hand within one transaction, and
what is measured is all that a commit does for the derived table, `before` and `after` its tables are written.

    python benchmarks/derived.py [FACTS] [--cpu]      # --cpu: of CPU, on a busy machine
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from backfill_cli.derived.rows import maintained
from backfill_cli.model.derived import Base, Derived
from backfill_cli.sinks.duckdb.dialect import DUCKDB
from backfill_cli.sinks.duckdb.file import Connection
from backfill_cli.sinks.sql.upkeep import Kept, Upkeep

FACTS = next((int(one) for one in sys.argv[1:] if one.isdigit()), 5_000_000)
CLOCK = time.process_time if "--cpu" in sys.argv else time.perf_counter
DIMENSIONS, GROUPS, CHANGES, TIMES = 100_000, 1_000, 10_000, 5
BASES = [
    Base("facts", ("facts",), "facts", ("id",), ("id", "dimension", "amount", "price"), ("id",)),
    Base("dimensions", ("dimensions",), "dimensions", ("id",), ("id", "grp"), ("id",)),
]
JOINED = "FROM facts f JOIN dimensions d ON d.id = f.dimension"
GROUPED = "SELECT d.grp, count(*) AS n, sum(f.amount) AS amount, sum(f.price) AS price"
CASES = {
    "1,000 groups, 10,000 facts change": (f"{GROUPED} {JOINED} GROUP BY 1", ("grp",), "facts", CHANGES, 0.1),
    "one group, 10,000 facts change": (
        f"SELECT count(*) AS n, sum(f.amount) AS amount {JOINED}",
        (),
        "facts",
        CHANGES,
        0.05,
    ),
    "1,000 groups, 1 % of dimensions change": (
        f"{GROUPED} {JOINED} GROUP BY 1",
        ("grp",),
        "dimensions",
        DIMENSIONS // 100,
        0.5,
    ),
    "1,000 groups with max, 10,000 facts change": (
        f"SELECT d.grp, max(f.amount) AS amount {JOINED} GROUP BY 1",
        ("grp",),
        "facts",
        CHANGES,
        None,
    ),
    "a row per fact, 10,000 facts change": (
        f"SELECT f.id, d.grp, f.amount {JOINED}",
        ("id",),
        "facts",
        CHANGES,
        None,
    ),
}
"""By name: SELECT, key, which table changes, how many of its rows, the limit."""


def changed(raw: duckdb.DuckDBPyConnection, table: str, count: int, at: int) -> str:
    raw.execute(
        f"CREATE OR REPLACE TEMP TABLE changed AS SELECT id FROM {table} WHERE hash(id + {at}) % "
        f"{max(1, (FACTS if table == 'facts' else DIMENSIONS) // count)} = 0"
    )
    return "changed"


def measured(raw: duckdb.DuckDBPyConnection, kept: Kept, table: str, count: int) -> tuple[float, float]:
    """Seconds of the upkeep and of the full SELECT, medians."""
    upkeeps, fulls = [], []
    for at in range(TIMES):
        keys = changed(raw, table, count, at)
        upkeep = Upkeep(Connection(raw), DUCKDB, [kept])
        raw.execute("BEGIN")
        begun = CLOCK()
        upkeep.before({table: keys})
        before = CLOCK() - begun
        new = "amount = amount + 1" if table == "facts" else f"grp = (grp + 1) % {GROUPS}"
        raw.execute(f"UPDATE {table} SET {new} WHERE id IN (FROM changed)")
        begun = CLOCK()
        upkeep.after()
        upkeeps.append(before + CLOCK() - begun)
        raw.execute("COMMIT")
        begun = CLOCK()
        raw.execute(f"CREATE OR REPLACE TEMP TABLE again AS {kept.maintained.text}")
        fulls.append(CLOCK() - begun)
        differ = raw.execute(f"SELECT count(*) FROM (FROM again EXCEPT ALL FROM {kept.target})").fetchall()[0][0]
        assert differ == 0, f"{differ} rows differ"
    return statistics.median(upkeeps), statistics.median(fulls)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(str(Path(folder) / "sink.duckdb")) as raw:
        raw.execute(
            f"CREATE TABLE facts AS SELECT i AS id, CAST(hash(i) % {DIMENSIONS} AS INT) AS dimension, "
            f"CAST(hash(i) % 1000 AS INT) AS amount, CAST(hash(i) % 100000 / 100.0 AS DECIMAL(12,2)) AS price "
            f"FROM range({FACTS}) r(i)"
        )
        raw.execute(
            f"CREATE TABLE dimensions AS SELECT CAST(i AS INT) AS id, CAST(i % {GROUPS} AS INT) AS grp "
            f"FROM range({DIMENSIONS}) r(i)"
        )
        for at, (name, (sql, key, table, count, limit)) in enumerate(CASES.items()):
            made = maintained(Derived(f"d{at}", f"d{at}", key, sql), BASES, "duckdb")
            raw.execute(f"CREATE TABLE d{at} AS {made.text}")
            shown(name, *measured(raw, Kept(made, f"d{at}"), table, count), limit)


def shown(name: str, upkeep: float, full: float, limit: float | None) -> None:
    print(f"{name}: {upkeep:.3f} s ÷ {full:.3f} s = {upkeep / full:.2f}" + (f", limit {limit}" if limit else ""))


if __name__ == "__main__":
    main()
