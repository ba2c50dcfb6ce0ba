"""What a SELECT with `refresh = "full"` may be: what is refused names the piece, and its hint, typed, is taken."""

import pytest
from hint_typed import typed

from backfill_cli.derived.order import ordered
from backfill_cli.derived.rows import Maintained, maintained
from backfill_cli.errors import UsageError
from backfill_cli.model.derived import Base, Derived

ORDERS = Base(
    "public.orders",
    ("public.orders", "orders"),
    '"main"."t orders"',
    ("id",),
    ("id", "customer_id", "amount", "status"),
    ("id",),
)
CUSTOMERS = Base(
    "public.customers",
    ("public.customers", "customers"),
    '"main"."customers"',
    ("id",),
    ("id", "country"),
    ("id",),
)
PLAIN = "SELECT o.status FROM orders AS o"


def read(sql: str, key: tuple[str, ...] = ("status",), system: str = "duckdb", *more: Base) -> Maintained:
    return maintained(Derived("d", "d", key, sql, "full"), (ORDERS, CUSTOMERS, *more), system)


REFUSED = {
    "the moment": (
        "SELECT o.status, now() AS at FROM orders AS o",
        "of the moment",
        "use a column of the rows",
        PLAIN,
    ),
    "a column of no name": (
        "SELECT o.status, 1 + 1 FROM orders AS o",
        "a column of its result has no name",
        "name it by AS",
        "SELECT o.status, 1 + 1 AS two FROM orders AS o",
    ),
    "one name twice": (
        "SELECT o.status, o.id AS status FROM orders AS o",
        "two output columns are called 'status'",
        "name one by AS",
        "SELECT o.status, o.id AS id FROM orders AS o",
    ),
    "a clause that is not known": (
        "SELECT o.status FROM orders AS o FOR UPDATE",
        "LOCKS in",
        "leave it out",
        PLAIN,
    ),
    "UNION BY NAME": (
        "SELECT o.status FROM orders AS o UNION BY NAME SELECT p.status FROM orders AS p",
        "BY_NAME in",
        "leave it out",
        "SELECT o.status FROM orders AS o UNION SELECT p.status FROM orders AS p",
    ),
    "a star": (
        "SELECT * FROM orders AS o",
        "a star: the result would change with the columns of a table",
        "name each column",
        PLAIN,
    ),
    "a star of a set": (
        "SELECT o.status FROM orders AS o UNION SELECT * FROM (SELECT p.status FROM orders AS p) AS q",
        "a star",
        "name each column",
        "SELECT o.status FROM orders AS o UNION SELECT q.status FROM (SELECT p.status FROM orders AS p) AS q",
    ),
    "NATURAL JOIN": (
        "SELECT o.status FROM orders AS o NATURAL JOIN customers AS c",
        "NATURAL JOIN customers",
        "write JOIN … ON",
        "SELECT o.status FROM orders AS o JOIN customers AS c ON c.id = o.id",
    ),
    "a list as a table": (
        "SELECT o.status FROM orders AS o WHERE o.id IN customers",
        "customers: no table in FROM has that column",
        "name a column of a table in FROM",
        "SELECT o.status FROM orders AS o WHERE o.id IN (SELECT c.id FROM customers AS c)",
    ),
    "a column of none": (
        "SELECT o.status FROM orders AS o WHERE EXISTS (SELECT 1 FROM customers AS c WHERE o.country = 'a')",
        "o.country: no table in FROM has that column",
        "name a column of a table in FROM",
        "SELECT o.status FROM orders AS o WHERE EXISTS (SELECT 1 FROM customers AS c WHERE c.country = 'a')",
    ),
    "a column of either": (
        "SELECT status FROM orders AS o FULL JOIN customers AS c ON c.id = o.id",
        "status: once another table gains a column of that name",
        "say whose it is",
        "SELECT o.status FROM orders AS o FULL JOIN customers AS c ON c.id = o.id",
    ),
    "a column of the query around": (
        "SELECT o.status FROM orders AS o WHERE EXISTS (SELECT 1 FROM customers AS c WHERE c.id = customer_id)",
        "customer_id: once another table gains a column of that name",
        "say whose it is, as in orders.customer_id",
        "SELECT o.status FROM orders AS o WHERE EXISTS (SELECT 1 FROM customers AS c WHERE c.id = o.customer_id)",
    ),
    "an output's name, or a column of the query around": (
        "SELECT o.status FROM orders AS o WHERE EXISTS "
        "(SELECT s.id AS k FROM (SELECT c.id FROM customers AS c) AS s WHERE k = 2)",
        "k: no table in FROM has that column",
        "for another output column, repeat its expression",
        "SELECT o.status FROM orders AS o WHERE EXISTS "
        "(SELECT s.id AS k FROM (SELECT c.id FROM customers AS c) AS s WHERE s.id = 2)",
    ),
    "a row as a value": (
        "SELECT o AS status FROM orders AS o",
        "o: a row as a value",
        "name a column",
        PLAIN,
    ),
    "a table that is renamed": (
        "SELECT o.a AS status FROM orders AS o(a)",
        "once the table gains a column called so",
        "name its columns by AS in a query",
        "SELECT o.a AS status FROM (SELECT p.id AS a FROM orders AS p) AS o",
    ),
    "a query without a name": (
        "SELECT status FROM (SELECT o.status FROM orders AS o)",
        "neither a table nor a query with a name",
        "give it one",
        "SELECT one.status FROM (SELECT o.status FROM orders AS o) AS one",
    ),
    "two of one name": (
        "SELECT orders.status FROM orders FULL JOIN public.orders ON TRUE",
        "two things in FROM are called 'orders'",
        "give one another name",
        "SELECT o.status FROM orders FULL JOIN public.orders AS o ON TRUE",
    ),
    "a table function": (
        "SELECT o.status FROM orders AS o, range(3) AS r",
        "a table function",
        "read a table of the job",
        PLAIN,
    ),
    "a stranger": ("SELECT o.status FROM people AS o", "is no table of the job", "read one of these", PLAIN),
    "a query that hides a table": (
        "WITH orders AS (SELECT c.id AS status FROM customers AS c) SELECT o.status FROM orders AS o",
        "a table of the job is called so, too",
        "give it another name",
        "WITH others AS (SELECT c.id AS status FROM customers AS c) SELECT o.status FROM others AS o",
    ),
    "an aggregate of an order": (
        "SELECT string_agg(o.status, ',') AS status FROM orders AS o GROUP BY o.id",
        "its value depends on the order of rows",
        "use one of",
        "SELECT max(o.status) AS status FROM orders AS o GROUP BY o.id",
    ),
    "an array of rows": (
        "SELECT o.status, ARRAY(SELECT c.id FROM customers AS c ORDER BY c.country) AS all_ FROM orders AS o",
        "ARRAY(SELECT c.id FROM customers AS c ORDER BY c.country): a list of rows",
        "write IN or EXISTS, or join what it reads",
        "SELECT o.status FROM orders AS o WHERE o.id IN (SELECT c.id FROM customers AS c)",
    ),
    "an array of rows, in brackets": (
        "SELECT o.status FROM orders AS o WHERE o.id = ANY(ARRAY((SELECT c.id FROM customers AS c)))",
        "a list of rows, whose order is not settled",
        "write IN or EXISTS",
        "SELECT o.status FROM orders AS o WHERE o.id = ANY(SELECT c.id FROM customers AS c)",
    ),
    "a JSON array of rows": (
        "SELECT o.status, JSON_ARRAY(SELECT c.id FROM customers AS c) AS all_ FROM orders AS o",
        "a list of rows, whose order is not settled",
        "write IN or EXISTS, or join",
        "SELECT o.status, [(SELECT max(c.id) FROM customers AS c)] AS last FROM orders AS o",
    ),
    "a recursion that counts on": (
        "WITH RECURSIVE r(n) AS (SELECT o.id FROM orders AS o UNION SELECT r.n + 1 FROM r) "
        "SELECT r.n AS status FROM r",
        "WITH RECURSIVE r: rows could keep it from coming to an end",
        "columns alone in the SELECT that reads itself",
        "WITH RECURSIVE r(n) AS (SELECT o.id FROM orders AS o UNION SELECT o.customer_id FROM orders AS o "
        "JOIN r ON r.n = o.id) SELECT r.n AS status FROM r",
    ),
    "a recursion of a cycle of rows": (
        "WITH RECURSIVE r(n, depth) AS (SELECT o.id, 0 FROM orders AS o "
        "UNION SELECT o.customer_id, r.depth + 1 "
        "FROM orders AS o JOIN r ON r.n = o.id) SELECT r.n AS status FROM r",
        "rows could keep it from coming to an end",
        "or count its steps",
        "WITH RECURSIVE r(n, depth) AS (SELECT o.id, 0 FROM orders AS o "
        "UNION SELECT o.customer_id, r.depth + 1 "
        "FROM orders AS o JOIN r ON r.n = o.id WHERE o.amount > 1 AND r.depth < 100) SELECT r.n AS status FROM r",
    ),
    "a recursion of a bound for another column": (
        "WITH RECURSIVE r(n, depth) AS (SELECT o.id, 0 FROM orders AS o "
        "UNION SELECT o.customer_id, r.depth + 1 "
        "FROM orders AS o JOIN r ON r.n = o.id WHERE o.id < 100) SELECT r.n AS status FROM r",
        "rows could keep it from coming to an end",
        "or count its steps",
        "WITH RECURSIVE r(n, depth) AS (SELECT o.id, 0 FROM orders AS o "
        "UNION SELECT o.customer_id, r.depth + 1 "
        "FROM orders AS o JOIN r ON r.n = o.id WHERE r.depth < 100) SELECT r.n AS status FROM r",
    ),
    "a recursion by what a query beside it computes": (
        "WITH RECURSIVE r(n) AS (SELECT o.id FROM orders AS o "
        "UNION SELECT q.m FROM r, (SELECT r.n + 1 AS m) AS q) "
        "SELECT r.n AS status FROM r",
        "rows could keep it from coming to an end",
        "columns alone in the SELECT that reads itself",
        PLAIN,
    ),
    "a recursion whose rows are more at each step": (
        "WITH RECURSIVE r(n, depth) AS (SELECT o.id, 0 FROM orders AS o "
        "UNION ALL SELECT o.customer_id, r.depth + 1 "
        "FROM orders AS o JOIN r ON r.n = o.id WHERE r.depth < 100) SELECT r.n AS status FROM r",
        "rows could keep it from coming to an end",
        "write UNION, not UNION ALL",
        "WITH RECURSIVE r(n, depth) AS (SELECT o.id, 0 FROM orders AS o UNION SELECT o.customer_id, r.depth + 1 "
        "FROM orders AS o JOIN r ON r.n = o.id WHERE r.depth < 100) SELECT r.n AS status FROM r",
    ),
    "a recursion of too many steps": (
        "WITH RECURSIVE r(depth) AS (SELECT 0 FROM orders AS o UNION SELECT r.depth + 1 "
        "FROM r WHERE r.depth < 99999999999) SELECT r.depth AS status FROM r",
        "rows could keep it from coming to an end",
        "WHERE r.depth < 100",
        "WITH RECURSIVE r(depth) AS (SELECT 0 FROM orders AS o UNION SELECT r.depth + 1 "
        "FROM r WHERE r.depth < 100) SELECT r.depth AS status FROM r",
    ),
    "USING": (
        "SELECT o.status FROM orders AS o JOIN customers AS c USING (id)",
        "once another table gains a column of that name",
        "write ON, with the table's name before each column",
        "SELECT o.status FROM orders AS o JOIN customers AS c ON c.id = o.id",
    ),
    "ANTI JOIN": (
        "SELECT o.status FROM orders AS o ANTI JOIN customers AS c ON c.id = o.id",
        "ANTI JOIN customers",
        "write WHERE NOT EXISTS (SELECT …)",
        "SELECT o.status FROM orders AS o WHERE NOT EXISTS (SELECT * FROM customers AS c WHERE c.id = o.id)",
    ),
    "a recursion by a column that is called so": (
        "WITH RECURSIVE r(n, amount) AS (SELECT o.id, 0 FROM orders AS o UNION SELECT r.n, o.amount + 1 "
        "FROM orders AS o JOIN r ON r.n = o.id WHERE o.amount < 100) SELECT r.n AS status FROM r",
        "rows could keep it from coming to an end",
        "or count its steps",
        "WITH RECURSIVE r(n, amount) AS (SELECT o.id, 0 FROM orders AS o UNION SELECT q.n, q.amount + 1 "
        "FROM orders AS o JOIN r AS q ON q.n = o.id WHERE q.amount <= 100) SELECT r.n AS status FROM r",
    ),
    "no table": ("SELECT 1 AS status", "it reads no table of the job", "read one FROM the job's tables", PLAIN),
    "LIMIT without an order": (
        "SELECT o.status FROM orders AS o LIMIT 3",
        "LIMIT 3: two rows can be equal in its order",
        "add to its ORDER BY: o.id",
        "SELECT o.status FROM orders AS o ORDER BY o.id LIMIT 3",
    ),
    "LIMIT of a join": (
        "SELECT o.status FROM orders AS o FULL JOIN customers AS c ON c.id = o.id ORDER BY o.amount, o.id LIMIT 3",
        "two rows can be equal in its order",
        "add to its ORDER BY: c.id",
        "SELECT o.status FROM orders AS o FULL JOIN customers AS c ON c.id = o.id ORDER BY o.id, c.id LIMIT 3",
    ),
    "LIMIT of what is no column": (
        "SELECT o.status FROM orders AS o ORDER BY -o.id LIMIT 3",
        "two rows can be equal in its order",
        "add to its ORDER BY: o.id",
        "SELECT o.status FROM orders AS o ORDER BY -o.id, o.id LIMIT 3",
    ),
    "LIMIT of a query": (
        "SELECT q.status FROM (SELECT o.status FROM orders AS o) AS q ORDER BY q.status LIMIT 3",
        "as no key of it is known",
        "make what FROM computes a [[derived]] of its own",
        "SELECT o.status FROM orders AS o ORDER BY o.id LIMIT 3",
    ),
    "LIMIT of groups": (
        "SELECT o.status, count(*) AS n FROM orders AS o GROUP BY o.status ORDER BY count(*) LIMIT 3",
        "two groups can be equal in its order",
        "have each expression of GROUP BY in its ORDER BY, as a column",
        "SELECT o.status, count(*) AS n FROM orders AS o GROUP BY o.status ORDER BY count(*), o.status LIMIT 3",
    ),
    "LIMIT of DISTINCT": (
        "SELECT DISTINCT o.status FROM orders AS o ORDER BY o.status LIMIT 3",
        "LIMIT 3 of DISTINCT",
        "keep all rows",
        "SELECT DISTINCT o.status FROM orders AS o",
    ),
    "LIMIT of a set": (
        "SELECT o.status FROM orders AS o UNION SELECT p.status FROM orders AS p ORDER BY 1 LIMIT 3",
        "of UNION, INTERSECT or EXCEPT",
        "keep all rows",
        "SELECT o.status FROM orders AS o UNION SELECT p.status FROM orders AS p",
    ),
    "LIMIT of a share": (
        "SELECT o.status FROM orders AS o ORDER BY o.id LIMIT 10%",
        "LIMIT_OPTIONS in",
        "leave it out",
        "SELECT o.status FROM orders AS o ORDER BY o.id LIMIT 10",
    ),
    "LIMIT of what is computed": (
        "SELECT o.status FROM orders AS o ORDER BY o.id LIMIT (SELECT count(*) FROM customers AS c)",
        "no number",
        "write a number of rows",
        "SELECT o.status FROM orders AS o ORDER BY o.id LIMIT 10",
    ),
    "FETCH": (
        "SELECT o.status FROM orders AS o ORDER BY o.id FETCH FIRST 3 ROWS ONLY",
        "FETCH FIRST 3 ROWS ONLY: it is not taken",
        "write LIMIT",
        "SELECT o.status FROM orders AS o ORDER BY o.id LIMIT 3",
    ),
    "OFFSET without an order": (
        "SELECT o.status FROM orders AS o ORDER BY o.status OFFSET 3",
        "OFFSET 3: two rows can be equal",
        "add to its ORDER BY: o.id",
        "SELECT o.status FROM orders AS o ORDER BY o.status, o.id OFFSET 3",
    ),
    "DISTINCT ON": (
        "SELECT DISTINCT ON (o.status) o.status FROM orders AS o ORDER BY o.status, o.amount",
        "DISTINCT ON: two rows can be equal",
        "add to its ORDER BY: o.id",
        "SELECT DISTINCT ON (o.status) o.status FROM orders AS o ORDER BY o.status, o.amount, o.id",
    ),
    "row_number": (
        "SELECT o.status FROM orders AS o QUALIFY row_number() OVER (PARTITION BY o.status ORDER BY o.amount) = 1",
        "row_number(): two rows can be equal",
        "add to its ORDER BY: o.id",
        "SELECT o.status FROM orders AS o QUALIFY "
        "row_number() OVER (PARTITION BY o.status ORDER BY o.amount, o.id) = 1",
    ),
    "row_number by an order of its own": (
        "SELECT o.status, row_number(ORDER BY o.amount) OVER (ORDER BY o.id) AS n FROM orders AS o",
        "its function has an order of its own",
        "write ORDER BY in OVER alone: row_number() OVER (ORDER BY …)",
        "SELECT o.status, row_number() OVER (ORDER BY o.amount, o.id) AS n FROM orders AS o",
    ),
    "a key that is none": (
        "SELECT o.id AS number FROM orders AS o",
        "key column 'status' is no output column",
        "name one of number",
        PLAIN,
    ),
}
"""By what it is: the SQL, what is said, what the hint says, and SQL that follows it."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_means_no_one_thing_is_refused_by_name(case: str) -> None:
    wrong, said, hint_says, right = REFUSED[case]
    with pytest.raises(UsageError) as refused:
        read(wrong)
    assert refused.value.message.startswith("derived table 'd': ")
    assert said in refused.value.message, refused.value.message
    with typed(refused.value) as hint:
        hint.says(hint_says)
        assert read(right).reads


SORTED = (
    "SELECT o.id AS status, o.{} + 1 AS v FROM orders AS o JOIN customers AS c ON c.id = o.id ORDER BY {}, o.id"
)


@pytest.mark.parametrize("system", ["duckdb", "postgres"])
def test_a_name_alone_in_order_by_is_an_outputs_whatever_a_table_gains(system: str) -> None:
    """`tests/contract/derived_contract.py` has the engines' word for it."""
    gained = Base("public.more", ("more",), "more", ("id",), ("id", "v", "amount"), ("id",))
    for by in ("v", "V DESC NULLS LAST", "v, o.amount"):
        for table in ("orders", "more"):
            sql = SORTED.format("amount", by).replace("orders", table)
            read(sql, ("status",), system, gained)
            read(sql + ", c.id LIMIT 2", ("status",), system, gained)
    for by, said in (("v + 0", "v"), ("(SELECT v)", "v"), ('"V"', '"V"')):
        if (by, system) != ('"V"', "duckdb"):
            with pytest.raises(UsageError, match=f"{said}: no table in FROM has that column") as refused:
                read(SORTED.format("amount", by), ("status",), system)
            with typed(refused.value) as hint:
                hint.says("repeat its expression")
                read(SORTED.format("amount", "o.amount + 1"), ("status",), system)


def test_a_name_that_two_outputs_have_or_a_column_has_without_as_is_not_sorted_by() -> None:
    inner = "SELECT q.id AS status FROM (SELECT {} FROM orders AS o CROSS JOIN customers AS c ORDER BY {}) AS q"
    for shown, by in (("o.id AS id, o.amount AS v, o.status AS v", "v"), ("o.id AS id, o.status", "status")):
        with pytest.raises(UsageError, match=f"{by}: (no table in FROM has|once another table gains)"):
            read(inner.format(shown, by))


def test_lakes_refuse_the_option() -> None:
    with pytest.raises(UsageError, match='refresh = "full"') as refused:
        read(PLAIN, system="spark")
    with typed(refused.value) as hint:
        hint.says("leave derived.refresh out")
        assert maintained(Derived("d", "d", ("id",), "SELECT o.id FROM orders AS o"), (ORDERS,), "spark").reads


def test_rows_of_two_keys_that_are_null_are_not_told_apart_by_an_outer_join() -> None:
    made = Base("made", ("made",), "made", ("k",), ("k", "v"), ("k",), nullable=True)
    sql = "SELECT o.status FROM orders AS o {} made AS m ON m.k = o.id ORDER BY o.id, m.k LIMIT 3"
    assert read(sql.format("JOIN"), ("status",), "duckdb", made).reads == ("public.orders", "made")
    with pytest.raises(UsageError, match="two rows of m can be equal"):
        read(sql.format("FULL JOIN"), ("status",), "duckdb", made)


def test_a_recursion_may_be_called_like_its_table() -> None:
    step = "SELECT o.customer_id AS id FROM orders AS o JOIN d ON d.id = o.id"
    sql = f"WITH RECURSIVE d AS (SELECT o.id FROM orders AS o UNION {step}) SELECT d.id FROM d"
    (found,) = ordered([Derived("d", "d", ("id",), sql, "full")], [ORDERS], {"d": "d"}, "duckdb")
    assert found.reads == ("public.orders",)


def test_the_text_is_the_users_but_for_the_tables_names() -> None:
    sql = (
        "WITH RECURSIVE r(n) AS (SELECT o.id FROM public.orders AS o UNION SELECT r.n FROM r) "
        "SELECT r.n, (SELECT max(customers.country) FROM customers WHERE customers.id = r.n) AS status FROM r;"
    )
    found = read(sql)
    assert found.reads == ("public.orders", "public.customers")
    told = sql.removesuffix(";").replace("public.orders", ORDERS.sql)
    told = told.replace("FROM customers", f'FROM {CUSTOMERS.sql} AS "customers"')
    r = "_backfill_sub_3"  # what a query inside names: customers could gain a column r that has a field n
    before, _, after = told.rpartition("SELECT r.n, ")
    after = after.replace("= r.n", f"= {r}.n").replace("FROM r", f"FROM r AS {r}")
    assert found.text == f"{before}SELECT {r}.n, {after}"
    assert found.refreshed
