"""What is said of a transform's SQL without Spark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.config.sections import Table, Transform
from backfill_cli.config.transforms import NOT_DETERMINISTIC, sink_key, transform_faults

ORDERS = Table(name="orders", key=["id", "day"])


def faults(select: list[str] | None = None, where: str | None = None, table: Table = ORDERS) -> list[str]:
    return transform_faults(Transform(select=select, where=where), [table], ("transform",))


@pytest.mark.parametrize("name", sorted(NOT_DETERMINISTIC))
def test_each_function_that_is_not_deterministic_is_refused(name: str) -> None:
    arguments = "'a', 'b'" if name in {"reflect", "java_method", "try_reflect"} else ""
    arguments = {"shuffle": "array(a)", "uniform": "1, 2", "randstr": "3"}.get(name, arguments)
    for found in (
        faults(["id", "day", f"coalesce({name}({arguments}), a) AS x"]),
        faults(where=f"a = {name}({arguments})"),
    ):
        assert any("is not deterministic" in fault for fault in found), found


@pytest.mark.parametrize("text", ["current_date", "current_timestamp", "CURRENT_TIMESTAMP", "unix_timestamp()"])
def test_the_clock_is_refused_without_parentheses_too(text: str) -> None:
    assert any("is not deterministic" in fault for fault in faults(where=f"a > {text}"))


@pytest.mark.parametrize(
    "text",
    [
        "upper(status) AS status",
        "a",
        "`a column`",
        "a b",
        "cast(a AS decimal(10, 2)) AS a",
        "unix_timestamp(ts) AS t",
        "transform(items, x -> x + 1) AS items",
        "named_struct('a', a, 'b', 1) AS s",
        "CASE WHEN a > 1 THEN 'x' ELSE 'y' END AS c",
        "s.inner AS i",
        "user",
        "date_trunc('day', ts) AS d",
        "a IN (1, 2) AS few",
        "get_json_object(doc, '$.a') AS a",
    ],
)
def test_functions_of_one_row_are_taken(text: str) -> None:
    assert faults(["id", "day", text]) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max(a) AS m", "more than one row"),
        ("count(*) AS n", "more than one row"),
        ("row_number() OVER (ORDER BY a) AS n", "more than one row"),
        ("(SELECT max(x) FROM t) AS m", "more than one row"),
        ("explode(items) AS i", "one row into several"),
        ("upper(a)", "give it a name"),
        ("s.inner", "give it a name: s.inner AS inner"),
        ("a +", "not a Spark SQL expression"),
        ("a, b", "one expression"),
        ("a FROM t", "one expression"),
        ("1 AS x; DROP TABLE t", "one expression"),
        ("", "one expression"),
    ],
)
def test_what_is_no_column_of_one_row_is_refused(text: str, why: str) -> None:
    found = faults(["id", "day", text])
    assert found
    assert found[0].startswith("transform.select[2]: ")
    assert why in found[0]


def test_a_subquery_in_where_is_refused() -> None:
    assert "more than one row" in faults(where="a IN (SELECT x FROM t)")[0]


def test_a_select_that_drops_or_changes_the_key_is_refused() -> None:
    assert faults(["id", "a"]) == [
        "transform.select: the key column day of table orders must be selected unchanged, renamed at most "
        "(day, or day AS other_name)"
    ]
    assert "key column id" in faults(["id + 1 AS id", "day"])[0]
    assert "key column id" in faults(["* EXCEPT (id)"])[0]
    assert faults(["*"]) == []


def test_a_name_may_not_come_twice() -> None:
    assert faults(["id", "day", "a AS x", "b AS X"]) == ["transform.select: names X more than once"]


def test_the_sink_key_follows_the_renames_in_the_keys_order() -> None:
    transform = Transform(select=["DAY AS `on day`", "a", "id order_id"])
    assert sink_key(ORDERS, transform) == ("order_id", "on day")
    assert sink_key(ORDERS, Transform()) == ("id", "day")
    assert sink_key(ORDERS, Transform(select=["*", "a + 1 AS b"])) == ("id", "day")


@given(st.text(max_size=40))
def test_any_text_is_taken_or_refused_never_a_crash(text: str) -> None:
    assert all(fault.startswith("transform.") for fault in faults(["id", "day", text], text or "x"))


@pytest.mark.parametrize(
    ("select", "where"),
    [
        (["id", "day", "a AS _BACKFILL_op"], None),
        (["id", "day", "upper(_backfill_op) AS a"], None),
        (None, "_backfill_seq.entry > 1"),
    ],
)
def test_names_of_ours_are_neither_read_nor_written(select: list[str] | None, where: str | None) -> None:
    assert any("names that begin with _backfill_ are backfill's own" in one for one in faults(select, where))
