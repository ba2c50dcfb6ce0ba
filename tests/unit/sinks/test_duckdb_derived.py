"""Which functions DuckDB says depend on their arguments alone."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from hint_typed import typed
from sink_contract import a_table

from backfill_cli.derived.rows import Maintained
from backfill_cli.errors import UsageError
from backfill_cli.model.derived import Derived
from backfill_cli.sinks.duckdb.derived import DuckDBDerives

NO_LIVES: Mapping[str, str] = {}


def check(*selects: str, key: Sequence[str] = ("k",), lives: Mapping[str, str] = NO_LIVES) -> None:
    def opening(*_: Any) -> Any:
        return nullcontext()

    derived = [Derived(f"d{at}", f"d{at}", tuple(key), select) for at, select in enumerate(selects)]
    DuckDBDerives(opening, lambda: False).check("job", derived, [a_table("orders"), a_table("items")], lives)


TAKEN = (
    "nullif(id, 2)",
    "coalesce(name, 'x')",
    "if(id = 1, 2, 3)",
    "id + 1 - 2 * 3 // 4 % 5",
    "id & 1 | 2 << 3",
    "name NOT LIKE 'a%' AND name !~ 'x' AND name ILIKE 'b' AND name GLOB 'c*' AND NOT name SIMILAR TO 'd'",
    "CASE WHEN id IN (1, 2) THEN CAST(id AS VARCHAR) || name ELSE upper(trim(name)) END",
    "date_trunc('month', DATE '2020-01-01' + INTERVAL (id) DAY)",
    "extract(year FROM DATE '2020-01-01')",
    "strftime(make_timestamp(id), '%Y')",
    "[id][1] + struct_extract({'a': id}, 'a') + list_max([id])",
    "CAST(CAST(name AS BLOB) AS VARCHAR) || lpad(name, 3, ' ')",
    "[id][1:2]",
    "MAP {'a': id}['a']",
    "CAST('{}' AS JSON) ->> '$.a'",
    "json_extract_string(name, '$.a')",
    "greatest(id, 2, least(id, 3))",
    "substring(name FROM 1 FOR 2) || left(name, 1) || concat(name, id) || name[1]",
    "try_cast(name AS INTEGER)",
    "split_part(name, ',', 1)",
    "regexp_replace(name, 'a', 'b')",
    "hash(id)",
    "id BETWEEN 1 AND 2 AND name IS NOT DISTINCT FROM 'a'",
    "round(id / 3, 2)",
    "sum(id) OVER (PARTITION BY id)",
    "row_number() OVER (PARTITION BY id ORDER BY name, id)",
)


@pytest.mark.parametrize("expression", TAKEN)
def test_a_function_of_its_arguments_is_taken(expression: str) -> None:
    check(f"SELECT id AS k, {expression} AS v FROM orders")


@pytest.mark.parametrize("aggregate", ["product", "arbitrary", "entropy", "mad", "fsum", "json_group_structure"])
@pytest.mark.parametrize(
    "select",
    [
        "SELECT name AS k, F(id) AS v FROM orders GROUP BY name",
        "SELECT o.id AS k FROM orders o JOIN (SELECT F(id) AS p FROM items) m ON o.id = m.p",
    ],
)
def test_an_aggregate_that_the_parser_does_not_know_is_refused_by_name(aggregate: str, select: str) -> None:
    with pytest.raises(UsageError, match=f"derived table 'd0': .*{aggregate}") as refused:
        check(select.replace("F(", f"{aggregate}("))
    if "an aggregate that is not taken" in refused.value.message:
        with typed(refused.value) as hint:
            hint.says("use one of avg, bit_and")
            check("SELECT name AS k, avg(id) AS v FROM orders GROUP BY name")


@pytest.mark.parametrize(
    "expression",
    [
        "generate_subscripts([id], 1)",
        "geomean(id)",
        "weighted_avg(id, id)",
        "in_search_path('a', 'b')",
        "current_setting('TimeZone')",
        "getvariable('a')",
        "current_connection_id()",
        "nextval('s')",
    ],
)
def test_what_depends_on_more_than_its_arguments_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="derived table 'd0': "):
        check(f"SELECT id AS k, {expression} AS v FROM orders")


def test_an_alias_hides_no_function() -> None:
    total = "(SELECT product(id) AS p FROM items) m"
    with pytest.raises(UsageError, match="derived table 'd0': product: an aggregate that is not taken"):
        check(f"SELECT product.id AS k FROM orders AS product JOIN {total} ON m.p = product.id")


@pytest.mark.parametrize(
    "broken",
    ["reached", "limited", "among"],
)
def test_what_the_database_would_refuse_in_each_commit_is_refused_at_plan(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    select = "SELECT name AS k, count(*) AS n FROM orders GROUP BY name"
    check(select)
    right = getattr(Maintained, broken)

    def wrong(one: Maintained, *given: Any) -> Any:
        made = right(one, *given)
        return [f"{each} nonsense(" for each in made] if isinstance(made, list) else f"{made} nonsense("

    monkeypatch.setattr(Maintained, broken, wrong)
    with pytest.raises(UsageError, match="derived table 'd0': as a change would be applied: ") as refused:
        check(select)
    monkeypatch.undo()
    with typed(refused.value) as hint:
        hint.says("correct derived.sql")
        check(select)


@pytest.mark.parametrize("live", ["d0", "main.d0", "Main.D0"])
def test_a_live_name_is_no_target_however_it_is_spelled(live: str) -> None:
    select = "SELECT id AS k FROM orders"
    said = r"derived table 'd0': its target, main.d0, is the live name of table 'items'"
    with pytest.raises(UsageError, match=said) as refused:
        check(select, lives={"items": live})
    with typed(refused.value) as hint:
        hint.says("name another target: derived.target")
        check(select, lives={"items": "other.d0"})
