"""`verify` of a range of keys: what it finds there, against plain SQL, and nothing of what is outside."""

import random
from pathlib import Path

import duckdb
import pytest
from verify_case import ROWS, UNTOLD, Case, orders

from backfill_cli.engine.verify.extent import judging
from backfill_cli.model.refill import Extent

__all__ = ["orders"]

pytestmark = pytest.mark.seconds

WRONG = (
    "DELETE FROM t WHERE id % 31 = 7",
    "UPDATE t SET word = 'other' WHERE id % 43 = 5",
    f"INSERT INTO t (id, word) SELECT id + {ROWS}, 'extra' FROM t WHERE id % 97 = 3",
)
FOUND = """
SELECT count(*) FILTER (theirs IS NULL), count(*) FILTER (ours IS NULL), count(*) FILTER (ours != theirs)
FROM (SELECT id, any_value(u) AS ours FROM up u GROUP BY id) FULL JOIN
     (SELECT id, any_value(t) AS theirs FROM t GROUP BY id) USING (id) WHERE {}
"""


def oracle(case: Case, between: str) -> tuple[int, ...]:
    """(rows upstream, rows in the sink, missing, extra, changed) of the keys, by DuckDB alone."""
    with duckdb.connect(str(case.folder / "w.duckdb"), read_only=True) as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute(f"CREATE TEMP VIEW up AS FROM '{case.folder}/up/0.parquet'")
        counts = [
            db.execute(f"SELECT count(*) FROM {one} WHERE {between}").fetchall()[0][0] for one in ("up", "t")
        ]
        return (*counts, *db.execute(FOUND.format(between)).fetchall()[0])


def test_a_range_tells_what_differs_in_it_alone(orders: Case, tmp_path: Path) -> None:
    chance = random.Random(14)
    for one in WRONG:
        orders.stranger(one)
    bounds = [(None, 40), (460, None), (12, 12)]
    bounds += [tuple(sorted(chance.sample(range(2 * ROWS), 2))) for _ in range(3)]
    for low, high in bounds:
        extent = Extent("", *(None if one is None else str(one) for one in (low, high)))
        folder = tmp_path / f"copy-{low}-{high}"
        folder.mkdir()
        with orders.sink.copied("j", False, folder) as copy:
            found = judging(extent)(orders.spark, orders.expected(), copy, orders.table, 20, None, UNTOLD).verdict
        told = " AND ".join(f"id {op} {one}" for op, one in ((">=", low), ("<=", high)) if one is not None)
        expected = oracle(orders, told)
        assert (found.rows_upstream, found.rows_sink, found.missing, found.extra, found.changed) == expected
        assert found.equal == (not any(expected[2:]))
        assert len({row.key for row in found.rows}) == min(20, sum(expected[2:]))
