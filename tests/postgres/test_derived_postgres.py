"""Derived tables in PostgreSQL's own SQL equal their SELECT after each epoch: see tests/unit/derived."""

from collections import Counter

from derived_oracle import InPostgres, run
from postgres import Server
from postgres_database import database

WORLDS = 60


def test_a_derived_table_equals_its_select_after_each_epoch_in_postgres(postgres: Server) -> None:
    with database(postgres) as one, database(postgres) as other:
        sink, oracle = InPostgres(one.dsn, sink=True), InPostgres(other.dsn, sink=False)
        try:
            came = Counter(run(seed, sink, oracle) for seed in range(WORLDS))
        finally:
            sink.close()
            oracle.close()
    assert set(came) <= {"kept", "refused", "duplicate"}, came
    assert came["kept"] > 0.5 * WORLDS, came
