"""What a transform needs of its upstream: the columns that it names, and conditions that others decide alike."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from config_builders import GOOD, Load

from backfill_cli.config.pushdown import left_out, wanted
from backfill_cli.config.sections import Transform
from backfill_cli.model.pushdown import Condition, Wanted
from backfill_cli.model.schema import field

COLUMNS = ("id", "a", "b", "c", "Big Name")


def read(select: list[str] | None, where: str | None = None) -> set[str]:
    need = wanted(Transform(select=select, where=where), ["id"])
    return {column for column in COLUMNS if need.needs(column)}


@pytest.mark.parametrize(
    ("select", "where", "columns"),
    [
        (None, None, set(COLUMNS)),
        (["*"], "a > 1", set(COLUMNS)),
        (["id", "A + 1 AS x"], None, {"id", "a"}),
        (["x"], None, {"id"}),
        (["id"], "a > 1 AND upper(B) = 'X'", {"id", "a", "b"}),
        (["id", "`big name` AS n"], None, {"id", "Big Name"}),
        (["* EXCEPT (a, B)"], None, {"id", "c", "Big Name"}),
        (["* EXCEPT (a, b)", "b * 2 AS twice"], None, {"id", "b", "c", "Big Name"}),
        (["* EXCEPT (a)"], "a > 1", set(COLUMNS)),
        (["* EXCEPT (c.a)"], None, set(COLUMNS)),
        (["id", "struct(*) AS all"], None, set(COLUMNS)),
        (["id", "transform(b, x -> x + c) AS l"], None, {"id", "b", "c"}),
        (["id", 'concat("a", b) AS l'], None, set(COLUMNS)),  # a setting makes "a" a column
    ],
)
def test_a_column_that_nothing_names_is_not_read(
    select: list[str] | None, where: str | None, columns: set[str]
) -> None:
    assert read(select, where) == columns


def test_columns_that_a_star_leaves_out_are_known() -> None:
    assert left_out(Transform(select=["* EXCEPT (a, B, c.d)", "a + 1 AS z"])) == {"a", "b"}


def conditions(where: str, **columns: str) -> list[tuple[Any, ...]]:
    need = wanted(Transform(where=where), ["id"])
    return [(one.column, one.op, *one.values) for one in need.fitting(field(n, k) for n, k in columns.items())]


@pytest.mark.parametrize(
    ("where", "kind", "found"),
    [
        ("A > 5", "short", [("a", ">", 5)]),
        ("5 >= a", "long", [("a", "<=", 5)]),
        ("NOT (a = -3)", "integer", [("a", "<>", -3)]),
        ("NOT (5 < a)", "integer", [("a", "<=", 5)]),
        (
            "a NOT IN (1, 2) AND (a BETWEEN 3 AND 4)",
            "byte",
            [("a", "NOT IN", 1, 2), ("a", ">=", 3), ("a", "<=", 4)],
        ),
        ("a IS NOT NULL", "double", [("a", "IS NOT NULL")]),
        ("a AND NOT a", "boolean", [("a", "=", True), ("a", "=", False)]),
        ("a >= '2026-06-01'", "date", [("a", ">=", date(2026, 6, 1))]),
        ("a >= '2026-06-01'", "timestamp", [("a", ">=", datetime(2026, 6, 1))]),
        (
            "a < TIMESTAMP '2026-06-01 10:00:00.5'",
            "timestamp",
            [("a", "<", datetime(2026, 6, 1, 10, 0, 0, 500000))],
        ),
        ("a <= 12.50", "decimal(12,2)", [("a", "<=", Decimal("12.50"))]),
        ("a IN ('x', 'y')", "string", [("a", "IN", "x", "y")]),
    ],
)
def test_what_others_decide_as_spark_does_is_told(where: str, kind: str, found: list[tuple[Any, ...]]) -> None:
    assert conditions(where, a=kind) == found


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("a > 5", "double"),  # NaN, -0.0
        ("a > 5", "string"),  # Spark casts each text
        ("a > 'x'", "string"),  # collations
        ("a = 'ä'", "string"),  # not every encoding has it
        ("a = 'it\\'s'", "string"),
        ('a = "b"', "string"),  # a setting makes "b" a column
        ("a > '5'", "integer"),
        ("a > 1.5", "integer"),
        ("a > 5e0", "integer"),
        ("a = 5L", "integer"),
        ("a = 99999999999999999999", "long"),
        ("a > 1", "decimal(38,38)"),  # Spark rounds
        ("a > '2026-02-30'", "date"),
        ("a > '2026-06-01 10:00:00'", "date"),
        ("a > '2026-06-01 10:00:00+02:00'", "timestamp"),
        ("a > 5 OR a < 1", "integer"),
        ("NOT (a > 5 AND a < 1)", "integer"),
        ("a NOT BETWEEN 1 AND 5", "integer"),
        ("a <=> 5", "integer"),
        ("a IN (1, NULL)", "integer"),
        ("a + 1 > 5", "integer"),
        ("a > b", "integer"),
        ("x.a > 5", "integer"),
        ("coalesce(a, 1) = 1", "integer"),
    ],
)
def test_what_others_could_decide_otherwise_is_left_to_spark(where: str, kind: str) -> None:
    assert conditions(where, a=kind, b="integer") == []


def test_a_collated_text_is_compared_by_spark_alone() -> None:
    column = {"name": "a", "type": "string", "metadata": {"__COLLATIONS": {"a": "spark.UTF8_LCASE"}}}
    need = Wanted(where=(Condition("a", "=", ("x",)), Condition("A", "IS NULL")))
    assert need.fitting([column]) == (Condition("a", "IS NULL"),)


@pytest.mark.parametrize(("setting", "count"), [("", 1), ('"spark.sql.legacy.castBinaryToString" = "true"', 0)])
def test_a_setting_by_which_spark_compares_otherwise_leaves_conditions_to_it(
    load_text: Load, setting: str, count: int
) -> None:
    config = load_text(f'{GOOD}[transform]\nwhere = "a > 5"\n[spark.conf]\n{setting}\n')
    (spec,) = config.table_specs()
    assert (len(spec.wanted.where), spec.filtered) == (count, True)
