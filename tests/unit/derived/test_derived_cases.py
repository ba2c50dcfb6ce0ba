"""Faults that others had with derived tables, each a case of its own, on a bare DuckDB."""

from collections.abc import Mapping, Sequence

import duckdb
import pytest
from hint_typed import typed

from backfill_cli.derived.order import ordered
from backfill_cli.derived.rows import maintained
from backfill_cli.errors import BadData
from backfill_cli.model.derived import Base, Derived
from backfill_cli.sinks.duckdb.dialect import DUCKDB
from backfill_cli.sinks.duckdb.file import Connection
from backfill_cli.sinks.sql.upkeep import Kept, Upkeep

BASES = [
    Base(
        *("orders", ("orders",), "orders", ("id",), ("id", "customer", "amount", "status"), ("id",)),
    ),
    Base(
        *("customers", ("customers",), "customers", ("id",), ("id", "country", "region"), ("id",)),
    ),
]
Row = tuple[object, ...]


class Sink:
    """Two tables, and derived ones that are whole."""

    def __init__(self) -> None:
        self.raw = duckdb.connect()
        self.raw.execute("CREATE TABLE orders (id INT, customer INT, amount INT, status TEXT)")
        self.raw.execute("CREATE TABLE customers (id INT, country TEXT, region TEXT)")
        self.kept: list[Kept] = []

    def derive(self, sql: str, *key: str, name: str = "d") -> None:
        bases = [*BASES, *(one.maintained.base([one.name], one.target) for one in self.kept)]
        made = maintained(Derived(name, name, key, sql), bases, "duckdb")
        self.raw.execute(f"CREATE TABLE {name} AS {made.text}")
        self.kept.append(Kept(made, name))

    def epoch(self, **tables: Mapping[int, Row | None] | None) -> None:
        """By table: what becomes of keys; None as a row: it is deleted; None as a table: it is emptied."""
        changes: dict[str, str | None] = {}
        for table, rows in tables.items():
            keys = ", ".join(f"({key})" for key in rows or ())
            changes[table] = f"(SELECT * FROM (VALUES {keys}) AS v(id))" if rows is not None else None
        upkeep = Upkeep(Connection(self.raw), DUCKDB, self.kept)
        self.raw.execute("BEGIN")
        try:
            upkeep.before(changes)
            for table, rows in tables.items():
                gone = f" WHERE id IN ({', '.join(map(str, rows))})" if rows is not None else ""
                self.raw.execute(f"DELETE FROM {table}{gone}")
                for key, row in (rows or {}).items():
                    if row is not None:
                        marks = ", ".join("?" for _ in (key, *row))
                        self.raw.execute(f"INSERT INTO {table} VALUES ({marks})", [key, *row])
            assert not upkeep.after()
        except BadData:
            self.raw.execute("ROLLBACK")
            raise
        self.raw.execute("COMMIT")

    def rows(self, name: str = "d") -> Sequence[Row]:
        return sorted(self.raw.execute(f"SELECT * FROM {name}").fetchall(), key=repr)


@pytest.fixture
def sink() -> Sink:
    return Sink()


def test_case_82_a_sum_of_no_value_is_null_again(sink: Sink) -> None:
    """risingwave#7412: it stayed 0 after the last row with a value had gone."""
    sink.derive("SELECT customer, sum(amount) AS s, count(*) AS n FROM orders GROUP BY 1", "customer")
    sink.epoch(orders={1: (7, 5, "a"), 2: (7, None, "a")})
    sink.epoch(orders={1: None})
    assert sink.rows() == [(7, None, 1)]


def test_case_83_an_emptied_group_comes_back(sink: Sink) -> None:
    """turso#8531."""
    sink.derive("SELECT customer, count(*) AS n FROM orders GROUP BY 1", "customer")
    sink.epoch(orders={1: (7, 5, "a")})
    sink.epoch(orders={1: None})
    assert sink.rows() == []
    sink.epoch(orders={2: (7, 5, "a")})
    assert sink.rows() == [(7, 1)]


def test_case_84_a_row_that_comes_and_goes_in_one_batch_leaves_nothing(sink: Sink) -> None:
    """pg_ivm#162: a row both old and new; of two tables at once, each with a change that meets the other's."""
    sink.derive(
        "SELECT c.country, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer GROUP BY 1", "country"
    )
    sink.epoch(orders={1: (7, 5, "a"), 2: None}, customers={7: ("NL", "x"), 8: None})
    sink.epoch(orders={1: (8, 5, "a"), 2: None}, customers={7: None, 8: ("BE", "x")})
    assert sink.rows() == [("BE", 1)]


def test_case_85_an_aggregate_without_groups_keeps_one_row(sink: Sink) -> None:
    """pgsql-ivm#90."""
    sink.derive("SELECT count(*) AS n, sum(amount) AS s FROM orders")
    sink.epoch(orders={1: (7, 5, "a")})
    assert sink.rows() == [(1, 5)]
    sink.epoch(orders={1: None})
    assert sink.rows() == [(0, None)]


def test_case_78_an_update_that_leaves_the_condition_takes_its_derived_row_away(sink: Sink) -> None:
    """flink-cdc#4319: half of it was accepted."""
    sink.derive("SELECT id, amount FROM orders WHERE status <> 'draft'", "id")
    sink.epoch(orders={1: (7, 5, "paid")})
    sink.epoch(orders={1: (7, 6, "draft")})
    assert sink.rows() == []
    sink.epoch(orders={1: (7, 7, "paid")})
    assert sink.rows() == [(1, 7)]


def test_case_89_null_is_a_key_of_a_derived_table(sink: Sink) -> None:
    """posthog#75601."""
    sink.derive("SELECT customer, status, count(*) AS n FROM orders GROUP BY 1, 2", "customer", "status")
    sink.epoch(orders={1: (None, 5, None), 2: (None, 5, None), 3: (7, 5, None)})
    sink.epoch(orders={2: None, 3: (None, 5, "a")})
    assert sink.rows() == [(None, "a", 1), (None, None, 1)]


def test_case_90_a_group_column_that_changes_leaves_the_old_group(sink: Sink) -> None:
    sink.derive(
        "SELECT c.country, sum(o.amount) AS s FROM orders o, customers c WHERE c.id = o.customer GROUP BY 1",
        "country",
    )
    sink.epoch(orders={1: (7, 5, "a"), 2: (8, 6, "a")}, customers={7: ("NL", "x"), 8: ("BE", "x")})
    sink.epoch(customers={7: ("BE", "x")})
    assert sink.rows() == [("BE", 11)]


def test_case_90_the_partition_of_a_latest_row_changes_and_both_have_theirs(sink: Sink) -> None:
    sink.derive(
        "SELECT customer, id, amount FROM orders "
        "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY id DESC) = 1",
        "customer",
    )
    sink.epoch(orders={1: (7, 5, "a"), 2: (7, 6, "a"), 3: (None, 7, "a")})
    assert sink.rows() == [(7, 2, 6), (None, 3, 7)]
    sink.epoch(orders={2: (None, 6, "a"), 3: (8, 7, "a")})
    assert sink.rows() == [(7, 1, 5), (8, 3, 7), (None, 2, 6)]


def test_case_86_a_sum_of_floats_forgets_what_has_gone(sink: Sink) -> None:
    """spiceai#11389: what was added and taken away again left its rounding behind."""
    sink.raw.execute("ALTER TABLE orders ALTER amount TYPE DOUBLE")
    sink.derive("SELECT customer, sum(amount) AS s, avg(amount) AS a FROM orders GROUP BY 1", "customer")
    sink.epoch(orders={1: (7, 0.1, "a"), 2: (7, 1e16, "a"), 3: (8, 0.1, "a"), 4: (8, float("inf"), "a")})
    sink.epoch(orders={2: None, 4: None})
    assert sink.rows() == [(7, 0.1, 0.1), (8, 0.1, 0.1)]


def test_case_88_an_update_in_two_epochs_is_a_delete_and_an_insert(sink: Sink) -> None:
    """risingwave#20350: split across the read's position, in either order, with the key or without."""
    sink.derive("SELECT customer, sum(amount) AS s, count(*) AS n FROM orders GROUP BY 1", "customer")
    sink.epoch(orders={1: (7, 5, "a"), 2: (7, 6, "a")})
    sink.epoch(orders={1: None})
    sink.epoch(orders={1: (7, 50, "a")})
    assert sink.rows() == [(7, 56, 2)]
    sink.epoch(orders={3: (7, 7, "a")})
    sink.epoch(orders={2: None})
    assert sink.rows() == [(7, 57, 2)]


def test_two_sides_of_left_joins_that_come_together_take_the_empty_row_away(sink: Sink) -> None:
    """Found in the design: the row without either is found by neither, where both come in one epoch."""
    sink.derive(
        "SELECT o.id, coalesce(c.country, d.region, 'none') AS place FROM orders o "
        "LEFT JOIN customers c ON c.id = o.customer LEFT JOIN customers d ON d.id = o.amount",
        "id",
        "place",
    )
    sink.epoch(orders={1: (7, 8, "a")})
    assert sink.rows() == [(1, "none")]
    sink.epoch(customers={7: (None, "x"), 8: ("BE", "west")})
    assert sink.rows() == [(1, "west")]
    sink.epoch(customers={7: None, 8: None})
    assert sink.rows() == [(1, "none")]


def test_a_derived_table_over_derived_tables_follows_them(sink: Sink) -> None:
    sink.derive("SELECT customer, sum(amount) AS s FROM orders GROUP BY 1", "customer", name="spent")
    sink.derive(
        "SELECT c.country, max(p.s) AS most FROM customers c LEFT JOIN spent p ON p.customer = c.id GROUP BY 1",
        "country",
        name="best",
    )
    sink.derive("SELECT count(*) AS n, sum(most) AS s FROM best", name="total")
    sink.epoch(orders={1: (7, 5, "a"), 2: (8, 6, "a")}, customers={7: ("NL", "x"), 8: ("BE", "x")})
    assert (sink.rows("best"), sink.rows("total")) == ([("BE", 6), ("NL", 5)], [(2, 11)])
    sink.epoch(orders={1: (7, 50, "a"), 2: None}, customers={8: ("NL", "x")})
    assert (sink.rows("best"), sink.rows("total")) == ([("NL", 50)], [(1, 50)])


def test_a_table_that_is_emptied_empties_what_reads_it(sink: Sink) -> None:
    sink.derive("SELECT customer, count(*) AS n FROM orders GROUP BY 1", "customer")
    sink.epoch(orders={1: (7, 5, "a")})
    sink.epoch(orders=None)
    assert sink.rows() == []


@pytest.mark.parametrize(
    "rest", ["JOIN customers c ON c.id = o.id AND c.country = 'num'", "WHERE o.id % 10 = 0"], ids=["ON", "WHERE"]
)
def test_the_keys_expression_is_not_computed_of_rows_that_the_select_leaves_out(rest: str) -> None:
    """A semi join that came first failed on names that are no numbers, at each commit after a right fill."""
    sink = Sink()
    sink.raw.execute("INSERT INTO orders SELECT i, 0, 0, if(i % 10 = 0, '' || i, 'x') FROM range(2000) AS r(i)")
    sink.raw.execute("INSERT INTO customers SELECT i, if(i % 10 = 0, 'num', 'text'), '' FROM range(2000) AS r(i)")
    sink.derive(f"SELECT CAST(o.status AS INT) AS k, count(*) AS n FROM orders o {rest} GROUP BY 1", "k")
    sink.epoch(orders={10: (0, 0, "30")})
    assert sink.raw.execute("SELECT k, n FROM d WHERE k IN (10, 30)").fetchall() == [(30, 2)]


@pytest.mark.parametrize(
    "case", ["an outer join within FROM is beside another one", "two outer joins within FROM"]
)
def test_rows_without_either_side_come_and_go_where_both_change_at_once(case: str, sink: Sink) -> None:
    """The row without either is of neither side's rows, before or after."""
    sql, *key = FOLLOWED[case]
    sink.derive(sql, *key)
    sink.epoch(orders={1: (0, 5, "a"), 2: (0, 6, "a")})
    both: list[Mapping[int, Row | None]] = [
        {1: ("NL", "x"), 5: ("BE", "y")},
        {1: None, 5: None},
        {2: ("NL", None), 6: (None, "y")},
        {2: None, 6: None, 1: ("NL", "x")},
    ]
    for at, customers in enumerate(both):
        sink.epoch(customers=customers, orders={10: (0, 1, "a") if at % 2 == 0 else None})
        assert sink.rows() == sorted(sink.raw.execute(sql).fetchall(), key=repr)


def test_two_rows_of_a_key_are_refused_and_named(sink: Sink) -> None:
    sink.derive("SELECT status, amount FROM orders", "status")
    sink.epoch(orders={1: (7, 5, "a")})
    with pytest.raises(BadData, match=r"its key \(status\) has duplicates: \(a\) 2 times") as refused:
        sink.epoch(orders={2: (7, 6, "a")})
    assert (refused.value.table, sink.rows()) == ("d", [("a", 5)])
    with typed(refused.value) as hint:
        hint.says("correct the rows that share it, upstream")
        again = Sink()
        again.derive("SELECT status, amount FROM orders", "status", "amount")
        again.epoch(orders={1: (7, 5, "a"), 2: (7, 6, "a")})
        assert again.rows() == [("a", 5), ("a", 6)]


FOLLOWED = {
    "a union's branch has another type than the union": (
        "SELECT CAST(k AS VARCHAR) AS h, count(*) AS n FROM (SELECT customer AS k FROM orders "
        "UNION ALL SELECT CAST(id AS DECIMAL(9,2)) FROM customers) s GROUP BY 1",
        "h",
    ),
    "a union's later branch has a column without a name": (
        "SELECT id, z FROM (SELECT id, amount AS z FROM orders UNION ALL SELECT id, 0 FROM customers) s",
        "id",
        "z",
    ),
    "a union's later branch names its columns otherwise": (
        "SELECT id, z FROM (SELECT id, amount AS z FROM orders UNION ALL SELECT id AS z, 7 FROM customers) s",
        "id",
        "z",
    ),
    "a key of several types": (
        "SELECT customer AS k, id AS i FROM orders UNION ALL SELECT country, id FROM customers "
        "UNION ALL SELECT CAST(id AS DECIMAL(9,2)), -id FROM customers",
        "k",
        "i",
    ),
    "a key that is NULL in one part": (
        "SELECT id, status FROM orders UNION ALL SELECT NULL, id FROM customers",
        "id",
        "status",
    ),
    "its key has no value for a row that is left out": (
        "SELECT CAST(o.status AS INT) AS k, count(*) AS n FROM orders o JOIN customers c ON c.id = o.id "
        "WHERE c.region = 'y' GROUP BY 1",
        "k",
    ),
    "names differ in the case of a letter outside ASCII": (
        'SELECT "É".id, "é".amount AS "É", "É".amount AS "é" '
        'FROM orders "É" JOIN orders "é" ON "é".id = "É".customer',
        "id",
        "É",
    ),
    "an outer join within FROM is beside another one": (
        "SELECT x.id, x.bk, y.country AS yk FROM (SELECT a.id, b.id AS bk FROM orders a "
        "LEFT JOIN orders b ON b.amount = a.id) x LEFT JOIN customers y ON y.id = x.id",
        "id",
        "bk",
        "yk",
    ),
    "two outer joins within FROM": (
        "SELECT x.id, x.bk, y.ck FROM (SELECT a.id, b.id AS bk FROM orders a "
        "LEFT JOIN customers b ON b.id = a.id) x "
        "JOIN (SELECT a.id, b.region AS ck FROM orders a "
        "LEFT JOIN customers b ON b.id = a.amount) y ON y.id = x.id",
        "id",
        "bk",
        "ck",
    ),
    "brackets of lists and structs have commas": (
        "SELECT [amount, id] AS l, {'a': amount, 'b': [id, 1]} AS s, id FROM orders "
        "WHERE status[1:1] IN ['a', '1']",
        "id",
    ),
    "two outer joins, one of them in a query, of rows that go at once": (
        "SELECT x.id, x.c, p.id AS p FROM (SELECT o.id, o.customer, c.id AS c FROM orders o "
        "LEFT JOIN customers c ON c.id = o.customer) x LEFT JOIN customers p ON p.id = x.customer + 1",
        *("id", "c", "p"),
    ),
    "a RIGHT JOIN in one part of a query, and one of it": (
        "SELECT x.c, x.i, p.id AS p FROM (SELECT c.id AS c, o.id AS i FROM orders o RIGHT JOIN customers c "
        "ON c.id = o.customer UNION ALL SELECT -id, id FROM orders) x RIGHT JOIN customers p ON p.id = x.c + 1",
        *("c", "i", "p"),
    ),
    "USING after a comma": (
        "SELECT o.id, c.id AS c, w.region FROM orders o, customers c JOIN customers AS w USING (id)",
        "id",
        "c",
    ),
    "LEFT JOIN after a comma": (
        "SELECT o.id, c.id AS c, w.region FROM orders o, customers c LEFT JOIN orders x USING (id) "
        "LEFT JOIN customers AS w ON c.country = w.country AND w.id > c.id",
        "id",
        "c",
        "region",
    ),
}


def test_values_of_one_type_that_are_one_of_the_other_do_not_tell_rows_apart(sink: Sink) -> None:
    """'1' and '01' both equal 1."""
    sink.raw.execute("CREATE TABLE codes (k TEXT, w INT); INSERT INTO codes VALUES ('1', 1), ('01', 2)")
    codes = Base("codes", ("codes",), "codes", ("k",), ("k", "w"), ("k",))
    sql = "SELECT o.id, c.w FROM orders o JOIN codes c ON o.customer = c.k"
    made = maintained(Derived("d", "d", ("id",), sql), [*BASES, codes], "duckdb")
    sink.raw.execute(f"CREATE TABLE d AS {made.text}")
    sink.kept.append(Kept(made, "d"))
    with pytest.raises(BadData, match=r"its key \(id\) has duplicates: \(5\) 2 times"):
        sink.epoch(orders={5: (1, 5, "a")})


def test_a_condition_means_what_it_means_in_its_join(sink: Sink) -> None:
    """orders.customer is a column of orders, and in a query over customers alone a field of its column orders."""
    sink.raw.execute("ALTER TABLE customers ADD COLUMN orders STRUCT(customer INT)")
    customers = Base(
        "customers", ("customers",), "customers", ("id",), ("id", "country", "region", "orders"), ("id",)
    )
    sql = "SELECT orders.id, c.id AS c FROM orders LEFT JOIN customers c ON c.id = orders.customer"
    made = maintained(Derived("d", "d", ("id", "c"), sql), [BASES[0], customers], "duckdb")
    sink.raw.execute(f"CREATE TABLE d AS {made.text}")
    sink.kept.append(Kept(made, "d"))
    sink.epoch(orders={1: (7, 5, "a")}, customers={7: ("NL", "x", {"customer": 9})})
    assert sink.rows() == [(1, 7)]
    sink.epoch(customers={7: None})
    assert sink.rows() == [(1, None)]


@pytest.mark.parametrize("case", FOLLOWED)
def test_it_equals_its_select_where(case: str, sink: Sink) -> None:
    sql, *key = FOLLOWED[case]
    sink.derive(sql, *key)
    for epoch in (
        {"orders": {1: (1, 5, "a"), 2: (2, 5, "1")}},
        {"customers": {1: ("NL", "x"), 2: (None, "y")}},
        {"orders": {1: (2, 6, None)}, "customers": {2: ("BE", "y"), 3: ("1", "x")}},
        {"orders": {2: None}, "customers": {1: None}},
        {"customers": None},
    ):
        sink.epoch(**epoch)
        assert sink.rows() == sorted(sink.raw.execute(sql).fetchall(), key=repr)


@pytest.mark.parametrize(
    "sql",
    [
        "WITH d AS (SELECT id FROM orders) SELECT id FROM d",
        "WITH d AS (SELECT id FROM orders), e AS (SELECT id FROM d) SELECT id FROM e",
        "SELECT s.id FROM (WITH D AS (SELECT id FROM orders) SELECT id FROM d) AS s",
    ],
)
def test_a_query_of_with_is_no_derived_table_of_its_name(sql: str) -> None:
    over = "WITH d AS (SELECT id FROM d) SELECT id FROM d"
    derived = [Derived("e", "e", ("id",), over), Derived("d", "d", ("id",), sql)]
    found = ordered(derived, BASES, {"d": "d", "e": "e"}, "duckdb")
    assert [(one.derived.name, one.reads) for one in found] == [("d", ("orders",)), ("e", ("d",))]


def test_what_no_state_has_is_not_computed_inside_from(sink: Sink) -> None:
    """Of a group without its changed rows, min can be a text that is no number."""
    inner = "SELECT customer, CAST(min(status) AS INTEGER) AS m FROM orders GROUP BY customer"
    sink.derive(f"SELECT g.m, count(*) AS n FROM ({inner}) AS g GROUP BY g.m", "m")
    sink.epoch(orders={1: (7, 5, "1"), 2: (7, 5, "x")})
    sink.epoch(orders={1: (7, 5, "2")})
    assert sink.rows() == [(2, 1)]
    sink.epoch(orders={3: (8, 5, "2")})
    assert sink.rows() == [(2, 2)]


def test_a_group_without_a_row_beside_it_stays_where_others_of_its_key_change(sink: Sink) -> None:
    """Those beside the rows of a key are not all of a key that is NULL."""
    inner = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
    sink.derive(
        f"SELECT c.region, sum(g.n) AS s FROM ({inner}) AS g LEFT JOIN customers c ON c.id = g.customer "
        "GROUP BY c.region",
        "region",
    )
    sink.epoch(orders={1: (7, 5, "a"), 2: (8, 5, "a"), 3: (8, 5, "a")}, customers={7: ("NL", "x")})
    assert sink.rows() == [("x", 1), (None, 2)]
    sink.epoch(customers={7: None, 8: ("BE", "y")})
    assert sink.rows() == [("y", 2), (None, 1)]
