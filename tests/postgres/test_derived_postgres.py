"""Derived tables in PostgreSQL's own SQL equal their SELECT after each epoch: see tests/unit/derived."""

from collections import Counter

import pytest
from derived_oracle import VIEWS, InPostgres, run
from postgres import Server
from postgres_database import database

CASES = 200
"""So many of each kind: 400 of the 5,000 that each run has (tests/unit/derived/test_derived_oracle.py)."""
WORLDS = CASES // VIEWS


@pytest.mark.parametrize("refreshed", [0, 0.6])
def test_a_derived_table_equals_its_select_after_each_epoch_in_postgres(
    postgres: Server, refreshed: float
) -> None:
    came: Counter[str] = Counter()
    with database(postgres) as one, database(postgres) as other:
        sink, oracle = InPostgres(one.dsn, sink=True), InPostgres(other.dsn, sink=False)
        try:
            for seed in range(WORLDS):
                came += run(seed, sink, oracle, refreshed)
        finally:
            sink.close()
            oracle.close()
    assert came["kept"] > (0.5 if refreshed else 0.6) * CASES, came
