"""What is kept by contributions, and what is computed again.

That both give the SELECT's rows is shown in test_derived_oracle.
"""

import duckdb
import pytest
from test_derived_reading import read

from backfill_cli.derived.contributions import Contributions, contributions
from backfill_cli.sinks.duckdb.file import Connection
from backfill_cli.sinks.sql.upkeep import added_to

FROM = "FROM orders o JOIN customers c ON c.id = o.customer_id"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.status, count(*) AS n FROM orders o GROUP BY 1",
        f"SELECT o.status, sum(o.amount) / count(*) + 1 AS mean {FROM} WHERE c.id > 1 GROUP BY o.status",
        "SELECT o.status, count(o.amount) FILTER (WHERE o.id > 1) AS n FROM orders o, customers c GROUP BY 1",
        "SELECT o.status, sum(o.amount) AS s FROM orders o GROUP BY 1 HAVING count(*) > 1 AND sum(o.id) > 2",
    ],
)
def test_counts_and_sums_are_kept_by_contributions(sql: str) -> None:
    assert isinstance(contributions(read(sql, ("status",))), Contributions)


@pytest.mark.parametrize(
    ("items", "rest", "why"),
    [
        ("max(o.amount) AS n", "", "max(o.amount)"),
        ("count(*) + max(o.amount) AS n", "", "max(o.amount)"),
        ("count(DISTINCT o.amount) AS n", "", "count(DISTINCT o.amount)"),
        ("sum(DISTINCT o.amount) AS n", "", "sum(DISTINCT o.amount)"),
        ("avg(o.amount) AS n", "", "avg(o.amount)"),
        ("CASE WHEN o.status = 'x' THEN count(*) END AS n", "", "CASE WHEN o.status = 'x' THEN count(*) END"),
        ("count(*) AS n", "HAVING min(o.amount) > 1", "min(o.amount)"),
    ],
)
def test_what_cannot_be_added_is_the_reason_that_is_told(items: str, rest: str, why: str) -> None:
    assert contributions(read(f"SELECT o.status, {items} FROM orders o GROUP BY 1 {rest}", ("status",))) == why


def test_outer_joins_and_groups_that_are_no_key_are_computed_again() -> None:
    left = (
        "SELECT o.status, count(c.id) AS n FROM orders o LEFT JOIN customers c ON c.id = o.customer_id GROUP BY 1"
    )
    assert "LEFT JOIN" in str(contributions(read(left, ("status",))))
    finer = "SELECT o.status, count(*) AS n FROM orders o GROUP BY 1, o.amount"
    assert not isinstance(contributions(read(finer, ("status",))), Contributions)
    assert contributions(read("SELECT o.id, o.amount FROM orders o", ("id",))) == "", "it has no groups"


@pytest.mark.parametrize(
    ("kind", "key", "why"),
    [
        ("DECIMAL(12,2)", "TEXT", ""),
        ("BIGINT", "DECIMAL(9,1)", ""),
        ("DOUBLE", "TEXT", "sum or avg of o.amount, which is DOUBLE"),
        ("INTERVAL", "TEXT", "sum or avg of o.amount, which is INTERVAL"),
        ("INTEGER", "DOUBLE", "o.status is DOUBLE, of which equal values can differ"),
    ],
)
def test_only_exact_numbers_are_added_and_only_groups_whose_equal_values_are_the_same(
    kind: str, key: str, why: str
) -> None:
    made = read("SELECT o.status, sum(o.amount) AS s FROM orders o GROUP BY 1", ("status",))
    with duckdb.connect() as raw:
        raw.execute(f'CREATE TABLE "t orders" (id INT, customer_id INT, amount {kind}, status {key})')
        found = added_to(Connection(raw), made)
    assert (found if isinstance(found, str) else "") == why
