"""What keeping a derived table costs: an epoch's upkeep ÷ the full SELECT, on the bare upkeep, in either database.

5 million facts joined with 100,000 dimensions. No job runs: staged rows take the place of those of their keys by
the statements of a commit, in one transaction, once without and once with the derived table; the upkeep is the
difference. The floor is what of it is spent on rows alone: the old ones from the DELETE, and the new ones. The
fill is what its first commit does, its partial aggregates too, ÷ a table made of the SELECT alone.

    python benchmarks/derived.py                          5 million facts, a minute
    python benchmarks/derived.py 1000000 --system postgres

--cpu: of CPU, on a busy machine (DuckDB). --recompute: groups are computed again from all rows, as without
contributions.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import measure
import psycopg
from measure import Figure
from postgres import running  # in scripts/

from backfill_cli.contracts import own
from backfill_cli.derived.named import named
from backfill_cli.derived.rows import maintained
from backfill_cli.model.derived import Base, Derived
from backfill_cli.sinks.duckdb.dialect import DUCKDB
from backfill_cli.sinks.postgres.dialect import POSTGRES
from backfill_cli.sinks.sql.transition import TransitionTable
from backfill_cli.sinks.sql.upkeep import Kept, Upkeep, added_to, create_partials

DIMENSIONS, GROUPS, CHANGES, TIMES = 100_000, 1_000, 10_000, 5
FILL_GOAL = 1.3
BASES = [
    Base("facts", ("facts",), "facts", ("id",), ("id", "dimension", "amount", "price"), ("id",)),
    Base("dimensions", ("dimensions",), "dimensions", ("id",), ("id", "grp"), ("id",)),
]
JOINED = "FROM facts f JOIN dimensions d ON d.id = f.dimension"
GROUPED = "SELECT d.grp, count(*) AS n, sum(f.amount) AS amount, sum(f.price) AS price"


@dataclass(frozen=True)
class Case:
    """key: of the derived table. changes: so many rows of this table. goal: upkeep ÷ full SELECT at most."""

    name: str
    sql: str
    key: tuple[str, ...]
    table: str
    changes: int
    goal: float | None


CASES = (
    Case("1,000 groups, 10,000 facts change", f"{GROUPED} {JOINED} GROUP BY 1", ("grp",), "facts", CHANGES, 0.1),
    Case(
        "one group, 10,000 facts change",
        f"SELECT count(*) AS n, sum(f.amount) AS amount {JOINED}",
        (),
        "facts",
        CHANGES,
        0.05,
    ),
    Case(
        "1,000 groups, 1 % of dimensions change",
        f"{GROUPED} {JOINED} GROUP BY 1",
        ("grp",),
        "dimensions",
        DIMENSIONS // 100,
        0.5,
    ),
    Case(
        "1,000 groups with max, 10,000 facts change",
        f"SELECT d.grp, max(f.amount) AS amount {JOINED} GROUP BY 1",
        ("grp",),
        "facts",
        CHANGES,
        None,
    ),
    Case(
        "a row per fact, 10,000 facts change",
        f"SELECT f.id, d.grp, f.amount {JOINED}",
        ("id",),
        "facts",
        CHANGES,
        None,
    ),
)


class Database:
    """As `sinks.sql.state.Connection`, of either database. system: its name."""

    def __init__(self, system: str, raw: Any) -> None:
        self.system, self.raw = system, raw
        self.dialect = DUCKDB if system == "duckdb" else POSTGRES

    def run(self, sql: str, *parameters: Any) -> None:
        self.raw.execute(sql)

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.raw.execute(sql).fetchall()
        return found

    def make(self, facts: int) -> None:
        series = "range({}) AS r(i)" if self.system == "duckdb" else "generate_series(0, {} - 1) AS r(i)"
        mixed = "CAST(i AS BIGINT) * 7919 % 1000003"  # spreads neighbours over dimensions and amounts
        self.run(
            "CREATE TABLE facts AS SELECT CAST(i AS BIGINT) AS id, "
            f"CAST({mixed} % {DIMENSIONS} AS INT) AS dimension, "
            f"CAST({mixed} % 1000 AS INT) AS amount, CAST({mixed} % 100000 / 100.0 AS DECIMAL(12,2)) AS price "
            f"FROM {series.format(facts)}"
        )
        self.run(
            f"CREATE TABLE dimensions AS SELECT CAST(i AS INT) AS id, CAST(i % {GROUPS} AS INT) AS grp "
            f"FROM {series.format(DIMENSIONS)}"
        )
        if self.system == "postgres":  # as a job's tables have, and the index that docs/derived.md advises
            for table in ("facts", "dimensions"):
                self.run(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
            self.run("CREATE INDEX ON facts (dimension)")
            self.run("VACUUM ANALYZE")

    def index(self, table: str, columns: tuple[str, ...]) -> None:
        if self.system == "postgres" and columns:
            self.run(f"CREATE INDEX ON {table} ({', '.join(columns)})")


@contextmanager
def opened(system: str) -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        if system == "duckdb":
            with duckdb.connect(str(Path(folder) / "sink.duckdb")) as raw:
                yield Database(system, raw)
        else:
            Path(folder).chmod(0o755)  # the server can be another user
            settings = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
            with (
                running(Path(folder) / "postgres", settings=settings) as one,
                psycopg.connect(one.dsn(), autocommit=True, prepare_threshold=None) as connection,
            ):
                yield Database(system, connection)


def filled(db: Database, case: Case, at: int, recompute: bool, timed: Callable[..., float]) -> tuple[Kept, float]:
    """The derived table as a job keeps it; and its fill ÷ a table made of the SELECT alone."""
    made = maintained(Derived(f"d{at}", f"d{at}", case.key, case.sql), BASES, db.system)
    alone, whole = [], []
    for _ in range(3):
        db.run("DROP TABLE IF EXISTS again")
        alone.append(timed(lambda: db.run(f"CREATE TABLE again AS {made.text}")))
        db.run(f"DROP TABLE IF EXISTS d{at}")
        db.run(f"DROP TABLE IF EXISTS partials_{at}")
        kept = Kept(made, f"d{at}")

        def fill() -> None:
            nonlocal kept
            added = "" if recompute else added_to(db, made)
            text = made.text
            if not isinstance(added, str):
                kept = Kept(made, f"d{at}", added, f"partials_{at}")
                create_partials(db, db.dialect, added, kept.partials)
                db.index(kept.partials, added.key_columns)
                text = added.visible(kept.partials)
            db.run(f"CREATE TABLE {kept.target} AS {text}")
            db.index(kept.target, made.pushed)

        whole.append(timed(fill))
    return kept, statistics.median(whole) / statistics.median(alone)


def stage(db: Database, case: Case, at: int) -> None:
    """A table `staged` has this epoch's rows."""
    step = max(1, db.rows(f"SELECT count(*) FROM {case.table}")[0][0] // case.changes)
    new = "dimension, amount + 1 AS amount, price" if case.table == "facts" else f"(grp + 1) % {GROUPS} AS grp"
    db.run("DROP TABLE IF EXISTS staged")
    db.run(f"CREATE TEMP TABLE staged AS SELECT id, {new} FROM {case.table} WHERE id % {step} = {at % step}")
    if db.system == "postgres":
        db.run("ANALYZE staged")


def write(db: Database, case: Case, taken: TransitionTable | None) -> None:
    """As a sink's `apply`."""
    delete, rows = f"DELETE FROM {case.table} t USING staged s WHERE t.id = s.id", "staged"
    db.run(delete if taken is None else taken.deleted(delete, "t"))
    db.run(f"INSERT INTO {case.table} SELECT * FROM {rows}")
    if taken is not None:
        db.run(taken.inserted(rows))


def measured(db: Database, case: Case, kept: Kept, timed: Callable[..., float]) -> tuple[float, float, float]:
    """Seconds of the upkeep, of what of it is taking rows, and of the full SELECT, medians. The table equals its
    SELECT after each epoch.
    """
    base = next(one for one in BASES if one.name == case.table)
    columns = named(base, [kept.maintained.derived], db.system)
    taken = TransitionTable("taken", columns, db.dialect)
    alone, takings, wholes, fulls = [], [], [], []

    def take() -> None:
        db.run(
            f"CREATE TEMP TABLE taken AS SELECT {', '.join(columns)}, 1 AS {own.SIGN} FROM {base.sql} WHERE FALSE"
        )
        write(db, case, taken)

    for at in range(TIMES):
        stage(db, case, at)
        db.run("BEGIN")
        alone.append(timed(partial(write, db, case, None)))
        db.run("ROLLBACK")
        upkeep = Upkeep(db, db.dialect, [kept])
        db.run("BEGIN")
        takings.append(timed(take))
        rest = timed(partial(upkeep.before, {}, {case.table: taken}, [kept.name])) + timed(upkeep.after)
        wholes.append(takings[-1] + rest)
        db.run("DROP TABLE taken")
        db.run("COMMIT")
        db.run("DROP TABLE IF EXISTS again")
        fulls.append(timed(partial(db.run, f"CREATE TEMP TABLE again AS {kept.maintained.text}")))
        for one, other in (("again", kept.target), (kept.target, "again")):
            ((differ,),) = db.rows(
                f"SELECT count(*) FROM (SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other}) AS x"
            )
            assert differ == 0, f"{differ} rows differ"
        if db.system == "postgres":
            db.run(f"VACUUM {case.table}")
    without = statistics.median(alone)
    return statistics.median(wholes) - without, statistics.median(takings) - without, statistics.median(fulls)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("facts", type=int, nargs="?", default=5_000_000)
    parser.add_argument("--system", choices=("duckdb", "postgres"), default="duckdb")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    told = parser.parse_args()
    if told.cpu and told.system == "postgres":
        sys.exit("--cpu: the CPU of this process, in which PostgreSQL is not")
    clock = time.process_time if told.cpu else time.perf_counter

    def timed(what: Callable[[], object]) -> float:
        begun = clock()
        what()
        return clock() - begun

    figures = []
    with opened(told.system) as db:
        db.make(told.facts)
        for at, case in enumerate(CASES):
            kept, fill = filled(db, case, at, told.recompute, timed)
            upkeep, floor, full = measured(db, case, kept, timed)
            ratio, goal = upkeep / full, case.goal
            by = "recomputed" if kept.added is None else "by contributions"
            note = f"{by}; SELECT {full:.3f} s; taking the rows alone {floor / full:.2f}"
            figures += [
                Figure(
                    f"{case.name}: upkeep ÷ SELECT",
                    ratio,
                    "",
                    "-" if goal is None else f"≤ {goal:g}",
                    goal is None or ratio <= goal,
                    note=note,
                ),
                Figure(f"{case.name}: fill ÷ SELECT", fill, "", f"≤ {FILL_GOAL:g}", fill <= FILL_GOAL),
            ]
    sizes = {"facts": told.facts, "dimensions": DIMENSIONS, "of": "CPU" if told.cpu else "time"}
    return 0 if measure.report(f"derived-{told.system}", figures, sizes) else 1


if __name__ == "__main__":
    sys.exit(main())
