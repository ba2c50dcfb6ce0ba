"""Which columns of a table a SELECT uses: a table with these alone gives the same rows, and with one less none."""

import duckdb
import pytest

from backfill_cli.derived.columns import used

TABLES = {"public.orders": ("_backfill_columns_orders",), "customers": (), "public.lines": ("x.items",)}
FULL = {
    "orders": "id, customer, amount, status, note, address, day",
    "customers": "id, country, name, orders, day",
    "lines": "id, order_id, customer, price, a b c",
}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT status, count(*) AS n FROM orders GROUP BY status", {"public.orders": {"status"}}),
        ("SELECT count(*) AS n FROM public.orders", {"public.orders": set()}),
        ('SELECT "STATUS" AS s FROM Orders WHERE Note IS NULL', {"public.orders": {"status", "note"}}),
        (
            "SELECT c.country, sum(o.amount) AS a FROM orders o JOIN customers c ON c.id = o.customer "
            "WHERE o.status <> 'x' GROUP BY 1 HAVING max(o.note) > 'a'",
            {"public.orders": {"amount", "customer", "status", "note"}, "customers": {"country", "id"}},
        ),
        (
            "SELECT o.id, c.name FROM orders o LEFT JOIN customers c USING (id)",
            {"public.orders": {"id"}, "customers": {"id", "name"}},
        ),
        (
            "SELECT o.id, l.price FROM orders o JOIN customers c USING (id) JOIN lines l ON l.id = o.id",
            {"public.orders": {"id"}, "customers": {"id"}, "public.lines": {"id", "price"}},
        ),
        (
            "SELECT id, amount FROM orders QUALIFY row_number() OVER (PARTITION BY customer ORDER BY note, id)=1",
            {"public.orders": {"id", "amount", "customer", "note"}},
        ),
        (
            "SELECT DISTINCT ON (note) id FROM orders ORDER BY note, status",
            {"public.orders": {"note", "id", "status"}},
        ),
        (
            "WITH orders AS (SELECT id, name FROM customers) SELECT o.name FROM orders o",
            {"customers": {"id", "name"}},
        ),
        (
            "SELECT x.c FROM (SELECT customer c, id FROM orders WHERE amount>1) x JOIN customers k ON k.id=x.id",
            {"public.orders": {"customer", "id", "amount"}, "customers": {"id"}},
        ),
        (
            "SELECT status AS s FROM orders UNION ALL SELECT country FROM customers WHERE day IS NULL",
            {"public.orders": {"status"}, "customers": {"country", "day"}},
        ),
        (
            "SELECT a.id FROM orders a JOIN orders b ON b.customer = a.amount",
            {"public.orders": {"id", "customer", "amount"}},
        ),
        ("SELECT address.city AS city FROM orders", {"public.orders": {"address"}}),
        (
            "SELECT c.id FROM customers c WHERE NOT EXISTS (SELECT * FROM orders o WHERE o.customer = c.id "
            "AND o.amount > (SELECT max(l.price) FROM lines l WHERE l.customer = c.country))",
            {
                "customers": {"id", "country"},
                "public.orders": {"customer", "amount"},
                "public.lines": {"price", "customer"},
            },
        ),
        (
            "SELECT o.address.city AS city FROM orders o, customers c",
            {"public.orders": {"address"}, "customers": set()},
        ),
        (
            "SELECT id, amount AS note FROM orders ORDER BY note LIMIT 2",
            {"public.orders": {"id", "amount"}},
        ),
        (
            "SELECT o.id, upper(o.note) AS n FROM orders o JOIN customers c ON c.id = o.id "
            "ORDER BY N DESC, o.id LIMIT 3",
            {"public.orders": {"id", "note"}, "customers": {"id"}},
        ),
        (
            "SELECT o.status FROM orders o ANTI JOIN customers c ON c.id = o.amount",
            {"public.orders": {"status", "amount"}, "customers": {"id"}},
        ),
        (
            "SELECT o.status FROM orders o SEMI JOIN (SELECT c.id AS k FROM customers c) x ON x.k = o.amount",
            {"public.orders": {"status", "amount"}, "customers": {"id"}},
        ),
        ("SELECT count(*) FILTER (note > 'a') AS n FROM orders GROUP BY ALL", {"public.orders": {"note"}}),
        (
            "SELECT upper(status) AS status, count(*) FROM orders GROUP BY upper(status)",
            {"public.orders": {"status"}},
        ),
        ("SELECT d.n FROM by_name d", {}),
        ('SELECT "a b c" AS x FROM lines', {"public.lines": {"a b c"}}),
    ],
)
def test_a_table_with_the_columns_that_are_used_gives_the_same_and_with_one_less_nothing(
    sql: str, expected: dict[str, set[str]]
) -> None:
    found = used(sql, "duckdb", TABLES)
    assert {table: {name.lower() for name in of or ()} for table, of in found.items()} == expected
    assert None not in found.values()
    if not found:
        return
    whole = rows(sql, {})
    kept = {table.rpartition(".")[2]: [name.lower() for name in of or ()] for table, of in found.items()}
    assert rows(sql, kept) == whole
    for table, names in kept.items():
        for name in names:
            with pytest.raises(duckdb.Error):
                rows(sql, {**kept, table: [one for one in names if one != name]})


def rows(sql: str, kept: dict[str, list[str]]) -> list[tuple[object, ...]]:
    """What DuckDB answers over tables that have these columns, and one that nobody reads; without a word, all."""
    with duckdb.connect() as db:
        db.execute("CREATE SCHEMA public")
        for schema, table in (("main", "orders"), ("main", "customers"), ("main", "lines"), ("public", "orders")):
            all_ = [one.strip() for one in FULL[table].split(",")]
            names = [name for name in all_ if name in kept.get(table, all_)]
            values = ", ".join(f'{value(name)} AS "{name}"' for name in [*names, "unread"])
            db.execute(f"CREATE TABLE {schema}.{table} AS SELECT {values} FROM range(6) r(i)")
        return sorted(db.execute(sql).fetchall(), key=repr)


def value(name: str) -> str:
    if name == "address":
        return "{city: i % 2}"
    return "i" if name in ("id", "customer", "amount", "order_id", "price") else "(i % 3)::TEXT"


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT * FROM orders", "duckdb"),
        ("SELECT o.* FROM orders o JOIN lines l ON l.id = o.id", "duckdb"),
        ("SELECT count(o) AS n FROM orders o JOIN lines l ON l.id = o.id", "postgres"),
        ("SELECT o AS n FROM orders o", "postgres"),
        ("SELECT COLUMNS('a.*') FROM orders", "duckdb"),
        ("SELECT id FROM orders NATURAL JOIN customers", "duckdb"),
        ("SELECT id, amount FROM orders, customers", "duckdb"),
        ("SELECT upper(note) AS st, count(*) AS n FROM orders GROUP BY st", "duckdb"),
        ("SELECT id, upper(note) AS n FROM orders ORDER BY n || 'a'", "duckdb"),
        ("SELECT id, row_number() OVER (ORDER BY n) AS k, upper(note) AS n FROM orders", "duckdb"),
        ('SELECT id, upper(note) AS "N" FROM orders o, customers c ORDER BY n', "postgres"),
        ("SELECT nothing that parses FROM (", "duckdb"),
        ("DELETE FROM orders", "duckdb"),
        ("SELECT struct(*) AS s FROM orders", "spark"),
    ],
)
def test_what_the_text_does_not_settle_uses_all_columns(sql: str, dialect: str) -> None:
    assert used(sql, dialect, TABLES)["public.orders"] is None


def test_a_count_of_rows_is_no_star_and_names_of_postgres_are_those_of_its_table() -> None:
    sql = 'SELECT count(*) AS n, (addr).city, o."Mixed" FROM public.orders o GROUP BY 2, 3'
    assert set(used(sql, "postgres", TABLES)["public.orders"] or ()) == {"addr", "Mixed"}
    mixed = 'SELECT X.S, Y."V", x."a""B", upper(X.Grün) FROM orders X JOIN customers Y USING (Id, "Name")'
    assert used(mixed, "postgres", TABLES) == {
        "public.orders": ("id", "Name", "s", 'a"B', "grün"),
        "customers": ("id", "Name", "V"),
    }
    spark = used("SELECT max(struct(o.note, o.id)).note AS note FROM orders o GROUP BY o.status", "spark", TABLES)
    assert set(spark["public.orders"] or ()) == {"note", "id", "status"}


WHOLE: list[tuple[str, dict[str, set[str]]]] = [
    (
        "SELECT c.id, q.m FROM customers c, (SELECT max(o.amount) AS m FROM orders o "
        "WHERE o.customer = c.id) AS q",
        {"customers": {"id"}, "public.orders": {"amount", "customer"}},
    ),
    (
        "SELECT c.name FROM customers c WHERE EXISTS "
        "(SELECT q.m FROM (SELECT o.note AS m FROM orders o WHERE o.customer = c.id) AS q)",
        {"customers": {"name", "id"}, "public.orders": {"note", "customer"}},
    ),
    (
        "SELECT c.name FROM customers c WHERE c.id IN "
        "(SELECT o.id FROM orders o UNION SELECT l.id FROM lines l WHERE l.customer = c.country)",
        {"customers": {"name", "id", "country"}, "public.orders": {"id"}, "public.lines": {"id", "customer"}},
    ),
    (
        "SELECT c.name, (WITH w AS (SELECT o.id FROM orders o WHERE o.customer = c.id) SELECT max(w.id) FROM w) "
        "AS m FROM customers c",
        {"customers": {"name", "id"}, "public.orders": {"id", "customer"}},
    ),
    (
        "SELECT o.name FROM customers o WHERE EXISTS (SELECT 1 FROM orders o WHERE o.note = 'a')",
        {"customers": {"name"}, "public.orders": {"note"}},
    ),
]


@pytest.mark.parametrize(("sql", "expected"), WHOLE)
def test_a_query_that_is_computed_whole_names_what_is_around_it(sql: str, expected: dict[str, set[str]]) -> None:
    found = used(sql, "duckdb", TABLES, whole=True)
    assert {table: set(of or ()) for table, of in found.items()} == expected
    kept = {table.rpartition(".")[2]: [*(of or ())] for table, of in found.items()}
    assert rows(sql, kept) == rows(sql, {})
    for table, names in kept.items():
        for name in names:
            with pytest.raises(duckdb.Error):
                rows(sql, {**kept, table: [one for one in names if one != name]})


def test_a_name_that_is_twice_in_from_is_refused_by_whoever_reads_the_select_not_here() -> None:
    assert used("SELECT a.id FROM orders a JOIN lines a ON true", "duckdb", TABLES)["public.orders"] == ("id",)


def test_a_field_of_a_column_is_no_column_of_what_is_around_it() -> None:
    sql = "SELECT q.city FROM customers AS address, (SELECT address.city FROM orders o) AS q"
    assert used(sql, "duckdb", TABLES)["public.orders"] == ("address",)


def test_a_name_that_two_tables_end_in_counts_for_both() -> None:
    found = used("SELECT id FROM orders", "duckdb", {"a.orders": (), "b.orders": (), "orders_2": ()})
    assert found == {"a.orders": ("id",), "b.orders": ("id",)}
