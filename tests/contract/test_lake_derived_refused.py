"""What a SELECT in a lake is refused for before any table is looked at: the code is the same in every lake."""

from typing import TYPE_CHECKING

import pytest
from derived_contract import BY_NAME
from hint_typed import typed
from memory_lake import MemoryLake
from sink_contract import a_table

from backfill_cli.errors import UsageError
from backfill_cli.model.derived import Derived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> MemoryLake:
    made = MemoryLake(tmp_path_factory.mktemp("state"), spark)
    made.prepare("orders", (a_table(),), into_existing=False)
    return made


@pytest.mark.parametrize(
    ("sql", "said", "way_on"),
    [
        ("SELECT name, uuid() AS n FROM orders", "moment", "use a column"),
        ("SELECT name, version() AS n FROM orders", "moment", "use a column"),
        ("SELECT name, first(id) AS n FROM orders GROUP BY name", "order of rows", "use one of"),
        ("SELECT name, collect_list(id) AS n FROM orders GROUP BY name", "order of rows", "use one of"),
        (
            "SELECT name, max(struct(id)) AS n FROM orders GROUP BY name",
            "cannot have in a lake",
            "CAST it to a plain",
        ),
        ("SELECT name COLLATE UTF8_LCASE AS name FROM orders", "has a collation", "use a function"),
        ("SELECT name, DATE 'today' AS n FROM orders", "moment", "use a column"),
        ("SELECT name, CAST(concat('to', 'day') AS DATE) AS n FROM orders", "'today'", "write it as one text"),
        ("SELECT name, CAST('to' 'day' AS DATE) AS n FROM orders", "two pieces", "write it as one text"),
        ("SELECT name, CAST('no' || 'w' AS TIMESTAMP) AS n FROM orders", "'today'", "write it as one text"),
        ("SELECT name, year(CAST(X'6E6F77' AS STRING)) AS n FROM orders", "'today'", "write it as one text"),
        ("SELECT name, hour(lpad('w', 3, 'no')) AS n FROM orders", "'today'", "write it as one text"),
        ("SELECT name, TIMESTAMP '10:00:00' AS n FROM orders", "current day", "write a whole date"),
        ("SELECT name, CAST(name AS TIMESTAMP) AS n FROM orders", "current day", "say its format"),
        (
            "SELECT s.t, CAST(s.t AS TIMESTAMP) AS name FROM (SELECT name AS t FROM orders) AS s",
            "current day",
            "say its format",
        ),
        (
            "SELECT s.t, s.t::timestamp AS name FROM (SELECT name FROM orders) AS s(t)",
            "current day",
            "say its format",
        ),
        (
            "SELECT g.name FROM (SELECT name, avg(id) AS n FROM orders GROUP BY 1) AS g",
            r"avg\(id\), which is bigint: its last digits",
            "make it a",
        ),
        (
            "SELECT g.name FROM (SELECT name, max(struct(id, CAST(id AS float) AS f)) AS m FROM orders "
            "GROUP BY 1) AS g",
            "which is float, of which equal values can differ, inside FROM",
            "make it a",
        ),
        ("SELECT name, max(name)::timestamp AS n FROM orders GROUP BY 1", "current day", "say its format"),
        ("SELECT name, to_timestamp(concat(name, ':00')) AS n FROM orders", "current day", "say its format"),
        ("SELECT name, try_to_timestamp(name) AS n FROM orders", "current day", "say its format"),
        ("SELECT name, 'a\\'b' AS n FROM orders", r"not taken in Spark's SQL", "write the SELECT without it"),
        ("SELECT name, r'a' AS n FROM orders", "a raw string", "write it as a string"),
        ("SELECT CAST(id AS double) AS name FROM orders", "identify no row", "CAST it to a decimal"),
        ("SELECT name, `lower`(name) AS n FROM orders", "lower", "use a column"),
        ("SELECT name, current_user AS n FROM orders", "current_?user", "use a column"),
        (
            "SELECT name, id AS n FROM orders QUALIFY row_number() OVER (PARTITION BY name ORDER BY id) = 1",
            "Syntax error",
            "correct derived.sql",
        ),
        (
            "SELECT g.name, g.s FROM (SELECT name, sum(CAST(id AS DOUBLE)) AS s FROM orders GROUP BY 1) AS g",
            "its last digits depend on the order of rows, inside FROM",
            "make it a [[derived]] of its own",
        ),
        (
            "SELECT g.name, g.f FROM (SELECT DISTINCT name, CAST(id AS DOUBLE) AS f FROM orders) AS g",
            "of which equal values can differ, inside FROM",
            "make it a [[derived]] of its own",
        ),
        (
            "SELECT g.name FROM (SELECT name, min(CAST(id AS DOUBLE)) OVER () AS f FROM orders) AS g",
            "of which equal values can differ, inside FROM",
            "make it a [[derived]] of its own",
        ),
    ],
)
def test_what_spark_does_not_show_to_be_exact_is_refused_by_name(
    lake: MemoryLake, sql: str, said: str, way_on: str
) -> None:
    tables = (a_table(),)
    with pytest.raises(UsageError, match=f"derived table 'd'.*{said}") as refused:
        lake.derives.check("new", [Derived("d", "d", ("name",), sql)], tables, {})
    with typed(refused.value) as hint:
        hint.says(way_on)
        lake.derives.reads([Derived("d", "d", ("name",), BY_NAME.sql)], tables)
    assert "d" not in lake.committed("orders")
