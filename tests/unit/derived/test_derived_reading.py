"""What a derived table's SELECT may be: what is refused names the piece, and its hint, typed, is taken."""

import pytest
from hint_typed import typed
from sink_epochs import schema_json

from backfill_cli.contracts import SinkTable
from backfill_cli.derived.bases import bases_of
from backfill_cli.derived.rows import Maintained, maintained
from backfill_cli.derived.shown import fans_out, found_by, grouped_by, reads_of
from backfill_cli.errors import UsageError
from backfill_cli.model.derived import Base, Derived

ORDERS = Base(
    "public.orders",
    ("public.orders", "orders"),
    '"main"."t orders"',
    ("id",),
    ("id", "customer_id", "amount", "status", "Created At"),
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
COUNTED = "SELECT status, count(*) AS n FROM orders GROUP BY status"


def read(sql: str, key: tuple[str, ...] = ("status",), system: str = "duckdb") -> Maintained:
    return maintained(Derived("d", "d", key, sql), (ORDERS, CUSTOMERS), system)


LEFT_JOINS = "SELECT o.status, count(*) AS n FROM orders o" + "".join(
    f" LEFT JOIN customers c{at} ON c{at}.id = o.customer_id" for at in range(7)
)

REFUSED = {
    "what is no SQL": ("SELECT FROM WHERE (", "cannot be read", "correct derived.sql", COUNTED),
    "a bracket too many": ("SELECT status) FROM orders", "a bracket too many", "correct derived.sql", COUNTED),
    "a bracket of another kind": (
        "SELECT status FROM orders WHERE (status]",
        "cannot be read",
        "correct derived.sql",
        COUNTED,
    ),
    "a field that a table's column may become": (
        "SELECT customer_id.part AS a, status FROM orders AS customer_id",
        "customer_id.part: a field of a column, until the table of that name",
        "give the table another name",
        "SELECT customer_id.part AS a, status FROM orders AS o",
    ),
    "a bracket that is open": (
        "SELECT (status FROM orders",
        "a bracket is not closed",
        "correct derived.sql",
        COUNTED,
    ),
    "nothing": (" ; ", "no SQL", "write a query in derived.sql", COUNTED),
    "two statements": (COUNTED + "; DROP TABLE orders", "several statements", "leave one query", COUNTED),
    "no SELECT": ("DELETE FROM orders", "no SELECT but DELETE", "write one query", COUNTED),
    "LIMIT": (COUNTED + " LIMIT 10", "LIMIT", "keep all rows", COUNTED),
    "OFFSET": (COUNTED + " OFFSET 10", "OFFSET", "keep all rows", COUNTED),
    "a sample": ("SELECT status FROM orders TABLESAMPLE 10%", "sample", "keep all rows", COUNTED),
    "LATERAL": (
        "SELECT o.status, x.n FROM orders o, LATERAL (SELECT 1 AS n) AS x",
        "LATERAL",
        "make columns of it",
        COUNTED,
    ),
    "the time of day": (
        'SELECT status FROM orders WHERE "Created At" > now()',
        "now: its value is of the moment",
        "use a column of the rows",
        'SELECT status, max("Created At") AS last FROM orders GROUP BY 1',
    ),
    "today": (
        "SELECT status, current_date AS day FROM orders",
        "current_date",
        "use a column of the rows",
        COUNTED,
    ),
    "chance": ("SELECT status, random() AS r FROM orders", "rand", "use a column of the rows", COUNTED),
    "a column by its place": ("SELECT status, #1 AS n FROM orders", "#1", "name each column", COUNTED),
    "several rows of one": (
        "SELECT status, generate_subscripts([1, 2], 1) AS n FROM orders",
        "generate_subscripts: it makes several rows of one",
        "make columns of it",
        COUNTED,
    ),
    "too many brackets": (
        f"SELECT {'(' * 2000}status{')' * 2000} AS status FROM orders",
        "brackets within brackets",
        "leave out some brackets",
        "SELECT (status) AS status FROM orders",
    ),
    "a column that another table may gain": (
        "SELECT o.status, count(amount) AS n FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY 1",
        "amount: once another table in FROM gains a column of that name, it can be either",
        "say whose it is: o.amount",
        "SELECT o.status, count(o.amount) AS n FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY 1",
    ),
    "an output column that a table may gain": (
        "SELECT upper(status) AS u, count(*) AS n FROM orders GROUP BY u",
        "u: an output column, until a table in FROM gains a column of that name",
        "GROUP BY, DISTINCT ON and ORDER BY also take its number",
        "SELECT upper(status) AS status, count(*) AS n FROM orders GROUP BY 1",
    ),
    "a merged column that another table may gain": (
        "SELECT o.status, o.id FROM orders o JOIN customers c ON c.id = o.customer_id "
        "JOIN orders p USING (status)",
        "USING (status): once another table before it gains a column of that name, it can be either",
        "write ON o.status = p.status",
        "SELECT o.status, o.id FROM orders o JOIN customers c ON c.id = o.customer_id "
        "JOIN orders p ON o.status = p.status",
    ),
    "a star in a part of UNION ALL": (
        "SELECT status FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders) AS o",
        "a star in SELECT * FROM orders: once a table gains a column",
        "name each column",
        "SELECT status FROM (SELECT status FROM orders UNION ALL SELECT status FROM orders) AS o",
    ),
    "a star beside a column": (
        "SELECT status FROM (SELECT *, 1 AS n FROM orders) AS o",
        "a star in SELECT *, 1 AS n FROM orders: once a table gains a column",
        "name each column",
        "SELECT status FROM (SELECT * FROM orders) AS o",
    ),
    "a list of a table's columns": (
        "SELECT o.status FROM orders AS o(a, b, c, status)",
        "orders AS o(a, b, c, status): once the table gains a column called so, it can be either",
        "name its columns by AS in a query",
        "SELECT o.status FROM (SELECT id AS a, status FROM orders) AS o",
    ),
    "a list of a query's columns, which are a table's": (
        "WITH x AS (SELECT * FROM orders) SELECT o.status FROM x AS o(a, b, c, status)",
        "x AS o(a, b, c, status): once the table gains a column called so, it can be either",
        "name its columns by AS in a query",
        "WITH x AS (SELECT id AS a, status FROM orders) SELECT o.status FROM x AS o",
    ),
    "an order that a join seems to settle": (
        "SELECT o.status, o.id FROM orders o JOIN customers c ON c.id = o.status "
        "QUALIFY row_number() OVER (PARTITION BY o.status ORDER BY o.id) = 1",
        "two rows can be equal in its order",
        "add the key of c at the end of its ORDER BY",
        "SELECT o.status, o.id FROM orders o JOIN customers c ON c.id = o.status "
        "QUALIFY row_number() OVER (PARTITION BY o.status ORDER BY o.id, c.id) = 1",
    ),
    "our own names": ("SELECT status AS _backfill_x FROM orders", "backfill's own", "rename it", COUNTED),
    "COLUMNS": ("SELECT COLUMNS('s.*') FROM orders", "columns are named", "name each column", COUNTED),
    "a column's number": (
        "SELECT #3 AS status, id FROM orders",
        "columns are named",
        "name each column",
        "SELECT amount AS status, id FROM orders",
    ),
    "UNION": (
        "SELECT status FROM orders UNION SELECT country FROM customers",
        "UNION: ",
        "write UNION ALL",
        "SELECT status FROM orders UNION ALL SELECT country FROM customers",
    ),
    "unequal parts": (
        "SELECT status FROM orders UNION ALL SELECT country, id FROM customers",
        "different numbers of columns",
        "give each part the same columns",
        "SELECT status FROM orders UNION ALL SELECT country FROM customers",
    ),
    "a part of one row": (
        "SELECT status, id FROM orders UNION ALL SELECT 'all', count(*) FROM orders",
        "one row of aggregates",
        "make that part a [[derived]] of its own",
        "SELECT status, id FROM orders",
    ),
    "ORDER BY of all parts": (
        "SELECT status FROM orders UNION ALL SELECT country FROM customers ORDER BY 1",
        "ORDER BY after UNION ALL",
        "leave it out",
        "SELECT status FROM orders UNION ALL SELECT country FROM customers",
    ),
    "brackets around a part": (
        "(SELECT status FROM orders) UNION ALL SELECT country FROM customers",
        "not a SELECT",
        "without brackets around it",
        "SELECT status FROM orders UNION ALL SELECT country FROM customers",
    ),
    "recursion": (
        "WITH RECURSIVE w AS (SELECT status FROM orders) SELECT status FROM w",
        "RECURSIVE",
        "make columns of it",
        "WITH w AS (SELECT status FROM orders) SELECT status FROM w",
    ),
    "a list of columns after WITH": (
        "WITH w(a) AS (SELECT status FROM orders) SELECT a AS status FROM w",
        "columns are named in a list",
        "name them inside it, by AS",
        "WITH w AS (SELECT status AS a FROM orders) SELECT a AS status FROM w",
    ),
    "FROM first": ("FROM orders SELECT status", "not a SELECT", "write it as a query", COUNTED),
    "WINDOW": (
        "SELECT status FROM orders QUALIFY row_number() OVER w = 1 WINDOW w AS (PARTITION BY status ORDER BY id)",
        "WINDOWS in",
        "leave it out",
        "SELECT status FROM orders QUALIFY row_number() OVER (PARTITION BY status ORDER BY id) = 1",
    ),
    "an aggregate in WHERE": (
        "SELECT status FROM orders WHERE count(*) > 1 GROUP BY status",
        "it has an aggregate",
        "write HAVING",
        "SELECT status FROM orders GROUP BY status HAVING count(*) > 1",
    ),
    "an aggregate in ON": (
        "SELECT o.status, count(*) AS n FROM orders o JOIN customers c ON count(*) = c.id GROUP BY 1",
        "it has an aggregate",
        "write HAVING",
        COUNTED,
    ),
    "brackets around joins": (
        "SELECT o.status FROM (orders o JOIN customers c ON c.id = o.customer_id)",
        "brackets around joins",
        "write the joins one after the other",
        "SELECT o.status FROM orders o JOIN customers c ON c.id = o.customer_id",
    ),
    "two of one name": (
        "SELECT status FROM orders JOIN orders ON TRUE",
        "two things in FROM are called 'orders'",
        "give one another name",
        "SELECT a.status FROM orders a JOIN orders AS b ON TRUE",
    ),
    "FULL JOIN": (
        "SELECT o.status FROM orders o FULL JOIN customers c ON c.id = o.customer_id",
        "FULL JOIN",
        "write LEFT JOIN",
        "SELECT o.status FROM orders o LEFT JOIN customers c ON c.id = o.customer_id",
    ),
    "SEMI JOIN": (
        "SELECT o.status FROM orders o SEMI JOIN customers c ON c.id = o.customer_id",
        "SEMI JOIN",
        "write JOIN (SELECT DISTINCT …) with what ON compares",
        "SELECT o.status FROM orders o JOIN (SELECT DISTINCT c.id FROM customers c) d ON d.id = o.customer_id",
    ),
    "ANTI JOIN": (
        "SELECT o.status FROM orders o ANTI JOIN customers c ON c.id = o.customer_id",
        "ANTI JOIN",
        "write LEFT JOIN, and WHERE with what ON compares IS NULL",
        "SELECT o.status FROM orders o LEFT JOIN customers c ON c.id = o.customer_id WHERE c.id IS NULL",
    ),
    "ASOF JOIN": (
        "SELECT o.status FROM orders o ASOF JOIN customers c ON c.id >= o.customer_id",
        "ASOF JOIN",
        "write JOIN … ON",
        "SELECT o.status FROM orders o JOIN customers c ON c.id = o.customer_id",
    ),
    "NATURAL JOIN": (
        "SELECT status FROM orders NATURAL JOIN customers",
        "NATURAL JOIN",
        "write JOIN … ON",
        "SELECT o.status FROM orders o JOIN customers c ON c.id = o.id",
    ),
    "RIGHT JOIN after another": (
        "SELECT o.status FROM orders o JOIN orders p ON TRUE RIGHT JOIN customers c ON c.id = o.id",
        "RIGHT JOIN after another join",
        "begin with its right side, and write LEFT JOIN",
        "SELECT o.status FROM customers c LEFT JOIN orders o ON c.id = o.customer_id",
    ),
    "LEFT JOIN without a condition": (
        "SELECT status FROM orders LEFT JOIN customers",
        "without a condition",
        "write ON",
        "SELECT o.status FROM orders o LEFT JOIN customers c ON c.country = o.status",
    ),
    "USING a column of one side": (
        "SELECT status FROM orders JOIN customers USING (status)",
        "both sides must have that column",
        "write ON",
        "SELECT o.status FROM orders o JOIN customers c ON c.country = o.status",
    ),
    "too many outer joins": (
        LEFT_JOINS + " GROUP BY 1",
        "more than 6 outer joins",
        "join that one",
        COUNTED,
    ),
    "too many outer joins, in queries": (
        "SELECT a.status, b.n FROM ("
        + LEFT_JOINS.replace("count(*)", "o.id").replace(" LEFT JOIN customers c0 ON c0.id = o.customer_id", "")
        + ") a LEFT JOIN (SELECT id AS n FROM customers) b ON b.n = a.n",
        "more than 6 outer joins in one SELECT and the queries in its FROM",
        "join that one",
        COUNTED,
    ),
    "a subquery without a name": (
        "SELECT status FROM (SELECT status FROM orders)",
        "it has no name",
        "give it one",
        "SELECT status FROM (SELECT status FROM orders) AS one",
    ),
    "VALUES without names": (
        "SELECT status FROM orders JOIN (VALUES (1)) AS v ON TRUE",
        "its columns have no names",
        "name them",
        "SELECT o.status FROM orders o JOIN (VALUES (1)) AS v(a) ON TRUE",
    ),
    "a table function": (
        "SELECT r.range AS status FROM range(3) AS r, orders o",
        "table function",
        "read a table of the job",
        COUNTED,
    ),
    "a stranger's table": (
        "SELECT status FROM people",
        "people is no table of the job",
        "read one of these: public.customers, public.orders",
        "SELECT status FROM public.orders",
    ),
    "a file": ("SELECT status FROM 'orders.csv'", "is no table of the job", "read one of these", COUNTED),
    "a comma before FROM": ("SELECT status, FROM orders", "a comma before FROM", "leave it out", COUNTED),
    "a column without a name": (
        "SELECT status, count(*) FROM orders GROUP BY 1",
        "the column count(*) has no name",
        "name it by AS",
        COUNTED,
    ),
    "a name before its expression": (
        "SELECT status, n: amount FROM orders",
        "its name is not at its end",
        "write it as: expression AS name",
        "SELECT status, amount AS n FROM orders",
    ),
    "one name twice": (
        "SELECT status, amount AS status FROM orders",
        "two output columns are called 'status'",
        "name one by AS",
        "SELECT status, amount AS a FROM orders",
    ),
    "a star that leaves out": (
        "SELECT * EXCLUDE (id) FROM orders",
        "leaves out or replaces",
        "name each column",
        "SELECT * FROM orders",
    ),
    "a star of nothing": (
        "SELECT x.* FROM orders o",
        "nothing in FROM is called that",
        "name one of FROM",
        "SELECT o.* FROM orders o",
    ),
    "a star of two tables": (
        "SELECT * FROM orders JOIN customers USING (id)",
        "two could share a name",
        "name each column",
        "SELECT o.status, c.country, id FROM orders o JOIN customers c USING (id)",
    ),
    "a scalar subquery": (
        "SELECT status, (SELECT max(id) FROM customers) AS m FROM orders",
        "a subquery in an expression",
        "join what it reads",
        COUNTED,
    ),
    "IN a subquery": (
        "SELECT status FROM orders WHERE customer_id IN (SELECT id FROM customers)",
        "a subquery in an expression",
        "join what it reads",
        "SELECT o.status FROM orders o JOIN customers c ON c.id = o.customer_id",
    ),
    "EXISTS": (
        "SELECT status FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer_id)",
        "a subquery in an expression",
        "join what it reads",
        "SELECT o.status FROM orders o JOIN customers c ON c.id = o.customer_id",
    ),
    "an aggregate of an order": (
        "SELECT status, string_agg(status, ',') AS all_ FROM orders GROUP BY 1",
        "its value depends on the order of rows",
        "use one of avg, bit_and",
        COUNTED,
    ),
    "any value": (
        "SELECT status, any_value(id) AS one FROM orders GROUP BY 1",
        "its value depends on the order of rows",
        "use one of avg, bit_and",
        COUNTED,
    ),
    "a window of neighbours": (
        "SELECT status, lag(id) OVER (PARTITION BY status ORDER BY id) AS before FROM orders",
        "this window is not taken",
        "use row_number",
        "SELECT status, row_number() OVER (PARTITION BY status ORDER BY id) AS nr FROM orders",
    ),
    "ROLLUP": (
        "SELECT status, count(*) AS n FROM orders GROUP BY ROLLUP (status)",
        "several sets of groups",
        "write a query for each, joined by UNION ALL",
        COUNTED,
    ),
    "a column that is not there": (
        "SELECT status, count(*) AS n FROM orders GROUP BY 3",
        "there is no such column",
        "count the output columns from 1",
        COUNTED,
    ),
    "an order with ties": (
        "SELECT status, id FROM orders QUALIFY row_number() OVER (PARTITION BY status ORDER BY amount) = 1",
        "two rows can be equal in its order",
        "add the key of orders at the end of its ORDER BY",
        "SELECT status, id FROM orders QUALIFY row_number() OVER (PARTITION BY status ORDER BY amount, id) = 1",
    ),
    "DISTINCT ON without an order": (
        "SELECT DISTINCT ON (status) status, id FROM orders",
        "two rows can be equal in its order",
        "add the key of orders at the end of its ORDER BY",
        "SELECT DISTINCT ON (status) status, id FROM orders ORDER BY status, id",
    ),
    "DISTINCT ON of groups": (
        "SELECT DISTINCT ON (status) status, count(*) AS n FROM orders GROUP BY status, id ORDER BY status, id",
        "DISTINCT ON with groups",
        "make the groups a [[derived]] of their own",
        COUNTED,
    ),
    "a column that no table has": (
        "SELECT status, nothing FROM orders",
        "nothing: no table in FROM has that column",
        "name a column of a table in FROM",
        COUNTED,
    ),
    "another output column": (
        "SELECT status, amount * 2 AS twice, twice + 1 AS more FROM orders",
        "twice: no table in FROM has that column",
        "repeat its expression",
        "SELECT status, amount * 2 AS twice, amount * 2 + 1 AS more FROM orders",
    ),
    "a table's whole name before a column": (
        "SELECT public.orders.status FROM public.orders",
        "no table in FROM has that column",
        "give the table a name, and use that: FROM … AS orders",
        "SELECT orders.status FROM public.orders AS orders",
    ),
    "no table": ("SELECT 1 AS status", "it reads no table", "read one FROM the job's tables", COUNTED),
    "a key that is no column": (
        "SELECT status AS s, count(*) AS n FROM orders GROUP BY 1",
        "key column 'status' is no output column",
        "name one of s, n",
        COUNTED,
    ),
    "a key of aggregates": (
        "SELECT customer_id, max(status) AS status FROM orders GROUP BY 1",
        "is known before rows are grouped",
        "have an expression of GROUP BY",
        COUNTED,
    ),
    "a key that is finer than its group": (
        "SELECT CAST(amount AS VARCHAR) AS status, count(*) AS n FROM orders GROUP BY amount",
        "is known before rows are grouped",
        "have an expression of GROUP BY, or of PARTITION BY, in its key as it stands there",
        "SELECT CAST(amount AS VARCHAR) AS status, count(*) AS n FROM orders GROUP BY CAST(amount AS VARCHAR)",
    ),
    "VALUES that read": (
        "SELECT o.status, v.n FROM orders o, (VALUES ((SELECT count(*) FROM customers))) AS v(n)",
        "rows that are read from other things in FROM, or by a subquery",
        "write these rows as constants",
        "SELECT o.status, v.n FROM orders o, (VALUES (1)) AS v(n)",
    ),
    "VALUES of a row": (
        "SELECT o.status, v.n FROM orders o, (VALUES (o.id)) AS v(n)",
        "rows that are read from other things in FROM, or by a subquery",
        "join what they read",
        "SELECT o.status, o.id AS n FROM orders o",
    ),
    "an output column called like a table's": (
        "SELECT DISTINCT ON (id) amount AS id, id AS status FROM orders ORDER BY id",
        "id: a column of orders and another output column",
        "name the column orders.id, or give the output another name",
        "SELECT DISTINCT ON (orders.id) amount AS id, id AS status FROM orders ORDER BY orders.id",
    ),
    "RIGHT JOIN after a comma": (
        "SELECT o.status FROM orders p, orders o RIGHT JOIN customers c ON c.id = o.id",
        "RIGHT JOIN after another join",
        "begin with its right side, and write LEFT JOIN",
        "SELECT o.status FROM orders p, customers c LEFT JOIN orders o ON c.id = o.customer_id",
    ),
}
"""By what it is: the SQL, what is said, what the hint says, and SQL that follows it."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_reach_is_refused_by_name(case: str) -> None:
    wrong, said, hint_says, right = REFUSED[case]
    with pytest.raises(UsageError) as refused:
        read(wrong)
    assert refused.value.message.startswith("derived table 'd': ")
    assert said in refused.value.message, refused.value.message
    with typed(refused.value) as hint:
        hint.says(hint_says)
        assert read(right).reads


def test_several_rows_need_a_key() -> None:
    with pytest.raises(UsageError, match="no key: its result can have several rows") as refused:
        read("SELECT id, status FROM orders", ())
    with typed(refused.value) as hint:
        hint.says("name in key the columns that identify a row")
        assert read("SELECT id, status FROM orders", ("id",)).pushed == ("id",)


def test_columns_are_shown_as_they_are_written() -> None:
    sql = 'SELECT o."Created At" AS "Day", count(*) AS n FROM orders o GROUP BY 1'
    shown = read(sql, ("Day",))
    assert found_by(shown) == ("Day",)
    assert [one.by for one in reads_of(shown)] == [("Created At",)]


@pytest.mark.parametrize(
    "said", ["'today'", "DATE 'Now'", "E' tomorrow 10:00 utc'", r"E'\164\x6f\u0064ay'", "$$yesterday allballs$$"]
)
def test_a_text_that_postgresql_reads_as_a_moment_is_refused(said: str) -> None:
    sql = f"""SELECT status FROM orders WHERE "Created At" < {said}"""
    with pytest.raises(UsageError, match=r"its value is of the moment") as refused:
        read(sql, system="postgres")
    with typed(refused.value) as hint:
        hint.says("use a column of the rows")
        read("""SELECT status, max("Created At") AS last FROM orders GROUP BY 1""", system="postgres")


@pytest.mark.parametrize(
    ("said", "what", "way_on"),
    [
        ("'to'\n'day'", "a text in two pieces", "write it as one text"),
        (r"U&'\0074oday'", "letters can be written by numbers", "write the letters"),
        ("U&'!0074oday' UESCAPE '!'", "letters can be written by numbers", "write the letters"),
    ],
)
def test_a_text_that_could_hide_a_moment_from_us_is_refused(said: str, what: str, way_on: str) -> None:
    with pytest.raises(UsageError, match=what) as refused:
        read(f"""SELECT status FROM orders WHERE "Created At" < {said}""", system="postgres")
    with typed(refused.value) as hint:
        hint.says(way_on)
        read(r"""SELECT status FROM orders WHERE status = E'a\nb'""", system="postgres")


def test_other_texts_with_these_words_are_texts() -> None:
    assert read("SELECT status FROM orders WHERE status = 'delivered today'", system="postgres").reads
    assert read("SELECT status FROM orders WHERE status = 'today'").reads


def test_a_name_of_two_tables_is_refused() -> None:
    twin = Base("other.orders", ("other.orders", "orders"), '"main"."x"', ("id",), ("id", "status"), ("id",))
    derived = Derived("d", "d", ("status",), COUNTED)
    with pytest.raises(UsageError, match=r"orders can be each of public.orders, other.orders") as refused:
        maintained(derived, (ORDERS, twin), "duckdb")
    with typed(refused.value) as hint:
        hint.says("write its full name")
        text = COUNTED.replace("FROM orders", "FROM other.orders")
        assert maintained(Derived("d", "d", ("status",), text), (ORDERS, twin), "duckdb").reads == (
            "other.orders",
        )


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ('big."Gruppen"', ('big."Gruppen"', '"big"."Gruppen"', '"Gruppen"')),
        ('"Lager Süd"."Kund\'in"', ('"Lager Süd"."Kund\'in"', '"Kund\'in"')),
        ('"a.b"."c""d"', ('"a.b"."c""d"', '"c""d"')),
        ("public.orders", ("public.orders", '"public"."orders"', "orders")),
        ('it"s', ('"it""s"',)),
        ('a.it"s', ('a."it""s"', '"it""s"')),
    ],
)
@pytest.mark.parametrize("system", ["duckdb", "postgres"])
def test_a_table_is_called_by_its_name_in_the_job_quoted_as_in_sql(
    name: str, called: tuple[str, ...], system: str
) -> None:
    table = SinkTable(name, "t", ("status",), schema_json(status="string"))
    bases = bases_of([table], lambda one: (f"main.{one.target}", f'"main"."{one.target}"'))
    for one in called:
        select = f"SELECT status, count(*) AS n FROM {one} GROUP BY status"
        assert maintained(Derived("d", "d", ("status",), select), bases, system).reads == (name,)


def test_a_quote_in_a_name_makes_no_shorter_one_of_it() -> None:
    bases = bases_of(
        [SinkTable('it"s', "t", ("id",), schema_json(id="long"))], lambda one: (one.target, one.target)
    )
    for called in ("s", "it", "it.s"):
        with pytest.raises(UsageError, match="is no table of the job"):
            maintained(Derived("d", "d", ("id",), f"SELECT id FROM {called}"), bases, "duckdb")


def test_the_text_is_the_users_but_for_the_tables_names() -> None:
    sql = (
        "SELECT  orders.status, -- of orders\n count(*) n FROM\tpublic.orders , customers AS c "
        "WHERE 'orders' <> orders.status GROUP BY 1;"
    )
    assert read(sql).text == (
        'SELECT  orders.status, -- of orders\n count(*) n FROM\t"main"."t orders" AS "orders" , '
        '"main"."customers" AS c WHERE \'orders\' <> orders.status GROUP BY 1'
    )


def test_a_query_of_with_hides_a_table_of_its_name() -> None:
    found = read(
        "WITH customers AS (SELECT id, status FROM orders) SELECT status, id FROM customers", ("status", "id")
    )
    assert found.reads == ("public.orders",)


@pytest.mark.parametrize(
    ("sql", "key", "pushed", "unique"),
    [
        (COUNTED, ("status",), ("status",), True),
        ("SELECT status, customer_id, max(id) AS m FROM orders GROUP BY 1, 2", ("status",), ("status",), False),
        ("SELECT status, max(id) AS m FROM orders GROUP BY 1", ("status", "m"), ("status",), True),
        ("SELECT count(*) AS n FROM orders", (), (), True),
        ("SELECT id, status FROM orders", ("id",), ("id",), True),
        ("SELECT id, status FROM orders", ("status",), ("status",), False),
        (
            "SELECT o.id, c.country FROM orders o LEFT JOIN customers c ON c.id = o.customer_id",
            ("id",),
            ("id",),
            False,
        ),
        (
            "SELECT o.id, c.country FROM orders o LEFT JOIN customers c ON c.id > o.customer_id",
            ("id",),
            ("id",),
            False,
        ),
        ("SELECT DISTINCT status, amount FROM orders", ("status", "amount"), ("status", "amount"), True),
        (
            "SELECT id, status FROM orders QUALIFY row_number() OVER (PARTITION BY status ORDER BY id) = 1",
            ("status",),
            ("status",),
            True,
        ),
        ("SELECT id FROM orders UNION ALL SELECT id FROM customers", ("id",), ("id",), False),
    ],
)
def test_rows_are_found_by_the_columns_of_the_key_that_are_known_before_grouping(
    sql: str, key: tuple[str, ...], pushed: tuple[str, ...], unique: bool
) -> None:
    found = read(sql, key)
    assert (found.pushed, found.unique) == (pushed, unique)


@pytest.mark.parametrize(
    ("rest", "test"),
    [
        ("", "o.amount % 2"),
        ("WHERE o.id > 1", "CASE WHEN (o.id > 1) THEN o.amount % 2 END"),
        ("JOIN customers c ON c.id = o.id", "CASE WHEN (c.id = o.id) THEN o.amount % 2 END"),
        ("JOIN customers c USING (id)", 'CASE WHEN ("o"."id" = "c"."id") THEN o.amount % 2 END'),
        ("LEFT JOIN customers c ON c.id = o.id", "o.amount % 2"),
        (
            "RIGHT JOIN customers c ON c.id = o.id",
            'CASE WHEN ((c.id = o.id) OR "o"."id" IS NULL) THEN o.amount % 2 END',
        ),
    ],
)
def test_postgresql_computes_a_keys_expression_after_the_conditions(rest: str, test: str) -> None:
    found = read(f"SELECT o.amount % 2 AS k, count(*) AS n FROM orders o {rest} GROUP BY 1", ("k",), "postgres")
    assert f"= ({test})" in found.limited("k", nulls=[False])


@pytest.mark.parametrize("k", ["o.status", "coalesce(o.status, '')", "o.id::text", "date_trunc('day', o.status)"])
def test_what_cannot_fail_is_computed_as_it_is(k: str) -> None:
    found = read(f"SELECT {k} AS k, count(*) AS n FROM orders o WHERE o.id > 1 GROUP BY 1", ("k",), "postgres")
    assert f"= ({k})" in found.limited("k", nulls=[False])


def test_an_expression_inside_from_that_can_fail_is_refused_in_postgresql() -> None:
    sql = "SELECT s.k, count(*) AS n FROM (SELECT {} AS k FROM orders o WHERE o.id > 1) AS s GROUP BY 1"
    with pytest.raises(UsageError, match=r"s.k can fail for rows that the SELECT leaves out") as refused:
        read(sql.format("o.status::int"), ("k",), "postgres")
    with typed(refused.value) as hint:
        hint.says("make columns of it")
        assert read(sql.format("o.customer_id"), ("k",), "postgres").pushed == ("k",)


@pytest.mark.parametrize(
    ("inner", "by"),
    [
        ("SELECT status, count(*) AS n FROM orders GROUP BY 1", ["status"]),
        (
            "SELECT count(*) AS status FROM orders GROUP BY orders.amount, upper(orders.status)",
            ['"orders"."amount"'],
        ),
        ("SELECT max(status) AS status FROM orders", []),
        ("SELECT DISTINCT status, amount + 1 AS n FROM orders", ["status", "amount + 1"]),
        ("SELECT DISTINCT ON (status) status, id FROM orders ORDER BY status, id", ["status"]),
        (
            "SELECT status, count(*) OVER (PARTITION BY amount, status) AS n, "
            "rank() OVER (PARTITION BY status ORDER BY id) AS r FROM orders",
            ["status"],
        ),
        ("SELECT status, rank() OVER (ORDER BY id) AS r FROM orders", []),
    ],
)
def test_what_is_computed_inside_from_is_so_by_what_keeps_its_rows_apart(inner: str, by: list[str]) -> None:
    (found,) = read(f"SELECT s.status FROM ({inner}) AS s").computed
    assert [item.text for item in found.by] == by


@pytest.mark.parametrize(
    ("join", "system", "narrowed"),
    [
        ("LEFT JOIN ({}) AS g ON g.customer_id = o.customer_id", "duckdb", True),
        ("JOIN ({}) AS g ON g.customer_id = o.customer_id", "duckdb", True),
        ("RIGHT JOIN ({}) AS g ON g.customer_id = o.customer_id", "duckdb", False),
        ("LEFT JOIN ({}) AS g ON g.customer_id > o.customer_id", "duckdb", False),
        ("LEFT JOIN ({}) AS g ON g.n = o.customer_id", "duckdb", False),
        ("JOIN ({}) AS g ON g.customer_id = o.customer_id AND o.status <> 'x'", "duckdb", False),
        ("JOIN ({}) AS g ON g.customer_id = o.customer_id AND o.status <> 'x'", "postgres", True),
    ],
)
def test_of_a_group_inside_from_only_what_joins_the_keys_is_computed(
    join: str, system: str, narrowed: bool
) -> None:
    group = "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id"
    found = read(f"SELECT o.id, g.n FROM orders o {join.format(group)}", ("id",), system)
    inside = found.limited("k").partition("GROUP BY")[0]
    assert ('SELECT "o"."customer_id"' in inside) is narrowed


def test_a_row_inside_from_is_told_apart_by_its_group() -> None:
    group = "SELECT status, customer_id, count(*) AS n FROM orders GROUP BY 1, 2"
    assert read(f"SELECT s.status, s.customer_id FROM ({group}) AS s", ("status", "customer_id")).unique
    assert not read(f"SELECT s.status, s.customer_id FROM ({group}) AS s").unique


def test_what_the_parser_cannot_read_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="no SELECT but VACUUM"):
        read("VACUUM orders customers")
    assert capfd.readouterr().err == ""


def test_costs_are_told_of_each_table_whose_rows_are_in_one_group_and_of_joins_that_reach_more() -> None:
    """Of max over a join, `plan` told what changes of one table cost, and nothing of the other."""
    by_country = read(
        "SELECT c.country, max(o.id) AS n FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY 1",
        ("country",),
    )
    assert list(grouped_by(by_country)) == [
        ("public.customers", "public.customers", ("country",)),
        ("public.orders", "public.customers", ("country",)),
    ]
    assert list(fans_out(by_country)) == [("public.customers", "public.orders", "customer_id")]
    by_status = read(
        "SELECT o.status, count(c.id) AS n FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY 1"
    )
    assert list(grouped_by(by_status)) == [("public.orders", "public.orders", ("status",))]
    assert list(fans_out(by_status)) == [("public.customers", "public.orders", "customer_id")]
