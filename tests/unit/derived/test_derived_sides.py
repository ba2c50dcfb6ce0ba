"""Changes of which a table has a row on one side alone: what comes had none before, what goes has none after.

They are looked for where there can be some. Each derived table is compared with its SELECT, run by DuckDB.
"""

import pytest
from test_derived_cases import Sink

from backfill_cli.sinks.duckdb.file import Connection

COUNTED = "(SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer)"
SELECTS = {
    "doubled": "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON b.customer = a.customer",
    "alone": "SELECT c.id, o.id AS other FROM customers c LEFT JOIN orders o ON o.customer = c.id",
    "counted": f"SELECT c.id, g.n AS other, g.most FROM customers c JOIN {COUNTED} g ON g.customer = c.id",
    "one": f"SELECT c.id, g.n AS other, g.most FROM customers c JOIN {COUNTED} g ON g.customer = c.id AND g.n = 1",
    "perhaps": f"SELECT c.id, g.n AS other, g.most FROM customers c LEFT JOIN {COUNTED} g ON g.customer = c.id",
    "joined": f"SELECT o.id, g.n AS other FROM {COUNTED} g RIGHT JOIN orders o ON o.customer = g.customer",
}


@pytest.fixture
def sink() -> Sink:
    made = Sink()
    for name, sql in SELECTS.items():
        key = ("id",) if COUNTED in sql else ("id", "other")
        made.derive(sql, *key, name=name)
    return made


def require_equal(sink: Sink) -> None:
    for name, sql in SELECTS.items():
        assert sink.rows(name) == sorted(sink.raw.execute(sql).fetchall(), key=repr), name


def test_what_comes_and_what_goes_is_found_on_its_own_side(sink: Sink) -> None:
    sink.epoch(customers={7: ("NL", "x"), 8: ("BE", "x"), 9: ("FR", "x")})
    require_equal(sink)
    sink.epoch(orders={1: (7, 5, "a"), 2: (7, 6, "a"), 3: (8, 1, "a")})  # these come
    require_equal(sink)
    assert len(sink.rows("doubled")) == 5
    sink.epoch(orders={2: None, 3: None})  # these go
    require_equal(sink)
    sink.epoch(orders={4: (9, 1, "b"), 5: None, 1: (9, 2, "b")}, customers={8: None, 7: None})
    require_equal(sink)
    sink.epoch(orders={6: (7, 1, "b")}, customers={7: ("NL", "y"), 9: None})
    require_equal(sink)
    sink.epoch(orders=None, customers={5: ("NL", "y")})
    require_equal(sink)
    sink.epoch(orders=None)  # there is none
    require_equal(sink)


def test_no_statement_looks_for_rows_where_none_can_be(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.epoch(customers={7: ("NL", "x")})
    said = list[str]()
    run = Connection.run
    monkeypatch.setattr(Connection, "run", lambda self, sql: (said.append(sql), run(self, sql))[1])

    def looked(**tables: dict[int, tuple[object, ...] | None]) -> int:
        said.clear()
        sink.epoch(**tables)
        return sum(sql.startswith("INSERT INTO _backfill_keys") for sql in said)

    comes, changes, goes = (looked(orders={1: row}) for row in ((7, 5, "a"), (7, 6, "a"), None))
    assert 0 < comes < changes
    assert 0 < goes < changes
    assert looked(orders={2: None}) == 0  # it never was there
    require_equal(sink)
